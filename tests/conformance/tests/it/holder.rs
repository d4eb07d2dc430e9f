//! Who made a load balancer, written on its Service: what a process that remembers nothing makes of
//! it, and what a forged name can do.

use expect_test::expect;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// Two clouds, and a Service of a class of the second that is ensured; then the process ends and
/// remembers nothing.
async fn ended() -> World {
    let mut world =
        World::with(vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")]).start().await;
    world.add_service("classy", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(S).await;
    assert_eq!(holder(&world).await, json!("two"));
    world.stop.cancel();
    pass(S).await;
    drop(world.transcript().await);
    world.forget();
    world
}

async fn holder(world: &World) -> Value {
    let object = world.we(world.services().get("classy")).await;
    let annotations = object.metadata.annotations.unwrap_or_default();
    json!(annotations.get("skysail.dev/load-balancer-provider"))
}

async fn forge(world: &World, name: &str) {
    let annotations = json!({ "skysail.dev/load-balancer-provider": name });
    world.patch_service("classy", json!({ "metadata": { "annotations": annotations } })).await;
}

async fn change_type(world: &World) {
    world.patch_service("classy", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await;
}

/// Its user gives the Service a class of somebody else.
async fn give_to_a_stranger(world: &World) {
    change_type(world).await;
    let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": "foreign.example/lb" });
    world.patch_service("classy", json!({ "spec": spec })).await;
}

/// The finalizer and the name are one write, and go in one.
#[tokio::test(start_paused = true)]
async fn the_holder_comes_and_goes_with_the_finalizer() {
    let mut world = World::new().start().await;
    world.add_service("classy", json!({})).await;
    pass(S).await;
    assert_eq!(holder(&world).await, json!("fake"));
    assert_eq!(world.transcript().await.matches("api patch").count(), 2, "finalizer with holder, and status");
    world.patch_service("classy", json!({ "spec": { "type": "ClusterIP" } })).await;
    pass(S).await;
    assert_eq!(holder(&world).await, json!(null));
    assert_eq!(world.state("classy").await, "[] []");
}

/// The others are not even asked, so that a refusal of theirs cannot hold the Service.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_type_that_changed_is_cleaned_up_by_the_holder_alone() {
    let world = ended().await;
    change_type(&world).await;
    world.clouds[0].fake.fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    let mut world = world.restart(|_| ()).await;
    world
        .after(
            5 * S,
            expect![[r#"
        provider two get default/classy
        provider two ensure-deleted default/classy
        api patch services/status classy
        event classy Normal DeletingLoadBalancer x1: Deleting load balancer
        event classy Normal DeletedLoadBalancer x1: Deleted load balancer
    "#]],
        )
        .await;
    assert_eq!(world.state("classy").await, "[] []");
    assert!(world.clouds[1].fake.cloud().is_empty());
}

/// The load balancer is deleted and the write that says so fails: it must not come to asking the
/// others.
#[tokio::test(start_paused = true)]
async fn a_holder_that_bore_its_name_out_stays_the_only_one_asked() {
    let world = ended().await;
    change_type(&world).await;
    world.clouds[0].fake.fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    world.clouds[1].fake.fail_next("ensure-deleted", Error::new(Code::Unavailable, "half done"));
    let fake = world.clouds[1].fake.clone();
    fake.on_call({
        let fake = fake.clone();
        move |line| {
            if line.starts_with("ensure-deleted") {
                fake.lose_load_balancers();
            }
            Box::pin(async {})
        }
    });
    let world = world.restart(|_| ()).await;
    pass(10 * S).await;
    assert_eq!(world.state("classy").await, "[] []");
}

/// While no process ran the provider file gave the class to the other: as in one that runs on, the
/// first makes room.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_class_that_moved_takes_its_load_balancers_along() {
    let world = ended().await;
    let world = world
        .restart(|clouds| {
            let class = clouds[1].give_up_class();
            clouds[0].claim_class(class);
        })
        .await;
    pass(5 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.clouds[0].fake.cloud().len(), 1);
    assert_eq!(holder(&world).await, json!("one"));
}

/// While no process ran its user gave the Service a class of somebody else: what was made for it
/// goes, and with it what is written on it.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_class_that_its_user_changed_takes_the_load_balancer_away() {
    let world = ended().await;
    give_to_a_stranger(&world).await;
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.state("classy").await, "[] []");
    assert_eq!(holder(&world).await, json!(null));
}

/// The same where the load balancer had gone before the process ended, and only the finalizer was
/// left.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_finalizer_that_was_left_for_a_class_of_somebody_else_goes() {
    let world = ended().await;
    world.clouds[1].fake.lose_load_balancers();
    give_to_a_stranger(&world).await;
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert_eq!(world.state("classy").await, "[] []");
}

