//! One Service's state in, one plan out.

use std::sync::Arc;

use expect_test::{Expect, expect};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use rstest::rstest;
use skysail_provider::{Ingress, LoadBalancerStatus};
use tokio::time::Instant;

use super::{Observed, Plan, Standing, plan};
use crate::{
    ledger::{Backends, Before, Entry, Serving, State, Written},
    nodes::Nodes,
    service_spec::convert,
};

/// What the world looks like, in words: `lb`, `clusterip`, `nodeport`, `typeless`, `class`,
/// `finalizer`, `deleting`, `gone`, `bad-port`; what is remembered: `begun`, `ensured`, `failed`
/// after it was ensured, `elsewhere`, `deleted`, `unwritten`, `repaired`, `overdue`; what differs
/// from it: `other-uid`, `other-port`, `other-nodes`, `unknown-nodes`, `two-failed-updates`,
/// `other-release`, `other-class`; whose it is: `anothers`, `nobodys`.
#[track_caller]
fn check(words: &str, expected: Expect) {
    expected.assert_eq(&planned(words));
}

fn planned(words: &str) -> String {
    let has = |word: &str| words.split_whitespace().any(|w| w == word);
    let remembered = Arc::new(convert(&object("one", 80, &|word| has(word) && word != "other-class")).service);
    let object = object(if has("other-uid") { "two" } else { "one" }, if has("other-port") { 81 } else { 80 }, &has);
    let shared = Nodes::default().shared(0);
    let nodes = match () {
        () if has("two-failed-updates") => Backends::Unknown { failed: 2 },
        () if has("unknown-nodes") => Backends::Unknown { failed: 0 },
        () => Backends::Known(if has("other-nodes") { 1 } else { shared.membership }),
    };
    let generation = u64::from(!has("other-release"));
    let status = address();
    let written = if has("unwritten") { Written::No } else { Written::At(None) };
    let state = match () {
        () if has("ensured") => {
            Some(State::Serving(Serving { nodes, generation, status, written, overdue: has("overdue") }))
        }
        () if has("elsewhere") => Some(State::Elsewhere { generation }),
        () if has("failed") => {
            let before = Before { service: Arc::clone(&remembered), nodes, retry: None };
            Some(State::Unsettled { before: Some(before) })
        }
        () if has("deleted") => Some(State::Deleted),
        () => has("begun").then_some(State::Unsettled { before: None }),
    };
    let (mut entry, now) = (state.map(|state| Entry::new("fake", remembered, state)), Instant::now());
    if let Some(entry) = entry.as_mut().filter(|_| has("repaired")) {
        entry.repairs.begin(now);
    }
    let waits = entry.as_ref().map(|entry| entry.waits(now)).unwrap_or_default();
    let plan = plan(&Observed {
        object: (!has("gone")).then(|| Arc::new(object)),
        entry,
        standing: match () {
            () if has("anothers") => Standing::Anothers,
            () if has("nobodys") || !has("lb") => Standing::Nobodys,
            () => Standing::Mine,
        },
        provider: "fake".to_owned(),
        shared,
        generation: 1,
        waits,
    });
    match plan {
        Plan::Nothing => "nothing".to_owned(),
        Plan::DeleteRemembered(service) => format!("delete what uid {} has", service.uid),
        Plan::Cleanup(service) if service.ports.iter().any(|port| port.port == 81) => "cleanup port=81".to_owned(),
        Plan::Cleanup(_) => "cleanup".to_owned(),
        Plan::Release(_) => "release".to_owned(),
        Plan::Forget => "forget".to_owned(),
        Plan::Wait(wait) => format!("wait {wait:?}"),
        Plan::Refuse(problems) => problems.join("; "),
        Plan::Ensure { add_finalizer, service, repeated } => {
            let repeated = if repeated { " repeated" } else { "" };
            format!("ensure port={} finalizer={add_finalizer}{repeated}", service.ports[0].port)
        }
        Plan::Update(_) => "update".to_owned(),
        Plan::Repair { add_finalizer, status } => {
            format!("repair finalizer={add_finalizer} status={}", status.is_some())
        }
    }
}

