//! Tests of the topology labels of volumes.

use std::collections::BTreeMap;

use skysail_dev::cloud::NewVolume;
use skysail_provider::{Code, PersistentVolume, Provider as _};

use super::{CLUSTER, World};

fn volume(driver: &str, handle: &str) -> PersistentVolume {
    PersistentVolume {
        source: "csi".to_owned(),
        driver: driver.to_owned(),
        handle: handle.to_owned(),
        ..PersistentVolume::default()
    }
}

#[tokio::test]
async fn a_volume_is_labelled_with_the_zone_of_its_disk() {
    let world = World::new().await;
    let new =
        NewVolume { name: "data".to_owned(), zone: Some("zone-c".to_owned()), size_gib: 10, tags: BTreeMap::new() };
    let disk = world.cloud.create_volume(new).unwrap();
    let volumes = world.provider.persistent_volume_labels().unwrap();
    let labels = async |driver, handle| volumes.labels(&world.call, CLUSTER, &volume(driver, handle)).await;
    let driver = "simcloud.skysail.dev";
    let label = |key: &str, value: &str| (format!("topology.kubernetes.io/{key}"), value.to_owned());
    assert_eq!(labels(driver, &disk.id).await, Ok([label("zone", "zone-c"), label("region", "region-1")].into()));
    assert_eq!(world.requests(), [format!("GET /v1/volumes/{}", disk.id), "GET /v1/zones".to_owned()]);
    assert_eq!(labels(driver, "d-999").await.unwrap_err().code, Code::NotFound);
    assert_eq!(labels(driver, "").await.unwrap_err().code, Code::Invalid);
    world.requests();
    assert_eq!(labels("ebs.csi.aws.com", "d-999").await.unwrap_err().code, Code::Unsupported);
    assert_eq!(world.requests(), Vec::<String>::new(), "the volume of another driver must cause no request");
    world.cloud.expire_token();
    assert_eq!(
        labels(driver, &disk.id).await.unwrap_err().code,
        Code::Denied,
        "an expired token must not become not-found"
    );
}