/// While no process ran the operator took the class away from all providers: what serves its
/// clients stays.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_class_that_nobody_claims_any_more_keeps_its_load_balancer() {
    let world = ended().await;
    let world = world.restart(|clouds| drop(clouds[1].give_up_class())).await;
    pass(600 * S).await;
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);
    assert_eq!(holder(&world).await, json!("two"));
}

/// A finalizer from another manager's time: who makes the load balancer is written before anything
/// is made, so that the process that starts after a crash knows.
#[tokio::test(start_paused = true)]
async fn who_makes_it_is_written_first_also_where_the_finalizer_is_there() {
    let mut world = World::new().start().await;
    world.add_service("classy", json!({ "type": "ClusterIP" })).await;
    let finalizers = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    world.stop.cancel();
    pass(S).await;
    world
        .patch_service(
            "classy",
            json!({ "metadata": { "finalizers": finalizers }, "spec": { "type": "LoadBalancer" } }),
        )
        .await;
    drop(world.transcript().await);
    let mut world = world.restart(|_| ()).await;
    let transcript = world.transcript().await;
    let (written, made) = (transcript.find("api patch services"), transcript.find("provider ensure"));
    assert!(written.is_some() && made.is_some() && written < made, "{transcript}");
    assert_eq!(holder(&world).await, json!("fake"));
}

/// An object of before this line was written, or whose line somebody took away: nothing says that
/// its user changed anything.
#[tokio::test(start_paused = true)]
async fn after_a_start_an_object_that_does_not_say_its_class_keeps_its_load_balancer() {
    let world = ended().await;
    world
        .patch_service(
            "classy",
            json!({ "metadata": { "annotations": { "skysail.dev/load-balancer-made-for": null } } }),
        )
        .await;
    let world = world.restart(|clouds| drop(clouds[1].give_up_class())).await;
    pass(600 * S).await;
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);
    assert!(world.state("classy").await.contains("load-balancer-cleanup"));
}

