//! The cases of upstream's admission plugin `PersistentVolumeLabel`, and what differs here.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use skysail_provider::{Code, Error, fake::FakeProvider};

use super::{PersistentVolumeLabeler, Review, provider_volume};
use crate::providers::{ProviderEntry, Providers};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

fn labeler(fakes: &[&FakeProvider]) -> PersistentVolumeLabeler {
    let entry = |(index, fake): (usize, &&FakeProvider)| ProviderEntry {
        default: index == 0,
        ..ProviderEntry::new(format!("p{index}"), Arc::new((*fake).clone()))
    };
    let providers = Providers::new(fakes.iter().enumerate().map(entry).collect()).unwrap();
    PersistentVolumeLabeler::new(providers, "kubernetes".to_owned())
}

fn fake() -> FakeProvider {
    let fake = FakeProvider::new("fake");
    fake.add_volume("vol-1", [(ZONE, "z1"), (REGION, "r1")]);
    fake
}

fn volume(metadata: Value, spec: Value) -> PersistentVolume {
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn ebs(handle: &str) -> Value {
    json!({ "awsElasticBlockStore": { "volumeID": handle } })
}

/// The object after the review.
async fn reviewed(fake: &FakeProvider, object: &PersistentVolume) -> (Value, Vec<String>) {
    match labeler(&[fake]).review(object).await.unwrap() {
        Review::Changed { patch, warnings } => {
            let mut value = serde_json::to_value(object).unwrap();
            for operation in patch {
                let (path, new) = (operation["path"].as_str().unwrap(), operation["value"].clone());
                assert_eq!(operation["op"], "add");
                let (parent, member) = path.rsplit_once('/').unwrap();
                value.pointer_mut(parent).unwrap()[member] = new;
            }
            (value, warnings)
        }
        other => panic!("{other:?}"),
    }
}

fn terms(value: &Value) -> &Value {
    &value["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
}

fn is_in(key: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}

#[tokio::test]
async fn a_volume_gets_its_labels_and_the_matching_affinity() {
    let fake = fake();
    let (value, warnings) = reviewed(&fake, &volume(json!({ "name": "a" }), ebs("vol-1"))).await;
    assert_eq!(value["metadata"]["labels"], json!({ ZONE: "z1", REGION: "r1" }));
    assert_eq!(terms(&value), &json!([{ "matchExpressions": [is_in(REGION, &["r1"]), is_in(ZONE, &["z1"])] }]));
    assert!(warnings.is_empty());
    assert_eq!(fake.take_calls(), ["labels kubernetes a awsElasticBlockStore vol-1"]);
}

#[tokio::test]
async fn a_volume_in_several_zones_has_an_affinity_to_each_of_them() {
    let fake = FakeProvider::new("fake");
    fake.add_volume("vol-1", [("failure-domain.beta.kubernetes.io/zone", "z3__z1__z2")]);
    let (value, _) = reviewed(&fake, &volume(json!({ "name": "a" }), ebs("vol-1"))).await;
    let zones = is_in("failure-domain.beta.kubernetes.io/zone", &["z1", "z2", "z3"]);
    assert_eq!(terms(&value), &json!([{ "matchExpressions": [zones] }]));
}

#[tokio::test]
async fn present_labels_and_affinity_stay() {
    let fake = fake();
    let own =
        json!([{ "matchExpressions": [is_in("disk", &["ssd"])] }, { "matchExpressions": [is_in("disk", &["hdd"])] }]);
    let mut spec = ebs("vol-1");
    spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": own } });
    let metadata = json!({ "name": "a", "labels": { "app": "db", REGION: "r1" } });
    let (value, warnings) = reviewed(&fake, &volume(metadata, spec)).await;
    assert_eq!(value["metadata"]["labels"], json!({ "app": "db", ZONE: "z1", REGION: "r1" }));
    let [region, zone] = [is_in(REGION, &["r1"]), is_in(ZONE, &["z1"])];
    let both = json!([
        { "matchExpressions": [is_in("disk", &["ssd"]), region, zone] },
        { "matchExpressions": [is_in("disk", &["hdd"]), region, zone] },
    ]);
    assert_eq!((terms(&value), warnings.len()), (&both, 0));
}

#[tokio::test]
async fn a_present_affinity_with_the_same_keys_stays() {
    let mut spec = ebs("vol-1");
    let own = json!([{ "matchExpressions": [is_in(ZONE, &["z9"])] }]);
    spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": own } });
    let (value, _) = reviewed(&fake(), &volume(json!({ "name": "a" }), spec)).await;
    assert_eq!((terms(&value), &value["metadata"]["labels"][ZONE]), (&own, &json!("z1")));
}

/// Upstream replaced such a label: "they are in the kubernetes.io namespace, i.e. we own them".
#[tokio::test]
async fn a_different_present_label_stays_with_a_warning() {
    let metadata = json!({ "name": "a", "labels": { ZONE: "mine" } });
    let (value, warnings) = reviewed(&fake(), &volume(metadata, ebs("vol-1"))).await;
    assert_eq!(value["metadata"]["labels"], json!({ ZONE: "mine", REGION: "r1" }));
    assert_eq!(terms(&value), &json!([{ "matchExpressions": [is_in(REGION, &["r1"])] }]));
    assert_eq!(
        warnings,
        [format!("label {ZONE} stays \"mine\", but the cloud reports \"z1\"; correct the label if the cloud is right")]
    );
}

#[tokio::test]
async fn labels_of_a_provisioner_are_trusted_without_a_call() {
    let fake = fake();
    let by = json!({ "pv.kubernetes.io/provisioned-by": "ebs" });
    for keys in [[ZONE, REGION], ["failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"]]
    {
        let metadata = json!({ "name": "a", "annotations": by, "labels": { keys[0]: "z7", keys[1]: "r7" } });
        let (value, _) = reviewed(&fake, &volume(metadata, ebs("vol-1"))).await;
        let expressions = [is_in(keys[1], &["r7"]), is_in(keys[0], &["z7"])];
        assert_eq!(terms(&value), &json!([{ "matchExpressions": expressions }]));
    }
    assert_eq!(fake.take_calls(), Vec::<String>::new());
    // With one of the two, or made by hand, the cloud is asked.
    for metadata in [
        json!({ "name": "a", "annotations": by, "labels": { ZONE: "z1" } }),
        json!({ "name": "a", "labels": { ZONE: "z1", REGION: "r1" } }),
    ] {
        reviewed(&fake, &volume(metadata, ebs("vol-1"))).await;
        assert_eq!(fake.take_calls().len(), 1);
    }
}

#[tokio::test]
async fn no_provider_is_asked_about_a_volume_outside_of_a_cloud() {
    let fake = fake();
    for spec in [json!({ "nfs": { "server": "s", "path": "/" } }), json!({ "hostPath": { "path": "/" } }), json!({})] {
        let review = labeler(&[&fake]).review(&volume(json!({ "name": "a" }), spec)).await;
        assert_eq!(review, Ok(Review::Unchanged));
    }
    assert_eq!(fake.take_calls(), Vec::<String>::new());
}

#[tokio::test]
async fn the_scheme_of_the_handle_chooses_the_provider() {
    let (default, other) = (fake(), FakeProvider::new("aws"));
    other.add_volume("aws://z2/vol-1", [(ZONE, "z2")]);
    let labeler = labeler(&[&default, &other]);
    let review = labeler.review(&volume(json!({ "name": "a" }), ebs("aws://z2/vol-1"))).await.unwrap();
    assert!(matches!(review, Review::Changed { .. }));
    assert_eq!((default.take_calls().len(), other.take_calls().len()), (0, 1));
    labeler.review(&volume(json!({ "name": "a" }), ebs("vol-1"))).await.unwrap();
    assert_eq!((default.take_calls().len(), other.take_calls().len()), (1, 0));
}

#[tokio::test]
async fn the_error_code_decides_the_review() {
    let object = volume(json!({ "name": "a" }), ebs("vol-1"));
    for code in Code::ALL {
        let fake = fake();
        fake.fail_always("labels", Some(Error::new(code, "so it is")));
        let review = labeler(&[&fake]).review(&object).await;
        match code {
            Code::Unsupported | Code::ImplementedElsewhere => assert_eq!(review, Ok(Review::Unchanged)),
            Code::NotFound | Code::Invalid => assert_eq!(review, Ok(Review::Refused("so it is".to_owned()))),
            _ => assert_eq!(review.unwrap_err().code, code),
        }
    }
    let fake = fake();
    fake.stop();
    assert_eq!(labeler(&[&fake]).review(&object).await.unwrap_err().code, Code::NotServing);
}

#[tokio::test]
async fn labels_that_are_not_valid_change_nothing() {
    for (key, value) in [("no good", "v"), (ZONE, "a b"), ("k", "\u{1b}"), (ZONE, "z1__")] {
        let fake = FakeProvider::new("fake");
        fake.add_volume("vol-1", [(key, value)]);
        let error = labeler(&[&fake]).review(&volume(json!({ "name": "a" }), ebs("vol-1"))).await.unwrap_err();
        assert_eq!(error.code, Code::Internal, "{key:?} {value:?}");
    }
}

#[test]
fn a_provider_receives_source_driver_handle_and_attributes_of_a_volume() {
    let spec = json!({
        "storageClassName": "fast",
        "csi": { "driver": "d.example", "volumeHandle": "h", "fsType": "ext4", "volumeAttributes": { "pool": "p" }, "readOnly": true },
    });
    let found = provider_volume(&volume(json!({ "name": "a", "uid": "u", "labels": { "k": "v" } }), spec)).unwrap();
    assert_eq!((&*found.source, &*found.driver, &*found.handle), ("csi", "d.example", "h"));
    assert_eq!((&*found.name, &*found.uid, &*found.storage_class, &*found.labels["k"]), ("a", "u", "fast", "v"));
    let attributes: Vec<_> = found.attributes.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(attributes, [("fsType", "ext4"), ("readOnly", "true"), ("volumeAttributes.pool", "p")]);
    let flex = json!({ "flexVolume": { "driver": "f.example/x", "options": { "id": "7" } } });
    let found = provider_volume(&volume(json!({ "name": "a" }), flex)).unwrap();
    assert_eq!((&*found.driver, &*found.handle, &*found.attributes["options.id"]), ("f.example/x", "", "7"));
}
