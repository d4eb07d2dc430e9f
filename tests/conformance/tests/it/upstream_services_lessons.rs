//! Past faults of upstream's service controller and of vendors' providers that must not happen
//! here.
//! Lessons: deploy/docs/lessons.md.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

use crate::upstream_services::{FINALIZER, calls, patch_node, touch, with_nodes, with_web};

const NONE: [&str; 0] = [];

/// Stops the manager and drops the ledger, as the end of the process does.
async fn end(world: &mut World) {
    world.stop.cancel();
    pass(S).await;
    world.forget();
}

/// Lesson 1: the finalizer is written before the first request to the cloud, so a later failure
/// leaks nothing.
#[tokio::test(start_paused = true)]
async fn the_finalizer_comes_before_the_first_call() {
    let world = with_nodes(&["a"]).await;
    let seen = Arc::<Mutex<Vec<Option<Vec<String>>>>>::default();
    let (services, log) = (world.services(), Arc::clone(&seen));
    world.fake().on_call(move |_| {
        let (services, log) = (services.clone(), Arc::clone(&log));
        Box::pin(async move {
            let object = services.get("web").await.unwrap();
            log.lock().unwrap().push(object.metadata.finalizers);
        })
    });
    world.add_service("web", json!({})).await;
    pass(S).await;
    assert_eq!(*seen.lock().unwrap(), [Some(vec![FINALIZER.to_owned()])]);
}

/// Lesson 1: deleted while no controller ran, and the ledger is lost.
#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_a_service_deleted_while_no_controller_ran_is_deleted() {
    let mut world = with_web(&["a"]).await;
    end(&mut world).await;
    world.delete_service("web").await;
    assert!(world.state("web").await.contains(FINALIZER));
    let world = world.restart(|_| ()).await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert_eq!(world.state("web").await, "gone");
    assert!(world.fake().cloud().is_empty());
}

/// Lesson 2: a start looks for Services with the finalizer that want no load balancer.
#[tokio::test(start_paused = true)]
async fn a_type_that_changed_while_no_controller_ran_is_cleaned_up() {
    let mut world = with_web(&["a"]).await;
    end(&mut world).await;
    world.patch_service("web", json!({ "spec": { "type": "NodePort" } })).await;
    let world = world.restart(|_| ()).await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert_eq!(world.state("web").await, "[] []");
}

/// Lesson 4: a user's apply removed the finalizer.
#[tokio::test(start_paused = true)]
async fn a_removed_finalizer_is_restored_without_a_call() {
    let world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "metadata": { "finalizers": null } })).await;
    pass(S).await;
    assert!(world.state("web").await.contains(FINALIZER));
    assert_eq!(calls(&world), NONE);
}

/// Lesson 5: the API server accepts no new finalizer on an object that is being deleted; the write
/// would be rejected for ever.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_deleted_gets_no_finalizer_and_no_load_balancer() {
    let mut world = with_web(&["a"]).await;
    end(&mut world).await;
    world.add_service("late", json!({})).await;
    world.patch_service("late", json!({ "metadata": { "finalizers": ["example.com/other"] } })).await;
    world.delete_service("late").await;
    let mut world = world.restart(|_| ()).await;
    pass(60 * S).await;
    assert!(calls(&world).iter().all(|call| !call.contains("late")));
    assert_eq!(world.state("late").await, r#"[] ["example.com/other"]"#);
    assert!(!world.transcript().await.contains("Warning"));
}

/// Lesson 6: the controller asks the cloud for the load balancer; it never infers it from the
/// status.
#[tokio::test(start_paused = true)]
async fn an_emptied_status_does_not_prevent_the_deletion_of_a_load_balancer() {
    let world = with_web(&["a"]).await;
    let empty = json!({ "status": { "loadBalancer": { "ingress": null } } });
    world.as_user(world.services().patch_status("web", &PatchParams::default(), &Patch::Merge(&empty))).await;
    world.delete_service("web").await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert!(world.fake().cloud().is_empty());
}

/// Lesson 7: whatever an `ensure` answers, the next call is an `ensure` and never a deletion.
#[tokio::test(start_paused = true)]
async fn an_ensure_that_fails_deletes_nothing() {
    let world = with_nodes(&["a"]).await;
    for code in Code::ALL {
        world.fake().fail_next("ensure", Error::new(code, "half of it is there"));
    }
    world.add_service("web", json!({})).await;
    for n in 0..Code::ALL.len() {
        touch(&world, "web", &n.to_string()).await;
        pass(Duration::from_mins(10)).await;
    }
    let made = calls(&world);
    assert!(
        made.len() >= Code::ALL.len() && made.iter().all(|call| call.starts_with("ensure default/web")),
        "{made:?}"
    );
    assert!(world.state("web").await.contains("203.0.113.1"));
}

