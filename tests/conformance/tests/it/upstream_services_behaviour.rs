//! Behaviour of upstream's service controller without an upstream test: B1 to B11.
//! IDs: tests/conformance/README.md.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::json;
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error, Ingress, IpMode, LoadBalancerStatus, PortStatus, Protocol};

use skysail_test_conformance::world::{Cloud, S, World, pass};

use crate::upstream_services::{
    FINALIZER, calls, patch_node, times, touch, vanish_during_ensure, with_nodes, with_web,
};

const NONE: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn b1_a_new_service_is_reconciled_if_it_wants_a_load_balancer_or_needs_cleanup() {
    let world = with_nodes(&["a"]).await;
    world.add_service("plain", json!({ "type": "ClusterIP" })).await;
    world.add_service("others", json!({ "loadBalancerClass": "another.example/lb" })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), NONE);
    let object = json!({
        "metadata": { "name": "left", "finalizers": [FINALIZER] },
        "spec": { "type": "ClusterIP", "ports": [{ "port": 80 }] },
    });
    let object = serde_json::from_value(object).unwrap();
    world.as_user(world.services().create(&PostParams::default(), &object)).await;
    pass(60 * S).await;
    // Upstream trusts a `get` that finds nothing, and leaks what it missed.
    assert_eq!(calls(&world), ["get default/left", "ensure-deleted default/left"]);
    assert_eq!(world.state("left").await, "[] []");
}

/// Found by the simulation: a stale look-up, or one of a partly deleted load balancer, does not
/// prove that nothing is left.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_get_misses_is_deleted_with_its_service() {
    let world = with_web(&["a"]).await;
    world.fake().make_get_blind();
    world.delete_service("web").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert!(world.fake().cloud().is_empty());
}

#[tokio::test(start_paused = true)]
async fn b1_a_changed_service_is_reconciled_if_the_change_is_relevant() {
    let world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "metadata": { "labels": { "a": "b" } } })).await;
    world.patch_service("web", json!({ "spec": { "selector": { "a": "b" } } })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), NONE);
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a"]);
}

/// Upstream resyncs all Services every 30 s; only those in cleanup act on it, which shortens their
/// backoff. Here no resync happens: an unchanged Service causes no work, and a failing cleanup
/// keeps its backoff.
#[tokio::test(start_paused = true)]
async fn b1_an_unchanged_service_causes_no_calls_and_a_failing_cleanup_keeps_its_backoff() {
    let world = with_web(&["a"]).await;
    pass(Duration::from_hours(24)).await;
    assert_eq!(calls(&world), NONE);
    let times = times(&world, "get");
    world.fake().fail_always("get", Some(Error::new(Code::Unavailable, "the cloud is down")));
    world.delete_service("web").await;
    pass(Duration::from_mins(11)).await;
    let seconds: Vec<u128> = times.lock().unwrap().iter().map(|ms| ms / 1000).collect();
    assert_eq!(seconds, [0, 5, 15, 35, 75, 155, 315, 615]);
}

/// Upstream does not react to the deletion itself: after a manual removal of the finalizer the load
/// balancer leaks. Here the load balancer of the ledger entry is deleted.
#[tokio::test(start_paused = true)]
async fn b1_the_load_balancer_of_an_object_deleted_without_its_finalizer_is_deleted() {
    let world = with_nodes(&["a"]).await;
    vanish_during_ensure(&world, "web");
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    assert!(world.fake().cloud().is_empty());
}

fn elsewhere() -> Error {
    Error::new(Code::ImplementedElsewhere, "not ours")
}

