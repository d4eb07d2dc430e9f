//! Which nodes back load balancers, and the cost of a change of a node.
//! IDs: tests/conformance/README.md.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use rstest::rstest;

use super::{Nodes, is_eligible};
use crate::ownership::{Claim, Owner};

fn node(name: &str) -> Node {
    let mut node = Node { spec: Some(NodeSpec::default()), ..Node::default() };
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(name.to_owned());
    node
}

type Change = fn(&mut Node);

const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";

fn changed(changes: &[Change]) -> Node {
    let mut node = node("a");
    changes.iter().for_each(|change| change(&mut node));
    node
}

fn nothing(_: &mut Node) {}

fn taint(node: &mut Node, key: &str) {
    let taint = Taint { key: key.to_owned(), value: Some("1234".to_owned()), ..Taint::default() };
    node.spec.as_mut().unwrap().taints.get_or_insert_default().push(taint);
}

fn autoscaler(node: &mut Node) {
    taint(node, AUTOSCALER);
}

fn label(node: &mut Node, key: &str, value: &str) {
    node.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

fn exclude(node: &mut Node, value: &str) {
    label(node, "node.kubernetes.io/exclude-from-external-load-balancers", value);
}

fn excluded(node: &mut Node) {
    exclude(node, "");
}

fn deleting(node: &mut Node) {
    node.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
}

fn condition(node: &mut Node, kind: &str, status: &str) {
    let condition = NodeCondition { type_: kind.to_owned(), status: status.to_owned(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
}

fn is_ready(node: &mut Node) {
    condition(node, "Ready", "True");
}

fn not_ready(node: &mut Node) {
    condition(node, "Ready", "False");
}

fn provider_id(node: &mut Node, id: &str) {
    node.spec.as_mut().unwrap().provider_id = Some(id.to_owned());
}

fn id(node: &mut Node) {
    provider_id(node, "one://a");
}

fn other_id(node: &mut Node) {
    provider_id(node, "one://b");
}

/// Upstream's stable set, which production uses, ignores readiness.
#[rstest]
#[case::s15_1_zero_node(nothing, nothing, true)]
#[case::s15_2_ready_with_provider_id(is_ready, id, true)]
#[case::s15_3_ready_without_provider_id(is_ready, nothing, true)]
#[case::s15_4_not_ready(not_ready, id, true)]
#[case::s15_5_ready_with_empty_labels(is_ready, |n: &mut Node| n.metadata.labels = Some([].into()), true)]
#[case::s15_6_exclude_label_empty(is_ready, excluded, false)]
#[case::s15_7_exclude_label_false(is_ready, |n: &mut Node| exclude(n, "false"), true)]
#[case::s15_8_exclude_label_true(is_ready, |n: &mut Node| exclude(n, "true"), false)]
#[case::s15_9_exclude_label_foo(is_ready, |n: &mut Node| exclude(n, "foo"), false)]
#[case::s15_10_autoscaler_taint(is_ready, autoscaler, false)]
#[case::cordoned(is_ready, |n: &mut Node| n.spec.as_mut().unwrap().unschedulable = Some(true), true)]
#[case::uninitialized(nothing, |n: &mut Node| taint(n, "node.cloudprovider.kubernetes.io/uninitialized"), true)]
#[case::being_deleted(is_ready, deleting, false)]
fn the_stable_set(#[case] one: Change, #[case] other: Change, #[case] eligible: bool) {
    assert_eq!(is_eligible(&changed(&[one, other])), eligible);
}

/// Every spelling that Go's `strconv.ParseBool` reads as false, and nothing else.
#[test]
fn the_exclude_label_is_read_as_go_reads_a_boolean() {
    let eligible = |value: &&str| {
        let mut node = node("a");
        exclude(&mut node, value);
        is_eligible(&node)
    };
    assert!(["0", "f", "F", "false", "False", "FALSE"].iter().all(&eligible));
    assert!(!["1", "t", "T", "true", "True", "TRUE", "", "no", "fALSE", "off"].iter().any(&eligible));
}

fn nodes() -> Nodes {
    let claim =
        |lane, scheme: &str, default| Claim { lane, schemes: vec![scheme.to_owned()], default, ..Claim::default() };
    let nodes = Nodes::default();
    nodes.reassign(|_| vec![claim(0, "one", true), claim(1, "two", false)]);
    nodes
}

fn with_id(name: &str, id: &str) -> Node {
    let mut node = node(name);
    node.spec.as_mut().unwrap().provider_id = Some(id.to_owned());
    node
}

/// Whether a change of a node triggers an update of Services. Upstream decides whether to run a
/// node sync, which then compares all sets; here only a change of a set counts, so three groups of
/// cases differ, each with a comment.
fn updates_services(always: Change, old: Change, new: Change) -> bool {
    let nodes = nodes();
    nodes.put(&changed(&[always, old]));
    nodes.publish(0);
    nodes.put(&changed(&[always, new]));
    nodes.publish(0)
}

#[rstest]
#[case::s17_1_nothing(nothing, nothing, false)]
#[case::s17_2_exclude_label_added(nothing, excluded, true)]
#[case::s17_3_exclude_label_removed(excluded, nothing, true)]
#[case::s17_4_exclude_label_on_both(excluded, excluded, false)]
#[case::s17_5_another_taint_added(nothing, |n: &mut Node| taint(n, "other"), false)]
#[case::s17_6_another_taint_removed(|n: &mut Node| taint(n, "other"), nothing, false)]
#[case::s17_7_another_label_added(nothing, |n: &mut Node| label(n, "a", "b"), false)]
#[case::s17_8_another_label_removed(|n: &mut Node| label(n, "a", "b"), nothing, false)]
#[case::s17_9_not_ready_stays(not_ready, not_ready, false)]
#[case::s17_10_not_ready_to_absent(not_ready, nothing, false)]
#[case::s17_11_absent_to_not_ready(nothing, not_ready, false)]
#[case::s17_12_absent_stays(nothing, nothing, false)]
// Upstream keeps a node that is being deleted in the set until the next sync for another reason;
// here it leaves the set at once.
#[case::s17_17_deletion(nothing, deleting, true)]
#[case::s17_18_provider_id_set(nothing, id, true)]
#[case::s17_19_provider_id_set_on_an_empty_one(|n: &mut Node| provider_id(n, ""), id, true)]
#[case::s17_20_provider_id_unset(id, nothing, true)]
#[case::s17_21_provider_id_changed(id, other_id, true)]
// Upstream ignores these changes, so they do not reach a provider whose backends are addresses or
// zones.
#[case::address(nothing, |n: &mut Node| {
    let address = NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.0.1".to_owned() };
    n.status = Some(NodeStatus { addresses: Some(vec![address]), ..NodeStatus::default() });
}, true)]
#[case::zone(nothing, |n: &mut Node| label(n, "topology.kubernetes.io/zone", "z1"), true)]
#[case::region(nothing, |n: &mut Node| label(n, "topology.kubernetes.io/region", "r1"), true)]
#[case::annotation(nothing, |n: &mut Node| n.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()), false)]
#[tokio::test(start_paused = true)]
async fn one_change_of_a_node(#[case] old: Change, #[case] new: Change, #[case] told: bool) {
    assert_eq!(updates_services(nothing, old, new), told);
}

