//! The service controller.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use skysail_provider::{Code, Error, Ingress, LoadBalancerStatus};

use skysail_test_conformance::world::{Cloud, S, World, pass};

use crate::upstream_services::calls;

async fn with_web() -> World {
    let mut world = World::new().start().await;
    world.fake().add_instances(["a", "b", "c", "d"]);
    world.add_node("a").await;
    world.add_node("b").await;
    pass(10 * S).await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(world.transcript().await);
    world
}

/// S12, E2: the kind of change decides.
#[tokio::test(start_paused = true)]
async fn changed_ports_are_ensured_and_changed_labels_are_not() {
    let mut world = with_web().await;
    world.patch_service("web", json!({ "metadata": { "labels": { "a": "b" } } })).await;
    world.after(60 * S, expect![[""]]).await;
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP" }] } })).await;
    world
        .after(
            10 * S,
            expect![[r#"
        provider ensure default/web ports=443/TCP nodes=a,b
        event web Normal EnsuredLoadBalancer x2: Ensured load balancer
    "#]],
        )
        .await;
}

/// Under load Events are written seconds after they were queued: an Event about a beginning is
/// dropped if the operation has ended by then.
#[tokio::test(start_paused = true)]
async fn an_event_about_a_beginning_is_written_unless_the_operation_has_ended() {
    let mut world = with_web().await;
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP" }] } })).await;
    world
        .after(
            10 * S,
            expect![[r#"
        provider ensure default/web ports=443/TCP nodes=a,b
        event web Normal EnsuredLoadBalancer x2: Ensured load balancer
    "#]],
        )
        .await;
    world.fake().on_call(|_| Box::pin(pass(S)));
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 80, "protocol": "TCP" }] } })).await;
    world
        .after(
            10 * S,
            expect![[r#"
                event web Normal EnsuringLoadBalancer x2: Ensuring load balancer
                event web Normal EnsuredLoadBalancer x3: Ensured load balancer
            "#]],
        )
        .await;
}

/// S3, S4, S5: only a changed node set causes work, and nodes that arrive together cause one
/// update.
#[tokio::test(start_paused = true)]
async fn added_and_deleted_nodes_cause_one_update_and_heartbeats_cause_none() {
    let mut world = with_web().await;
    world.add_node("c").await;
    pass(S).await;
    world.add_node("d").await;
    world
        .after(
            10 * S,
            expect![[r#"
        provider update default/web nodes=a,b,c,d
        event web Normal UpdatedLoadBalancer x1: Updated load balancer with new hosts
    "#]],
        )
        .await;
    for _ in 0..20 {
        world.heartbeat("a", "True").await;
        world.heartbeat("b", "False").await;
        world.heartbeat("b", "True").await;
    }
    world.after(60 * S, expect![[""]]).await;
    world.delete_node("a").await;
    world
        .after(
            10 * S,
            expect![[r#"
        provider update default/web nodes=b,c,d
        event web Normal UpdatedLoadBalancer x2: Updated load balancer with new hosts
    "#]],
        )
        .await;
}

/// S1.6, E2.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_type_deletes_the_load_balancer() {
    let mut world = with_web().await;
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    world
        .after(
            10 * S,
            expect![[r#"
        provider get default/web
        provider ensure-deleted default/web
        api patch services/status web
        event web Normal DeletingLoadBalancer x1: Deleting load balancer
        event web Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]],
        )
        .await;
    assert_eq!(world.state("web").await, "[] []");
    assert!(world.fake().cloud().is_empty());
}

/// S1.7: the object stays until its load balancer is deleted, and a retry-after also applies to the
/// deletion.
#[tokio::test(start_paused = true)]
async fn a_service_is_deleted_only_after_its_load_balancer() {
    let mut world = with_web().await;
    world.fake().fail_next("get", Error::new(Code::Denied, "the token expired"));
    world.fake().fail_next("ensure-deleted", Error::retry_after(42 * S, "still draining"));
    world.delete_service("web").await;
    world.after(10 * S, expect![[r#"
        provider get default/web
        event web Warning SyncLoadBalancerFailed x1: Error syncing load balancer: failed to check if load balancer exists before cleanup: the token expired
    "#]]).await;
    world
        .after(
            60 * S,
            expect![[r#"
        provider get default/web
        provider ensure-deleted default/web
        event web Normal DeletingLoadBalancer x1: Deleting load balancer
    "#]],
        )
        .await;
    assert!(world.state("web").await.contains("load-balancer-cleanup"));
    world
        .after(
            60 * S,
            expect![[r#"
        provider get default/web
        provider ensure-deleted default/web
        api patch services/status web
        api patch services/status web
        event web Normal DeletingLoadBalancer x2: Deleting load balancer
        event web Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]],
        )
        .await;
    assert_eq!(world.state("web").await, "gone");
}

/// S19.2: waits of 5 s, 10 s, 20 s; a change of the object ends the wait.
#[tokio::test(start_paused = true)]
async fn a_failing_ensure_backs_off_and_a_change_ends_the_backoff() {
    let mut world = with_web().await;
    world.fake().fail_always("ensure", Some(Error::new(Code::Unavailable, "the cloud is down")));
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "1" } } })).await;
    pass(36 * S).await;
    assert_eq!(world.transcript().await.matches("provider ensure").count(), 4, "at 0, 5, 15 and 35 s");
    world.fake().fail_always("ensure", None);
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "2" } } })).await;
    pass(S).await;
    assert_eq!(world.transcript().await.matches("provider ensure").count(), 1);
}

