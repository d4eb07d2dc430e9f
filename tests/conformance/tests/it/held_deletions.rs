//! Deletions that the operator's budget of deletions holds back.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use serde_json::json;
use skysail_controllers::Finding;
use skysail_provider::Error;

use skysail_test_conformance::world::{S, World, pass};

const MINUTE: Duration = Duration::from_mins(1);
const WAIT: Duration = Duration::from_mins(30);
const HELD: &str = "spec.deletionBudget of the Provider fake allows 2 requests that delete something in 1h";

fn metric(world: &World, line: &str) -> bool {
    let mut text = String::new();
    assert!(encode(&mut text, &world.registry).is_ok());
    text.lines().any(|l| l == line)
}

fn deletions(world: &World) -> usize {
    world.fake().calls().iter().filter(|call| call.starts_with("ensure-deleted")).count()
}

/// A Service whose deletion the budget has just held back.
async fn held() -> World {
    let world = World::new();
    world.add_node("a").await;
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    world.fake().fail_always("ensure-deleted", Some(Error::deletion_held(WAIT, HELD)));
    world.delete_service("web").await;
    pass(5 * S).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_held_deletion_is_no_failure_and_waits_until_the_window_has_room() {
    let mut world = held().await;
    let text = world.transcript().await;
    let events: Vec<_> = text.lines().filter(|line| line.contains(" DeletionHeld ")).collect();
    let command = "kubectl annotate service web --namespace default skysail.dev/allow-deletion=true";
    assert!(events.len() == 1 && events[0].contains(HELD) && events[0].ends_with(command), "{text}");
    assert!(events[0].starts_with("event web Warning "), "{events:?}");
    assert!(!text.contains("SyncLoadBalancerFailed"), "{text}");
    assert!(metric(&world, r#"skysail_held_deletions{provider="fake"} 1"#));
    let finding = world.clouds[0].finding(Finding::DeletionsHeld).unwrap();
    assert!(finding.contains("deletions of these Services wait: 1, such as default/web"), "{finding}");
    let explained = world.explainer.service("default", "web").unwrap().last_outcome.unwrap();
    assert!(format!("{explained:?}").contains(HELD), "{explained:?}");
    pass(WAIT - MINUTE).await;
    assert_eq!(deletions(&world), 1, "the call is repeated before the window has room");
    world.fake().fail_always("ensure-deleted", None);
    pass(2 * MINUTE).await;
    assert_eq!(world.state("web").await, "gone");
    assert!(metric(&world, r#"skysail_held_deletions{provider="fake"} 0"#));
    assert_eq!(world.clouds[0].finding(Finding::DeletionsHeld), None);
}

#[tokio::test(start_paused = true)]
async fn the_annotation_lets_the_service_through_at_once() {
    let world = held().await;
    world.fake().fail_always("ensure-deleted", None);
    pass(MINUTE).await;
    assert!(world.state("web").await.contains("load-balancer-cleanup"));
    let annotated = json!({ "metadata": { "annotations": { "skysail.dev/allow-deletion": "true" } } });
    world.patch_service("web", annotated).await;
    pass(MINUTE).await;
    assert_eq!(world.state("web").await, "gone");
    assert_eq!(deletions(&world), 2);
}

/// The annotation is no input of the provider.
#[tokio::test(start_paused = true)]
async fn the_annotation_alone_changes_nothing_in_the_cloud() {
    let mut world = World::new();
    world.add_node("a").await;
    world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    drop(world.fake().take_calls());
    let annotated = json!({ "metadata": { "annotations": { "skysail.dev/allow-deletion": "true" } } });
    world.patch_service("web", annotated).await;
    pass(MINUTE).await;
    assert_eq!(world.fake().calls(), Vec::<String>::new());
}