#[rstest]
#[case::s17_13_not_ready_and_pressure_comes(not_ready, |n: &mut Node| condition(n, "DiskPressure", "False"), |n: &mut Node| condition(n, "DiskPressure", "True"))]
#[case::s17_14_not_ready_and_pressure_goes(not_ready, |n: &mut Node| condition(n, "DiskPressure", "True"), |n: &mut Node| condition(n, "DiskPressure", "False"))]
#[case::s17_15_ready_and_pressure_comes(is_ready, |n: &mut Node| condition(n, "DiskPressure", "False"), |n: &mut Node| condition(n, "DiskPressure", "True"))]
#[case::s17_16_ready_and_pressure_goes(is_ready, |n: &mut Node| condition(n, "DiskPressure", "True"), |n: &mut Node| condition(n, "DiskPressure", "False"))]
#[tokio::test(start_paused = true)]
async fn a_condition_is_no_change_of_a_set(#[case] always: Change, #[case] old: Change, #[case] new: Change) {
    assert!(!updates_services(always, old, new));
}

#[rstest]
// Upstream runs a sync without a change: a node with the autoscaler's taint is in no set, whatever
// its label.
#[case::s18_1_autoscaler_taint_and_exclude_added(autoscaler, nothing, excluded, false)]
#[case::s18_2_autoscaler_taint_and_exclude_removed(autoscaler, excluded, nothing, false)]
#[case::s18_3_autoscaler_taint_and_id_set(autoscaler, nothing, id, false)]
#[case::s18_4_autoscaler_taint_and_id_unset(autoscaler, id, nothing, false)]
#[case::s18_5_autoscaler_taint_and_id_changed(autoscaler, id, other_id, false)]
#[case::s18_6_autoscaler_taint_and_ready(autoscaler, not_ready, is_ready, false)]
#[case::s18_7_autoscaler_taint_and_not_ready(autoscaler, is_ready, not_ready, false)]
#[case::s18_8_excluded_and_autoscaler_taint_added(excluded, nothing, autoscaler, false)]
#[case::s18_9_excluded_and_autoscaler_taint_removed(excluded, autoscaler, nothing, false)]
#[case::s18_10_excluded_and_ready(excluded, not_ready, is_ready, false)]
#[case::s18_11_excluded_and_not_ready(excluded, is_ready, not_ready, false)]
// As S18.1: an excluded node is in no set, so upstream's sync makes no call.
#[case::s18_12_excluded_and_id_set(excluded, nothing, id, false)]
#[case::s18_13_excluded_and_id_unset(excluded, id, nothing, false)]
#[case::s18_14_excluded_and_id_changed(excluded, id, other_id, false)]
// Upstream checks the taint only at another sync, so a node that will be deleted keeps its traffic;
// here it leaves the set at once and returns at once.
#[case::s18_15_not_ready_and_autoscaler_taint_added(not_ready, nothing, autoscaler, true)]
#[case::s18_16_not_ready_and_autoscaler_taint_removed(not_ready, autoscaler, nothing, true)]
#[case::s18_17_not_ready_and_exclude_added(not_ready, nothing, excluded, true)]
#[case::s18_18_not_ready_and_exclude_removed(not_ready, excluded, nothing, true)]
#[case::s18_19_not_ready_and_id_set(not_ready, nothing, id, true)]
#[case::s18_20_not_ready_and_id_unset(not_ready, id, nothing, true)]
#[case::s18_21_not_ready_and_id_changed(not_ready, id, other_id, true)]
#[case::s18_22_no_id_and_exclude_added(nothing, nothing, excluded, true)]
#[case::s18_23_no_id_and_exclude_removed(nothing, excluded, nothing, true)]
#[case::s18_24_no_id_and_ready(nothing, not_ready, is_ready, false)]
#[case::s18_25_no_id_and_not_ready(nothing, is_ready, not_ready, false)]
// As S18.15.
#[case::s18_26_no_id_and_autoscaler_taint_removed(nothing, autoscaler, nothing, true)]
#[case::s18_27_no_id_and_autoscaler_taint_added(nothing, nothing, autoscaler, true)]
#[tokio::test(start_paused = true)]
async fn a_change_of_a_node_in_a_state(
    #[case] always: Change,
    #[case] old: Change,
    #[case] new: Change,
    #[case] told: bool,
) {
    assert_eq!(updates_services(always, old, new), told);
}

