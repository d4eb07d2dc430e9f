//! The metrics of the work queues: client-go's names and meanings, while controllers run.

use std::future::pending;

use rstest::rstest;
use serde_json::json;
use skysail_controllers::EnabledControllers;
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

use crate::upstream_services::{touch, with_nodes, with_web};

/// The value of `workqueue_METRIC` for the queue of Services.
fn service(world: &World, metric: &str) -> String {
    let start = format!(r#"workqueue_{metric}{{name="service",provider="fake"}} "#);
    let lines = world.metrics(&start);
    let [line] = lines.as_slice() else { panic!("{metric}: {lines:?}") };
    line.replacen(&start, "", 1)
}

/// As upstream, the queue for routes has metrics only behind its feature gate, and a disabled
/// controller has none.
#[rstest]
#[case::all(EnabledControllers::default(), false, &["Nodes", "service"])]
#[case::with_the_gate(EnabledControllers::default(), true, &["Nodes", "Routes", "service"])]
#[case::without_services(EnabledControllers { service: false, ..EnabledControllers::default() }, false, &["Nodes"])]
#[case::without_nodes(EnabledControllers { cloud_node: false, ..EnabledControllers::default() }, false, &["service"])]
#[case::without_routes(EnabledControllers { route: false, ..EnabledControllers::default() }, true, &["Nodes", "service"])]
#[tokio::test(start_paused = true)]
async fn a_queue_is_shown_if_its_controller_runs(
    #[case] controllers: EnabledControllers,
    #[case] watch_based_routes: bool,
    #[case] names: &[&str],
) {
    let world = World::new().set(|settings| {
        settings.controllers = controllers;
        settings.configure_cloud_routes = true;
        settings.watch_based_routes = watch_based_routes;
    });
    let world = world.start().await;
    let shown: Vec<String> =
        names.iter().map(|name| format!(r#"workqueue_depth{{name="{name}",provider="fake"}} 0"#)).collect();
    pass(S).await;
    assert_eq!(world.metrics("workqueue_depth"), shown);
}

/// The metrics show the state at the scrape, without any activity of the queue.
#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_and_waiting_items_are_shown() {
    let world = with_nodes(&["a"]).await;
    world.fake().on_call(|line| match line.starts_with("ensure") {
        true => Box::pin(pending()),
        false => Box::pin(async {}),
    });
    world.add_service("one", json!({})).await;
    pass(10 * S).await;
    world.add_service("two", json!({})).await;
    pass(30 * S).await;
    assert_eq!(service(&world, "adds_total"), "2");
    assert_eq!(service(&world, "depth"), "1");
    assert_eq!(service(&world, "longest_running_processor_seconds"), "40.0");
    pass(60 * S).await;
    assert_eq!(service(&world, "longest_running_processor_seconds"), "100.0");
    assert_eq!(service(&world, "unfinished_work_seconds"), "100.0");
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_as_a_retry_and_a_success_does_not() {
    let world = with_web(&["a"]).await;
    let before = service(&world, "work_duration_seconds_count").parse::<u32>().unwrap();
    assert_eq!(service(&world, "retries_total"), "0");
    world.fake().fail_next("ensure", Error::new(Code::Unavailable, "later"));
    world.fake().fail_next("ensure", Error::retry_after(5 * S, "not yet"));
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(service(&world, "retries_total"), "2", "with and without a retry-after");
    assert_eq!(service(&world, "work_duration_seconds_count"), (before + 3).to_string());
    assert_eq!(service(&world, "depth"), "0");
}