fn address() -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: vec![Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() }] }
}

fn object(uid: &str, port: i32, has: &impl Fn(&str) -> bool) -> Service {
    let mut object = Service::default();
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.finalizers = has("finalizer")
        .then(|| vec!["other/one".to_owned(), "service.kubernetes.io/load-balancer-cleanup".to_owned()]);
    object.metadata.deletion_timestamp = has("deleting").then_some(Time(Timestamp::UNIX_EPOCH));
    object.spec = Some(ServiceSpec {
        type_: match () {
            () if has("lb") => Some("LoadBalancer".to_owned()),
            () if has("nodeport") => Some("NodePort".to_owned()),
            () => (!has("typeless")).then(|| "ClusterIP".to_owned()),
        },
        load_balancer_class: match () {
            () if has("other-class") => Some("another.example/lb".to_owned()),
            () => has("class").then(|| "other.example/lb".to_owned()),
        },
        ports: Some(vec![ServicePort { port: if has("bad-port") { 70_000 } else { port }, ..ServicePort::default() }]),
        ..ServiceSpec::default()
    });
    object
}

/// S1.1, S1.5.
#[test]
fn without_a_wish_nothing_is_done() {
    check("clusterip", expect!["nothing"]);
    check("lb class nobodys", expect!["nothing"]);
    check("lb class anothers", expect!["nothing"]);
    check("gone", expect!["nothing"]);
}

/// S1.2 to S1.4, S1.8.
#[test]
fn a_wish_is_ensured_once() {
    check("lb", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer begun", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer ensured", expect!["nothing"]);
}

/// S12, S19, and what upstream cannot: a release that became active is asked once.
#[test]
fn what_changed_decides_between_ensure_and_update() {
    check("lb finalizer ensured other-port", expect!["ensure port=81 finalizer=false"]);
    check("lb finalizer ensured other-nodes", expect!["update"]);
    check("lb finalizer ensured other-nodes other-port", expect!["ensure port=81 finalizer=false"]);
    check("lb finalizer ensured other-release", expect!["ensure port=80 finalizer=false"]);
    check("lb finalizer begun other-nodes", expect!["ensure port=80 finalizer=true"]);
}

/// Row B3 of the review: a part of the load balancer that is gone comes back by an `ensure` alone.
#[test]
fn an_update_that_failed_twice_is_followed_by_an_ensure() {
    check("lb finalizer ensured unknown-nodes", expect!["update"]);
    check("lb finalizer ensured unknown-nodes two-failed-updates", expect!["ensure port=80 finalizer=false"]);
    // The Service as it is cannot be ensured, so that only the nodes can be brought.
    check("lb finalizer ensured bad-port unknown-nodes two-failed-updates", expect!["update"]);
}

/// What serves goes on hearing of its nodes while what is wanted is refused or has failed.
#[test]
fn what_cannot_be_had_keeps_no_nodes_from_what_serves() {
    check("lb finalizer failed", expect!["ensure port=80 finalizer=false"]);
    check("lb finalizer failed other-nodes", expect!["update"]);
    check("lb finalizer failed other-nodes other-port", expect!["update"]);
    check("lb finalizer ensured bad-port other-nodes", expect!["update"]);
}

/// 4.9 item 2: another controller does the work, so nodes are not ours to bring.
#[test]
fn what_is_implemented_elsewhere_is_left_alone() {
    check("lb finalizer elsewhere", expect!["nothing"]);
    check("lb finalizer elsewhere other-nodes", expect!["nothing"]);
    check("lb finalizer elsewhere other-port", expect!["ensure port=81 finalizer=false"]);
}

/// As upstream's `needsCleanup`; a wish that goes on is an ensure, not a cleanup.
#[rstest]
#[case::s10_1_without_the_finalizer("clusterip", "nothing")]
#[case::s10_2_finalizer_and_type_node_port("nodeport finalizer", "cleanup")]
#[case::s10_3_finalizer_and_type_load_balancer("lb finalizer", "ensure port=80 finalizer=true")]
#[case::s10_4_finalizer_and_deletion_without_a_type("typeless finalizer deleting", "cleanup")]
fn what_needs_cleanup(#[case] words: &str, #[case] line: &str) {
    assert_eq!(planned(words), line);
}