#[tokio::test(start_paused = true)]
async fn b2_an_ensure_that_is_implemented_elsewhere_keeps_the_finalizer_and_leaves_the_status() {
    let mut world = with_nodes(&["a"]).await;
    world.fake().fail_always("ensure", Some(elsewhere()));
    world.add_service("web", json!({})).await;
    let services = world.services();
    pass(S).await;
    let theirs = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "198.51.100.7" }] } } });
    world.as_user(services.patch_status("web", &PatchParams::default(), &Patch::Merge(&theirs))).await;
    world.add_node("b").await;
    pass(60 * S).await;
    assert_eq!(
        calls(&world),
        ["ensure default/web ports=80/TCP nodes=a"],
        "no update: another controller sets the backends"
    );
    assert_eq!(world.state("web").await, format!(r#"["198.51.100.7"] ["{FINALIZER}"]"#));
    let events = world.transcript().await;
    assert!(events.contains("EnsuringLoadBalancer") && !events.contains("EnsuredLoadBalancer"), "{events}");
    assert!(!events.contains("Warning"), "{events}");
}

#[tokio::test(start_paused = true)]
async fn b2_an_update_that_is_implemented_elsewhere_is_no_failure_and_has_no_event() {
    let mut world = with_web(&["a"]).await;
    world.fake().fail_always("update", Some(elsewhere()));
    world.add_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a,b"]);
    assert!(!world.transcript().await.contains("event"));
}

#[tokio::test(start_paused = true)]
async fn b2_a_cleanup_that_is_implemented_elsewhere_removes_the_finalizer() {
    let world = with_web(&["a"]).await;
    world.fake().fail_always("ensure-deleted", Some(elsewhere()));
    world.delete_service("web").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert_eq!(world.state("web").await, "gone");
}

/// As upstream: without an object no other controller can handle the deletion, so the answer is a
/// failure.
#[tokio::test(start_paused = true)]
async fn b2_a_deletion_without_an_object_that_is_implemented_elsewhere_is_a_failure() {
    let mut world = with_nodes(&["a"]).await;
    vanish_during_ensure(&world, "web");
    world.fake().fail_next("ensure-deleted", elsewhere());
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    assert!(world.transcript().await.contains("event web Warning DeleteLoadBalancerFailed x1"));
    let expected =
        ["ensure default/web ports=80/TCP nodes=a", "ensure-deleted default/web", "ensure-deleted default/web"];
    assert_eq!(calls(&world), expected);
}

/// Upstream loses the type of the error and backs off exponentially instead.
#[rstest]
#[case::b3_retry_after_from_delete("ensure-deleted")]
#[case::b3_retry_after_from_get("get")]
#[tokio::test(start_paused = true)]
async fn a_retry_after_is_honoured_in_the_cleanup(#[case] operation: &'static str) {
    let world = with_web(&["a"]).await;
    let times = times(&world, operation);
    world.fake().fail_next(operation, Error::retry_after(42 * S, "draining"));
    world.fake().fail_next(operation, Error::retry_after(7 * S, "draining"));
    world.delete_service("web").await;
    pass(60 * S).await;
    assert_eq!(*times.lock().unwrap(), [0, 42_000, 49_000]);
    assert_eq!(world.state("web").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn b3_a_retry_after_between_two_plain_errors_does_not_reset_their_count() {
    let world = with_nodes(&["a"]).await;
    let times = times(&world, "ensure");
    let fake = world.fake();
    fake.fail_next("ensure", Error::new(Code::Unavailable, "busy"));
    fake.fail_next("ensure", Error::retry_after(42 * S, "being built"));
    fake.fail_next("ensure", Error::new(Code::Unavailable, "busy"));
    world.add_service("web", json!({})).await;
    pass(Duration::from_mins(10)).await;
    assert_eq!(*times.lock().unwrap(), [0, 5_000, 47_000, 57_000], "5 s, then 42 s, then 10 s");
}

fn answer(world: &World, ip_mode: Option<IpMode>, error: Option<&'static str>) {
    world.fake().answer_ensure(move |_| {
        let port = PortStatus { port: 80, protocol: Protocol::Tcp, error: error.map(str::to_owned) };
        let ingress = Ingress { ip: Some("192.0.2.1".to_owned()), ip_mode, ports: vec![port], ..Ingress::default() };
        LoadBalancerStatus { ingress: vec![ingress] }
    });
}

/// The contract has no answer without a status: upstream's null is an empty status here, and a load
/// balancer without an address is no error.
#[rstest]
#[case::b4_only_the_mode_differs(Some(IpMode::Proxy), None, 1)]
#[case::b4_only_the_error_of_a_port_differs(None, Some("MixedProtocolNotSupported"), 1)]
#[case::b4_a_mode_that_is_the_default_does_not_differ(Some(IpMode::Vip), None, 0)]
#[tokio::test(start_paused = true)]
async fn a_status_is_written_if_it_differs(
    #[case] ip_mode: Option<IpMode>,
    #[case] error: Option<&'static str>,
    #[case] patches: usize,
) {
    let mut world = with_nodes(&["a"]).await;
    answer(&world, None, None);
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    drop(world.transcript().await);
    answer(&world, ip_mode, error);
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(world.transcript().await.matches("api patch").count(), patches);
}

#[tokio::test(start_paused = true)]
async fn b5_a_get_that_fails_aborts_the_cleanup_and_the_finalizer_stays() {
    let mut world = with_web(&["a"]).await;
    world.fake().fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    world.delete_service("web").await;
    pass(Duration::from_mins(10)).await;
    assert!(calls(&world).iter().all(|call| call == "get default/web"));
    assert!(world.state("web").await.contains(FINALIZER));
    assert_eq!(world.fake().cloud().len(), 1);
    let events = world.transcript().await;
    assert!(events.contains("Warning SyncLoadBalancerFailed"), "{events}");
    assert!(events.contains("failed to check if load balancer exists before cleanup: the token expired"), "{events}");
    assert!(!events.contains("DeletedLoadBalancer"), "{events}");
}

/// Upstream calls `get` after a failed update; in the contract, `not-found` of the update means
/// that there is no load balancer.
#[tokio::test(start_paused = true)]
async fn b6_an_update_that_finds_no_load_balancer_is_followed_by_an_ensure() {
    let mut world = with_web(&["a"]).await;
    world.fake().lose_load_balancers();
    world.add_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a,b", "ensure default/web ports=80/TCP nodes=a,b"]);
    assert!(!world.transcript().await.contains("Warning"));
}

/// Upstream calls `ensure` instead. Here the update is repeated once with the new node set, after
/// the Service's backoff; a change of the Service ends the wait.
#[tokio::test(start_paused = true)]
async fn b6_a_failed_update_is_reported_and_repeated_with_the_current_nodes() {
    let mut world = with_web(&["a"]).await;
    world.fake().fail_always("update", Some(Error::new(Code::Unavailable, "busy")));
    world.add_node("b").await;
    pass(4 * S).await;
    let events = world.transcript().await;
    let text = "event web Warning UpdateLoadBalancerFailed x1: Error updating load balancer with new hosts [a, b] (2 in all): failed to update load balancer hosts: busy\n";
    assert!(events.contains(text), "{events}");
    world.add_node("c").await;
    pass(4 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a,b", "update default/web nodes=a,b,c"]);
    touch(&world, "web", "1").await;
    pass(S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a,b,c"], "an ensure also sets the backends");
    pass(Duration::from_mins(10)).await;
    assert_eq!(calls(&world), NONE);
}

/// A part that `update` needs was deleted, and only `ensure` creates it again.
#[tokio::test(start_paused = true)]
async fn b6_an_update_that_fails_twice_is_followed_by_an_ensure() {
    let world = with_web(&["a"]).await;
    world.fake().fail_always("update", Some(Error::new(Code::Internal, "the backend pool is missing")));
    let times = times(&world, "ensure");
    world.add_node("b").await;
    pass(Duration::from_mins(30)).await;
    let expected =
        ["update default/web nodes=a,b", "update default/web nodes=a,b", "ensure default/web ports=80/TCP nodes=a,b"];
    assert_eq!(calls(&world), expected);
    assert!(times.lock().unwrap()[0] < 20_000, "after the backoff of two failures");
}

/// A load balancer that can neither be updated nor ensured stays in use: both calls alternate, with
/// the backoff of the Service.
#[tokio::test(start_paused = true)]
async fn b6_if_the_ensure_fails_too_both_calls_alternate() {
    let world = with_web(&["a"]).await;
    for call in ["update", "ensure"] {
        world.fake().fail_always(call, Some(Error::new(Code::Internal, "broken")));
    }
    world.add_node("b").await;
    pass(Duration::from_mins(10)).await;
    let made: Vec<String> = calls(&world).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(made, ["update", "update", "ensure", "update", "ensure", "update", "ensure"]);
}

/// A change of the nodes retries an invalid Service at once; after another failure or a retry-after
/// the Service keeps its wait.
#[rstest]
#[case::b6_an_invalid_service_is_retried_when_the_nodes_change(Error::new(Code::Invalid, "no node in this subnet"), 2)]
#[case::b6_a_refusal_keeps_its_wait(Error::new(Code::Denied, "the token expired"), 1)]
#[case::b6_a_retry_after_keeps_its_wait(Error::retry_after(Duration::from_mins(2), "being built"), 1)]
#[tokio::test(start_paused = true)]
async fn nodes_change_while_a_service_waits(#[case] error: Error, #[case] ensures: usize) {
    let world = with_nodes(&["a"]).await;
    world.fake().fail_next("ensure", error);
    world.add_service("web", json!({})).await;
    pass(S).await;
    world.add_node("b").await;
    pass(30 * S).await;
    assert_eq!(calls(&world).len(), ensures);
}

/// At most twenty names, as upstream.
#[tokio::test(start_paused = true)]
async fn b6_the_event_of_a_failed_update_names_twenty_nodes() {
    let mut world = with_web(&[]).await;
    world.fake().fail_always("update", Some(Error::new(Code::Unavailable, "busy")));
    for n in 10..35 {
        world.add_node(&format!("n{n}")).await;
    }
    pass(4 * S).await;
    let events = world.transcript().await;
    assert!(events.contains("n28, n29, <5 more>] (25 in all)"), "{events}");
}

/// Replaces the object during `ensure` by another one of the same name, after removing its
/// finalizer.
fn recreate_during_ensure(world: &World) {
    let (services, first) = (world.services(), Arc::new(AtomicUsize::new(0)));
    world.fake().on_call(move |line| {
        let now = line.starts_with("ensure ") && first.fetch_add(1, Ordering::SeqCst) == 0;
        let services = services.clone();
        Box::pin(async move {
            if now {
                let patch = json!({ "metadata": { "finalizers": null } });
                services.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
                services.delete("web", &DeleteParams::default()).await.unwrap();
                let again = json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 81 }] } });
                services.create(&PostParams::default(), &serde_json::from_value(again).unwrap()).await.unwrap();
            }
        })
    });
}

