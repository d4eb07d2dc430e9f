//! The annotation with the provider that made a load balancer: its use after a restart, and the
//! effect of a forged name.

use std::sync::atomic::{AtomicBool, Ordering};

use expect_test::expect;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

use crate::providers::with_a_classy_service;

/// The second of two clouds has the Service's load balancer; then the process ends and the ledger
/// is lost.
async fn ended() -> World {
    end(with_a_classy_service().await).await
}

async fn end(mut world: World) -> World {
    assert_eq!(holder(&world).await, json!("two"));
    world.stop.cancel();
    pass(S).await;
    drop(world.transcript().await);
    world.forget();
    world
}

/// After a start the second provider, and no other, deletes the load balancer.
async fn two_cleans_up(world: &mut World) {
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
    assert!(world.clouds.get(1).is_some_and(|cloud| cloud.fake.cloud().is_empty()));
}

async fn holder(world: &World) -> Value {
    let object = world.as_user(world.services().get("classy")).await;
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

/// As another manager leaves a Service whose type changes: with the finalizer, and without a name.
async fn leave_without_a_name(world: &World) {
    let annotations = json!({ "skysail.dev/load-balancer-provider": null });
    world.patch_service("classy", json!({ "metadata": { "annotations": annotations } })).await;
    change_type(world).await;
}

/// The user changes the Service to a class of another controller.
async fn give_to_another_controller(world: &World) {
    change_type(world).await;
    let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": "foreign.example/lb" });
    world.patch_service("classy", json!({ "spec": spec })).await;
}

/// The finalizer and the annotation are added in one write and removed in one write.
#[tokio::test(start_paused = true)]
async fn the_providers_name_is_added_and_removed_with_the_finalizer() {
    let mut world = World::new().start().await;
    world.add_service("classy", json!({})).await;
    pass(S).await;
    assert_eq!(holder(&world).await, json!("fake"));
    assert_eq!(world.transcript().await.matches("api patch").count(), 2, "finalizer with annotation, and status");
    world.patch_service("classy", json!({ "spec": { "type": "ClusterIP" } })).await;
    pass(S).await;
    assert_eq!(holder(&world).await, json!(null));
    assert_eq!(world.state("classy").await, "[] []");
}

/// Other providers are not called, so that their errors cannot delay the cleanup.
#[tokio::test(start_paused = true)]
async fn after_a_start_only_the_named_provider_cleans_up_a_service_whose_type_changed() {
    let world = ended().await;
    change_type(&world).await;
    world.clouds[0].fake.fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    let mut world = world.restart(|_| ()).await;
    two_cleans_up(&mut world).await;
    assert_eq!(world.state("classy").await, "[] []");
}

/// The load balancer is deleted and the write of the result fails: the other providers must not be
/// called.
#[tokio::test(start_paused = true)]
async fn after_its_confirmation_only_the_named_provider_is_called() {
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

/// The class moved to the other provider while no process ran: as in a running process, the first
/// provider deletes its load balancer.
#[tokio::test(start_paused = true)]
async fn after_a_start_the_load_balancers_of_a_moved_class_move_too() {
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

/// The same where the writes of the former leader land after the first list of its successor: the
/// list shows the Service without finalizer and annotation.
#[tokio::test(start_paused = true)]
async fn a_provider_whose_name_the_first_list_lacks_deletes_its_load_balancer() {
    for revisions in 1..=8 {
        let world = ended().await;
        let first = AtomicBool::new(true);
        world.disturb(move |request: &RequestInfo| match (request.verb, request.resource.as_str()) {
            ("list", "services") if first.swap(false, Ordering::Relaxed) => Fault::StaleList(revisions),
            _ => Fault::None,
        });
        let world = world
            .restart(|clouds| {
                let class = clouds[1].give_up_class();
                clouds[0].claim_class(class);
            })
            .await;
        pass(60 * S).await;
        assert!(world.clouds[1].fake.cloud().is_empty(), "the state {revisions} revisions ago");
        assert_eq!(world.clouds[0].fake.cloud().len(), 1, "the state {revisions} revisions ago");
        assert_eq!(holder(&world).await, json!("one"), "the state {revisions} revisions ago");
    }
}

/// A user removes our finalizer and changes the type in one write, and the process ends while the
/// deletion fails.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_whose_finalizer_a_user_removes_is_deleted_after_a_restart() {
    let world = with_a_classy_service().await;
    world.clouds[1].fake.fail_always("ensure-deleted", Some(Error::new(Code::Internal, "the cloud is down")));
    let spec = json!({ "type": "ClusterIP", "loadBalancerClass": null });
    world.patch_service("classy", json!({ "metadata": { "finalizers": ["example.com/kept"] }, "spec": spec })).await;
    pass(S).await;
    let world = end(world).await;
    world.clouds[1].fake.fail_always("ensure-deleted", None);
    let mut world = world.restart(|_| ()).await;
    two_cleans_up(&mut world).await;
    assert_eq!(world.state("classy").await, r#"[] ["example.com/kept"]"#);
}

/// The user changed the class to another controller's while no process ran: the load balancer and
/// our fields on the Service are removed.
#[tokio::test(start_paused = true)]
async fn after_a_start_the_load_balancer_of_a_changed_class_is_deleted() {
    let world = ended().await;
    give_to_another_controller(&world).await;
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert_eq!(world.state("classy").await, "[] []");
    assert_eq!(holder(&world).await, json!(null));
}

/// The same if the load balancer was deleted before, and only the finalizer was left.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_leftover_finalizer_is_removed_from_a_service_with_another_class() {
    let world = ended().await;
    world.clouds[1].fake.lose_load_balancers();
    give_to_another_controller(&world).await;
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert_eq!(world.state("classy").await, "[] []");
}

/// The operator removed the class from all providers while no process ran: the load balancer stays.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_class_without_a_claim_keeps_its_load_balancer() {
    let world = ended().await;
    let world = world.restart(|clouds| drop(clouds[1].give_up_class())).await;
    pass(600 * S).await;
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);
    assert_eq!(holder(&world).await, json!("two"));
}