/// Lesson 10: a partitioned control plane sees all nodes as not ready; lesson 12: flapping or
/// cordoned nodes cause no work.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_not_ready_or_cordoned_stay_without_a_call() {
    let world = with_web(&["a", "b"]).await;
    for ready in ["False", "Unknown", "True", "Unknown"] {
        for node in ["a", "b"] {
            world.heartbeat(node, ready).await;
            patch_node(&world, node, json!({ "spec": { "unschedulable": ready == "True" } })).await;
        }
        pass(60 * S).await;
    }
    assert_eq!(calls(&world), NONE);
    touch(&world, "web", "1").await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a,b"]);
}

/// Lesson 13: a provider ID that is set later causes an update, and a node without one is a backend
/// too.
#[tokio::test(start_paused = true)]
async fn a_node_without_a_provider_id_is_a_backend_and_its_id_causes_an_update() {
    let world = with_web(&["a"]).await;
    world.add_raw_node("b", json!({})).await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a,b"]);
    patch_node(&world, "b", json!({ "spec": { "providerID": "fake://b" } })).await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a,b"]);
}

/// Lesson 18: a provider that groups backends by zone is called when the zone is set later.
#[tokio::test(start_paused = true)]
async fn a_zone_that_is_set_later_causes_an_update() {
    let world = with_web(&["a"]).await;
    patch_node(&world, "a", json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": "z1" } } })).await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a"]);
}

/// Lesson 15: no call before both lists are complete, so no Service reports "no nodes" only because
/// the manager has just started.
#[tokio::test(start_paused = true)]
async fn at_the_start_each_service_is_ensured_once_with_all_nodes() {
    let world = World::new();
    let nodes = ["a", "b", "c"];
    world.fake().add_instances(nodes);
    for name in ["one", "two", "three"] {
        world.add_service(name, json!({})).await;
    }
    for node in nodes {
        world.add_node(node).await;
    }
    let mut world = world.start().await;
    pass(60 * S).await;
    let mut made = calls(&world);
    made.sort();
    assert_eq!(made, ["one", "three", "two"].map(|name| format!("ensure default/{name} ports=80/TCP nodes=a,b,c")));
    assert!(!world.transcript().await.contains("UnAvailableLoadBalancer"));
}

/// Lesson 21: a restart ensures each load balancer once, limited by the number of workers; if the
/// cloud has it already, nothing is written or changed.
#[tokio::test(start_paused = true)]
async fn a_restart_ensures_each_service_once_paced_by_the_workers_and_writes_nothing() {
    let mut world = World::new().set(|settings| settings.concurrent_service_syncs = 2).start().await;
    world.fake().add_instances(["a"]);
    world.add_node("a").await;
    for n in 0..20 {
        world.add_service(&format!("s{n}"), json!({})).await;
    }
    pass(60 * S).await;
    let cloud = world.fake().cloud();
    end(&mut world).await;
    drop((calls(&world), world.transcript().await));
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&inside), Arc::clone(&most));
    world.fake().on_call(move |line| {
        let (inside, most) = (Arc::clone(&counters.0), Arc::clone(&counters.1));
        let ensuring = line.starts_with("ensure ");
        Box::pin(async move {
            if ensuring {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                pass(S).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        })
    });
    let mut world = world.restart(|_| ()).await;
    pass(60 * S).await;
    let mut made = calls(&world);
    assert_eq!(made.len(), 20);
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 20, "each once");
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(world.fake().cloud(), cloud);
    assert!(!world.transcript().await.contains("api "));
}

/// Lesson 26: the Event has the provider's full message.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_failed_update_has_the_providers_message() {
    let mut world = with_web(&["a"]).await;
    world.fake().fail_next("update", Error::new(Code::Exhausted, "quota of 50 backends is used up in region r1"));
    world.add_node("b").await;
    pass(10 * S).await;
    let events = world.transcript().await;
    assert!(
        events.contains("failed to update load balancer hosts: quota of 50 backends is used up in region r1"),
        "{events}"
    );
}
