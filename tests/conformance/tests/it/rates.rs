//! Loops that an external client can keep running: each has a rate limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_test_conformance::world::{S, World, pass};
use tokio::{task::JoinSet, time::sleep};

use crate::upstream_services::{FINALIZER, calls, with_nodes, with_web};

/// How long the other controller undoes our writes.
const FIGHT: Duration = Duration::from_mins(10);
/// Repairs in ten minutes with pauses from 1 s on that double: at 0, 1, 3, 7, 15, ... 511 s; plus
/// the first write.
const REPAIRS_MAX: usize = 11;
/// Reaction time of the other controller.
const REACTION: Duration = Duration::from_millis(250);

/// Starts another controller that undoes one of our writes to the Service `web` as soon as it sees
/// it; returns its task and the number of its writes.
fn empty_always(world: &World, what: &'static str) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (services, count) = (world.services(), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&count);
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            sleep(REACTION).await;
            let object = services.get("web").await.unwrap();
            let (there, patch) = match what {
                "status" => {
                    let status = object.status.and_then(|status| status.load_balancer?.ingress);
                    (status.is_some(), json!({ "status": { "loadBalancer": { "ingress": null } } }))
                }
                "finalizer" => {
                    let ours = object.metadata.finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER));
                    (ours, json!({ "metadata": { "finalizers": null } }))
                }
                holder => {
                    let annotations = object.metadata.annotations.unwrap_or_default();
                    let ours = annotations.get(holder).is_some_and(|name| name == "fake");
                    (ours, json!({ "metadata": { "annotations": { holder: "another" } } }))
                }
            };
            if there {
                counter.fetch_add(1, Ordering::SeqCst);
                let patch = Patch::Merge(patch);
                services.patch_status("web", &PatchParams::default(), &patch).await.unwrap();
            }
        }
    });
    (task, count)
}

/// Without a rate limit 52 patches a second were seen, and no Event.
#[rstest]
#[case::status("status")]
#[case::finalizer("finalizer")]
#[case::holder("skysail.dev/load-balancer-provider")]
#[tokio::test(start_paused = true)]
async fn a_service_that_another_controller_empties_is_repaired_at_a_falling_rate(#[case] what: &'static str) {
    let mut world = with_web(&["a"]).await;
    let (task, count) = empty_always(&world, what);
    pass(FIGHT).await;
    drop(task);
    let repairs = count.load(Ordering::SeqCst);
    assert!((5..=REPAIRS_MAX).contains(&repairs), "{repairs}");
    assert_eq!(calls(&world), Vec::<String>::new());
    let transcript = world.transcript().await;
    assert_eq!(transcript.matches("Warning ServiceWriteConflict x1").count(), 1, "{transcript}");
    // The other controller has stopped, and the last repair follows.
    pass(Duration::from_mins(6)).await;
    assert!(world.state("web").await.contains("203.0.113.1") && world.state("web").await.contains(FINALIZER));
}

/// The backends of a Service whose status another controller undoes are updated without waiting for
/// the status.
#[tokio::test(start_paused = true)]
async fn the_backends_of_a_service_with_write_conflicts_are_still_updated() {
    let world = with_web(&["a"]).await;
    let (task, _) = empty_always(&world, "status");
    pass(FIGHT).await;
    world.add_node("b").await;
    pass(5 * S).await;
    drop(task);
    assert_eq!(calls(&world), ["update default/web nodes=a,b"]);
}

/// An admission policy refuses each write but the first, which adds the finalizer.
#[tokio::test(start_paused = true)]
async fn the_backends_of_a_service_whose_status_the_api_server_refuses_are_still_updated() {
    let mut world = with_nodes(&["a"]).await;
    let patches = AtomicUsize::new(0);
    world.disturb(move |request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("patch", "services") if patches.fetch_add(1, Ordering::SeqCst) > 0 => Fault::Refuse(forbidden()),
        _ => Fault::None,
    });
    world.add_service("web", json!({})).await;
    for name in ["b", "c"] {
        pass(Duration::from_mins(30)).await;
        calls(&world);
        world.add_node(name).await;
        pass(10 * S).await;
        let nodes = if name == "b" { "a,b" } else { "a,b,c" };
        assert_eq!(calls(&world), [format!("update default/web nodes={nodes}")]);
    }
    let transcript = world.transcript().await;
    let writes = transcript.matches("api patch services/status web").count();
    assert!((10..=30).contains(&writes), "{writes}");
    assert!(!transcript.contains("ServiceWriteConflict"), "no other controller writes");
}