/// A finalizer of another manager is present: the provider's name is written before `ensure`, so
/// that a process that starts after a crash knows the provider.
#[tokio::test(start_paused = true)]
async fn the_providers_name_is_written_before_ensure_also_with_a_present_finalizer() {
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

/// The annotation with the class is missing: nothing indicates that the user changed the class.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_service_without_the_class_annotation_keeps_its_load_balancer() {
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

/// The annotations of a copied manifest are about another object.
#[tokio::test(start_paused = true)]
async fn copied_annotations_on_a_service_of_another_controller_delete_nothing() {
    let world = ended().await;
    let original = world.as_user(world.services().get("classy")).await;
    let annotations = original.metadata.annotations.unwrap();
    let metadata = json!({ "annotations": annotations, "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] });
    world.add_service("copy", json!({ "loadBalancerClass": "foreign.example/lb" })).await;
    world.patch_service("copy", json!({ "metadata": metadata })).await;
    let world = world.restart(|_| ()).await;
    pass(600 * S).await;
    assert!(world.state("copy").await.contains("load-balancer-cleanup"));
    assert_eq!(world.clouds[1].fake.cloud().len(), 1);
}

/// An unconfirmed name costs its provider one check and other providers nothing.
#[tokio::test(start_paused = true)]
async fn a_forged_provider_name_on_a_served_service_changes_nothing() {
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
async fn a_forged_provider_name_on_a_service_whose_type_changed_leaks_no_load_balancer() {
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

/// Found by the simulation: after a start the annotation named the owner, so it was not recorded;
/// then the type changed twice while the owner's cloud rejected calls.
#[tokio::test(start_paused = true)]
async fn the_providers_name_is_recorded_when_the_owner_changes() {
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

/// Found by the simulation: the API server empties the status when the type changes, and a lagging
/// watch may not show the changed type.
#[tokio::test(start_paused = true)]
async fn a_status_that_another_client_empties_is_restored_without_a_call() {
    let mut world = World::new().start().await;
    world.add_service("classy", json!({})).await;
    pass(S).await;
    drop(world.transcript().await);
    let empty = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": null } } }));
    world.as_user(world.services().patch_status("classy", &PatchParams::default(), &empty)).await;
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

/// A provider without load balancers cannot block a Service that names it.
#[tokio::test(start_paused = true)]
async fn a_forged_name_of_a_provider_without_load_balancers_blocks_nothing() {
    let mut world = ended().await;
    world.clouds[0].make_without_load_balancers();
    forge(&world, "one").await;
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert_eq!(holder(&world).await, json!("two"));
}

/// While the process runs, the ledger takes precedence: the annotation is corrected without a call.
#[tokio::test(start_paused = true)]
async fn a_providers_name_that_is_changed_while_the_process_runs_is_corrected() {
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

/// Provider names have no capitals and no spaces: an invalid value names no provider, and no Event
/// repeats it.
#[tokio::test(start_paused = true)]
async fn an_invalid_provider_name_counts_as_missing() {
    let world = ended().await;
    forge(&world, "No name\nat all").await;
    change_type(&world).await;
    let mut world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert!(!world.transcript().await.contains("No name"));
    assert_eq!(world.state("classy").await, "[] []");
    assert!(world.clouds[1].fake.cloud().is_empty());
}

/// The answer "no such load balancer" of another provider does not count.
#[tokio::test(start_paused = true)]
async fn a_removed_provider_keeps_the_finalizer_of_a_service_whose_type_changed() {
    let world = ended().await;
    change_type(&world).await;
    let mut left = None;
    let mut world = world.restart(|clouds| left = clouds.pop()).await;
    world.after(60 * S, expect![[r#"
        event classy Warning UnclaimedLoadBalancer x1: This Service has a load balancer of the provider two, which is removed, so Skysail cannot delete the load balancer, and the finalizer stays on the Service. Add the provider two again; or delete the load balancer by hand, and then remove service.kubernetes.io/load-balancer-cleanup from metadata.finalizers: kubectl edit service classy --namespace default
    "#]]).await;
    let world = world.restart(|clouds| clouds.extend(left)).await;
    pass(5 * S).await;
    assert_eq!(world.state("classy").await, "[] []");
    assert!(world.clouds[1].fake.cloud().is_empty());
}

/// Upstream's Go manager sets the finalizer without a name: the provider is unknown, so all are
/// called.
#[tokio::test(start_paused = true)]
async fn with_a_finalizer_and_no_provider_name_all_providers_are_called() {
    let world = ended().await;
    leave_without_a_name(&world).await;
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

/// The first provider is called once, however often the second one has to be called.
#[tokio::test(start_paused = true)]
async fn a_provider_that_has_deleted_is_not_called_again_while_another_one_fails() {
    let world = ended().await;
    leave_without_a_name(&world).await;
    let two = world.clouds[1].fake.clone();
    two.fail_always("get", Some(Error::new(Code::NotServing, "no release")));
    let mut world = world.restart(|_| ()).await;
    pass(60 * S).await;
    let calls = world.transcript().await;
    let count = |line: &str| calls.lines().filter(|call| *call == line).count();
    assert_eq!(count("provider one ensure-deleted default/classy"), 1, "{calls}");
    assert!(count("provider two get default/classy") > 1, "{calls}");
    assert!(!world.state("classy").await.contains("[] []"), "the finalizer stays");

    // The Service may have got a load balancer since it was changed.
    world.patch_service("classy", json!({ "metadata": { "labels": { "changed": "yes" } } })).await;
    pass(300 * S).await;
    let calls = world.transcript().await;
    assert_eq!(
        calls.lines().filter(|call| *call == "provider one ensure-deleted default/classy").count(),
        1,
        "{calls}"
    );

    two.fail_always("get", None);
    pass(300 * S).await;
    assert_eq!(world.state("classy").await, "[] []");
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert!(!world.transcript().await.contains("provider one"), "one has deleted already");
}

/// The failure of a provider does not keep the others from deletion.
#[tokio::test(start_paused = true)]
async fn all_providers_are_called_although_the_first_one_fails() {
    let world = ended().await;
    leave_without_a_name(&world).await;
    world.clouds[0].fake.fail_always("get", Some(Error::new(Code::NotServing, "no release")));
    let world = world.restart(|_| ()).await;
    pass(5 * S).await;
    assert!(world.clouds[1].fake.cloud().is_empty());
    assert!(!world.state("classy").await.contains("[] []"), "the finalizer stays");
}
