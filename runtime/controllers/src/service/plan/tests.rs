//! The plan for a given state of one Service.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use rstest::rstest;
use skysail_provider::{Ingress, LoadBalancerStatus};
use tokio::time::Instant;

use super::{ObjectOwner, Observed, Plan, PlanAnswers, plan};
use crate::{
    ledger::{Backends, Before, Entry, Serving, State, Written},
    nodes::Nodes,
    ownership::LaneId,
    retained::{RetainedKey, RetainedLoadBalancer},
    service::retention::Records,
    service_spec::convert,
};

type Annotations = BTreeMap<String, String>;

/// Checks the plan for a state in words. The object: `lb`, `clusterip`, `nodeport`, `typeless`,
/// `class`, `finalizer`, `names-another` provider, `names-this` one, `deleting`, `gone`,
/// `bad-port`. The ledger entry: `named` by the annotation, `begun`, `ensured`, `failed` after a
/// successful ensure, `elsewhere`, `deleted`, `unwritten`, `repaired`, `overdue`; without an entry:
/// `released`. Differences between them: `other-uid`, `other-port`, `other-nodes`, `unknown-nodes`,
/// `two-failed-updates`, `other-release`, `other-class`. The owner: `other-owner`, `no-owner`; by
/// default this provider. The answers: `exists`, `absent`, `found`, `not-found`. This provider is
/// 1; 2 has load balancers too, and with `no-load-balancers` 2 alone, with `no-holder` none. Those
/// that have deleted the load balancer: `emptied-here`, `emptied-there`. The annotation of a pause:
/// `paused`, `let-through`, `unclear-pause`; paused providers: `paused-here`, `paused-there`. Those
/// that retain the load balancer: `retain-here`, `retain-there`; [`records`] has the words for
/// records. The annotation that adopts: `adopts` nine, `adopts-itself`, `adopts-junk`. The entry is
/// for `nine`: `for-nine`.
#[track_caller]
fn check(words: &str, expected: Expect) {
    expected.assert_eq(&planned(words));
}

pub(in crate::service) fn planned(words: &str) -> String {
    shown(plan(&observed(words)))
}

/// The state in words, as [`check`] reads them.
pub(in crate::service) fn observed(words: &str) -> Observed {
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
        () if has("ensured") => Some(State::Serving(Serving {
            nodes,
            generation: (1, generation),
            status,
            written,
            overdue: has("overdue"),
        })),
        () if has("elsewhere") => Some(State::Elsewhere { generation: (1, generation) }),
        () if has("failed") => {
            let before = Before { service: Arc::clone(&remembered), nodes, retry: None };
            Some(State::Unsettled { before: Some(before) })
        }
        () if has("deleted") => Some(State::Deleted),
        () if has("named") => Some(State::Unconfirmed),
        () => has("begun").then_some(State::Unsettled { before: None }),
    };
    let (mut entry, now) = (state.map(|state| Entry::new("fake", remembered, state)), Instant::now());
    if let Some(entry) = entry.as_mut().filter(|_| has("for-nine")) {
        entry.service = Arc::new(skysail_provider::Service { uid: "nine".to_owned(), ..(*entry.service).clone() });
    }
    if let Some(entry) = entry.as_mut().filter(|_| has("repaired")) {
        entry.repairs.begin(now);
    }
    let waits = entry.as_ref().map(|entry| entry.waits(now)).unwrap_or_default();
    Observed {
        object: (!has("gone")).then(|| Arc::new(object)),
        entry,
        object_owner: match () {
            () if has("other-owner") => ObjectOwner::OtherProvider,
            () if has("no-owner") || !has("lb") => ObjectOwner::NoOwner,
            () => ObjectOwner::Own,
        },
        provider: "fake".to_owned(),
        lane: 1,
        may_hold: match () {
            () if has("no-holder") => Vec::new(),
            () if has("no-load-balancers") => vec![2],
            () => vec![1, 2],
        },
        emptied: lanes(&has, ["emptied-here", "emptied-there"]),
        paused: lanes(&has, ["paused-here", "paused-there"]),
        retains: lanes(&has, ["retain-here", "retain-there"]),
        records: records(&has),
        answers: PlanAnswers {
            exists: has("exists").then_some(true).or(has("absent").then_some(false)),
            found: has("found").then_some(true).or(has("not-found").then_some(false)),
        },
        shared,
        generation: (1, 1),
        waits,
        release_wait: has("released").then_some(Duration::from_secs(1)),
    }
}

