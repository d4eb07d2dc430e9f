//! Properties of the plan, checked for all states.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{LoadBalancerIngress, LoadBalancerStatus as CoreStatus, Service, ServiceStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use tokio::time::Instant;

use super::{address, object};
use crate::{
    backoff::{Repairs, Retry},
    ledger::{Backends, Before, Entry, NextTry, Serving, State, Written},
    names,
    nodes::{Nodes, SharedNodes},
    queue::Next,
    service::{
        outcome::{self, PlanOutcome},
        plan::{ObjectOwner, Observed, Plan, PlanAnswers, after_failure, after_success, plan},
    },
    service_spec::{convert, has_finalizer, is_load_balancer},
};

/// The resource version of each object.
const VERSION: u64 = 10;
/// The maximum number of steps from any state until nothing is left to do, including repairs and
/// their pauses, and questions.
const STEPS_MAX: usize = 8;
/// The planning provider, and another one.
const LANES: [usize; 2] = [1, 2];

fn shared() -> SharedNodes {
    Nodes::default().shared(0)
}

/// All states of a ledger entry.
fn states(service: &Arc<skysail_provider::Service>, membership: u64) -> Vec<Option<State>> {
    let nodes = [
        Backends::Known(membership),
        Backends::Known(membership + 1),
        Backends::Unknown { failed: 0 },
        Backends::Unknown { failed: 1 },
        Backends::Unknown { failed: 2 },
    ];
    let mut states =
        vec![None, Some(State::Unconfirmed), Some(State::Unsettled { before: None }), Some(State::Deleted)];
    states.extend([1, 2].map(|release| Some(State::Elsewhere { generation: (1, release) })));
    for nodes in nodes {
        for retry in [None, Some(NextTry { at: now() + Duration::from_secs(60), until_change: false })] {
            let before = Before { service: Arc::clone(service), nodes, retry };
            states.push(Some(State::Unsettled { before: Some(before) }));
        }
        for (generation, written, overdue) in [
            (1, Written::At(Some(VERSION)), false),
            (1, Written::At(Some(VERSION - 1)), false),
            (1, Written::At(None), true),
            (1, Written::No, false),
            (2, Written::At(None), false),
        ] {
            states.push(Some(State::Serving(Serving {
                nodes,
                generation: (1, generation),
                status: address(),
                written,
                overdue,
            })));
        }
    }
    states
}

/// All objects; none is a deleted object.
fn objects() -> Vec<Option<Service>> {
    let words = ["lb", "clusterip", "lb other-class", "lb bad-port"];
    let mut objects = vec![None];
    for number in 0..(words.len() << 5) {
        let bit = |bit: usize| number >> bit & 1 == 1;
        let words = words[number >> 5];
        let has = |word: &str| match word {
            "finalizer" => bit(0),
            "deleting" => bit(1),
            word => words.split(' ').any(|one| one == word),
        };
        let mut object = object(if bit(2) { "two" } else { "one" }, if bit(3) { 81 } else { 80 }, &has);
        object.metadata.resource_version = Some(VERSION.to_string());
        if bit(4) {
            write_status(&mut object);
        }
        objects.push(Some(object));
    }
    objects
}

fn write_status(object: &mut Service) {
    let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".to_owned()), ..LoadBalancerIngress::default() };
    let load_balancer = Some(CoreStatus { ingress: Some(vec![ingress]) });
    object.status = Some(ServiceStatus { load_balancer, ..ServiceStatus::default() });
}

/// The same moment for all cases.
fn now() -> Instant {
    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    *NOW
}