#[tokio::test(start_paused = true)]
async fn b7_another_object_of_the_same_name_is_ensured_after_the_deletion_for_the_first() {
    let world = with_nodes(&["a"]).await;
    recreate_during_ensure(&world);
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    let expected = [
        "ensure default/web ports=80/TCP nodes=a",
        "ensure-deleted default/web",
        "ensure default/web ports=81/TCP nodes=a",
    ];
    assert_eq!(calls(&world), expected);
    assert_eq!(world.fake().cloud().len(), 1);
    assert!(world.state("web").await.contains("203.0.113."));
}

#[tokio::test(start_paused = true)]
async fn b7_while_the_deletion_for_the_first_object_fails_the_second_waits() {
    let mut world = with_nodes(&["a"]).await;
    recreate_during_ensure(&world);
    let down = || Error::new(Code::Unavailable, "the cloud is down");
    world.fake().fail_next("ensure-deleted", down());
    world.fake().fail_next("ensure-deleted", down());
    world.add_service("web", json!({})).await;
    pass(14 * S).await;
    let expected =
        ["ensure default/web ports=80/TCP nodes=a", "ensure-deleted default/web", "ensure-deleted default/web"];
    assert_eq!(calls(&world), expected);
    assert!(world.transcript().await.contains("Warning DeleteLoadBalancerFailed"));
    pass(10 * S).await;
    assert_eq!(calls(&world), ["ensure-deleted default/web", "ensure default/web ports=81/TCP nodes=a"]);
}

