//! What happens while a call is in flight, or while a key waits for its next try.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use skysail_controllers::Ending;
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{Cloud, S, World, pass};

use crate::{services::slow, upstream_services::calls};

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// A Service on two nodes.
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

/// Other ports are wanted, which is an `ensure`.
async fn want_https(world: &World) {
    world.patch_service("web", json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP" }] } })).await;
}

/// Its nodes come between two tries, and bringing them takes until after the second one was due.
#[tokio::test(start_paused = true)]
async fn an_ensure_that_comes_due_while_its_nodes_are_brought_is_tried_all_the_same() {
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

/// A Service that one provider had refused changes hands before its next try; what the other holds
/// is none of the first one's business.
#[tokio::test(start_paused = true)]
async fn a_key_that_waits_with_who_refused_it_is_handed_to_who_holds_it_by_then() {
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
    assert_eq!(world.clouds[0].fake.take_calls(), Vec::<String>::new(), "it has nothing to do with it any more");
    world.clouds[1].fake.fail_always("ensure-deleted", None);
    pass(600 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.state("web").await, "[] []");
}

/// A list of the past lacks a Service, as if it had been deleted by force.
#[tokio::test(start_paused = true)]
async fn a_service_that_a_list_of_the_past_lacks_keeps_its_load_balancer() {
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

/// The holder of a lease must not give it back while it cannot know what its calls still do.
#[tokio::test(start_paused = true)]
async fn an_end_says_whether_calls_had_to_be_cut_off() {
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

/// The nodes become others and again what they were, and what was brought in between was carried
/// out although its answer says that it failed.
#[tokio::test(start_paused = true)]
async fn an_update_that_failed_is_repeated_though_the_nodes_are_what_they_were_before_it() {
    let world = with_web().await;
    world.fake().fail_next("update", Error::new(Code::Unavailable, "the answer was lost"));
    world.delete_node("b").await;
    pass(3 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a"]);
    world.add_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world).last().map(String::as_str), Some("update default/web nodes=a,b"));
}

/// The deletion was carried out although its answer says that it failed, and then the Service is
/// wanted again, as it was.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_wanted_again_after_a_deletion_that_failed_is_ensured() {
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

/// The `update` of what serves fails again and again, and what is wanted now can be had.
#[tokio::test(start_paused = true)]
async fn an_update_that_keeps_failing_does_not_keep_the_ensure_waiting() {
    let world = with_web().await;
    world.fake().fail_next("ensure", Error::new(Code::Unavailable, "half done"));
    world.fake().fail_always("update", Some(Error::new(Code::Internal, "what it was is not there any more")));
    want_https(&world).await;
    pass(S).await;
    world.delete_node("b").await;
    pass(600 * S).await;
    assert_eq!(calls(&world).last().map(String::as_str), Some("ensure default/web ports=443/TCP nodes=a"));
}

/// A node goes while an `ensure` is in flight that fails and wants a long rest: what serves does
/// not keep it for as long.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_during_an_ensure_that_fails_does_not_stay_in_what_serves() {
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

/// The nodes were why it was refused: others are a reason to ask again, also where something serves
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn other_nodes_are_a_reason_to_ask_again_what_was_invalid() {
    let world = with_web().await;
    world.fake().fail_next("ensure", Error::new(Code::Invalid, "no node in this subnet"));
    want_https(&world).await;
    pass(S).await;
    drop(calls(&world));
    world.delete_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a", "ensure default/web ports=443/TCP nodes=a"]);
}

/// A Service that is refused since its turn of drift repair came hears of its nodes all the same.
#[tokio::test(start_paused = true)]
async fn a_refused_service_whose_drift_was_due_still_hears_of_its_nodes() {
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
