//! Tests of the shadow phase with a cloud.

use skysail_host::slot::{Offer, Offered, ShadowStatus, Slot};
use skysail_provider::{Detail, Instances as _, LoadBalancerInventory, LoadBalancers as _, Routes};

use super::{CLUSTER, World, service};
use crate::{components::marked, probes::shadowed};

async fn offer(slot: &Slot, mark: u8) -> Offered {
    let bytes = marked("simcloud", mark).into();
    slot.offer(Offer { bytes, origin: "test".to_owned() }).await.unwrap()
}

#[tokio::test]
async fn a_shadow_repeats_all_reads_and_changes_nothing_in_the_cloud() {
    let world = World::new().await;
    let slot = shadowed(world.sandbox.clone());
    assert_eq!(offer(&slot, 1).await, Offered::Activated);
    let nodes = world.nodes(&["a", "b"]).await;
    let (call, web) = (&world.call, service("u"));
    slot.ensure(call, CLUSTER, &web, &nodes).await.unwrap();
    slot.get(call, CLUSTER, &web).await.unwrap().unwrap();
    slot.describe(call, &nodes, Detail::Metadata).await.unwrap();
    slot.describe(call, &nodes, Detail::State).await.unwrap();
    assert_eq!(Routes::list(&slot, call, CLUSTER).await.unwrap().len(), 0);
    assert_eq!(LoadBalancerInventory::list(&slot, call, CLUSTER).await.unwrap().len(), 1);
    let before = world.cloud.snapshot();
    world.requests();

    assert_eq!(offer(&slot, 2).await, Offered::Activated);
    let ShadowStatus { asked, unanswered, differing, differences, .. } = slot.status().borrow().shadow.clone().unwrap();
    assert_eq!((asked, unanswered, differing, differences), (5, 0, 0, Vec::new()));
    let requests = world.requests();
    for kind in ["elastic-ips", "virtual-servers", "instances", "routes"] {
        let count = requests.iter().filter(|line| **line == format!("GET /v1/{kind}")).count();
        assert!(count >= 2, "both are asked for {kind}: {requests:?}");
    }
    assert!(requests.iter().all(|line| line.starts_with("GET ")), "{requests:?}");
    assert_eq!(world.cloud.snapshot(), before);
}