#[tokio::test(start_paused = true)]
async fn b8_without_an_eligible_node_ensure_is_called_with_a_warning_event() {
    let mut world = with_nodes(&[]).await;
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes="]);
    let events: Vec<String> = world.transcript().await.lines().filter_map(reason).collect();
    let expected = ["Normal EnsuringLoadBalancer", "Warning UnAvailableLoadBalancer", "Normal EnsuredLoadBalancer"];
    assert_eq!(events, expected);
}

fn reason(line: &str) -> Option<String> {
    let words: Vec<&str> = line.strip_prefix("event web ")?.split(' ').take(2).collect();
    Some(words.join(" "))
}

#[tokio::test(start_paused = true)]
async fn b8_when_the_last_eligible_node_leaves_update_is_called_with_a_warning_event() {
    let mut world = with_web(&["a"]).await;
    let labels = json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "true" });
    patch_node(&world, "a", json!({ "metadata": { "labels": labels } })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes="]);
    let events: Vec<String> = world.transcript().await.lines().filter_map(reason).collect();
    assert_eq!(events, ["Warning UnAvailableLoadBalancer"]);
}

/// Upstream deletes the load balancer although another controller owns it.
#[tokio::test(start_paused = true)]
async fn b9_a_deleted_service_with_another_class_and_the_finalizer_stays_unchanged() {
    let mut world = with_nodes(&["a"]).await;
    world.add_service("web", json!({ "loadBalancerClass": "another.example/lb" })).await;
    world.patch_service("web", json!({ "metadata": { "finalizers": [FINALIZER] } })).await;
    world.delete_service("web").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), NONE);
    assert_eq!(world.state("web").await, format!(r#"[] ["{FINALIZER}"]"#));
    assert!(!world.transcript().await.contains("api patch"));
}

/// Upstream silently ignores the Service until it is deleted. Here a user's change of the class is
/// distinguished from an operator's mistake: the load balancer is deleted, as in a running process.
#[tokio::test(start_paused = true)]
async fn b9_a_class_that_changed_while_the_process_was_down_deletes_the_load_balancer() {
    let mut world = with_web(&["a"]).await;
    world.stop.cancel();
    pass(S).await;
    world.forget();
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": "another.example/lb" });
    world.patch_service("web", json!({ "spec": spec })).await;
    let mut world = world.restart(|_| ()).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert!(!world.transcript().await.contains("Warning"), "no Event about an unclaimed load balancer");
    assert_eq!(world.state("web").await, "[] []");
    assert!(world.fake().cloud().is_empty());
}

/// Upstream runs the node sync and the sync of one Service concurrently.
#[tokio::test(start_paused = true)]
async fn b10_the_calls_of_one_service_never_overlap() {
    let mut world = World::new().set(|settings| settings.concurrent_service_syncs = 8);
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world = world.start().await;
    let (inside, most, lines) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&lines));
    world.fake().on_call(move |line| {
        let (inside, most, lines) = (Arc::clone(&counters.0), Arc::clone(&counters.1), Arc::clone(&counters.2));
        let of_web = line.contains("default/web");
        Box::pin(async move {
            if of_web {
                lines.fetch_add(1, Ordering::SeqCst);
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                pass(20 * S).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        })
    });
    world.add_service("web", json!({})).await;
    pass(S).await;
    touch(&world, "web", "1").await;
    world.add_node("b").await;
    pass(25 * S).await;
    world.delete_node("b").await;
    touch(&world, "web", "2").await;
    pass(5 * S).await;
    world.delete_service("web").await;
    pass(Duration::from_mins(5)).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(lines.load(Ordering::SeqCst) >= 4, "ensure, ensure, get, ensure-deleted");
    assert_eq!(world.state("web").await, "gone");
}