fn names_in(nodes: &Nodes, provider: usize) -> Vec<String> {
    nodes.shared(provider).nodes.as_slice().iter().map(|node| node.name.clone()).collect()
}

/// Five nodes with alternating state: the eligible ones are listed, in order.
#[tokio::test(start_paused = true)]
async fn s16_the_nodes_that_satisfy_the_predicate_are_listed() {
    let nodes = nodes();
    let put = |keep: fn(usize) -> bool| {
        for n in 0..5 {
            let mut node = node(&n.to_string());
            if !keep(n) {
                excluded(&mut node);
            }
            nodes.put(&node);
        }
        nodes.publish(0);
        names_in(&nodes, 0)
    };
    assert_eq!(put(|n| n % 2 == 1), ["1", "3"]);
    assert_eq!(put(|n| n % 2 == 0), ["0", "2", "4"]);
    assert!(put(|_| false).is_empty());
}

/// The digest is updated incrementally: it must depend on the present nodes only, not on their
/// history.
#[tokio::test(start_paused = true)]
async fn the_same_nodes_have_the_same_membership_whatever_their_history() {
    let (one, other) = (nodes(), nodes());
    for name in ["a", "b", "c"] {
        one.put(&node(name));
    }
    for (name, changes) in [("c", excluded as Change), ("x", nothing), ("b", id), ("a", deleting)] {
        let mut first = node(name);
        changes(&mut first);
        other.put(&first);
        other.publish(0);
        other.put(&node(name));
    }
    other.publish(0);
    other.remove("x");
    assert!(one.publish(0) && other.publish(0));
    assert_eq!(one.shared(0).membership, other.shared(0).membership);
    assert_eq!(names_in(&one, 0), names_in(&other, 0));
}

/// A node whose annotations change constantly must not cause a pass over all nodes while no Service
/// has work.
#[tokio::test(start_paused = true)]
async fn a_publication_without_a_reader_builds_no_set() {
    let nodes = nodes();
    for n in 0..100 {
        nodes.put(&node(&n.to_string()));
    }
    nodes.publish(0);
    let holders = || Arc::strong_count(&nodes.get("7").unwrap().node);
    let unread = holders();
    let set = nodes.shared(0);
    assert_eq!(holders(), unread + 1, "one set has the node, and all readers share the set");
    assert!(std::ptr::eq(set.nodes.as_slice(), nodes.shared(0).nodes.as_slice()));
    drop(set);
    for beat in 0..50 {
        let mut busy = node("8");
        label(&mut busy, "beat", &beat.to_string());
        nodes.put(&busy);
        assert!(!nodes.publish(0));
        assert_eq!(holders(), unread, "no set was built");
    }
}

