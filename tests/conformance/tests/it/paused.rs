//! Pauses of a Service and of a provider: nothing changes in the cloud until the pause ends.

use std::time::Duration;

use expect_test::expect;
use kube::api::PostParams;
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use skysail_controllers::Finding;
use skysail_provider::OwnedLoadBalancer;

use skysail_test_conformance::world::{Cloud, S, World, pass};

const MINUTE: Duration = Duration::from_mins(1);

fn annotated(value: Value) -> Value {
    json!({ "metadata": { "annotations": { "skysail.dev/paused": value } } })
}

/// A world with a node, and with these Services and their load balancers.
async fn serving(names: &[&str]) -> World {
    let world = World::new().set(|settings| settings.drift_repair_period = 10 * MINUTE);
    world.add_node("a").await;
    let mut world = world.start().await;
    for name in names {
        world.add_service(name, json!({})).await;
    }
    pass(10 * S).await;
    drop(world.transcript().await);
    world
}

/// The calls that change something, and the Events without their counts and texts.
async fn happened(world: &mut World) -> String {
    let text = world.transcript().await;
    let lines = text.lines().filter(|line| !line.starts_with("provider describe "));
    let short = |line: &str| match line.strip_prefix("event ") {
        Some(event) => format!("event {}\n", event.split(' ').take(3).collect::<Vec<_>>().join(" ")),
        None => format!("{line}\n"),
    };
    lines.map(short).collect()
}

fn metric(world: &World, line: &str) -> bool {
    let mut text = String::new();
    assert!(encode(&mut text, &world.registry).is_ok());
    text.lines().any(|l| l == line)
}

