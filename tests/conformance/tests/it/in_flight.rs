//! Changes while a call is in flight, or while a key waits for its next try.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use skysail_controllers::Ending;
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error, OwnedLoadBalancer};

use skysail_test_conformance::world::{Cloud, S, World, pass};

use crate::{services::slow, upstream_services::calls};

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// A world with a Service on two nodes.
async fn with_web() -> World {
    let world = World::new().start().await;
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world.add_node("b").await;
    pass(10 * S).await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(calls(&world));
    world
}

/// Changes the ports, which requires an `ensure`.
async fn want_https(world: &World) {
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP" }] } })).await;
}

/// The nodes change between two tries, and the update takes until after the second try was due.
#[tokio::test(start_paused = true)]
async fn an_ensure_that_is_due_during_an_update_is_retried_after_it() {
    let world = with_web().await;
    world.fake().fail_next("ensure", Error::new(Code::Unavailable, "later"));
    want_https(&world).await;
    pass(3 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=443/TCP nodes=a,b"]);
    slow(&world, "update");
    world.delete_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a", "ensure default/web ports=443/TCP nodes=a"]);
}

/// A refused Service moves to another provider before its next try; the first provider is not
/// called for it any more.
#[tokio::test(start_paused = true)]
async fn a_waiting_key_of_a_moved_service_passes_to_its_present_provider() {
    let clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let world = World::with(clouds).start().await;
    world.add_service("web", json!({ "type": "ClusterIP" })).await;
    let refused =
        json!({ "metadata": { "annotations": { SOURCE_RANGES: "everywhere" } }, "spec": { "type": "LoadBalancer" } });
    world.patch_service("web", refused).await;
    pass(S).await;
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": "two.example/lb" });
    world.patch_service("web", json!({ "metadata": { "annotations": { SOURCE_RANGES: null } }, "spec": spec })).await;
    pass(S).await;
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);

    world.clouds[1].fake.fail_always("ensure-deleted", Some(Error::new(Code::Unavailable, "later")));
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await;
    pass(7200 * S).await;
    assert_eq!(world.clouds[0].fake.take_calls(), Vec::<String>::new(), "the first provider is not called any more");
    world.clouds[1].fake.fail_always("ensure-deleted", None);
    pass(600 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.state("web").await, "[] []");
}

/// A stale list lacks a Service, as if the Service had been deleted by force.
#[tokio::test(start_paused = true)]
async fn a_service_that_a_stale_list_lacks_keeps_its_load_balancer() {
    let world = with_web().await;
    let (watches, lists) = (AtomicBool::new(true), AtomicBool::new(true));
    world.disturb(move |request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("watch", "services") if watches.swap(false, Ordering::Relaxed) => Fault::ExpireWatch,
        ("list", "services") if lists.swap(false, Ordering::Relaxed) => Fault::StaleList(u64::MAX),
        _ => Fault::None,
    });
    world.server.end_watches();
    pass(600 * S).await;
    let calls = calls(&world);
    assert!(!calls.iter().any(|call| call.starts_with("ensure-deleted")), "{calls:?}");
    assert_eq!(world.fake().cloud().len(), 1);
}

/// A leader must not release its lease while the effect of its calls is unknown.
#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_whether_calls_had_to_be_cancelled() {
    for (takes, expected) in [(5, Ending::Clean), (3600, Ending::CutOff)] {
        let mut world = with_web().await;
        world.fake().on_call(move |_| Box::pin(pass(takes * S)));
        want_https(&world).await;
        pass(S).await;
        world.stop.cancel();
        let ending = world.running.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(ending, expected, "a call of {takes} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_look_up_of_many_pages_sends_no_further_page() {
    let world = World::with(vec![Cloud::new("fake").default_of_all()]);
    world.fake().describe_as(|info| info.page_nodes = 1);
    world.fake().on_call(|_| Box::pin(pass(S)));
    for number in 0..30 {
        let name = format!("n{number:02}");
        world.fake().add_instances([name.as_str()]);
        world.add_new_node(&name).await;
    }
    let mut world = world.start().await;
    pass(3 * S).await;
    drop(world.fake().take_calls());
    world.stop.cancel();
    let ending = world.running.join_next().await.unwrap().unwrap().unwrap();
    let calls = world.fake().take_calls();
    assert!(ending == Ending::Clean && calls.len() <= 2, "{ending:?} {calls:?}");
}

/// One orphan that stays makes each scan ask for the name of every Service.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_scan_for_orphans_asks_for_no_further_name() {
    let mut world = World::new().set(|settings| settings.orphan_scan_period = 600 * S).start().await;
    for number in 0..30 {
        world.add_service(&format!("s{number}"), json!({})).await;
    }
    let service = Some(("default".to_owned(), "old".to_owned(), "uid-1".to_owned()));
    world.fake().leave_behind(OwnedLoadBalancer { name: "lb-old".to_owned(), service: service.clone() });
    world.fake().leave_behind(OwnedLoadBalancer { name: "lb-older".to_owned(), service: None });
    pass(590 * S).await;
    let stop = world.stop.clone();
    let names = AtomicUsize::new(0);
    world.fake().on_call(move |line| {
        let is_second = line.starts_with("name") && names.fetch_add(1, Ordering::SeqCst) == 1;
        let stop = stop.clone();
        Box::pin(async move {
            if is_second {
                stop.cancel();
            }
            pass(S).await;
        })
    });
    drop(world.fake().take_calls());
    pass(60 * S).await;
    let ending = world.running.join_next().await.unwrap().unwrap().unwrap();
    let calls = world.fake().take_calls();
    let names = calls.iter().filter(|call| call.starts_with("name")).count();
    assert!(ending == Ending::Clean && names == 2, "{ending:?} {calls:?}");
}