/// An early reader may see a new node before the other readers, or miss a node that is deleted
/// before the next publication.
#[tokio::test(start_paused = true)]
async fn an_early_reader_hides_no_change_from_the_other_readers() {
    let nodes = nodes();
    nodes.put(&node("a"));
    assert!(nodes.publish(0), "all Services have a");
    assert!(!nodes.publish(0));
    nodes.put(&node("b"));
    assert_eq!(names_in(&nodes, 0), ["a", "b"], "the early reader has a and b");
    assert!(nodes.publish(0), "the others are still at a");
    assert!(!nodes.publish(0));
    nodes.put(&node("c"));
    assert_eq!(names_in(&nodes, 0), ["a", "b", "c"], "the early reader has a, b and c");
    nodes.remove("c");
    assert!(nodes.publish(0), "the early reader has to be updated");
    assert!(!nodes.publish(0));
}

/// Between two publications of the node set all Services get the set that the first reader built: a
/// node that comes in between causes no separate call for each Service.
#[tokio::test(start_paused = true)]
async fn a_set_that_was_read_stays_until_the_next_publication() {
    let nodes = nodes();
    nodes.put(&node("a"));
    assert!(nodes.publish(0));
    nodes.put(&node("b"));
    assert_eq!(names_in(&nodes, 0), ["a", "b"], "the first reader sees the current nodes");
    nodes.put(&node("c"));
    assert_eq!(names_in(&nodes, 0), ["a", "b"]);
    assert!(nodes.publish(0));
    assert_eq!(names_in(&nodes, 0), ["a", "b", "c"]);
    assert!(!nodes.publish(0));
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_keeps_the_same_allocation() {
    let nodes = nodes();
    let (_, before) = nodes.put(&node("a"));
    let (_, after) = nodes.put(&changed(&[|node| node.metadata.resource_version = Some("2".to_owned())]));
    assert!(Arc::ptr_eq(&before.node, &after.node));
}

#[tokio::test(start_paused = true)]
async fn each_provider_sees_only_its_own_nodes() {
    let nodes = nodes();
    for (name, id) in [("a", "one://a"), ("b", "two://b"), ("c", "three://c"), ("d", "no scheme")] {
        nodes.put(&with_id(name, id));
    }
    nodes.put(&node("e"));
    let names = |provider| nodes.owned(provider).into_iter().map(|view| view.node.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(0), names(1)), (vec!["a".to_owned(), "e".to_owned()], vec!["b".to_owned()]));
    assert_eq!(nodes.get("c").unwrap().owner, Owner::Unowned);
    assert_eq!(nodes.get("d").unwrap().owner, Owner::Malformed);
}

#[tokio::test(start_paused = true)]
async fn new_claims_move_only_the_affected_nodes() {
    let nodes = nodes();
    nodes.put(&with_id("a", "one://a"));
    nodes.put(&with_id("c", "three://c"));
    let claim = |lane, schemes: &[&str]| Claim {
        lane,
        schemes: schemes.iter().map(|s| (*s).to_owned()).collect(),
        ..Claim::default()
    };
    let (moved, _) = nodes.reassign(|_| vec![claim(0, &["one"]), claim(1, &["two", "three"])]);
    assert_eq!(
        moved.into_iter().map(|view| (view.node.name.clone(), view.owner)).collect::<Vec<_>>(),
        [("c".to_owned(), Owner::Provider(1))]
    );
}

/// A reader between two steps would empty a load balancer.
#[tokio::test(start_paused = true)]
async fn a_provider_whose_schemes_are_settled_has_its_nodes_at_once() {
    let nodes = Nodes::default();
    let claim = |settled: bool| {
        let schemes = settled.then(|| "one".to_owned()).into_iter().collect();
        vec![Claim { lane: 0, schemes, settled, ..Claim::default() }]
    };
    nodes.reassign(|_| claim(false));
    nodes.put(&with_id("a", "one://a"));
    nodes.publish(0);
    assert!(!nodes.shared(0).settled);
    assert_eq!(nodes.reassign(|_| claim(true)).1, [0]);
    let shared = nodes.shared(0);
    assert!(shared.settled);
    assert_eq!(shared.nodes.as_slice().len(), 1);
}