/// The type changed and changed back, with another provider's class, while the first provider
/// called all providers because the annotation was missing: it must not delete the load balancer
/// that the second one creates meanwhile.
#[tokio::test(start_paused = true)]
async fn b10_the_calls_of_two_providers_for_one_service_never_overlap() {
    let mut world =
        World::with(vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")]).start().await;
    world.add_service("web", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(S).await;
    world.stop.cancel();
    pass(S).await;
    world.forget();
    let unnamed = json!({ "metadata": { "annotations": { "skysail.dev/load-balancer-provider": null } } });
    world.patch_service("web", unnamed).await;
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await;
    world.clouds[0].fake.on_call(|_| Box::pin(pass(10 * S)));
    let world = world.restart(|_| ()).await;
    pass(S).await;
    drop(world.clouds[1].fake.take_calls());
    world
        .patch_service("web", json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "two.example/lb" } }))
        .await;
    pass(60 * S).await;
    let expected = ["get default/web", "ensure-deleted default/web", "ensure default/web ports=80/TCP nodes="];
    let of_services = |call: &String| !call.starts_with("describe");
    let made: Vec<String> = world.clouds[1].fake.take_calls().into_iter().filter(of_services).collect();
    assert_eq!(made, expected);
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);
    assert!(world.state("web").await.contains(FINALIZER));
}