/// A cloud that throttles an account answers `retry-after` to each call.
#[tokio::test(start_paused = true)]
async fn changes_of_the_nodes_do_not_end_the_wait_that_the_provider_asked_for() {
    let world = with_web().await;
    for method in ["ensure", "update"] {
        world.fake().fail_always(method, Some(Error::retry_after(1800 * S, "later")));
    }
    want_https(&world).await;
    pass(3 * S).await;
    world.delete_node("b").await;
    pass(60 * S).await;
    world.fake().add_instances(["c", "d"]);
    for name in ["c", "d"] {
        world.add_node(name).await;
        pass(60 * S).await;
    }
    let methods: Vec<_> = calls(&world).iter().filter_map(|call| Some(call.split_once(' ')?.0.to_owned())).collect();
    assert_eq!(methods, ["ensure", "update"]);
}

/// The nodes change and change back, and the update between was carried out although its answer was
/// an error.
#[tokio::test(start_paused = true)]
async fn a_failed_update_is_repeated_although_the_nodes_changed_back() {
    let world = with_web().await;
    world.fake().fail_next("update", Error::new(Code::Unavailable, "the answer was lost"));
    world.delete_node("b").await;
    pass(3 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a"]);
    world.add_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world).last().map(String::as_str), Some("update default/web nodes=a,b"));
}

/// The deletion was carried out although its answer was an error, and then the Service is wanted
/// again.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_wanted_again_after_a_failed_deletion_is_ensured() {
    let world = with_web().await;
    let fake = world.fake().clone();
    fake.on_call({
        let fake = fake.clone();
        move |line| {
            if line.starts_with("ensure-deleted") {
                fake.lose_load_balancers();
            }
            Box::pin(async {})
        }
    });
    fake.fail_next("ensure-deleted", Error::new(Code::Unavailable, "the answer was lost"));
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    pass(S).await;
    assert!(fake.cloud().is_empty());
    world.patch_service("web", json!({ "spec": { "type": "LoadBalancer" } })).await;
    pass(60 * S).await;
    assert_eq!(fake.cloud().len(), 1);
}

/// The `update` of the serving load balancer keeps failing, and the wanted one can be ensured.
#[tokio::test(start_paused = true)]
async fn an_update_that_keeps_failing_does_not_delay_the_ensure() {
    let world = with_web().await;
    world.fake().fail_next("ensure", Error::new(Code::Unavailable, "half done"));
    world.fake().fail_always("update", Some(Error::new(Code::Internal, "what it was is not there any more")));
    want_https(&world).await;
    pass(S).await;
    world.delete_node("b").await;
    pass(600 * S).await;
    assert_eq!(calls(&world).last().map(String::as_str), Some("ensure default/web ports=443/TCP nodes=a"));
}

/// A node is deleted while an `ensure` is in flight that fails with a long retry-after: the serving
/// load balancer is updated before.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_during_a_failing_ensure_leaves_the_serving_load_balancer() {
    let world = with_web().await;
    slow(&world, "ensure");
    let rest = Error::retry_after(1800 * S, "later");
    world.fake().fail_next("ensure", rest);
    want_https(&world).await;
    pass(S).await;
    world.delete_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=443/TCP nodes=a,b", "update default/web nodes=a"]);
}

/// The nodes were the reason of the refusal: a change of the nodes triggers a retry, also while an
/// earlier load balancer serves.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_nodes_retries_an_ensure_that_was_invalid() {
    let world = with_web().await;
    world.fake().fail_next("ensure", Error::new(Code::Invalid, "no node in this subnet"));
    want_https(&world).await;
    pass(S).await;
    drop(calls(&world));
    world.delete_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a", "ensure default/web ports=443/TCP nodes=a"]);
}

/// The backends of a refused Service are updated also after its turn of drift repair.
#[tokio::test(start_paused = true)]
async fn a_refused_service_with_due_drift_repair_is_still_updated() {
    let world = World::new().set(|settings| settings.drift_repair_period = 600 * S).start().await;
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world.add_node("b").await;
    pass(10 * S).await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    let annotations = json!({ SOURCE_RANGES: "everywhere" });
    world.patch_service("web", json!({ "metadata": { "annotations": annotations } })).await;
    pass(1300 * S).await;
    drop(calls(&world));
    world.delete_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a"]);
}
