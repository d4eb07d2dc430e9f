//! L1 to L3: the actions for a node that is not ready.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use skysail_provider::{Code, Error, Instance};

use super::{Action, Case, action};

fn node(taints: &[(&str, &str)]) -> Node {
    let taint = |(key, effect): &(&str, &str)| Taint {
        key: (*key).to_owned(),
        effect: (*effect).to_owned(),
        ..Taint::default()
    };
    let taints = Some(taints.iter().map(taint).collect());
    Node { spec: Some(NodeSpec { taints, ..NodeSpec::default() }), ..Node::default() }
}

fn act(taints: &[(&str, &str)], age_seconds: u64, answer: Option<Result<Instance, Error>>) -> Action {
    let object = node(taints);
    let case = Case { object: &object, age: Duration::from_secs(age_seconds), answer };
    action(&case, Duration::from_mins(5))
}

const SHUTDOWN: (&str, &str) = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule");
const UNINITIALIZED: (&str, &str) = ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule");
const OTHER: (&str, &str) = ("other", "NoSchedule");

fn keys(action: Action) -> Vec<String> {
    match action {
        Action::SetTaints(taints) => taints.into_iter().map(|taint| taint.key).collect(),
        other => panic!("{other:?}"),
    }
}

/// L1.1, L1.4.
#[test]
fn not_found_for_the_machine_means_that_it_is_gone() {
    assert_eq!(act(&[], 0, Some(Err(Error::new(Code::NotFound, "")))), Action::Gone);
}

/// L1.2, lesson 39: an expired token must not delete nodes.
#[test]
fn no_other_error_means_that_the_machine_is_gone() {
    for code in Code::ALL.into_iter().filter(|code| *code != Code::NotFound) {
        let error = Error::new(code, "");
        assert_eq!(act(&[], 9999, Some(Err(error.clone()))), Action::Unknown(error), "{code:?}");
    }
}

/// L1.3, L1.5, L1.6, L3.8.
#[test]
fn an_existing_machine_or_a_ready_node_changes_nothing() {
    assert_eq!(act(&[OTHER], 0, Some(Ok(Instance::default()))), Action::Keep);
    assert_eq!(act(&[OTHER], 0, None), Action::Keep);
}

/// Lesson 38: clouds list a new machine late.
#[test]
fn a_node_that_was_never_initialised_has_a_grace_period() {
    let gone = || Some(Err(Error::new(Code::NotFound, "")));
    assert_eq!(act(&[UNINITIALIZED], 299, gone()), Action::Keep);
    assert_eq!(act(&[UNINITIALIZED], 300, gone()), Action::Gone);
}

/// L3.1.
#[test]
fn the_shutdown_taint_is_added_and_removed_and_other_taints_stay() {
    let off = || Some(Ok(Instance { shutdown: true, ..Instance::default() }));
    assert_eq!(keys(act(&[OTHER], 0, off())), ["other", SHUTDOWN.0]);
    assert_eq!(act(&[SHUTDOWN], 0, off()), Action::Keep, "no write if the taint is present");
    assert_eq!(
        act(&[SHUTDOWN], 0, Some(Ok(Instance::default()))),
        Action::Keep,
        "the taint stays until the node is ready"
    );
    assert_eq!(keys(act(&[OTHER, SHUTDOWN], 0, None)), ["other"]);
}
