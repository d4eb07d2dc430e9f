//! What stops the deletion of nodes, and what lets it go on.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use expect_test::expect;
use http::StatusCode;
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};
use skysail_controllers::Finding;
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

const MINUTE: Duration = Duration::from_mins(1);
const WINDOW: Duration = Duration::from_hours(6);

fn name(n: usize) -> String {
    format!("n{n:02}")
}

/// A cluster of so many ready nodes.
async fn cluster(nodes: usize) -> World {
    cluster_for_hours(nodes, 5 * S).await
}

/// The same for a test that looks at hours: fewer passes.
async fn cluster_for_hours(nodes: usize, period: Duration) -> World {
    let mut world = World::new().set(|settings| {
        settings.controllers.service = false;
        settings.node_monitor_period = period;
    });
    for n in 0..nodes {
        world.fake().add_instances([&*name(n)]);
        world.add_node(&name(n)).await;
    }
    world = world.start().await;
    pass(10 * S).await;
    drop(world.transcript().await);
    world
}

/// The machines of these nodes are gone, and their kubelets fell silent.
async fn lose(world: &World, nodes: impl Iterator<Item = usize>) {
    for n in nodes {
        world.fake().remove_instance(&name(n));
        world.heartbeat(&name(n), "Unknown").await;
    }
}

async fn remaining(world: &World) -> usize {
    world.we(world.nodes().list(&kube::api::ListParams::default())).await.items.len()
}

async fn patch(world: &World, node: &str, patch: Value) {
    world.we(world.nodes().patch(node, &PatchParams::default(), &Patch::Merge(&patch))).await;
}

/// Everything but the look-ups.
async fn told(world: &mut World) -> String {
    let text = world.transcript().await;
    text.lines().filter(|line| !line.starts_with("provider ")).map(|line| format!("{line}\n")).collect()
}

fn metric(world: &World, line: &str) -> bool {
    let mut text = String::new();
    assert!(prometheus_client::encoding::text::encode(&mut text, &world.registry).is_ok());
    text.lines().any(|l| l == line)
}