async fn pause(world: &mut World, paused: bool) {
    world.edit(|clouds| clouds[0].pause(paused)).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_service_costs_no_call_until_the_annotation_is_removed() {
    let mut world = serving(&["web", "other"]).await;
    world.patch_service("web", annotated(json!("true"))).await;
    world
        .after(
            5 * S,
            expect![[r#"
                event web Normal Paused x1: The annotation skysail.dev/paused pauses this Service: Skysail neither makes, changes nor deletes its load balancer, and a deletion of the Service waits. To continue, remove the annotation: kubectl annotate service web --namespace default skysail.dev/paused-
            "#]],
        )
        .await;
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 1"#));
    let finding = world.clouds[0].finding(Finding::ServicesPaused).unwrap();
    assert!(finding.contains("pauses: 1, such as default/web."), "{finding}");

    // A change, another node, another release, drift repairs, another process.
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 81 }] } })).await;
    world.add_node("b").await;
    pass(30 * S).await;
    world.clouds[0].releases.send_modify(|release| *release += 1);
    pass(30 * MINUTE).await;
    let text = happened(&mut world).await;
    assert!(!text.contains(" web") && !text.contains("default/web"), "{text}");
    assert!(text.contains("default/other"), "the other Service is not affected: {text}");
    world.forget();
    let mut world = world.restart(|_| {}).await;
    pass(MINUTE).await;
    let text = happened(&mut world).await;
    assert!(!text.contains("default/web"), "{text}");
    assert_eq!(world.state("web").await, r#"["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]"#);

    world.patch_service("web", annotated(Value::Null)).await;
    pass(5 * S).await;
    expect![[r#"
        provider ensure default/web ports=81/TCP nodes=a,b
        event web Normal Resumed
        event web Normal EnsuredLoadBalancer
    "#]]
    .assert_eq(&happened(&mut world).await);
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 0"#));
    assert_eq!(world.clouds[0].finding(Finding::ServicesPaused), None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_the_end_of_the_pause() {
    let mut world = serving(&["web"]).await;
    world.patch_service("web", annotated(json!("true"))).await;
    world.delete_service("web").await;
    pass(Duration::from_hours(2)).await;
    expect![[r#"
        event web Normal Paused
    "#]]
    .assert_eq(&happened(&mut world).await);
    assert_eq!(world.state("web").await, r#"["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]"#);
    let explained = world.explainer.service("default", "web").unwrap();
    assert!(explained.paused.unwrap().contains("kubectl annotate service web --namespace default skysail.dev/paused-"));
    assert_eq!(explained.plan.step, "Paused");

    world.patch_service("web", annotated(Value::Null)).await;
    pass(5 * S).await;
    assert_eq!(world.state("web").await, "gone");
    assert!(world.fake().cloud().is_empty());
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn a_new_service_that_is_paused_gets_nothing_and_may_be_deleted() {
    let mut world = serving(&[]).await;
    let object = json!({
        "metadata": { "name": "web", "annotations": { "skysail.dev/paused": "true" } },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    });
    let services = world.services();
    let object = serde_json::from_value(object).unwrap();
    world.as_user(services.create(&PostParams::default(), &object)).await;
    pass(5 * S).await;
    assert_eq!(world.state("web").await, "[] []");
    world.delete_service("web").await;
    pass(5 * S).await;
    expect![[r#"
        event web Normal Paused
    "#]]
    .assert_eq(&happened(&mut world).await);
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_is_neither_true_nor_false_pauses_with_a_warning() {
    let mut world = serving(&["web"]).await;
    world.patch_service("web", annotated(json!("yes"))).await;
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 81 }] } })).await;
    world
        .after(
            5 * S,
            expect![[r#"
                event web Warning Paused x1: The annotation skysail.dev/paused is "yes", which is neither "true" nor "false", so Skysail treats this Service as paused: Skysail neither makes, changes nor deletes its load balancer, and a deletion of the Service waits. To continue, remove the annotation: kubectl annotate service web --namespace default skysail.dev/paused-
            "#]],
        )
        .await;
    world.patch_service("web", annotated(json!("false"))).await;
    pass(5 * S).await;
    expect![[r#"
        provider ensure default/web ports=81/TCP nodes=a
        event web Normal Resumed
        event web Normal EnsuredLoadBalancer
    "#]]
    .assert_eq(&happened(&mut world).await);
}

#[tokio::test(start_paused = true)]
async fn a_paused_provider_changes_no_load_balancer_and_one_service_can_be_let_through() {
    let mut world = serving(&["web", "other"]).await;
    pause(&mut world, true).await;
    world
        .after(
            5 * S,
            expect![[r#"
                event kube-system Normal Paused x1: The provider fake is paused (spec.paused): Skysail changes no load balancer and no route of it and deletes none of its nodes. To let one Service through: kubectl annotate service NAME --namespace NAMESPACE skysail.dev/paused=false. To continue with all, set spec.paused of the Provider fake to false
            "#]],
        )
        .await;
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 2"#));
    world.add_node("b").await;
    pass(30 * S).await;
    assert_eq!(happened(&mut world).await, "", "a new node causes no Event of each Service");
    for name in ["web", "other"] {
        world.patch_service(name, json!({ "spec": { "ports": [{ "port": 81 }] } })).await;
    }
    world.add_service("new", json!({})).await;
    pass(30 * MINUTE).await;
    expect![[r#"
        event web Normal Paused
        event other Normal Paused
        event new Normal Paused
    "#]]
    .assert_eq(&happened(&mut world).await);
    let paused = world.explainer.service("default", "web").unwrap().paused.unwrap();
    assert!(paused.contains("kubectl annotate service web --namespace default skysail.dev/paused=false"), "{paused}");

    world.patch_service("web", annotated(json!("false"))).await;
    pass(5 * S).await;
    expect![[r#"
        provider ensure default/web ports=81/TCP nodes=a,b
        event web Normal Resumed
        event web Normal EnsuredLoadBalancer
    "#]]
    .assert_eq(&happened(&mut world).await);
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 2"#), "the other and the new Service");

    pause(&mut world, false).await;
    pass(5 * S).await;
    expect![[r#"
        provider ensure default/new ports=80/TCP nodes=a,b
        provider ensure default/other ports=81/TCP nodes=a,b
    "#]]
    .assert_eq(
        &happened(&mut world)
            .await
            .lines()
            .filter(|l| l.starts_with("provider"))
            .fold(String::new(), |all, line| all + line + "\n"),
    );
    assert!(metric(&world, r#"skysail_paused_services{provider="fake"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_paused_at_the_start_of_the_manager_says_so_once() {
    let mut world = World::new();
    world.clouds[0].pause(true);
    world.add_node("a").await;
    world.add_service("web", json!({})).await;
    let mut world = world.start().await;
    pass(MINUTE).await;
    expect![[r#"
        event kube-system Normal Paused
        event web Normal Paused
    "#]]
    .assert_eq(&happened(&mut world).await);
    pause(&mut world, false).await;
    pass(5 * S).await;
    assert!(world.state("web").await.contains("203.0.113.1"));
    let text = happened(&mut world).await;
    assert!(text.contains("event kube-system Normal Resumed") && text.contains("event web Normal Resumed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_provider_initialises_nodes_and_deletes_none() {
    let mut world = World::new().set(|settings| settings.controllers.service = false);
    world.clouds[0].pause(true);
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    let mut world = world.start().await;
    world.add_new_node("b").await;
    pass(5 * S).await;
    assert!(world.node("b").await.unwrap().spec.unwrap().taints.is_none_or(|taints| taints.is_empty()));
    drop(world.transcript().await);
    world.fake().remove_instance("a");
    world.heartbeat("a", "Unknown").await;
    pass(10 * MINUTE).await;
    let text = world.transcript().await;
    let events: Vec<&str> = text.lines().filter(|line| line.starts_with("event")).collect();
    assert_eq!(
        events,
        [
            "event a Warning NodeDeletionHeld x1: The provider fake is paused (spec.paused), so Skysail keeps this node although its machine does not exist. To delete the node: kubectl delete node a"
        ]
    );
    assert!(world.node("a").await.is_some());
    pause(&mut world, false).await;
    pass(MINUTE).await;
    assert!(world.node("a").await.is_none(), "the machine is gone");
}

#[tokio::test(start_paused = true)]
async fn a_paused_provider_creates_and_deletes_no_route_and_its_nodes_say_whether_they_have_theirs() {
    let mut world = World::routing(vec![Cloud::new("fake").default_of_all()]).start().await;
    for line in ["a 10.0.0.1 10.120.0.0/24", "b 10.0.0.2 10.120.1.0/24"] {
        world.add_routed(line).await;
    }
    pass(30 * S).await;
    let before = world.routes();
    assert_eq!(before.len(), 2, "{before:?}");
    pause(&mut world, true).await;
    world.delete_node("a").await;
    world.add_routed("c 10.0.0.3 10.120.2.0/24").await;
    pass(10 * MINUTE).await;
    assert_eq!(world.routes(), before);
    assert_eq!(world.network_unavailable("b").await, "False RouteCreated");
    assert_eq!(world.network_unavailable("c").await, "True NoRouteCreated");
    pause(&mut world, false).await;
    pass(30 * S).await;
    let after = world.routes();
    assert!(after.len() == 2 && after.iter().all(|route| !route.contains("10.120.0.0")), "{after:?}");
    assert_eq!(world.network_unavailable("c").await, "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_paused_provider_reports_orphans_and_deletes_none() {
    let mut world = World::new()
        .set(|settings| {
            settings.orphan_scan_period = MINUTE;
            settings.delete_orphans = true;
        })
        .start()
        .await;
    pause(&mut world, true).await;
    let service = ("default".to_owned(), "old".to_owned(), "uid-1".to_owned());
    world.fake().leave_behind(OwnedLoadBalancer { name: "lb-old".to_owned(), service: Some(service) });
    pass(30 * MINUTE).await;
    let text = world.transcript().await;
    assert!(text.contains("OrphanedLoadBalancer") && !text.contains("delete-owned"), "{text}");
    pause(&mut world, false).await;
    pass(2 * MINUTE).await;
    assert!(world.transcript().await.contains("DeletedOrphanedLoadBalancer"));
}
