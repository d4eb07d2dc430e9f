//! What a pause holds back, in the words of the tests of the plan.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Service;

use super::{Plan, is_asked_for};
use crate::service::plan::{
    plan,
    tests::{observed, planned},
};

#[track_caller]
fn check(words: &str, expected: Expect) {
    expected.assert_eq(&planned(words));
}

#[test]
fn the_annotation_holds_back_every_step_that_leads_to_a_change_in_the_cloud() {
    check("lb paused", expect!["Annotated holds: ensure port=80 finalizer=true"]);
    check("lb finalizer ensured other-port paused", expect!["Annotated holds: ensure port=81 finalizer=false"]);
    check("lb finalizer ensured other-nodes paused", expect!["Annotated holds: update"]);
    check("lb finalizer ensured other-release paused", expect!["Annotated holds: ensure port=80 finalizer=false"]);
    check("lb finalizer ensured overdue paused", expect!["Annotated holds: ensure port=80 finalizer=false repeated"]);
    check("lb finalizer failed other-nodes paused", expect!["Annotated holds: update"]);
    check("lb finalizer ensured deleting paused", expect!["Annotated holds: cleanup of [1]"]);
    check("nodeport finalizer ensured paused", expect!["Annotated holds: cleanup of [1]"]);
    check("nodeport finalizer paused", expect!["Annotated holds: cleanup of [1, 2]"]);
    check("lb finalizer ensured other-owner paused", expect!["Annotated holds: cleanup of [1]"]);
    check("named lb finalizer deleting paused", expect!["Annotated holds: confirm"]);
    check("lb ensured other-uid paused", expect!["Annotated holds: delete the load balancer of uid one"]);
}

/// A pause loses nothing, and a user who writes the annotation wants one.
#[test]
fn an_annotation_that_is_neither_true_nor_false_pauses() {
    check("lb unclear-pause", expect!["Unclear holds: ensure port=80 finalizer=true"]);
    check("lb finalizer ensured deleting unclear-pause", expect!["Unclear holds: cleanup of [1]"]);
}

#[test]
fn a_paused_provider_holds_back_what_it_would_be_asked_for() {
    check("lb paused-here", expect!["Provider(1) holds: ensure port=80 finalizer=true"]);
    check("lb paused-there", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer ensured other-nodes paused-here", expect!["Provider(1) holds: update"]);
    check("lb finalizer deleting paused-here", expect!["Provider(1) holds: cleanup of [1]"]);
    check("gone ensured absent paused-here", expect!["Provider(1) holds: delete the load balancer of uid one"]);
}

/// Nobody knows which of the two made the load balancer.
#[test]
fn one_paused_provider_of_several_holds_a_cleanup_back() {
    check("nodeport finalizer paused-there", expect!["Provider(2) holds: cleanup of [1, 2]"]);
    check("nodeport finalizer emptied-there paused-there", expect!["cleanup of [1]"]);
}

#[test]
fn the_annotation_lets_a_service_through_while_its_provider_is_paused() {
    check("lb paused-here let-through", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer ensured deleting paused-here let-through", expect!["cleanup of [1]"]);
    check("nodeport finalizer paused-there let-through", expect!["cleanup of [1, 2]"]);
}

/// Otherwise the load balancer would be leaked if the Service is deleted during the pause.
#[test]
fn the_finalizer_and_the_status_of_a_paused_service_are_written_again() {
    check("lb ensured paused", expect!["repair finalizer=true status=false"]);
    check("lb ensured other-port paused", expect!["repair finalizer=true status=false"]);
    check("lb finalizer names-another ensured other-nodes paused", expect!["repair finalizer=true status=false"]);
    check("lb finalizer ensured unwritten other-port paused", expect!["repair finalizer=false status=true"]);
    check("lb begun paused", expect!["repair finalizer=true status=false"]);
    check("lb begun repaired paused", expect!["wait 1s"]);
    check("lb deleted paused", expect!["Annotated holds: ensure port=80 finalizer=true"]);
    check("lb deleting ensured paused", expect!["Annotated holds: cleanup of [1]"]);
}

#[test]
fn a_pause_holds_back_nothing_that_leaves_the_cloud_alone() {
    check("lb finalizer ensured paused", expect!["nothing"]);
    check("clusterip paused", expect!["nothing"]);
    check("gone ensured paused-here", expect!["look up"]);
    check("lb finalizer deleting deleted paused", expect!["release status=true"]);
    check("lb finalizer deleting emptied-here paused", expect!["cleanup of []"]);
    check("lb bad-port paused", expect!["port 70000/TCP (node port 0) is out of range or has an unknown protocol"]);
    check("nodeport finalizer no-holder paused", expect!["no holder"]);
}

/// While only the provider is paused, the Event is for what the Service asks for: otherwise a new
/// node or a restart would emit one for each Service of the cluster.
#[test]
fn a_service_asks_for_a_step_if_it_is_new_or_changed_or_deleted() {
    let asks = |words: &str| match plan(&observed(&format!("{words} paused-here"))) {
        Plan::Paused { held, .. } => is_asked_for(&observed(words), &held),
        other => panic!("{words}: {other:?}"),
    };
    for words in
        ["lb", "lb finalizer ensured other-port", "lb finalizer deleting", "nodeport finalizer ensured", "lb deleted"]
    {
        assert!(asks(words), "{words}");
    }
    for words in [
        "lb finalizer",
        "lb finalizer begun",
        "lb finalizer ensured other-nodes",
        "lb finalizer ensured other-release",
        "lb finalizer ensured overdue",
    ] {
        assert!(!asks(words), "{words}");
    }
}

#[test]
fn the_annotation_reaches_no_provider() {
    let mut object = Service::default();
    object.metadata.annotations = Some([("skysail.dev/paused".to_owned(), "true".to_owned())].into());
    assert!(crate::service_spec::convert(&object).service.annotations.is_empty());
}