fn forbidden() -> ApiError {
    ApiError::new(http::StatusCode::FORBIDDEN, "Forbidden", "a policy refuses the status")
}

/// A stalled watch shows an old version of the Service, so each write is rejected. Without a rate
/// limit 2,400 calls in five minutes were possible.
#[tokio::test(start_paused = true)]
async fn a_cleanup_whose_writes_are_refused_calls_the_cloud_once() {
    let mut world = with_web(&["a"]).await;
    world.disturb(|request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("patch", "services") => Fault::Refuse(conflict()),
        _ => Fault::None,
    });
    world.delete_service("web").await;
    pass(Duration::from_mins(5)).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    let tries = world.transcript().await.matches("api patch services").count();
    assert!((8..=40).contains(&tries), "{tries}");
    world.disturb(|_: &RequestInfo| Fault::None);
    pass(11 * S).await;
    assert_eq!(world.state("web").await, "gone");
    assert_eq!(calls(&world), Vec::<String>::new());
}

fn conflict() -> ApiError {
    ApiError::new(http::StatusCode::CONFLICT, "Conflict", "the object has been modified")
}

/// A manifest that has the finalizer although the Service has no load balancer.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_another_controller_adds_again_is_removed_at_a_falling_rate() {
    let mut world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    pass(S).await;
    calls(&world);
    let services = world.services();
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            sleep(REACTION).await;
            if services.get("web").await.unwrap().metadata.finalizers.is_none() {
                let patch = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
                services.patch("web", &PatchParams::default(), &patch).await.unwrap();
            }
        }
    });
    pass(FIGHT).await;
    drop(task);
    let deletions = calls(&world).iter().filter(|call| call.starts_with("ensure-deleted")).count();
    assert!((5..=REPAIRS_MAX).contains(&deletions), "{deletions}");
    let transcript = world.transcript().await;
    assert_eq!(transcript.matches("Warning ServiceWriteConflict x1").count(), 1, "{transcript}");
    pass(Duration::from_mins(9)).await;
    assert!(!world.state("web").await.contains(FINALIZER));
}

/// The same for a node that cannot be initialised: each try calls the cloud.
#[tokio::test(start_paused = true)]
async fn a_node_whose_writes_are_refused_is_described_at_a_falling_rate() {
    let world = World::new().start().await;
    world.fake().add_instances(["a"]);
    world.disturb(|request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("patch", "nodes") => Fault::Refuse(conflict()),
        _ => Fault::None,
    });
    world.add_new_node("a").await;
    pass(Duration::from_mins(4)).await;
    let described = world.fake().take_calls().iter().filter(|call| call.starts_with("describe")).count();
    assert!((8..=40).contains(&described), "{described}");
    world.disturb(|_: &RequestInfo| Fault::None);
    pass(11 * S).await;
    let taints = world.node("a").await.unwrap().spec.unwrap().taints.unwrap_or_default();
    assert!(taints.is_empty(), "{taints:?}");
}

/// A component on the node, or a script, that restores the taint each time.
#[tokio::test(start_paused = true)]
async fn a_taint_that_is_restored_each_time_is_removed_at_a_falling_rate() {
    let mut world = World::new().start().await;
    world.fake().add_instances(["a"]);
    world.add_new_node("a").await;
    pass(5 * S).await;
    drop(world.fake().take_calls());
    let nodes = world.nodes();
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            sleep(REACTION).await;
            let taint = json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" });
            if nodes.get("a").await.unwrap().spec.unwrap().taints.unwrap_or_default().is_empty() {
                let patch = Patch::Merge(json!({ "spec": { "taints": [taint] } }));
                nodes.patch("a", &PatchParams::default(), &patch).await.unwrap();
            }
        }
    });
    pass(Duration::from_mins(4)).await;
    drop(task);
    let described = world.fake().take_calls().iter().filter(|call| call.starts_with("describe")).count();
    assert!((5..=REPAIRS_MAX).contains(&described), "{described}");
    assert_eq!(world.transcript().await.matches("Warning NodeWriteConflict x1").count(), 1);
}
