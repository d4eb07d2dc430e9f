//! Which nodes back load balancers, and what a change of one costs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{Nodes, is_eligible};
use crate::ownership::{Claim, Owner};

fn node(name: &str) -> Node {
    let mut node = Node { spec: Some(NodeSpec::default()), ..Node::default() };
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(name.to_owned());
    node
}

fn changed(change: impl FnOnce(&mut Node)) -> Node {
    let mut node = node("a");
    change(&mut node);
    node
}

fn taint(key: &str) -> impl FnOnce(&mut Node) {
    let taint = Taint { key: key.to_owned(), value: Some("1234".to_owned()), ..Taint::default() };
    move |node| node.spec.as_mut().unwrap().taints = Some(vec![taint])
}

fn exclude(value: &str) -> impl FnOnce(&mut Node) {
    let label = ("node.kubernetes.io/exclude-from-external-load-balancers".to_owned(), value.to_owned());
    move |node| node.metadata.labels = Some([label].into())
}

fn ready(status: &str) -> impl FnOnce(&mut Node) {
    let condition = NodeCondition { type_: "Ready".to_owned(), status: status.to_owned(), ..NodeCondition::default() };
    move |node| node.status = Some(NodeStatus { conditions: Some(vec![condition]), ..NodeStatus::default() })
}

/// S15 of the catalogue, last column, and S3.9.
#[test]
fn the_stable_set_ignores_readiness_and_honours_labels_taints_and_deletion() {
    assert!(is_eligible(&node("a")), "S15.1");
    assert!(is_eligible(&changed(ready("True"))), "S15.2");
    assert!(is_eligible(&changed(ready("False"))), "S15.4");
    for value in ["", "true", "foo"] {
        assert!(!is_eligible(&changed(exclude(value))), "S15.6, S15.8, S15.9: {value:?}");
    }
    assert!(is_eligible(&changed(exclude("false"))), "S15.7");
    assert!(!is_eligible(&changed(taint("ToBeDeletedByClusterAutoscaler"))), "S15.10");
    assert!(is_eligible(&changed(taint("node.cloudprovider.kubernetes.io/uninitialized"))), "S3.10");
    let going = changed(|node| node.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)));
    assert!(!is_eligible(&going), "S3.9");
}

fn nodes() -> Nodes {
    let claim = |scheme: &str, default| Claim { schemes: vec![scheme.to_owned()], default, ..Claim::default() };
    Nodes::new(vec![claim("one", true), claim("two", false)])
}

fn with_id(name: &str, id: &str) -> Arc<Node> {
    let mut node = node(name);
    node.spec.as_mut().unwrap().provider_id = Some(id.to_owned());
    Arc::new(node)
}

/// S17 and S18 of the catalogue: what changes a set and what does not. Two differ on purpose: a node that the autoscaler is about to delete, or that is
/// being deleted, leaves at once and not at the next sync that happens for another reason.
#[tokio::test(start_paused = true)]
async fn only_what_a_load_balancer_depends_on_changes_the_membership() {
    #[track_caller]
    fn check(what: &str, expected: bool, change: impl FnOnce(&mut Node)) {
        let nodes = nodes();
        nodes.put(Arc::new(node("a")));
        assert!(nodes.publish(0));
        nodes.put(Arc::new(changed(change)));
        assert_eq!(nodes.publish(0), expected, "{what}");
    }
    check("S17.1 nothing", false, |_| {});
    check("S17.2 exclude label", true, exclude(""));
    check("S17.5 another taint", false, taint("other"));
    check("S17.7 another label", false, |node| node.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
    check("S17.9 readiness", false, ready("False"));
    check("S17.17 deletion (ours)", true, |node| node.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)));
    check("S17.18 provider ID", true, |node| node.spec.as_mut().unwrap().provider_id = Some("one://a".to_owned()));
    check("S3.5 autoscaler taint (ours)", true, taint("ToBeDeletedByClusterAutoscaler"));
    check("addresses (ours)", true, |node| {
        let address =
            k8s_openapi::api::core::v1::NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.0.1".to_owned() };
        node.status = Some(NodeStatus { addresses: Some(vec![address]), ..NodeStatus::default() });
    });
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_keeps_the_same_allocation() {
    let nodes = nodes();
    let (_, before) = nodes.put(Arc::new(node("a")));
    let (_, after) = nodes.put(Arc::new(changed(|node| node.metadata.resource_version = Some("2".to_owned()))));
    assert!(Arc::ptr_eq(&before.node, &after.node));
}

#[tokio::test(start_paused = true)]
async fn each_provider_sees_its_own_nodes_and_nobody_sees_a_strangers() {
    let nodes = nodes();
    for (name, id) in [("a", "one://a"), ("b", "two://b"), ("c", "three://c"), ("d", "no scheme")] {
        nodes.put(with_id(name, id));
    }
    nodes.put(Arc::new(node("e")));
    let names = |provider| nodes.owned(provider).into_iter().map(|view| view.node.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(0), names(1)), (vec!["a".to_owned(), "e".to_owned()], vec!["b".to_owned()]));
    assert_eq!(nodes.get("c").unwrap().owner, Owner::Nobody);
    assert_eq!(nodes.get("d").unwrap().owner, Owner::Malformed);
}

#[tokio::test(start_paused = true)]
async fn new_claims_move_the_nodes_that_they_concern_and_no_others() {
    let nodes = nodes();
    nodes.put(with_id("a", "one://a"));
    nodes.put(with_id("c", "three://c"));
    let claim =
        |schemes: &[&str]| Claim { schemes: schemes.iter().map(|s| (*s).to_owned()).collect(), ..Claim::default() };
    let moved = nodes.reassign(vec![claim(&["one"]), claim(&["two", "three"])]);
    assert_eq!(
        moved.into_iter().map(|view| (view.node.name.clone(), view.owner)).collect::<Vec<_>>(),
        [("c".to_owned(), Owner::Provider(1))]
    );
}