/// What a copied manifest brings along was written about another object.
#[tokio::test(start_paused = true)]
async fn a_copy_of_our_lines_on_a_service_of_somebody_else_takes_nothing_away() {
    let world = ended().await;
    let original = world.we(world.services().get("classy")).await;
    let annotations = original.metadata.annotations.unwrap();
    let metadata = json!({ "annotations": annotations, "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] });
    world.add_service("copy", json!({ "loadBalancerClass": "foreign.example/lb" })).await;
    world.patch_service("copy", json!({ "metadata": metadata })).await;
    let world = world.restart(|_| ()).await;
    pass(600 * S).await;
    assert!(world.state("copy").await.contains("load-balancer-cleanup"));
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);
}

/// A name that is not confirmed costs its provider one look and the others nothing.
#[tokio::test(start_paused = true)]
async fn a_forged_holder_of_a_service_that_is_served_changes_nothing() {
    let world = ended().await;
    forge(&world, "one").await;
    let before = world.clouds[1].fake.cloud();
    let mut world = world.restart(|_| ()).await;
    world
        .after(
            5 * S,
            expect![[r#"
                provider one get default/classy
                provider one ensure-deleted default/classy
                api patch services/status classy
                provider two ensure default/classy ports=80/TCP nodes=
                event classy Normal EnsuringLoadBalancer x1: Ensuring load balancer
                event classy Warning UnAvailableLoadBalancer x1: There are no available nodes for LoadBalancer
                event classy Normal EnsuredLoadBalancer x1: Ensured load balancer
            "#]],
        )
        .await;
    assert_eq!(world.clouds[1].fake.cloud(), before);
    assert!(world.state("classy").await.contains("203.0.113.1"));
    assert_eq!(holder(&world).await, json!("two"));
}

#[tokio::test(start_paused = true)]
async fn a_forged_holder_of_a_service_whose_type_changed_loses_no_load_balancer() {
    let world = ended().await;
    forge(&world, "one").await;
    change_type(&world).await;
    let mut world = world.restart(|_| ()).await;
    world
        .after(
            5 * S,
            expect![[r#"
                provider one get default/classy
                provider one ensure-deleted default/classy
                provider one get default/classy
                provider one ensure-deleted default/classy
                provider two get default/classy
                provider two ensure-deleted default/classy
                api patch services/status classy
                event classy Normal DeletingLoadBalancer x1: Deleting load balancer
                event classy Normal DeletedLoadBalancer x1: Deleted load balancer
            "#]],
        )
        .await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.state("classy").await, "[] []");
}

/// The simulation found it: after a start the holder was its owner, so nothing had to be heard;
/// then the type changed twice while the holder's cloud answered nothing.
#[tokio::test(start_paused = true)]
async fn a_holder_is_heard_when_the_service_changes_hands() {
    let world = ended().await;
    world.delete_service("classy").await;
    world.clouds[1].fake.fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    let world = world.restart(|_| ()).await;
    change_type(&world).await;
    pass(S).await;
    world.patch_service("classy", json!({ "spec": { "type": "LoadBalancer" } })).await;
    pass(S).await;
    world.clouds[1].fake.fail_always("get", None);
    pass(600 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.state("classy").await, "gone");
}

/// The simulation found it: the API server empties the status when the type changes, and a watch
/// that lags shows that for no moment.
#[tokio::test(start_paused = true)]
async fn a_status_that_others_empty_comes_back_without_a_call() {
    let mut world = World::new().start().await;
    world.add_service("classy", json!({})).await;
    pass(S).await;
    drop(world.transcript().await);
    let empty = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": null } } }));
    world.we(world.services().patch_status("classy", &PatchParams::default(), &empty)).await;
    world
        .after(
            5 * S,
            expect![[r#"
        api patch services/status classy
    "#]],
        )
        .await;
    assert!(world.state("classy").await.contains("203.0.113.1"));
}

/// A provider that never had load balancers cannot hold up the Service that names it.
#[tokio::test(start_paused = true)]
async fn a_forged_holder_without_load_balancers_holds_nothing_up() {
    let mut world = ended().await;
    world.clouds[0].make_without_load_balancers();
    forge(&world, "one").await;
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert_eq!(holder(&world).await, json!("two"));
}

/// While the process runs it knows better, and says so on the object; the provider is not troubled.
#[tokio::test(start_paused = true)]
async fn a_holder_that_is_changed_while_the_process_runs_is_written_back() {
    let world = ended().await;
    let mut world = world.restart(|_| ()).await;
    pass(5 * S).await;
    drop(world.transcript().await);
    forge(&world, "one").await;
    world
        .after(
            5 * S,
            expect![[r#"
        api patch services/status classy
    "#]],
        )
        .await;
    assert_eq!(holder(&world).await, json!("two"));
}

/// Provider names have no capitals and no spaces: such a value names nobody, and no Event repeats
/// it.
#[tokio::test(start_paused = true)]
async fn a_holder_that_can_be_nobodys_name_is_as_if_none_were_there() {
    let world = ended().await;
    forge(&world, "No name\nat all").await;
    change_type(&world).await;
    let mut world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert!(!world.transcript().await.contains("Nobody"));
    assert_eq!(world.state("classy").await, "[] []");
    assert!(world.clouds[1].fake.cloud().is_empty());
}

/// Nobody may say "there is none" in the place of the one who made it.
#[tokio::test(start_paused = true)]
async fn a_holder_that_left_keeps_the_finalizer_of_a_service_that_wants_none_any_more() {
    let world = ended().await;
    change_type(&world).await;
    let mut left = None;
    let mut world = world.restart(|clouds| left = clouds.pop()).await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: The provider two made a load balancer for this Service, which wants none any more, and is not there: nobody will delete it, and the finalizer keeps this Service. Give the provider two back; or delete the load balancer by hand, and then take service.kubernetes.io/load-balancer-cleanup out of metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
    let world = world.restart(|clouds| clouds.extend(left)).await;
    pass(5 * S).await;
    assert_eq!(world.state("classy").await, "[] []");
    assert!(world.clouds[1].fake.cloud().is_empty());
}

/// Upstream's Go manager sets the finalizer and writes no name: all are asked, as nobody can know.
#[tokio::test(start_paused = true)]
async fn a_finalizer_without_a_holder_has_everybody_asked() {
    let world = ended().await;
    let annotations = json!({ "skysail.dev/load-balancer-provider": null });
    world.patch_service("classy", json!({ "metadata": { "annotations": annotations } })).await;
    change_type(&world).await;
    let mut world = world.restart(|_| ()).await;
    world
        .after(
            5 * S,
            expect![[r#"
                provider one get default/classy
                provider one ensure-deleted default/classy
                provider two get default/classy
                provider two ensure-deleted default/classy
                api patch services/status classy
                event classy Normal DeletingLoadBalancer x1: Deleting load balancer
                event classy Normal DeletedLoadBalancer x1: Deleted load balancer
            "#]],
        )
        .await;
    assert_eq!(world.state("classy").await, "[] []");
}
