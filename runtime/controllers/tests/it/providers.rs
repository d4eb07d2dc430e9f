//! Several providers in one process, and the end of the process.

use std::{future::pending, time::Duration};

use expect_test::expect;
use serde_json::json;

use crate::world::{Cloud, S, World, pass};

fn two() -> World {
    World::with(vec![
        Cloud::new("one").default_of_all().class("shared.example/lb"),
        Cloud::new("two").class("two.example/lb").class("shared.example/lb"),
    ])
}

/// Design 8: class and scheme decide; what two claim gets an Event and nothing else; a stranger's class gets nothing.
#[tokio::test(start_paused = true)]
async fn each_object_goes_to_the_provider_that_owns_it() {
    let mut world = two();
    world.clouds[0].fake.add_instances(["a"]);
    world.clouds[1].fake.add_instances(["b"]);
    world.add_node("a").await;
    world.add_raw_node("b", json!({ "providerID": "two://b" })).await;
    world = world.start().await;
    drop(world.transcript().await);
    world.add_service("plain", json!({})).await;
    world
        .after(
            S,
            expect![[r#"
        api patch services/status plain
        provider one ensure default/plain ports=80/TCP nodes=a
        api patch services/status plain
        event plain Normal EnsuringLoadBalancer x1: Ensuring load balancer
        event plain Normal EnsuredLoadBalancer x1: Ensured load balancer
    "#]],
        )
        .await;
    world.add_service("classy", json!({ "loadBalancerClass": "two.example/lb" })).await;
    world
        .after(
            S,
            expect![[r#"
        api patch services/status classy
        provider two ensure default/classy ports=80/TCP nodes=b
        api patch services/status classy
        event classy Normal EnsuringLoadBalancer x1: Ensuring load balancer
        event classy Normal EnsuredLoadBalancer x1: Ensured load balancer
    "#]],
        )
        .await;
    world.add_service("torn", json!({ "loadBalancerClass": "shared.example/lb" })).await;
    world.add_service("strange", json!({ "loadBalancerClass": "metallb.example/lb" })).await;
    world.after(60 * S, expect![[r#"
        event torn Warning ProviderConflict x1: The providers one and two both claim this object, so neither acts. Give each classes, selectors and provider-ID schemes of its own
    "#]]).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_holds_up_its_own_objects_only() {
    let world = two().start().await;
    world.clouds[0].fake.on_call(|_| Box::pin(pending()));
    world.add_service("plain", json!({})).await;
    world.add_service("classy", json!({ "loadBalancerClass": "two.example/lb" })).await;
    world.add_new_node("n").await;
    pass(5 * S).await;
    assert_eq!(world.state("plain").await, r#"[] ["service.kubernetes.io/load-balancer-cleanup"]"#);
    assert!(world.state("classy").await.contains("203.0.113.1"));
}

/// A provider whose component comes late, or whose release was broken: nobody waits for the end of a backoff when it serves.
#[tokio::test(start_paused = true)]
async fn when_a_release_becomes_active_what_waits_for_it_goes_on() {
    let world = World::new();
    world.fake().stop();
    world.fake().add_instances(["n"]);
    let mut world = world.start().await;
    world.add_service("web", json!({})).await;
    world.add_new_node("n").await;
    pass(200 * S).await;
    assert_eq!(world.state("web").await, "[] []", "nothing is written for a provider that does not serve");
    assert!(world.transcript().await.contains("no release of the provider serves"));
    world.fake().start();
    world.clouds[0].releases.send_replace(2);
    pass(2 * S).await;
    assert!(world.state("web").await.contains("203.0.113.1"));
    assert_eq!(world.node("n").await.unwrap().spec.unwrap().provider_id.as_deref(), Some("fake://n"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_is_in_flight_and_starts_nothing() {
    let mut world = World::new().start().await;
    world.fake().on_call(|_| Box::pin(pass(3 * S)));
    world.add_service("web", json!({})).await;
    world.add_service("later", json!({})).await;
    pass(S).await;
    world.stop.cancel();
    world.running.join_next().await.unwrap().unwrap().unwrap();
    assert!(world.state("web").await.contains("203.0.113.1"), "the call in flight was ended, its answer written");
    assert_eq!(world.state("later").await, "[] []");
    assert!(world.transcript().await.contains("EnsuredLoadBalancer"), "and its Event");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_provider_that_hangs() {
    let mut world = World::new().start().await;
    world.fake().on_call(|_| Box::pin(pending()));
    world.add_service("web", json!({})).await;
    pass(S).await;
    let asked = tokio::time::Instant::now();
    world.stop.cancel();
    world.running.join_next().await.unwrap().unwrap().unwrap();
    assert!(asked.elapsed() <= Duration::from_secs(11), "{:?}", asked.elapsed());
}