/// The providers that these words name: this one, and the other one.
fn lanes(has: &dyn Fn(&str) -> bool, words: [&str; 2]) -> Vec<LaneId> {
    words.into_iter().zip([1, 2]).filter(|(word, _)| has(word)).map(|(_, lane)| lane).collect()
}

/// The records: the load balancer `one` of this Service is `kept`; or another Service has it
/// (`taken`), or had it last (`taken-kept`); the Service has adopted `nine` (`adopted`), which is
/// retained again (`adopted-kept`); `nine` may be adopted (`free`), or another Service has it
/// (`used`), or another provider (`elsewhere-free`); a former Service of this name has it (`left`).
fn records(has: &dyn Fn(&str) -> bool) -> Records {
    let record = |uid: &str, service_uid: &str, in_use: bool| {
        let record = RetainedLoadBalancer {
            namespace: "shop".to_owned(),
            made_for: "first".to_owned(),
            service: "other".to_owned(),
            service_uid: service_uid.to_owned(),
            in_use,
            name: "lb".to_owned(),
            addresses: Vec::new(),
            since: String::new(),
        };
        Some((RetainedKey::new("fake", uid)?, record))
    };
    Records {
        own: match () {
            () if has("kept") => record("one", "one", false),
            () if has("adopted") => record("nine", "one", true),
            () if has("adopted-kept") => record("nine", "one", false),
            () => None,
        },
        taken: (has("taken") || has("taken-kept")).then(|| record("one", "two", has("taken"))).flatten(),
        named: match () {
            () if has("free") => record("nine", "eight", false),
            () if has("used") => record("nine", "eight", true),
            () if has("taken-kept") => record("one", "two", false),
            () => None,
        },
        named_elsewhere: has("elsewhere-free").then(|| "cloud".to_owned()),
        left: has("left").then(|| record("nine", "eight", true)).flatten(),
        spared: ["kept", "taken", "taken-kept", "adopted-kept"]
            .iter()
            .any(|w| has(w))
            .then_some(1)
            .into_iter()
            .collect(),
        is_kept: has("kept") || has("adopted-kept"),
    }
}