/// Upstream may update a Service that is being deleted, and so create its cloud objects again
/// (kubernetes#80571).
#[tokio::test(start_paused = true)]
async fn b10_a_service_that_is_being_deleted_is_not_updated() {
    let world = with_web(&["a"]).await;
    world.fake().fail_always("ensure-deleted", Some(Error::new(Code::Unavailable, "busy")));
    world.delete_service("web").await;
    pass(S).await;
    drop(calls(&world));
    for node in ["b", "c", "d"] {
        world.add_node(node).await;
        touch(&world, "web", node).await;
        pass(60 * S).await;
    }
    let made = calls(&world);
    assert!(!made.is_empty() && made.iter().all(|call| !call.starts_with("update") && !call.starts_with("ensure ")));
}

/// Upstream's patch has no resource version: it may remove a finalizer that was added meanwhile.
#[tokio::test(start_paused = true)]
async fn b11_a_finalizer_that_another_client_adds_during_a_cleanup_is_kept() {
    let world = with_web(&["a"]).await;
    let services = world.services();
    world.fake().on_call(move |line| {
        let (deleting, services) = (line.starts_with("ensure-deleted"), services.clone());
        Box::pin(async move {
            if deleting {
                let patch = json!({ "metadata": { "finalizers": [FINALIZER, "example.com/other"] } });
                services.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            }
        })
    });
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    pass(10 * S).await;
    assert_eq!(world.state("web").await, r#"[] ["example.com/other"]"#);
}

/// The same when our finalizer is added: the first patch has an older resource version and is
/// rejected.
#[tokio::test(start_paused = true)]
async fn b11_a_finalizer_that_another_client_adds_before_ours_is_kept() {
    let world = with_nodes(&["a"]).await;
    let slow = |request: &RequestInfo| match (request.verb, request.subresource.as_str()) {
        ("patch", "status") => Fault::Latency(2 * S),
        _ => Fault::None,
    };
    world.server.set_faults(Some(Arc::new(slow)));
    let services = world.services();
    let object =
        json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    pass(S).await;
    let patch = json!({ "metadata": { "finalizers": ["example.com/other"] } });
    services.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    pass(20 * S).await;
    assert!(world.server.requests().recent().iter().any(|r| r.info.verb == "patch" && r.status.as_u16() == 409));
    assert_eq!(world.state("web").await, format!(r#"["203.0.113.1"] ["example.com/other", "{FINALIZER}"]"#));
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a"]);
}
