//! Several providers in one process, and the end of the process.

use std::{future::pending, time::Duration};

use expect_test::expect;
use serde_json::json;

use skysail_test_conformance::world::{Cloud, S, World, pass};

fn two() -> World {
    World::with(vec![
        Cloud::new("one").default_of_all().class("shared.example/lb"),
        Cloud::new("two").class("two.example/lb").class("shared.example/lb"),
    ])
}

/// Design 8: class and scheme decide; of two that claim a class the older provider has it; a
/// foreign class gets nothing.
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
    world.add_service("shared", json!({ "loadBalancerClass": "shared.example/lb" })).await;
    world
        .after(
            S,
            expect![[r#"
        api patch services/status shared
        provider one ensure default/shared ports=80/TCP nodes=a
        api patch services/status shared
        event shared Normal EnsuringLoadBalancer x1: Ensuring load balancer
        event shared Normal EnsuredLoadBalancer x1: Ensured load balancer
    "#]],
        )
        .await;
    world.add_service("foreign", json!({ "loadBalancerClass": "metallb.example/lb" })).await;
    world.after(60 * S, expect![[""]]).await;
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

/// A provider whose component comes late, or whose release was broken: nobody waits for the end of
/// a backoff when it serves.
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

/// Which schemes are its own is known from the release alone: until it serves, its nodes have no
/// owner. What serves must not lose its backends by that.
#[tokio::test(start_paused = true)]
async fn a_release_that_comes_late_takes_no_backends_away() {
    let world = World::new();
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world.add_node("b").await;
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    let mut world = world.restart(|clouds| clouds[0].fake.stop()).await;
    // It is tried, and fails.
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    pass(20 * S).await;
    drop(world.transcript().await);
    drop(world.fake().take_calls());
    world.fake().start();
    // Be it that the Service's own turn comes before anybody heard of the release,
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "c" } } })).await;
    pass(S / 2).await;
    // or that the release is heard of first.
    world.clouds[0].releases.send_replace(2);
    pass(5 * S).await;
    let calls = world.fake().take_calls();
    let of_web: Vec<_> = calls.iter().filter(|call| call.contains("web")).collect();
    assert!(!of_web.is_empty() && of_web.iter().all(|call| call.ends_with("nodes=a,b")), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_heard_of_before_any_service_takes_no_backends_away() {
    let world = World::new();
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world.add_node("b").await;
    world.fake().stop();
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(200 * S).await;
    drop(world.fake().take_calls());
    world.fake().start();
    world.clouds[0].releases.send_replace(2);
    pass(5 * S).await;
    let calls = world.fake().take_calls();
    let of_web: Vec<_> = calls.iter().filter(|call| call.contains("web")).collect();
    assert!(!of_web.is_empty() && of_web.iter().all(|call| call.ends_with("nodes=a,b")), "{calls:?}");
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

/// Two clouds, and a Service of a class of the second that is ensured.
async fn with_a_classy_service() -> World {
    let mut world =
        World::with(vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")]).start().await;
    world.add_service("classy", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(S).await;
    assert!(world.state("classy").await.contains("203.0.113.1"));
    drop(world.transcript().await);
    world
}

#[tokio::test(start_paused = true)]
async fn a_class_that_moves_takes_its_load_balancers_along() {
    let mut world = with_a_classy_service().await;
    let edit = |clouds: &mut Vec<Cloud>| {
        let class = clouds[1].give_up_class();
        clouds[0].claim_class(class);
    };
    world.edit(edit).await;
    world
        .after(
            5 * S,
            expect![[r#"
                provider two get default/classy
                provider two ensure-deleted default/classy
                api patch services/status classy
                api patch services/status classy
                api patch services/status classy
                provider one ensure default/classy ports=80/TCP nodes=
                api patch services/status classy
                event classy Normal DeletingLoadBalancer x1: Deleting load balancer
                event classy Normal DeletedLoadBalancer x1: Deleted load balancer
                event classy Normal EnsuringLoadBalancer x2: Ensuring load balancer
                event classy Warning UnAvailableLoadBalancer x2: There are no available nodes for LoadBalancer
                event classy Normal EnsuredLoadBalancer x2: Ensured load balancer
            "#]],
        )
        .await;
    world.delete_service("classy").await;
    world
        .after(
            5 * S,
            expect![[r#"
        provider one get default/classy
        provider one ensure-deleted default/classy
        api patch services/status classy
        api patch services/status classy
        event classy Normal DeletingLoadBalancer x2: Deleting load balancer
        event classy Normal DeletedLoadBalancer x2: Deleted load balancer
    "#]],
        )
        .await;
    assert_eq!(world.state("classy").await, "gone");
}

/// An operator's slip must not delete what serves; deleting the Service must work all the same.
#[tokio::test(start_paused = true)]
async fn a_class_that_nobody_claims_any_more_leaves_its_load_balancers_until_their_services_go() {
    let mut world = with_a_classy_service().await;
    world.edit(|clouds| drop(clouds[1].give_up_class())).await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: No provider claims the class "two.example/lb" any more. The load balancer stays as two made it and goes with this Service; to have it kept up to date, let a provider claim that again
    "#]]).await;
    world.delete_service("classy").await;
    world.after(5 * S, expect![[r#"
        provider two get default/classy
        provider two ensure-deleted default/classy
        api patch services/status classy
        api patch services/status classy
        event classy Warning UnclaimedLoadBalancer x2: No provider claims the class "two.example/lb" any more. The load balancer stays as two made it and goes with this Service; to have it kept up to date, let a provider claim that again
        event classy Normal DeletingLoadBalancer x1: Deleting load balancer
        event classy Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]]).await;
    assert_eq!(world.state("classy").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_left_is_named_where_it_is_missed_and_cleans_up_when_it_is_back() {
    let mut world = with_a_classy_service().await;
    let mut left = None;
    world.edit(|clouds| left = clouds.pop()).await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: The provider two made this Service's load balancer and is not there any more: nobody will delete it, and the finalizer keeps this Service. Give the provider two back, with the class "two.example/lb"; or delete the load balancer by hand, and then take service.kubernetes.io/load-balancer-cleanup out of metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
    world.delete_service("classy").await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x2: The provider two made this Service's load balancer and is not there any more: nobody will delete it, and the finalizer keeps this Service. Give the provider two back, with the class "two.example/lb"; or delete the load balancer by hand, and then take service.kubernetes.io/load-balancer-cleanup out of metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
    world.edit(|clouds| clouds.extend(left)).await;
    world
        .after(
            5 * S,
            expect![[r#"
        provider two get default/classy
        provider two ensure-deleted default/classy
        api patch services/status classy
        api patch services/status classy
        event classy Normal DeletingLoadBalancer x1: Deleting load balancer
        event classy Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]],
        )
        .await;
    assert_eq!(world.state("classy").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_from_a_provider_that_left_says_so() {
    let mut world = with_a_classy_service().await;
    let edit = |clouds: &mut Vec<Cloud>| {
        drop(clouds.pop());
        clouds[0].claim_class("two.example/lb".to_owned());
    };
    world.edit(edit).await;
    world.after(5 * S, expect![[r#"
        api patch services/status classy
        provider one ensure default/classy ports=80/TCP nodes=
        event classy Warning LoadBalancerLeftBehind x1: The provider two made this Service's load balancer and is not there any more; one takes the Service over. If one is another cloud, delete what two made by hand
        event classy Warning UnAvailableLoadBalancer x2: There are no available nodes for LoadBalancer
        event classy Normal EnsuredLoadBalancer x2: Ensured load balancer
    "#]]).await;
}

/// The object went while no manager ran, because somebody took the finalizer away.
#[tokio::test(start_paused = true)]
async fn what_a_service_left_behind_between_two_managers_is_deleted() {
    let world = with_a_classy_service().await;
    world.stop.cancel();
    pass(S).await;
    world.patch_service("classy", json!({ "metadata": { "finalizers": null } })).await;
    world.delete_service("classy").await;
    let mut world = world.restart(|_| ()).await;
    world
        .after(
            5 * S,
            expect![[r#"
        provider two ensure-deleted default/classy
        event classy Normal DeletingLoadBalancer x1: Deleting load balancer
        event classy Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]],
        )
        .await;
}

/// Nothing is remembered after a start, and the object does not say who set it: only a finalizer
/// that keeps a Service from going is worth a word.
#[tokio::test(start_paused = true)]
async fn a_finalizer_of_unknown_origin_is_explained_when_it_keeps_a_service() {
    let mut world = with_a_classy_service().await;
    world.forget();
    let annotations = json!({ "skysail.dev/load-balancer-provider": null });
    world.patch_service("classy", json!({ "metadata": { "annotations": annotations } })).await;
    let mut world = world.restart(|clouds| drop(clouds[1].give_up_class())).await;
    world.after(60 * S, expect![[""]]).await;
    world.delete_service("classy").await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: This Service is kept by a finalizer, and no provider here claims the class "two.example/lb". If another controller looks after it, wait for that one. If a provider of ours made its load balancer, let that provider claim it again; or delete the load balancer by hand, and then take service.kubernetes.io/load-balancer-cleanup out of metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
}