/// Calls `check` with all observable states: some 20,000 cases.
fn for_all(mut check: impl FnMut(Observed)) {
    let shared = shared();
    let mut repaired = Repairs::default();
    repaired.begin(now());
    let service = Arc::new(convert(&object("one", 80, &|word| word == "lb")).service);
    for object in objects() {
        let object = object.map(Arc::new);
        for state in states(&service, shared.membership) {
            for repairs in [Repairs::default(), repaired] {
                let entry = state.clone().map(|state| {
                    let entry = Entry::new("fake", Arc::clone(&service), state);
                    Entry { repairs, ..entry }
                });
                // Only a Service of type LoadBalancer has an owner.
                let owned = object.as_deref().is_some_and(is_load_balancer);
                let owners = [ObjectOwner::NoOwner, ObjectOwner::Own, ObjectOwner::OtherProvider];
                for object_owner in owners.into_iter().take(if owned { 3 } else { 1 }) {
                    check(Observed {
                        object: object.clone(),
                        waits: entry.as_ref().map(|entry| entry.waits(now())).unwrap_or_default(),
                        release_wait: None,
                        entry: entry.clone(),
                        object_owner,
                        provider: "fake".to_owned(),
                        lane: LANES[0],
                        may_hold: LANES.into(),
                        emptied: Vec::new(),
                        answers: PlanAnswers::default(),
                        shared: shared.clone(),
                        generation: (1, 1),
                    });
                }
            }
        }
    }
}

/// Whether this provider has to serve the object.
fn is_wanted(observed: &Observed) -> bool {
    let alive = |object: &Service| object.metadata.deletion_timestamp.is_none();
    observed.object_owner == ObjectOwner::Own && observed.object.as_deref().is_some_and(alive)
}

fn is_same_object(observed: &Observed) -> bool {
    let uid = observed.object.as_ref().and_then(|object| object.metadata.uid.clone());
    observed.entry.as_ref().is_none_or(|entry| uid.as_ref() == Some(&entry.service.uid))
}

fn shown(observed: &Observed, plan: &Plan) -> String {
    let Observed { object, entry, object_owner, .. } = observed;
    format!("{plan:?}\nof {object_owner:?} {entry:?}\nand {object:?}")
}

#[test]
fn a_wanted_load_balancer_is_never_deleted_and_an_unwanted_one_is_never_created() {
    for_all(|observed| {
        let plan = plan(&observed);
        let wanted = is_wanted(&observed) && is_same_object(&observed);
        let allowed = match plan {
            Plan::Nothing => true,
            Plan::LookUp(_) | Plan::Confirm(_) | Plan::NoHolder => !wanted,
            Plan::DeleteRemembered(_) | Plan::Forget | Plan::Cleanup { .. } | Plan::Release { .. } => !wanted,
            // Only the finalizer, before a deletion.
            Plan::Repair { add_finalizer: true, status: None } => is_same_object(&observed),
            Plan::Refuse(_) | Plan::Ensure { .. } | Plan::Update(_) | Plan::Repair { .. } | Plan::Wait(_) => wanted,
        };
        assert!(allowed, "{}", shown(&observed, &plan));
    });
}

#[test]
fn the_load_balancer_of_a_deleted_object_is_deleted_once() {
    for_all(|observed| {
        let Some(entry) = observed.entry.as_ref().filter(|_| !is_same_object(&observed)) else { return };
        let plan = plan(&observed);
        let service = Arc::clone(&entry.service);
        let expected = match entry.state {
            State::Deleted => Plan::Forget,
            _ if observed.object.is_none() => Plan::LookUp(service),
            State::Unconfirmed => Plan::Confirm(service),
            _ => Plan::DeleteRemembered(service),
        };
        assert_eq!(plan, expected, "{}", shown(&observed, &plan));
    });
}