#[tokio::test(start_paused = true)]
async fn too_many_machines_gone_at_once_stop_deletions_and_say_so_on_the_cluster_and_on_each_node() {
    let mut world = cluster(6).await;
    assert!(metric(&world, r#"skysail_node_deletion_stopped{provider="fake"} 0"#));
    lose(&world, 0..3).await;
    pass(20 * S).await;
    expect![[r#"
        event kube-system Warning NodeDeletionStopped x1: The provider fake would be down by 3 of 6 nodes, and 2 may go within 360 minutes: no more are deleted. If the cloud did not lose these machines, mend the provider or its credential. If it did, delete the nodes with kubectl, or annotate them: skysail.dev/allow-deletion=true
        event n00 Warning NodeDeletionHeld x1: The provider fake says that the machine is gone, and says so of too many nodes: this one is kept. If it is true, delete it with kubectl, or annotate it: skysail.dev/allow-deletion=true
        event n01 Warning NodeDeletionHeld x1: The provider fake says that the machine is gone, and says so of too many nodes: this one is kept. If it is true, delete it with kubectl, or annotate it: skysail.dev/allow-deletion=true
        event n02 Warning NodeDeletionHeld x1: The provider fake says that the machine is gone, and says so of too many nodes: this one is kept. If it is true, delete it with kubectl, or annotate it: skysail.dev/allow-deletion=true
    "#]]
    .assert_eq(&told(&mut world).await);
    assert!(metric(&world, r#"skysail_node_deletion_stopped{provider="fake"} 1"#));
    assert!(metric(&world, r#"skysail_node_deletion_stops_total{provider="fake"} 1"#));
    assert!(metric(&world, r#"skysail_nodes_held{provider="fake"} 3"#));
    pass(10 * MINUTE).await;
    assert_eq!(told(&mut world).await, "", "said once, not each pass");
    pass(21 * MINUTE).await;
    let again = told(&mut world).await;
    assert!(again.contains("NodeDeletionStopped x2") && again.contains("n02 Warning NodeDeletionHeld x2"), "{again}");
    assert!(metric(&world, r#"skysail_node_deletion_stops_total{provider="fake"} 1"#), "the same stop");
    assert_eq!(remaining(&world).await, 6);
}

/// Nodes that somebody else deletes while the provider is asked for them are no loss that we could
/// cause.
#[tokio::test(start_paused = true)]
async fn what_others_delete_during_the_look_does_not_stop_the_deletion_of_the_rest() {
    let mut world = cluster(6).await;
    lose(&world, 0..3).await;
    // The first look says so, and during the second one, which bears it out, somebody deletes two
    // of them.
    let (nodes, looks) = (world.nodes(), AtomicUsize::new(0));
    world.fake().on_call(move |line| {
        let second = line.starts_with("describe") && looks.fetch_add(1, Ordering::Relaxed) == 1;
        let nodes = nodes.clone();
        Box::pin(async move {
            if second {
                for n in 1..3 {
                    nodes.delete(&name(n), &DeleteParams::default()).await.unwrap();
                }
                pass(S).await;
            }
        })
    });
    pass(20 * S).await;
    let told = told(&mut world).await;
    assert!(!told.contains("NodeDeletionStopped"), "{told}");
    assert_eq!(remaining(&world).await, 3);
}

/// Review B8: an operator removes four of ten machines, and announces nothing.
#[tokio::test(start_paused = true)]
async fn a_scale_in_from_ten_to_six_is_done_within_fifteen_seconds() {
    let mut world = cluster(10).await;
    lose(&world, 0..4).await;
    pass(15 * S).await;
    assert_eq!(remaining(&world).await, 6);
    assert!(!told(&mut world).await.contains("NodeDeletionStopped"));
    assert_eq!(world.clouds[0].finding(Finding::NodesHeld), None);
}

/// The kubelets of four of ten nodes are silent, and the cloud finds nothing: a permission that is
/// missing, not a scale-in. An operator sees it without Events.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_finds_none_of_ten_machines_removes_no_node() {
    let world = cluster(10).await;
    (0..10).for_each(|n| world.fake().remove_instance(&name(n)));
    for n in 0..4 {
        world.heartbeat(&name(n), "Unknown").await;
    }
    pass(WINDOW - MINUTE).await;
    assert_eq!(remaining(&world).await, 10);
    let finding = world.clouds[0].finding(Finding::NodesHeld).unwrap();
    assert!(finding.starts_with("4 nodes whose machines are not found are kept, such as n00."), "{finding}");
}

/// Lesson 39: it was a lie, or a slip of the cloud.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_finds_its_machines_again_loses_no_node() {
    let mut world = cluster(6).await;
    lose(&world, 0..6).await;
    pass(MINUTE).await;
    for n in 0..6 {
        world.fake().add_instances([&*name(n)]);
    }
    drop(told(&mut world).await);
    pass(MINUTE).await;
    expect![[r#"
        event kube-system Normal NodeDeletionResumed x1: Nodes of the provider fake are deleted again when their machines are gone
    "#]]
    .assert_eq(&told(&mut world).await);
    assert!(metric(&world, r#"skysail_node_deletion_stopped{provider="fake"} 0"#));
    assert!(metric(&world, r#"skysail_nodes_held{provider="fake"} 0"#));
    assert_eq!(remaining(&world).await, 6);
    lose(&world, 0..1).await;
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 5, "one machine is ordinary again");
}

/// The guest is the attacker, finds all other machines, and has time.
#[tokio::test(start_paused = true)]
async fn a_provider_that_says_gone_of_one_node_each_minute_is_stopped_before_half_of_the_nodes_are_gone() {
    let mut world = cluster_for_hours(12, 20 * S).await;
    for n in 0..12 {
        lose(&world, n..=n).await;
        pass(MINUTE).await;
    }
    assert_eq!(remaining(&world).await, 7);
    assert!(told(&mut world).await.contains("NodeDeletionStopped"));
    pass(WINDOW - 20 * MINUTE).await;
    assert_eq!(remaining(&world).await, 7, "for a whole window");
}

#[tokio::test(start_paused = true)]
async fn time_lets_a_third_go_in_each_window() {
    let world = cluster_for_hours(9, MINUTE).await;
    lose(&world, 0..9).await;
    pass(WINDOW - MINUTE).await;
    assert_eq!(remaining(&world).await, 9);
    pass(4 * MINUTE).await;
    assert_eq!(remaining(&world).await, 6);
    pass(WINDOW).await;
    assert_eq!(remaining(&world).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_person_lets_nodes_go_by_an_annotation_and_that_deletes_no_node_whose_machine_is_there() {
    let mut world = cluster(6).await;
    lose(&world, 0..4).await;
    pass(MINUTE).await;
    for n in [0, 1, 5] {
        patch(&world, &name(n), json!({ "metadata": { "annotations": { "skysail.dev/allow-deletion": "true" } } }))
            .await;
    }
    patch(&world, &name(2), json!({ "metadata": { "annotations": { "skysail.dev/allow-deletion": "no" } } })).await;
    drop(told(&mut world).await);
    pass(10 * S).await;
    expect![[r#"
        api delete nodes n00
        api delete nodes n01
        event n00 Normal DeletingNode x1: Deleting node because it does not exist in the cloud provider
        event n01 Normal DeletingNode x1: Deleting node because it does not exist in the cloud provider
    "#]]
    .assert_eq(&told(&mut world).await);
    assert_eq!(remaining(&world).await, 4, "the others are kept as before");
}

#[tokio::test(start_paused = true)]
async fn a_person_who_deletes_what_is_kept_ends_the_stop() {
    let mut world = cluster(6).await;
    lose(&world, 0..4).await;
    pass(MINUTE).await;
    for n in 0..3 {
        world.delete_node(&name(n)).await;
    }
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 2, "the fourth went by itself");
    assert!(told(&mut world).await.contains("NodeDeletionResumed"));
}

/// The watch is late: what somebody else deleted is still there for us, and not our loss.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_already_is_no_loss_of_ours() {
    let mut world = cluster(3).await;
    world.disturb(|request: &RequestInfo| {
        let gone = || ApiError::new(404_u16.try_into().unwrap(), "NotFound", r#"nodes "n00" not found"#);
        if request.verb == "delete" { Fault::Refuse(gone()) } else { Fault::None }
    });
    lose(&world, 0..1).await;
    pass(MINUTE).await;
    let text = told(&mut world).await;
    assert!(text.contains("api delete nodes n00") && !text.contains("NodeDeletionStopped"), "{text}");
}

/// A finalizer of somebody keeps the object: it is deleted all the same, once.
#[tokio::test(start_paused = true)]
async fn a_node_that_a_finalizer_keeps_is_counted_once() {
    let mut world = cluster(3).await;
    patch(&world, "n00", json!({ "metadata": { "finalizers": ["example.com/slow"] } })).await;
    lose(&world, 0..1).await;
    pass(MINUTE).await;
    let text = told(&mut world).await;
    assert_eq!((remaining(&world).await, text.matches("api delete nodes n00").count()), (3, 1), "{text}");
    patch(&world, "n00", json!({ "metadata": { "finalizers": null } })).await;
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 2);
    assert!(!told(&mut world).await.contains("NodeDeletionStopped"));
}

/// A night's scale-down of the autoscaler is no loss.
#[tokio::test(start_paused = true)]
async fn nodes_that_the_autoscaler_announced_go_however_many_they_are() {
    let mut world = cluster(6).await;
    for n in 0..5 {
        let taint = json!({ "key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule" });
        patch(&world, &name(n), json!({ "spec": { "taints": [taint] } })).await;
    }
    lose(&world, 0..5).await;
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 1);
    assert!(!told(&mut world).await.contains("NodeDeletionStopped"));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_replaces_every_machine_is_not_stopped() {
    let mut world = cluster(3).await;
    for n in 3..12 {
        world.fake().add_instances([&*name(n)]);
        world.add_node(&name(n)).await;
        pass(MINUTE).await;
        lose(&world, n - 3..n - 2).await;
        pass(MINUTE).await;
    }
    assert_eq!(remaining(&world).await, 3);
    let text = told(&mut world).await;
    assert!(!text.contains("NodeDeletionStopped"), "{text}");
}

/// Issue of this breaker: whatever is no word about one machine deletes nobody, however long it
/// lasts.
#[rstest]
#[case::denied(Code::Denied)]
#[case::not_found_of_the_whole_call(Code::NotFound)]
#[case::trapped(Code::Trapped)]
#[case::deadline(Code::DeadlineExceeded)]
#[tokio::test(start_paused = true)]
async fn an_answer_that_names_no_machine_removes_no_node(#[case] code: Code) {
    let world = cluster_for_hours(4, MINUTE).await;
    world.fake().fail_always("describe", Some(Error::new(code, "the whole call")));
    for n in 0..4 {
        world.heartbeat(&name(n), "Unknown").await;
    }
    pass(WINDOW + MINUTE).await;
    assert_eq!(remaining(&world).await, 4);
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_removes_no_node() {
    let world = cluster(4).await;
    lose(&world, 0..4).await;
    for results in [0, 1, 3] {
        world.fake().cut_answers(Some(results));
        pass(MINUTE).await;
        assert_eq!(remaining(&world).await, 4, "{results} results for 4 nodes");
    }
}

/// Each provider has a breaker of its own.
#[tokio::test(start_paused = true)]
async fn a_provider_that_lost_its_cloud_holds_up_no_other() {
    use skysail_test_conformance::world::Cloud;
    let mut world = World::with(vec![Cloud::new("one").default_of_all(), Cloud::new("two")]);
    for n in 0..3 {
        world.add_raw_node(&name(n), json!({ "providerID": format!("one://{n}") })).await;
        world.add_raw_node(&name(n + 3), json!({ "providerID": format!("two://{n}") })).await;
    }
    world.clouds[1].fake.add_instances(["n04", "n05"]);
    world = world.start().await;
    for n in 0..4 {
        world.heartbeat(&name(n), "Unknown").await;
    }
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 5, "only the one node of the second");
    assert!(world.node("n03").await.is_none());
}

/// What a machine that comes and goes in the cloud's list costs: nothing.
#[tokio::test(start_paused = true)]
async fn a_machine_has_to_be_missing_in_two_passes_in_a_row() {
    let mut world = cluster(3).await;
    lose(&world, 0..1).await;
    pass(5 * S).await;
    assert_eq!(remaining(&world).await, 3);
    world.fake().fail_next("describe", Error::new(Code::Unavailable, "500"));
    pass(10 * S).await;
    assert_eq!(remaining(&world).await, 3, "gone, nothing learnt, gone");
    world.fake().add_instances(["n00"]);
    pass(5 * S).await;
    world.fake().remove_instance("n00");
    pass(5 * S).await;
    assert_eq!(remaining(&world).await, 3, "gone, there, gone");
    pass(5 * S).await;
    assert_eq!(remaining(&world).await, 2);
    assert!(told(&mut world).await.contains("event n00 Normal DeletingNode x1"));
}

/// E1: with the defaults, a machine that is deleted in the cloud takes its node along within a few
/// passes.
#[tokio::test(start_paused = true)]
async fn e1_the_node_of_a_deleted_machine_goes_within_fifteen_seconds_of_its_silence() {
    let world = cluster(3).await;
    lose(&world, 0..1).await;
    pass(15 * S).await;
    assert_eq!(remaining(&world).await, 2);
}

/// An API server in trouble carries deletions out and does not say so: they are a loss all the
/// same.
#[tokio::test(start_paused = true)]
async fn deletions_whose_answer_was_lost_count() {
    let world = cluster(9).await;
    world.disturb(|request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("delete", "nodes") => {
            let timeout = ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", "request did not complete in time");
            Fault::LoseAnswer(timeout)
        }
        _ => Fault::None,
    });
    for lost in 0..9 {
        lose(&world, lost..lost + 1).await;
        pass(MINUTE).await;
    }
    assert_eq!(remaining(&world).await, 5, "four of nine may go, for all other machines are found");
}
