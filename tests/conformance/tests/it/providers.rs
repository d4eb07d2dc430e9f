//! Several providers in one process, and the shutdown of the process.

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

/// Class and scheme decide; of two providers that claim a class the older one has it; a Service
/// with a foreign class is ignored.
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
async fn a_provider_that_hangs_delays_only_its_own_objects() {
    let world = two().start().await;
    world.clouds[0].fake.on_call(|_| Box::pin(pending()));
    world.add_service("plain", json!({})).await;
    world.add_service("classy", json!({ "loadBalancerClass": "two.example/lb" })).await;
    world.add_new_node("n").await;
    pass(5 * S).await;
    assert_eq!(world.state("plain").await, r#"[] ["service.kubernetes.io/load-balancer-cleanup"]"#);
    assert!(world.state("classy").await.contains("203.0.113.1"));
}

/// A provider whose component loads late or whose release was broken: its objects do not wait for
/// the end of their backoff.
#[tokio::test(start_paused = true)]
async fn a_release_that_becomes_active_ends_the_backoff_of_its_objects() {
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

/// The schemes of the provider are known only from its release: until it serves, its nodes have no
/// owner. The load balancers must not lose their backends.
#[tokio::test(start_paused = true)]
async fn a_release_that_loads_late_removes_no_backends() {
    let world = World::new();
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world.add_node("b").await;
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    let mut world = world.restart(|clouds| clouds[0].fake.stop()).await;
    // A try fails.
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    pass(20 * S).await;
    drop(world.transcript().await);
    drop(world.fake().take_calls());
    world.fake().start();
    // Either the Service runs before the signal of the release,
    world.patch_service("web", json!({ "metadata": { "annotations": { "a": "c" } } })).await;
    pass(S / 2).await;
    // or the signal comes first.
    world.clouds[0].releases.send_replace(2);
    pass(5 * S).await;
    let calls = world.fake().take_calls();
    let of_web: Vec<_> = calls.iter().filter(|call| call.contains("web")).collect();
    assert!(!of_web.is_empty() && of_web.iter().all(|call| call.ends_with("nodes=a,b")), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn the_signal_of_a_release_before_any_service_runs_removes_no_backends() {
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
async fn a_shutdown_waits_for_running_calls_and_starts_no_others() {
    let mut world = World::new().start().await;
    world.fake().on_call(|_| Box::pin(pass(3 * S)));
    world.add_service("web", json!({})).await;
    world.add_service("later", json!({})).await;
    pass(S).await;
    world.stop.cancel();
    world.running.join_next().await.unwrap().unwrap().unwrap();
    assert!(world.state("web").await.contains("203.0.113.1"), "the running call ended and its answer was written");
    assert_eq!(world.state("later").await, "[] []");
    assert!(world.transcript().await.contains("EnsuredLoadBalancer"), "the Event was written");
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

/// Two clouds, and an ensured Service with a class of the second.
pub(crate) async fn with_a_classy_service() -> World {
    let mut world =
        World::with(vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")]).start().await;
    world.add_service("classy", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(S).await;
    assert!(world.state("classy").await.contains("203.0.113.1"));
    drop(world.transcript().await);
    world
}

#[tokio::test(start_paused = true)]
async fn the_load_balancers_of_a_class_move_with_it_to_another_provider() {
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

/// An operator's mistake must not delete a serving load balancer; deleting the Service must still
/// work.
#[tokio::test(start_paused = true)]
async fn a_class_without_a_claim_keeps_its_load_balancers_until_their_services_are_deleted() {
    let mut world = with_a_classy_service().await;
    world.edit(|clouds| drop(clouds[1].give_up_class())).await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: No provider claims the class "two.example/lb" any more. The load balancer of two stays without updates until this Service is deleted; to have it updated, let a provider claim the class "two.example/lb" again
    "#]]).await;
    world.delete_service("classy").await;
    world.after(5 * S, expect![[r#"
        provider two get default/classy
        provider two ensure-deleted default/classy
        api patch services/status classy
        api patch services/status classy
        event classy Warning UnclaimedLoadBalancer x2: No provider claims the class "two.example/lb" any more. The load balancer of two stays without updates until this Service is deleted; to have it updated, let a provider claim the class "two.example/lb" again
        event classy Normal DeletingLoadBalancer x1: Deleting load balancer
        event classy Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]]).await;
    assert_eq!(world.state("classy").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn an_event_names_a_removed_provider_which_cleans_up_when_it_is_added_again() {
    let mut world = with_a_classy_service().await;
    let mut left = None;
    world.edit(|clouds| left = clouds.pop()).await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: This Service's load balancer belongs to the provider two, which is removed, so Skysail cannot delete it, and the finalizer stays on the Service. Add the provider two again, with the class "two.example/lb"; or delete the load balancer by hand, and then remove service.kubernetes.io/load-balancer-cleanup from metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
    world.delete_service("classy").await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x2: This Service's load balancer belongs to the provider two, which is removed, so Skysail cannot delete it, and the finalizer stays on the Service. Add the provider two again, with the class "two.example/lb"; or delete the load balancer by hand, and then remove service.kubernetes.io/load-balancer-cleanup from metadata.finalizers: kubectl edit service classy --namespace default
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
async fn an_event_reports_the_takeover_from_a_removed_provider() {
    let mut world = with_a_classy_service().await;
    let edit = |clouds: &mut Vec<Cloud>| {
        drop(clouds.pop());
        clouds[0].claim_class("two.example/lb".to_owned());
    };
    world.edit(edit).await;
    world.after(5 * S, expect![[r#"
        api patch services/status classy
        provider one ensure default/classy ports=80/TCP nodes=
        event classy Warning LoadBalancerLeftBehind x1: The provider one takes over this Service, because the provider two, which made its load balancer, is removed. If one is another cloud, delete the load balancer of two by hand
        event classy Warning UnAvailableLoadBalancer x2: There are no available nodes for LoadBalancer
        event classy Normal EnsuredLoadBalancer x2: Ensured load balancer
    "#]]).await;
}

/// The object was deleted while no manager ran, because a user removed the finalizer.
#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_a_service_deleted_between_two_managers_is_deleted() {
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

/// After a start neither the ledger nor the object names the provider: an Event explains the
/// finalizer only if it delays the deletion of a Service.
#[tokio::test(start_paused = true)]
async fn a_finalizer_of_unknown_origin_is_explained_when_it_delays_a_deletion() {
    let mut world = with_a_classy_service().await;
    world.forget();
    let annotations = json!({ "skysail.dev/load-balancer-provider": null });
    world.patch_service("classy", json!({ "metadata": { "annotations": annotations } })).await;
    let mut world = world.restart(|clouds| drop(clouds[1].give_up_class())).await;
    world.after(60 * S, expect![[""]]).await;
    world.delete_service("classy").await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: A finalizer delays the deletion of this Service, and no provider here claims the class "two.example/lb". If another controller manages it, wait for that controller. If a provider of Skysail made its load balancer, let that provider claim it again; or delete the load balancer by hand, and then remove service.kubernetes.io/load-balancer-cleanup from metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
}
