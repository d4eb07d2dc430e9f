//! A worker whose call does not end makes no progress, which `/livez` reports; a worker whose many
//! calls end makes progress.

use std::{future::pending, time::Duration};

use rstest::rstest;
use serde_json::json;
use skysail_provider::OwnedLoadBalancer;

use skysail_test_conformance::world::{S, World, pass};

/// Calls whose line begins so do not end from now on.
fn hang(world: &World, line: &'static str) {
    world.fake().on_call(move |call| {
        let hangs = call.starts_with(line);
        Box::pin(async move {
            if hangs {
                pending::<()>().await;
            }
        })
    });
}

/// What the check says about the worker that began its call at most 5 s before now.
async fn stuck(world: &World) -> String {
    pass(174 * S).await;
    assert_eq!(world.progress.check(|_| Duration::ZERO), Ok(()));
    pass(12 * S).await;
    let error = world.progress.check(|_| Duration::ZERO).unwrap_err();
    error.split(" of the provider").next().unwrap().to_owned()
}

#[rstest]
#[case::a_service("ensure", "the Service default/web")]
#[case::the_initialisation_of_nodes("describe metadata", "the initialisation of nodes")]
#[case::routes("list-routes", "the routes")]
#[tokio::test(start_paused = true)]
async fn a_worker_whose_call_does_not_end_is_named(#[case] call: &'static str, #[case] worker: &str) {
    let world = World::new().set(|settings| {
        settings.configure_cloud_routes = true;
        settings.cluster_cidrs = vec!["10.244.0.0/16".parse().unwrap()];
    });
    hang(&world, call);
    let world = world.start().await;
    world.add_new_node("new").await;
    world.add_service("web", json!({})).await;
    assert_eq!(stuck(&world).await, worker);
}

/// The first pass asks about the nodes that are initialised already.
#[tokio::test(start_paused = true)]
async fn a_pass_over_addresses_that_does_not_end_is_named() {
    let world = World::new();
    world.add_node("old").await;
    hang(&world, "describe metadata");
    let world = world.start().await;
    assert_eq!(stuck(&world).await, "the update of nodes' addresses");
}

/// The lifecycle asks about nodes that are not ready. No second pass over addresses comes between.
#[tokio::test(start_paused = true)]
async fn a_pass_of_the_node_lifecycle_that_does_not_end_is_named() {
    let world = World::new().set(|settings| settings.node_status_update_frequency = 3600 * S);
    world.add_node("old").await;
    let world = world.start().await;
    hang(&world, "describe state");
    world.heartbeat("old", "False").await;
    assert_eq!(stuck(&world).await, "the node lifecycle");
}

#[tokio::test(start_paused = true)]
async fn a_scan_for_orphans_that_does_not_end_is_named() {
    let world = World::new().set(|settings| settings.orphan_scan_period = 60 * S);
    hang(&world, "list-owned");
    let world = world.start().await;
    pass(60 * S - S / 2).await;
    assert_eq!(stuck(&world).await, "the scan for orphaned load balancers");
}

/// Otherwise a cluster with many Services would restart a manager that works.
#[tokio::test(start_paused = true)]
async fn each_name_that_a_scan_for_orphans_asks_for_is_progress() {
    let world = World::new().set(|settings| settings.orphan_scan_period = 60 * S);
    let world = world.start().await;
    for number in 0..20 {
        world.add_service(&format!("web-{number}"), json!({})).await;
    }
    pass(10 * S).await;
    world.fake().leave_behind(OwnedLoadBalancer { name: "lb-old".to_owned(), service: None });
    world.fake().on_call(|_| Box::pin(pass(29 * S)));
    drop(world.fake().take_calls());
    for _ in 0..700 {
        pass(S).await;
        assert_eq!(world.progress.check(|_| 30 * S), Ok(()));
    }
    let names = world.fake().calls().iter().filter(|call| call.starts_with("name ")).count();
    assert!(names >= 20, "{names} names");
}
