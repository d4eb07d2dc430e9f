//! Deletions that the operator's budget of deletions holds back.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use serde_json::json;
use skysail_controllers::Finding;
use skysail_provider::{Error, OwnedLoadBalancer};

use skysail_test_conformance::{
    routes::routes,
    world::{Cloud, S, World, pass},
};

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
    assert!(finding.contains("deletions wait: of Services 1, such as default/web"), "{finding}");
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

/// The lines of the Events about held deletions since the last look.
async fn events(world: &mut World) -> Vec<String> {
    let text = world.transcript().await;
    text.lines().filter(|line| line.contains(" DeletionHeld ")).map(ToOwned::to_owned).collect()
}

fn destinations(world: &World) -> Vec<String> {
    let mut all: Vec<String> = world.fake().cloud_routes().into_iter().map(|route| route.destination_cidr).collect();
    all.sort();
    all
}

/// A world of which a route that leads to the node `n1`, and one that leads nowhere, cannot be
/// deleted, because the budget holds both back.
async fn held_routes() -> World {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    world.add_routed("n1 10.0.1.1 10.120.0.0/24").await;
    let world = world.start().await;
    pass(30 * S).await;
    world.fake().fail_always("delete-routes", Some(Error::deletion_held(WAIT, HELD)));
    let own = world.fake().cloud_routes().into_iter();
    world.fake().set_routes(own.chain(routes(&["n1 10.120.7.0/24", "gone 10.120.8.0/24"])).collect());
    pass(30 * S).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_held_deletion_of_a_route_is_reported_once_on_its_node_or_on_the_cluster() {
    let mut world = held_routes().await;
    pass(10 * MINUTE).await;
    let mut reported = events(&mut world).await;
    reported.sort();
    let remedy = "raise spec.deletionBudget of the Provider fake to delete the route earlier";
    let of = |object: &str, cidr: &str| {
        format!(
            "event {object} Warning DeletionHeld x1: A deletion is held back in the call that deletes the route {cidr}: {HELD}; {remedy}"
        )
    };
    assert_eq!(reported, [of("kube-system", "10.120.8.0/24"), of("n1", "10.120.7.0/24")]);
    assert!(metric(&world, r#"skysail_held_deletions{provider="fake"} 2"#));
    let finding = world.clouds[0].finding(Finding::DeletionsHeld).unwrap();
    assert!(finding.contains("deletions wait: of routes 2, such as 10.120.7.0/24"), "{finding}");
    world.fake().fail_always("delete-routes", None);
    pass(30 * S).await;
    assert_eq!(destinations(&world), ["10.120.0.0/24"]);
    assert!(metric(&world, r#"skysail_held_deletions{provider="fake"} 0"#));
    assert_eq!(world.clouds[0].finding(Finding::DeletionsHeld), None);
    assert_eq!(events(&mut world).await, Vec::<String>::new());
}

/// The provider's wait is that of the deletion.
#[tokio::test(start_paused = true)]
async fn a_new_node_gets_its_route_while_the_deletion_of_another_route_is_held_back() {
    let world = held_routes().await;
    world.add_routed("n2 10.0.2.1 10.120.1.0/24").await;
    pass(30 * S).await;
    assert!(destinations(&world).contains(&"10.120.1.0/24".to_owned()), "{:?}", destinations(&world));
    assert_eq!(world.network_unavailable("n2").await, "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_held_deletion_of_an_orphan_is_reported_once_and_ends_with_the_orphan() {
    let period = 10 * MINUTE;
    let world = World::new().set(|settings| {
        settings.orphan_scan_period = period;
        settings.delete_orphans = true;
    });
    let mut world = world.start().await;
    for name in ["lb-old", "lb-older"] {
        let service = ("default".to_owned(), "old".to_owned(), format!("uid of {name}"));
        world.fake().leave_behind(OwnedLoadBalancer { name: name.to_owned(), service: Some(service) });
    }
    world.fake().fail_always("delete-owned", Some(Error::deletion_held(WAIT, HELD)));
    pass(8 * period).await;
    let remedy = "raise spec.deletionBudget of the Provider fake to delete the load balancer earlier";
    let of = |name: &str| {
        format!(
            "event kube-system Warning DeletionHeld x1: The deletion of the orphaned load balancer {name} is held back: {HELD}; {remedy}"
        )
    };
    assert_eq!(events(&mut world).await, [of("lb-old"), of("lb-older")]);
    assert!(metric(&world, r#"skysail_held_deletions{provider="fake"} 2"#));
    let finding = world.clouds[0].finding(Finding::DeletionsHeld).unwrap();
    assert!(finding.contains("deletions wait: of orphaned load balancers 2, such as lb-old"), "{finding}");
    world.fake().fail_always("delete-owned", None);
    pass(2 * period).await;
    assert!(metric(&world, r#"skysail_held_deletions{provider="fake"} 0"#));
    assert_eq!(world.clouds[0].finding(Finding::DeletionsHeld), None);
}
