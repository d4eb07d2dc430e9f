//! Interfaces that a component exports and that its settings do not use: the cloud-config switches
//! them off, or the provider's spec leaves them out.

use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use skysail_controllers::Finding;
use skysail_provider::{Code, Error, Interface, OwnedLoadBalancer};
use skysail_test_conformance::world::{Cloud, S, World, pass};

const HOUR: Duration = Duration::from_hours(1);

fn off() -> Option<Error> {
    Some(Error::new(Code::Unsupported, "the cloud-config has no section [Routes]"))
}

/// The calls whose line begins like this.
fn calls(world: &World, start: &str) -> usize {
    world.fake().take_calls().iter().filter(|call| call.starts_with(start)).count()
}

#[tokio::test(start_paused = true)]
async fn routes_that_the_cloud_config_switches_off_are_idle_and_asked_for_slowly() {
    for watch_based in [false, true] {
        let world = World::routing(vec![Cloud::new("fake").default_of_all()])
            .set(|settings| settings.watch_based_routes = watch_based);
        world.add_routed("n1 10.0.1.1 10.120.0.0/24").await;
        world.fake().fail_always("list-routes", off());
        let mut world = world.start().await;
        pass(20 * S).await;
        expect![[r#"
            provider list-routes
            event kube-system Normal InterfaceNotConfigured x1: The settings of the provider fake do not configure routes, so Skysail does not use this interface: the cloud-config has no section [Routes]. It asks again under new settings, after a new release, and every 30 minutes
        "#]]
        .assert_eq(&world.transcript().await);
        pass(2 * HOUR).await;
        // Nothing but the slow question: no Event, no condition.
        expect![[r#"
            provider list-routes
            provider list-routes
            provider list-routes
            provider list-routes
        "#]]
        .assert_eq(&world.transcript().await);
        assert_eq!(world.network_unavailable("n1").await, "-");
        // Other settings or another release.
        world.fake().fail_always("list-routes", None);
        world.clouds[0].releases.send_replace(2);
        pass(20 * S).await;
        assert_eq!(world.network_unavailable("n1").await, "False RouteCreated", "{watch_based}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_configured_instances_no_node_is_touched() {
    let world = World::with(vec![Cloud::new("fake").default_of_all()]);
    world.fake().add_instances(["new"]);
    world.fake().fail_always("describe", off());
    world.add_new_node("new").await;
    world.add_node("gone").await;
    world.heartbeat("gone", "False").await;
    let mut world = world.start().await;
    pass(HOUR / 2 - 60 * S).await;
    expect![[r#"
        event kube-system Normal InterfaceNotConfigured x1: The settings of the provider fake do not configure instances, so Skysail does not use this interface: the cloud-config has no section [Routes]. It asks again under new settings, after a new release, and every 30 minutes
    "#]]
    .assert_eq(&without_calls(&world.transcript().await));
    // Each of the three passes may have begun with one question.
    assert!((1..=3).contains(&calls(&world, "describe")));
    pass(HOUR).await;
    assert_eq!(without_calls(&world.transcript().await), "");
    assert!(calls(&world, "describe") <= 6);
    world.fake().fail_always("describe", None);
    pass(HOUR).await;
    let node = world.node("new").await.unwrap();
    assert_eq!(node.spec.unwrap().provider_id.as_deref(), Some("fake://new"), "the slow question found it");
    assert!(world.node("gone").await.is_none());
}

fn without_calls(transcript: &str) -> String {
    transcript.lines().filter(|line| !line.starts_with("provider ")).map(|line| format!("{line}\n")).collect()
}

#[tokio::test(start_paused = true)]
async fn without_a_configured_inventory_there_are_no_orphans() {
    let world = World::with(vec![Cloud::new("fake").default_of_all()]).set(|settings| {
        settings.orphan_scan_period = 600 * S;
        settings.delete_orphans = true;
    });
    world.fake().leave_behind(OwnedLoadBalancer { name: "left".to_owned(), service: None });
    let mut world = world.start().await;
    // Two of the three scans that make an orphan.
    pass(1250 * S).await;
    world.fake().fail_always("list-owned", off());
    drop(world.transcript().await);
    pass(600 * S).await;
    expect![[r#"
        provider list-owned
        event kube-system Normal InterfaceNotConfigured x1: The settings of the provider fake do not configure load-balancer-inventory, so Skysail does not use this interface: the cloud-config has no section [Routes]. It asks again under new settings, after a new release, and every 30 minutes
    "#]]
    .assert_eq(&world.transcript().await);
    drop(world.fake().take_calls());
    pass(2 * HOUR).await;
    assert_eq!(without_calls(&world.transcript().await), "");
    let asked = calls(&world, "list-owned");
    assert!((1..=4).contains(&asked), "{asked} calls instead of 12");
    world.fake().fail_always("list-owned", None);
    pass(HOUR).await;
    assert_eq!(calls(&world, "delete-owned"), 1, "three scans after the inventory is configured");
}

#[tokio::test(start_paused = true)]
async fn a_service_of_a_provider_without_load_balancers_in_its_spec_is_not_touched() {
    let mut cloud = Cloud::new("fake").default_of_all();
    cloud.uses(&[Interface::Instances]);
    let mut world = World::with(vec![cloud]).start().await;
    world.add_service("web", json!({})).await;
    pass(HOUR).await;
    assert_eq!(world.state("web").await, "[] []");
    assert_eq!(without_calls(&world.transcript().await), "");
    assert_eq!(world.fake().cloud().len(), 0);
    world.edit(|clouds| clouds[0].uses(&[])).await;
    pass(10 * S).await;
    assert_eq!(world.fake().cloud().len(), 1);
    // A load balancer that exists is not left behind: it stays until its Service is deleted, and
    // then the finalizer waits for the interface.
    world.edit(|clouds| clouds[0].uses(&[Interface::Instances])).await;
    pass(HOUR).await;
    assert_eq!(world.fake().cloud().len(), 1);
    world.delete_service("web").await;
    pass(HOUR).await;
    assert_eq!(world.fake().cloud().len(), 0, "the fake still has the interface");
}

#[tokio::test(start_paused = true)]
async fn a_listed_interface_that_the_component_lacks_is_a_finding_until_it_has_it() {
    let mut cloud = Cloud::new("fake").default_of_all().without_routes();
    cloud.uses(&[Interface::Instances, Interface::Routes]);
    let mut world = World::with(vec![cloud]).start().await;
    pass(S).await;
    let finding = world.clouds[0].finding(Finding::InterfaceNotExported).unwrap();
    assert!(finding.contains("does not export interfaces that its spec.interfaces lists: routes"), "{finding}");
    assert!(world.transcript().await.contains("event kube-system Warning InterfaceNotExported x1"));
    world.edit(|clouds| clouds[0].uses(&[Interface::Instances])).await;
    pass(S).await;
    assert_eq!(world.clouds[0].finding(Finding::InterfaceNotExported), None);
}