fn shown(plan: Plan) -> String {
    match plan {
        Plan::Nothing => "nothing".to_owned(),
        Plan::DeleteRemembered(service) => format!("delete the load balancer of uid {}", service.uid),
        Plan::LookUp(_) => "look up".to_owned(),
        Plan::NoHolder => "no holder".to_owned(),
        Plan::Confirm(_) => "confirm".to_owned(),
        Plan::RetainRemembered(service) => format!("retain the load balancer of uid {}", service.uid),
        Plan::GiveBack(key, _) => format!("give back {key}"),
        Plan::Cleanup { service, holders, retained, misnamed } => {
            let kept = if retained.is_empty() { String::new() } else { format!(" kept by {retained:?}") };
            let uid = if service.uid == "one" { String::new() } else { format!(" uid={}", service.uid) };
            let port = if service.ports.iter().any(|port| port.port == 81) { " port=81" } else { "" };
            format!("cleanup of {holders:?}{kept}{uid}{port}{}", if misnamed { " misnamed" } else { "" })
        }
        Plan::Release { empties_status, .. } => format!("release status={empties_status}"),
        Plan::Forget => "forget".to_owned(),
        Plan::Wait(wait) => format!("wait {wait:?}"),
        Plan::Refuse(problems) => problems.join("; "),
        Plan::Ensure { add_finalizer, service, repeated, claims } => {
            let repeated = if repeated { " repeated" } else { "" };
            let claims = if claims { " claims" } else { "" };
            let uid =
                if ["one", "two"].contains(&&*service.uid) { String::new() } else { format!(" uid={}", service.uid) };
            format!("ensure port={} finalizer={add_finalizer}{repeated}{claims}{uid}", service.ports[0].port)
        }
        Plan::Update(_) => "update".to_owned(),
        Plan::Paused { pause, held } => format!("{pause:?} holds: {}", shown(*held)),
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
    let named = if has("names-another") { Some("other") } else { has("names-this").then_some("fake") };
    let named = named.map(|name| ("skysail.dev/load-balancer-provider".to_owned(), name.to_owned()));
    let pauses = [("paused", "true"), ("let-through", "false"), ("unclear-pause", "yes")];
    let pause = pauses.into_iter().find(|(word, _)| has(word));
    let pause = pause.map(|(_, value)| ("skysail.dev/paused".to_owned(), value.to_owned()));
    let adoptions = [("adopts", "nine"), ("adopts-itself", uid), ("adopts-junk", "a/b")];
    let adoption = adoptions.into_iter().find(|(word, _)| has(word));
    let adoption = adoption.map(|(_, value)| ("skysail.dev/adopt-load-balancer".to_owned(), value.to_owned()));
    object.metadata.annotations =
        Some(named.into_iter().chain(pause).chain(adoption).collect()).filter(|all: &Annotations| !all.is_empty());
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
fn a_service_that_wants_no_load_balancer_of_this_provider_is_ignored() {
    check("clusterip", expect!["nothing"]);
    check("lb class no-owner", expect!["nothing"]);
    check("lb class other-owner", expect!["nothing"]);
    check("gone", expect!["nothing"]);
}

/// S1.2 to S1.4, S1.8.
#[test]
fn a_wanted_load_balancer_is_ensured_once() {
    check("lb", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer begun", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer ensured", expect!["nothing"]);
}

/// S12, S19, and an addition to upstream: a new active release ensures each load balancer once.
#[test]
fn the_kind_of_change_decides_between_ensure_and_update() {
    check("lb finalizer ensured other-port", expect!["ensure port=81 finalizer=false"]);
    check("lb finalizer ensured other-nodes", expect!["update"]);
    check("lb finalizer ensured other-nodes other-port", expect!["ensure port=81 finalizer=false"]);
    check("lb finalizer ensured other-release", expect!["ensure port=80 finalizer=false"]);
    check("lb finalizer begun other-nodes", expect!["ensure port=80 finalizer=true"]);
}

/// Only an `ensure` restores a missing part of the load balancer.
#[test]
fn an_update_that_failed_twice_is_followed_by_an_ensure() {
    check("lb finalizer ensured unknown-nodes", expect!["update"]);
    check("lb finalizer ensured unknown-nodes two-failed-updates", expect!["ensure port=80 finalizer=false"]);
    // An invalid Service cannot be ensured, so only its backends are updated.
    check("lb finalizer ensured bad-port unknown-nodes two-failed-updates", expect!["update"]);
}

/// A serving load balancer gets its nodes while the wanted one is refused or fails.
#[test]
fn a_serving_load_balancer_is_updated_while_the_wanted_one_is_refused_or_fails() {
    check("lb finalizer failed", expect!["ensure port=80 finalizer=false"]);
    check("lb finalizer failed other-nodes", expect!["update"]);
    check("lb finalizer failed other-nodes other-port", expect!["update"]);
    check("lb finalizer ensured bad-port other-nodes", expect!["update"]);
}

/// Another controller manages the load balancer and its backends.
#[test]
fn a_load_balancer_of_another_controller_stays_unchanged() {
    check("lb finalizer elsewhere", expect!["nothing"]);
    check("lb finalizer elsewhere other-nodes", expect!["nothing"]);
    check("lb finalizer elsewhere other-port", expect!["ensure port=81 finalizer=false"]);
}

/// As upstream's `needsCleanup`; a load balancer that is still wanted is ensured, not cleaned up.
#[rstest]
#[case::s10_1_without_the_finalizer("clusterip", "nothing")]
#[case::s10_2_finalizer_and_type_node_port("nodeport finalizer", "cleanup of [1, 2]")]
#[case::s10_3_finalizer_and_type_load_balancer("lb finalizer", "ensure port=80 finalizer=true")]
#[case::s10_4_finalizer_and_deletion_without_a_type("typeless finalizer deleting", "cleanup of [1, 2]")]
fn cleanup_depends_on_the_finalizer_the_type_and_the_deletion(#[case] words: &str, #[case] line: &str) {
    assert_eq!(planned(words), line);
}

/// S1.6, S1.7, lesson 5: an object that is being deleted gets no finalizer.
#[test]
fn a_load_balancer_that_is_not_wanted_any_more_is_cleaned_up() {
    check("clusterip finalizer", expect!["cleanup of [1, 2]"]);
    check("clusterip finalizer ensured other-port", expect!["cleanup of [1] port=81"]);
    // The finalizer was removed together with the type: the last ensured Service is used for the
    // deletion.
    check("clusterip ensured other-port repaired", expect!["cleanup of [1]"]);
    check("lb finalizer deleting", expect!["cleanup of [1]"]);
    check("lb deleting begun", expect!["cleanup of [1]"]);
    check("lb deleting", expect!["nothing"]);
    check("lb finalizer deleting other-nodes ensured", expect!["cleanup of [1]"]);
}

/// Otherwise the load balancer leaks if this process ends before the deletion succeeds. If another
/// client undoes the write, the deletion does not wait.
#[test]
fn before_a_cleanup_the_finalizer_and_the_name_that_are_missing_are_written() {
    check("clusterip ensured", expect!["repair finalizer=true status=false"]);
    check("clusterip begun", expect!["repair finalizer=true status=false"]);
    check("lb begun other-owner", expect!["repair finalizer=true status=false"]);
    check("lb finalizer names-another begun other-owner", expect!["repair finalizer=true status=false"]);
    check("lb finalizer names-another deleting begun other-owner", expect!["cleanup of [1]"]);
    check("clusterip ensured repaired", expect!["cleanup of [1]"]);
    check("clusterip deleting ensured", expect!["cleanup of [1]"]);
    check("lb class other-class ensured no-owner", expect!["cleanup of [1]"]);
}

/// A Service with another class keeps its finalizer, unless this process ensured its load balancer.
#[test]
fn the_finalizer_of_a_service_with_another_class_stays() {
    check("lb class finalizer deleting no-owner", expect!["nothing"]);
    check("lb class finalizer deleting other-owner", expect!["nothing"]);
    check("lb class finalizer ensured other-owner", expect!["cleanup of [1]"]);
    check("lb class other-class finalizer ensured no-owner", expect!["cleanup of [1]"]);
}

/// No provider claims the Service any more: whether or not the Service changed too, an error in the
/// provider file must not delete a serving load balancer.
#[test]
fn a_load_balancer_without_an_owner_stays_until_its_service_is_deleted() {
    check("lb class finalizer ensured no-owner", expect!["nothing"]);
    check("lb class finalizer ensured no-owner other-nodes other-port", expect!["nothing"]);
    check("lb class finalizer ensured no-owner deleting", expect!["cleanup of [1]"]);
}

/// S8.2, S9, S6: the object was deleted, or another object has its name.
#[test]
fn the_load_balancer_of_a_deleted_object_is_deleted_by_its_ledger_entry() {
    check("gone ensured absent", expect!["delete the load balancer of uid one"]);
    check("lb begun other-uid", expect!["delete the load balancer of uid one"]);
}

/// A list may omit an object by mistake.
#[test]
fn before_the_load_balancer_of_a_missing_object_is_deleted_the_api_is_asked() {
    check("gone ensured", expect!["look up"]);
    check("gone ensured exists", expect!["wait 5s"]);
    check("gone named", expect!["look up"]);
    check("gone deleted", expect!["forget"]);
}

/// Anyone may write the annotation, so the named provider is asked before its answer decides.
#[test]
fn a_provider_that_only_the_annotation_names_is_asked_first() {
    for words in ["clusterip finalizer", "lb finalizer other-owner", "lb finalizer deleting", "gone absent"] {
        assert_eq!(planned(&format!("named {words}")), "confirm", "{words}");
    }
    check("named lb class other-class finalizer no-owner", expect!["confirm"]);
    check("named lb class finalizer no-owner", expect!["nothing"]);
    check("named lb finalizer", expect!["ensure port=80 finalizer=true"]);
}

/// The provider that has no load balancer gets an `ensure-deleted` all the same: its cloud may
/// return stale data. Another provider is asked only if no other owner or controller has the
/// Service.
#[test]
fn a_load_balancer_that_the_named_provider_does_not_have_is_sought_where_it_may_be() {
    check("named not-found clusterip finalizer", expect!["cleanup of [1, 2]"]);
    check("named not-found lb finalizer deleting", expect!["cleanup of [1, 2]"]);
    check("named not-found lb finalizer other-owner", expect!["cleanup of [1] misnamed"]);
    check("named not-found lb class other-class finalizer no-owner", expect!["cleanup of [1]"]);
    check("named not-found gone absent", expect!["cleanup of [1] misnamed"]);
}

/// One of them may be unreachable for hours, and each retry would call the others again.
#[test]
fn a_provider_that_has_deleted_the_load_balancer_is_not_asked_again() {
    check("clusterip finalizer emptied-there", expect!["cleanup of [1]"]);
    check("lb finalizer deleting emptied-here", expect!["cleanup of []"]);
    check("named not-found lb finalizer other-owner emptied-here", expect!["cleanup of [] misnamed"]);
    check("begun found clusterip finalizer emptied-here", expect!["cleanup of [1]"]);
    check("clusterip finalizer no-holder", expect!["no holder"]);
}

#[test]
fn a_named_provider_without_load_balancers_is_not_asked() {
    check("named no-load-balancers clusterip finalizer", expect!["cleanup of [2]"]);
    check("named no-load-balancers lb finalizer other-owner", expect!["forget"]);
    check("named no-load-balancers lb class other-class finalizer no-owner", expect!["release status=false"]);
    check("named no-load-balancers gone absent", expect!["forget"]);
}

/// A class changes only together with the type, which empties the status.
#[test]
fn the_status_of_another_controllers_service_stays() {
    check("lb class other-class finalizer deleted no-owner", expect!["release status=false"]);
    check("lb finalizer deleted other-owner", expect!["release status=true"]);
}

/// Only a drift repair emits no Event; an `ensure` for another reason does.
#[test]
fn a_drift_repair_is_an_ensure_without_another_reason() {
    check("lb finalizer ensured overdue", expect!["ensure port=80 finalizer=false repeated"]);
    check("lb finalizer ensured overdue other-port", expect!["ensure port=81 finalizer=false"]);
}

#[test]
fn only_missing_writes_are_repeated() {
    check("lb finalizer ensured unwritten", expect!["repair finalizer=false status=true"]);
    check("lb ensured", expect!["repair finalizer=true status=false"]);
}

/// Otherwise a manifest with the finalizer costs calls of the cloud at the speed of the API.
#[test]
fn a_finalizer_that_was_removed_a_moment_ago_is_removed_again_after_a_wait() {
    check("clusterip finalizer", expect!["cleanup of [1, 2]"]);
    check("clusterip finalizer released", expect!["wait 1s"]);
    check("clusterip released", expect!["nothing"]);
    check("lb released", expect!["ensure port=80 finalizer=true"]);
}

/// The watch may lag behind the removal, or its answer was lost: the write fails if the object is
/// an old one, so no load balancer is made for a Service without the finalizer.
#[test]
fn a_finalizer_that_this_process_has_removed_is_written_again_before_an_ensure() {
    check("lb finalizer names-this", expect!["ensure port=80 finalizer=false"]);
    check("lb finalizer names-this released", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer names-this deleted", expect!["ensure port=80 finalizer=true"]);
    check("lb finalizer names-this deleted other-port", expect!["ensure port=81 finalizer=true"]);
}

/// The update of the backends does not wait for the repair.
#[test]
fn a_second_repair_waits() {
    check("lb finalizer ensured unwritten repaired", expect!["wait 1s"]);
    check("lb ensured repaired", expect!["wait 1s"]);
    check("lb finalizer ensured unwritten repaired other-nodes", expect!["update"]);
    check("lb finalizer ensured repaired", expect!["nothing"]);
}

/// After the deletion of a load balancer only our writes to the object are repeated.
#[test]
fn a_deleted_load_balancer_is_not_deleted_again() {
    check("lb finalizer deleting deleted", expect!["release status=true"]);
    check("clusterip finalizer deleted", expect!["release status=true"]);
    check("lb finalizer deleted", expect!["ensure port=80 finalizer=true"]);
    check("gone deleted", expect!["forget"]);
    check("lb deleted other-uid", expect!["forget"]);
}

#[test]
fn an_invalid_service_is_refused_but_can_be_deleted() {
    check("lb bad-port", expect!["port 70000/TCP (node port 0) is out of range or has an unknown protocol"]);
    check("lb finalizer bad-port deleting", expect!["cleanup of [1]"]);
}

mod properties;