/// The author of the provider reads the Events of a user's cluster, and may not have the log.
#[tokio::test(start_paused = true)]
async fn the_text_and_the_place_of_a_panic_stand_in_the_event() {
    let mut world = with_web().await;
    let trap = "the guest trapped: panicked at src/load_balancers.rs:12:9: no zone; in acme::ensure";
    world.fake().fail_next("ensure", Error::new(Code::Trapped, trap));
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "1" } } })).await;
    pass(2 * S).await;
    let events = world.transcript().await;
    let expected = format!(
        "Warning SyncLoadBalancerFailed x1: Error syncing load balancer: failed to ensure load balancer: {trap}"
    );
    assert!(events.contains(&expected), "{events}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_valid_is_never_written() {
    let mut world = World::new().start().await;
    world.fake().answer_ensure(|_| LoadBalancerStatus {
        ingress: vec![Ingress { ip: Some("203.0.113.999".to_owned()), ..Ingress::default() }],
    });
    world.add_node("a").await;
    pass(5 * S).await;
    world.add_service("web", json!({})).await;
    world.after(4 * S, expect![[r#"
        api patch services/status web
        provider ensure default/web ports=80/TCP nodes=a
        event web Normal EnsuringLoadBalancer x1: Ensuring load balancer
        event web Warning SyncLoadBalancerFailed x1: Error syncing load balancer: failed to ensure load balancer: the provider's status is not valid: ingress[0]: "203.0.113.999" is not an IP address
    "#]]).await;
    assert_eq!(world.state("web").await, r#"[] ["service.kubernetes.io/load-balancer-cleanup"]"#);
}

/// Lesson 20 does not apply to a swap: each object is reconciled once, spread over time.
#[tokio::test(start_paused = true)]
async fn after_a_swap_each_service_is_ensured_once_and_not_all_at_once() {
    let mut world = with_web().await;
    for n in 0..9 {
        world.add_service(&format!("more-{n}"), json!({})).await;
    }
    pass(30 * S).await;
    drop(world.transcript().await);
    world.clouds[0].releases.send_replace(2);
    pass(Duration::from_millis(450)).await;
    let early = world.transcript().await.matches("provider ensure").count();
    pass(120 * S).await;
    let late = world.transcript().await.matches("provider ensure").count();
    assert_eq!((early, late), (5, 5));
}

/// Changes the type and changes it back: the API server empties the status, and the node ports
/// stay, so nothing else shows the change.
async fn flip_the_type(world: &World) {
    world.patch_service("web", json!({ "spec": { "type": "NodePort" } })).await;
    world.patch_service("web", json!({ "spec": { "type": "LoadBalancer" } })).await;
}

/// Lets calls whose line begins with `function` take five seconds.
pub(crate) fn slow(world: &World, function: &'static str) {
    world.fake().on_call(move |line| {
        let slow = line.starts_with(function);
        Box::pin(async move {
            if slow {
                pass(5 * S).await;
            }
        })
    });
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_emptied_while_an_update_is_in_flight_is_written_again() {
    let world = with_web().await;
    let before = world.state("web").await;
    slow(&world, "update");
    world.add_node("c").await;
    pass(4 * S).await;
    flip_the_type(&world).await;
    assert_ne!(world.state("web").await, before);
    pass(60 * S).await;
    assert_eq!(world.state("web").await, before);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_emptied_while_an_ensure_is_in_flight_is_written_again() {
    let world = with_web().await;
    let before = world.state("web").await;
    slow(&world, "ensure");
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    pass(2 * S).await;
    flip_the_type(&world).await;
    assert_ne!(world.state("web").await, before);
    pass(60 * S).await;
    assert_eq!(world.state("web").await, before);
}

/// A serving load balancer must not keep deleted nodes while the wanted one is refused or fails.
#[tokio::test(start_paused = true)]
async fn the_backends_of_a_refused_or_failing_service_are_still_updated() {
    let world = with_web().await;
    let ranges = "service.beta.kubernetes.io/load-balancer-source-ranges";
    world.patch_service("web", json!({ "metadata": { "annotations": { ranges: "everywhere" } } })).await;
    pass(10 * S).await;
    drop(calls(&world));
    world.delete_node("a").await;
    pass(10 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=b"]);

    world.patch_service("web", json!({ "metadata": { "annotations": { ranges: null } } })).await;
    pass(10 * S).await;
    for _ in 0..20 {
        world.fake().fail_next("ensure", Error::new(Code::Exhausted, "no quota"));
    }
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP" }] } })).await;
    pass(10 * S).await;
    drop(calls(&world));
    world.add_node("c").await;
    pass(10 * S).await;
    assert_eq!(calls(&world).first().map(String::as_str), Some("update default/web nodes=b,c"));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_changed_between_two_reconciles_is_ensured() {
    let world = World::with(vec![Cloud::new("fake").class("example.com/a").class("example.com/b")]).start().await;
    world.add_service("web", json!({ "loadBalancerClass": "example.com/a" })).await;
    pass(10 * S).await;
    drop(calls(&world));
    slow(&world, "ensure");
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    pass(2 * S).await;
    world.patch_service("web", json!({ "spec": { "type": "NodePort", "loadBalancerClass": null } })).await;
    let back = json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "example.com/b" } });
    world.patch_service("web", back).await;
    pass(60 * S).await;
    let ensured = calls(&world).into_iter().filter(|call| call.starts_with("ensure ")).count();
    assert_eq!(ensured, 2);
}