/// Also while the wanted load balancer is refused, fails, or is repaired after a write conflict.
#[test]
fn a_serving_load_balancer_never_keeps_outdated_nodes() {
    for_all(|observed| {
        let nodes = match observed.entry.as_ref().map(|entry| &entry.state) {
            Some(State::Serving(serving)) => serving.nodes,
            Some(State::Unsettled { before: Some(before) }) => before.nodes,
            _ => return,
        };
        if nodes == Backends::Known(observed.shared.membership) || !is_wanted(&observed) || !is_same_object(&observed) {
            return;
        }
        let plan = plan(&observed);
        let refused = matches!(plan, Plan::Refuse(_)) && nodes.failed() > 0;
        let moves = matches!(plan, Plan::Update(_) | Plan::Ensure { .. } | Plan::Repair { .. });
        assert!(moves || refused, "{}", shown(&observed, &plan));
    });
}

#[test]
fn after_two_failed_updates_a_valid_service_is_ensured() {
    for_all(|observed| {
        let plan = plan(&observed);
        let Plan::Update(_) = plan else { return };
        let failed = match observed.entry.as_ref().map(|entry| &entry.state) {
            Some(State::Serving(serving)) => serving.nodes.failed(),
            _ => 0,
        };
        let refused = observed.object.as_deref().is_some_and(|object| !convert(object).problems.is_empty());
        assert!(failed < 2 || refused, "{}", shown(&observed, &plan));
    });
}

/// With a provider and an API server that never fail, each state becomes stable, and the stable
/// state is the wanted one.
#[test]
fn every_state_becomes_stable_if_all_calls_succeed() {
    for_all(|observed| {
        for found in [true, false] {
            becomes_stable(observed.clone(), found);
        }
    });
}

/// `found` is the answer of the provider that the annotation names.
fn becomes_stable(mut observed: Observed, found: bool) {
    let first = shown(&observed, &plan(&observed));
    for _ in 0..STEPS_MAX {
        match plan(&observed) {
            Plan::Nothing | Plan::Refuse(_) => break,
            done => succeed(&mut observed, &done, found),
        }
    }
    let rest = plan(&observed);
    assert!(matches!(rest, Plan::Nothing | Plan::Refuse(_)), "{rest:?} at the end; the initial state was\n{first}");
    if rest == Plan::Nothing {
        assert_eq!(after_success(&rest, &observed), Next::OnChange);
    }
    let state = observed.entry.as_ref().map(|entry| &entry.state);
    let object = observed.object.as_deref();
    if is_wanted(&observed) && rest == Plan::Nothing {
        let serves = matches!(state, Some(State::Serving(_) | State::Elsewhere { .. }));
        assert!(serves && object.is_some_and(has_finalizer), "{first}");
    }
    let leaves = object.is_none_or(|object| !is_load_balancer(object) || object.metadata.deletion_timestamp.is_some());
    if leaves {
        assert!(state.is_none(), "{state:?} at the end; the initial state was\n{first}");
    }
}

/// Carries out the plan with a provider and an API server that never fail. Each question is asked
/// once in a turn.
fn succeed(observed: &mut Observed, plan: &Plan, found: bool) {
    let mut record = |outcome| observed.entry = outcome::after(plan, outcome, observed.entry.clone(), observed);
    record(PlanOutcome::Begun);
    match plan {
        Plan::Confirm(_) if found => record(PlanOutcome::Found),
        Plan::Ensure { .. } => record(PlanOutcome::Ensured(address())),
        _ => {}
    }
    record(PlanOutcome::Done);
    let (add, status) = match plan {
        Plan::LookUp(_) => {
            assert_eq!(observed.answers.exists.replace(false), None);
            return;
        }
        Plan::Confirm(_) => {
            assert_eq!(observed.answers.found.replace(found), None);
            return;
        }
        // The same turn goes on.
        Plan::Cleanup { .. } => return,
        Plan::Wait(wait) => {
            observed.waits.repair = observed.waits.repair.saturating_sub(*wait);
            (false, false)
        }
        Plan::Repair { add_finalizer, status } => {
            let entry = observed.entry.as_mut().unwrap();
            entry.repairs.begin(now());
            observed.waits.repair = entry.repairs.wait(now());
            (*add_finalizer, status.is_some())
        }
        Plan::Ensure { add_finalizer, .. } => (*add_finalizer, true),
        _ => (false, false),
    };
    let mut object = observed.object.as_deref().cloned();
    if let Some(object) = &mut object {
        if let Plan::Release { empties_status, .. } = plan {
            object.metadata.finalizers = None;
            object.status = object.status.take().filter(|_| !empties_status);
        }
        if add {
            object.metadata.finalizers = Some(vec![names::LOAD_BALANCER_FINALIZER.to_owned()]);
        }
        if status {
            write_status(object);
        }
    }
    if let Some(entry) = observed.entry.as_mut().filter(|_| status) {
        entry.status_written(Some(VERSION));
    }
    observed.object = object.map(Arc::new);
    observed.answers = PlanAnswers::default();
}

