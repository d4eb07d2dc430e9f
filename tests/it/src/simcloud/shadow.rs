//! Tests of the shadow phase and of the plan of a release with a cloud.

use skysail_host::slot::{Offer, Offered, ShadowStatus, Slot};
use skysail_provider::{Detail, Instances as _, LoadBalancerInventory, LoadBalancers as _, Routes};

use super::{CLUSTER, World, service};
use crate::{
    components::{built, marked},
    probes::{planned, shadowed},
};

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

/// The release before with another tag, by which it does not find its load balancers.
fn forgetful() -> Vec<u8> {
    let mut bytes = built("simcloud").to_vec();
    let (tag, other) = (b"skysail-cluster".as_slice(), b"skysail-clustex");
    let places: Vec<usize> = (0..bytes.len()).filter(|place| bytes[*place..].starts_with(tag)).collect();
    assert!(!places.is_empty(), "the component has no such tag");
    for place in places {
        bytes[place..place + tag.len()].copy_from_slice(other);
    }
    bytes
}

#[tokio::test]
async fn a_release_that_would_change_a_settled_load_balancer_is_refused_by_a_plan_and_changes_nothing() {
    let world = World::new().await;
    let slot = planned(world.sandbox.clone());
    assert_eq!(offer(&slot, 1).await, Offered::Activated);
    let nodes = world.nodes(&["a", "b"]).await;
    slot.ensure(&world.call, CLUSTER, &service("u"), &nodes).await.unwrap();
    // The same component again: nothing would change.
    assert_eq!(offer(&slot, 2).await, Offered::Activated);
    let ShadowStatus { asked, differing, .. } = slot.status().borrow().shadow.clone().unwrap();
    assert_eq!((asked, differing), (1, 0));
    let before = world.cloud.snapshot();
    world.requests();

    let refused = slot.offer(Offer { bytes: forgetful().into(), origin: "test".to_owned() }).await.unwrap_err();
    let text = refused.to_string();
    let reason = slot.status().borrow().refused.as_ref().map(|refusal| refusal.code);
    assert_eq!(reason, Some("PlanWrites"));
    assert!(text.contains("in 1 of 1 dry runs it would change the cloud") && text.contains("POST http"), "{text}");
    let requests = world.requests();
    assert!(!requests.is_empty() && requests.iter().all(|line| line.starts_with("GET ")), "{requests:?}");
    assert_eq!(world.cloud.snapshot(), before);
}
