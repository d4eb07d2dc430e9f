//! When the breaker stops the deletion of nodes, and when it allows it again.
//! Lessons: deploy/docs/lessons.md.

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

/// A cluster with this many ready nodes.
async fn cluster(nodes: usize) -> World {
    cluster_for_hours(nodes, 5 * S).await
}

/// The same with a longer period, for tests that cover hours.
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

/// Removes the machines of these nodes, and makes their kubelets silent.
async fn lose(world: &World, nodes: impl Iterator<Item = usize>) {
    for n in nodes {
        world.fake().remove_instance(&name(n));
        world.heartbeat(&name(n), "Unknown").await;
    }
}

async fn remaining(world: &World) -> usize {
    world.as_user(world.nodes().list(&kube::api::ListParams::default())).await.items.len()
}

async fn patch(world: &World, node: &str, patch: Value) {
    world.as_user(world.nodes().patch(node, &PatchParams::default(), &Patch::Merge(&patch))).await;
}

/// The transcript without the look-ups.
async fn actions(world: &mut World) -> String {
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
        event kube-system Warning NodeDeletionStopped x1: The breaker stopped the deletion of nodes of the provider fake: 3 of 6 nodes would be lost, and at most 2 may be deleted within 360 minutes. If the machines still exist in the cloud, correct the provider or its credential. If they do not, delete the nodes with kubectl, or annotate them: skysail.dev/allow-deletion=true
        event n00 Warning NodeDeletionHeld x1: The breaker keeps this node: the provider fake reports too many missing machines, among them this node's. If the machine does not exist, delete the node with kubectl, or annotate it: skysail.dev/allow-deletion=true
        event n01 Warning NodeDeletionHeld x1: The breaker keeps this node: the provider fake reports too many missing machines, among them this node's. If the machine does not exist, delete the node with kubectl, or annotate it: skysail.dev/allow-deletion=true
        event n02 Warning NodeDeletionHeld x1: The breaker keeps this node: the provider fake reports too many missing machines, among them this node's. If the machine does not exist, delete the node with kubectl, or annotate it: skysail.dev/allow-deletion=true
    "#]]
    .assert_eq(&actions(&mut world).await);
    assert!(metric(&world, r#"skysail_node_deletion_stopped{provider="fake"} 1"#));
    assert!(metric(&world, r#"skysail_node_deletion_stops_total{provider="fake"} 1"#));
    assert!(metric(&world, r#"skysail_nodes_held{provider="fake"} 3"#));
    pass(10 * MINUTE).await;
    assert_eq!(actions(&mut world).await, "", "reported once, not in each pass");
    pass(21 * MINUTE).await;
    let again = actions(&mut world).await;
    assert!(again.contains("NodeDeletionStopped x2") && again.contains("n02 Warning NodeDeletionHeld x2"), "{again}");
    assert!(metric(&world, r#"skysail_node_deletion_stops_total{provider="fake"} 1"#), "the same stop");
    assert_eq!(remaining(&world).await, 6);
}

/// Nodes that another client deletes during a call do not count as loss.
#[tokio::test(start_paused = true)]
async fn deletions_by_others_during_a_call_do_not_open_the_breaker() {
    let mut world = cluster(6).await;
    lose(&world, 0..3).await;
    // The first look-up reports three missing machines; during the second one another client
    // deletes two of the nodes.
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
    let actions = actions(&mut world).await;
    assert!(!actions.contains("NodeDeletionStopped"), "{actions}");
    assert_eq!(remaining(&world).await, 3);
}

/// An operator removes four of ten machines without an announcement.
#[tokio::test(start_paused = true)]
async fn a_scale_in_from_ten_to_six_is_done_within_fifteen_seconds() {
    let mut world = cluster(10).await;
    lose(&world, 0..4).await;
    pass(15 * S).await;
    assert_eq!(remaining(&world).await, 6);
    assert!(!actions(&mut world).await.contains("NodeDeletionStopped"));
    assert_eq!(world.clouds[0].finding(Finding::NodesHeld), None);
}

/// The kubelets of four of ten nodes are silent, and the cloud finds no machine: a missing
/// permission, not a scale-in. The finding shows it without Events.
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
    assert!(finding.starts_with("the breaker keeps 4 nodes whose machines were not found, such as n00."), "{finding}");
}

/// Lesson 39: the report was false, or a temporary fault of the cloud.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_finds_its_machines_again_loses_no_node() {
    let mut world = cluster(6).await;
    lose(&world, 0..6).await;
    pass(MINUTE).await;
    for n in 0..6 {
        world.fake().add_instances([&*name(n)]);
    }
    drop(actions(&mut world).await);
    pass(MINUTE).await;
    expect![[r#"
        event kube-system Normal NodeDeletionResumed x1: The breaker of the provider fake closed: Skysail deletes nodes whose machines do not exist again
    "#]]
    .assert_eq(&actions(&mut world).await);
    assert!(metric(&world, r#"skysail_node_deletion_stopped{provider="fake"} 0"#));
    assert!(metric(&world, r#"skysail_nodes_held{provider="fake"} 0"#));
    assert_eq!(remaining(&world).await, 6);
    lose(&world, 0..1).await;
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 5, "a single missing machine does not open the breaker");
}

/// A malicious guest reports one missing machine each minute and finds all others.
#[tokio::test(start_paused = true)]
async fn a_provider_that_reports_one_missing_machine_each_minute_is_stopped_before_half_of_the_nodes_are_deleted() {
    let mut world = cluster_for_hours(12, 20 * S).await;
    for n in 0..12 {
        lose(&world, n..=n).await;
        pass(MINUTE).await;
    }
    assert_eq!(remaining(&world).await, 7);
    assert!(actions(&mut world).await.contains("NodeDeletionStopped"));
    pass(WINDOW - 20 * MINUTE).await;
    assert_eq!(remaining(&world).await, 7, "for a whole window");
}

#[tokio::test(start_paused = true)]
async fn a_third_of_the_nodes_may_be_deleted_after_each_window() {
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
async fn an_annotation_allows_the_deletion_of_a_node_only_if_its_machine_is_missing() {
    let mut world = cluster(6).await;
    lose(&world, 0..4).await;
    pass(MINUTE).await;
    for n in [0, 1, 5] {
        patch(&world, &name(n), json!({ "metadata": { "annotations": { "skysail.dev/allow-deletion": "true" } } }))
            .await;
    }
    patch(&world, &name(2), json!({ "metadata": { "annotations": { "skysail.dev/allow-deletion": "no" } } })).await;
    drop(actions(&mut world).await);
    pass(10 * S).await;
    expect![[r#"
        api delete nodes n00
        api delete nodes n01
        event n00 Normal DeletingNode x1: Deleting node because it does not exist in the cloud provider
        event n01 Normal DeletingNode x1: Deleting node because it does not exist in the cloud provider
    "#]]
    .assert_eq(&actions(&mut world).await);
    assert_eq!(remaining(&world).await, 4, "the breaker keeps the other nodes");
}

#[tokio::test(start_paused = true)]
async fn a_person_who_deletes_kept_nodes_closes_the_breaker() {
    let mut world = cluster(6).await;
    lose(&world, 0..4).await;
    pass(MINUTE).await;
    for n in 0..3 {
        world.delete_node(&name(n)).await;
    }
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 2, "the controller deleted the fourth");
    assert!(actions(&mut world).await.contains("NodeDeletionResumed"));
}

/// The watch lags: it still shows a node that another client deleted, which does not count as loss.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_already_does_not_count_as_loss() {
    let mut world = cluster(3).await;
    world.disturb(|request: &RequestInfo| {
        let gone = || ApiError::new(404_u16.try_into().unwrap(), "NotFound", r#"nodes "n00" not found"#);
        if request.verb == "delete" { Fault::Refuse(gone()) } else { Fault::None }
    });
    lose(&world, 0..1).await;
    pass(MINUTE).await;
    let text = actions(&mut world).await;
    assert!(text.contains("api delete nodes n00") && !text.contains("NodeDeletionStopped"), "{text}");
}

/// A finalizer of another controller delays the deletion of the object; the request is sent once.
#[tokio::test(start_paused = true)]
async fn a_node_that_a_finalizer_keeps_is_counted_once() {
    let mut world = cluster(3).await;
    patch(&world, "n00", json!({ "metadata": { "finalizers": ["example.com/slow"] } })).await;
    lose(&world, 0..1).await;
    pass(MINUTE).await;
    let text = actions(&mut world).await;
    assert_eq!((remaining(&world).await, text.matches("api delete nodes n00").count()), (3, 1), "{text}");
    patch(&world, "n00", json!({ "metadata": { "finalizers": null } })).await;
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 2);
    assert!(!actions(&mut world).await.contains("NodeDeletionStopped"));
}

/// A scale-down by the autoscaler does not count as loss.
#[tokio::test(start_paused = true)]
async fn nodes_that_the_autoscaler_announced_are_deleted_whatever_their_number() {
    let mut world = cluster(6).await;
    for n in 0..5 {
        let taint = json!({ "key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule" });
        patch(&world, &name(n), json!({ "spec": { "taints": [taint] } })).await;
    }
    lose(&world, 0..5).await;
    pass(MINUTE).await;
    assert_eq!(remaining(&world).await, 1);
    assert!(!actions(&mut world).await.contains("NodeDeletionStopped"));
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
    let text = actions(&mut world).await;
    assert!(!text.contains("NodeDeletionStopped"), "{text}");
}

/// An error that concerns no single machine deletes no node, however long it lasts.
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

/// Each provider has its own breaker.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_of_one_provider_does_not_affect_another() {
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
    assert_eq!(remaining(&world).await, 5, "only the missing node of the second provider is deleted");
    assert!(world.node("n03").await.is_none());
}

/// A machine that is temporarily missing from the cloud's list does not lose its node.
#[tokio::test(start_paused = true)]
async fn a_machine_has_to_be_missing_in_two_passes_in_a_row() {
    let mut world = cluster(3).await;
    lose(&world, 0..1).await;
    pass(5 * S).await;
    assert_eq!(remaining(&world).await, 3);
    world.fake().fail_next("describe", Error::new(Code::Unavailable, "500"));
    pass(10 * S).await;
    assert_eq!(remaining(&world).await, 3, "missing, failed look-up, missing");
    world.fake().add_instances(["n00"]);
    pass(5 * S).await;
    world.fake().remove_instance("n00");
    pass(5 * S).await;
    assert_eq!(remaining(&world).await, 3, "missing, found, missing");
    pass(5 * S).await;
    assert_eq!(remaining(&world).await, 2);
    assert!(actions(&mut world).await.contains("event n00 Normal DeletingNode x1"));
}

/// E1: with the defaults, the node of a deleted machine is deleted within a few passes.
#[tokio::test(start_paused = true)]
async fn e1_the_node_of_a_deleted_machine_is_deleted_within_fifteen_seconds() {
    let world = cluster(3).await;
    lose(&world, 0..1).await;
    pass(15 * S).await;
    assert_eq!(remaining(&world).await, 2);
}

/// A failing API server carries out deletions although it answers with an error: they count as
/// loss.
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
    assert_eq!(remaining(&world).await, 5, "four of nine may be deleted, because all other machines are found");
}