/// With a provider that fails at each call, no state calls it again at once, unless nodes were
/// removed while an `ensure` failed. A failed write to the object waits for a change of the nodes,
/// too.
#[test]
fn no_failure_is_retried_at_once() {
    let retry = Retry { after: Duration::from_secs(5), counts: true, until_change: false };
    for_all(|observed| {
        let failed = plan(&observed);
        let serves = matches!(&observed.entry, Some(Entry { state: State::Serving(_), .. }));
        let waits = match failed {
            Plan::Repair { .. } => Next::Within(retry.after),
            Plan::Ensure { .. } if serves => Next::Within(retry.after),
            _ => Next::After(retry.after),
        };
        assert_eq!(after_failure(&failed, &observed, observed.shared.membership, retry), waits);
        let moved = after_failure(&failed, &observed, observed.shared.membership + 1, retry);
        let serves_on = matches!(&observed.entry, Some(Entry { state: State::Unsettled { before: Some(_) }, .. }));
        assert!(moved == waits || serves_on);
    });
}

/// The API server may refuse the write each time.
#[test]
fn a_failed_repair_is_followed_by_the_update_of_outdated_backends() {
    let retry = Retry { after: Duration::from_secs(300), counts: true, until_change: false };
    for_all(|mut observed| {
        let failed = plan(&observed);
        let Plan::Repair { .. } = failed else { return };
        let membership = observed.shared.membership;
        let entry = observed.entry.as_mut().unwrap();
        entry.repairs.begin(now());
        observed.waits.repair = entry.repairs.wait(now());
        let next = match &observed.entry.as_ref().unwrap().state {
            State::Serving(serving) if serving.nodes != Backends::Known(membership) && is_wanted(&observed) => {
                Next::After(Duration::ZERO)
            }
            _ => Next::Within(retry.after),
        };
        assert_eq!(after_failure(&failed, &observed, membership, retry), next, "{}", shown(&observed, &failed));
    });
}

/// An update of the backends does not shorten the wait of the failed `ensure`.
#[test]
fn the_wait_of_a_failed_ensure_outlives_an_update() {
    for_all(|mut observed| {
        let retry = observed.waits.retry;
        let done = plan(&observed);
        let Plan::Update(_) = done else { return };
        let entry = observed.entry.as_mut().unwrap();
        entry.updated(observed.shared.membership);
        observed.waits = entry.waits(now());
        if let (Plan::Ensure { .. }, Some(left)) = (plan(&observed), retry) {
            assert_eq!(after_success(&done, &observed), Next::After(left));
        }
    });
}

/// An object that is deleted by force, or whose finalizer a person removes.
#[test]
fn an_object_that_is_being_deleted_gets_no_finalizer() {
    for_all(|observed| {
        let deleting = |object: &Service| object.metadata.deletion_timestamp == Some(Time(Timestamp::UNIX_EPOCH));
        if observed.object.as_deref().is_some_and(deleting) {
            let plan = plan(&observed);
            assert!(!matches!(plan, Plan::Repair { .. } | Plan::Ensure { .. }), "{}", shown(&observed, &plan));
        }
    });
}