/// S1.6, S1.7; lesson 5: an object that is being deleted takes no finalizer.
#[test]
fn what_has_to_go_is_cleaned_up() {
    check("clusterip finalizer", expect!["cleanup"]);
    check("clusterip ensured", expect!["cleanup"]);
    check("clusterip finalizer ensured other-port", expect!["cleanup port=81"]);
    // Our finalizer went with the type: what was handed over last is what is deleted.
    check("clusterip ensured other-port", expect!["cleanup"]);
    check("lb finalizer deleting", expect!["cleanup"]);
    check("lb deleting begun", expect!["cleanup"]);
    check("lb deleting", expect!["nothing"]);
    check("lb finalizer deleting other-nodes ensured", expect!["cleanup"]);
}

/// 4.9 item 9: a class that is not ours keeps its finalizer, unless it was ours in this very
/// process.
#[test]
fn another_classes_finalizer_is_not_touched() {
    check("lb class finalizer deleting nobodys", expect!["nothing"]);
    check("lb class finalizer deleting anothers", expect!["nothing"]);
    check("lb class finalizer ensured anothers", expect!["cleanup"]);
    check("lb class other-class finalizer ensured nobodys", expect!["cleanup"]);
}

/// The claims changed and the Service did not: a slip in the provider file must not delete what
/// serves.
#[test]
fn what_nobody_owns_any_more_stays_until_its_service_goes() {
    check("lb class finalizer ensured nobodys", expect!["nothing"]);
    check("lb class finalizer ensured nobodys other-nodes other-port", expect!["nothing"]);
    check("lb class finalizer ensured nobodys deleting", expect!["cleanup"]);
}

/// S8.2, S9, S6: the object vanished, or another took its name.
#[test]
fn what_an_object_left_behind_is_deleted_by_what_is_remembered() {
    check("gone ensured", expect!["delete what uid one has"]);
    check("lb begun other-uid", expect!["delete what uid one has"]);
}

/// A drift repair differs from an `ensure` that has another reason: only the first is silent.
#[test]
fn a_drift_repair_is_an_ensure_without_a_reason_of_its_own() {
    check("lb finalizer ensured overdue", expect!["ensure port=80 finalizer=false repeated"]);
    check("lb finalizer ensured overdue other-port", expect!["ensure port=81 finalizer=false"]);
}

#[test]
fn only_what_is_missing_is_written_again() {
    check("lb finalizer ensured unwritten", expect!["repair finalizer=false status=true"]);
    check("lb ensured", expect!["repair finalizer=true status=false"]);
}

/// Row B4 of the review: the nodes do not wait with the repair.
#[test]
fn a_second_repair_waits() {
    check("lb finalizer ensured unwritten repaired", expect!["wait 1s"]);
    check("lb ensured repaired", expect!["wait 1s"]);
    check("lb finalizer ensured unwritten repaired other-nodes", expect!["update"]);
    check("lb finalizer ensured repaired", expect!["nothing"]);
}

/// Row B5 of the review: of a load balancer that is deleted only our writes are repeated.
#[test]
fn what_is_deleted_in_the_cloud_is_not_deleted_there_again() {
    check("lb finalizer deleting deleted", expect!["release"]);
    check("clusterip finalizer deleted", expect!["release"]);
    check("lb finalizer deleted", expect!["ensure port=80 finalizer=true"]);
    check("gone deleted", expect!["forget"]);
    check("lb deleted other-uid", expect!["forget"]);
}

#[test]
fn a_service_that_no_schema_would_pass_is_refused_but_can_be_deleted() {
    check("lb bad-port", expect!["port 70000/TCP (node port 0) is out of range or of an unknown protocol"]);
    check("lb finalizer bad-port deleting", expect!["cleanup"]);
}

mod properties;
