//! What holds for the plan of every state that can be written: all of them are tried.

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
    ledger::{Backends, Before, Entry, Serving, State, Written},
    names,
    nodes::{Nodes, SharedNodes},
    queue::Next,
    service::plan::{Observed, Plan, Standing, after_failure, after_success, plan},
    service_spec::{convert, has_finalizer, is_load_balancer},
};

/// The version of each object that is tried.
const VERSION: u64 = 10;
/// Steps from any state to one in which nothing is left to do, repairs and their pauses included.
const STEPS_MAX: usize = 8;

fn shared() -> SharedNodes {
    Nodes::default().shared(0)
}

/// All states of what is remembered.
fn states(service: &Arc<skysail_provider::Service>, membership: u64) -> Vec<Option<State>> {
    let nodes = [
        Backends::Known(membership),
        Backends::Known(membership + 1),
        Backends::Unknown { failed: 0 },
        Backends::Unknown { failed: 1 },
        Backends::Unknown { failed: 2 },
    ];
    let mut states = vec![None, Some(State::Hearsay), Some(State::Unsettled { before: None }), Some(State::Deleted)];
    states.extend([1, 2].map(|generation| Some(State::Elsewhere { generation })));
    for nodes in nodes {
        for retry in [None, Some((now() + Duration::from_secs(60), false))] {
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
            states.push(Some(State::Serving(Serving { nodes, generation, status: address(), written, overdue })));
        }
    }
    states
}

/// All objects, each with the words that made it; none is one that is gone.
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

/// One moment for all cases.
fn now() -> Instant {
    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    *NOW
}

/// Calls `check` with everything that can be observed: some 20,000 cases.
fn for_all(mut check: impl FnMut(Observed)) {
    let shared = shared();
    let mut contested = Repairs::default();
    contested.begin(now());
    let service = Arc::new(convert(&object("one", 80, &|word| word == "lb")).service);
    for object in objects() {
        let object = object.map(Arc::new);
        for state in states(&service, shared.membership) {
            for repairs in [Repairs::default(), contested] {
                let entry = state.clone().map(|state| {
                    let entry = Entry::new("fake", Arc::clone(&service), state);
                    Entry { repairs, ..entry }
                });
                // What is no Service of type LoadBalancer has no owner.
                let owned = object.as_deref().is_some_and(is_load_balancer);
                let standings = [Standing::Nobodys, Standing::Mine, Standing::Anothers];
                for standing in standings.into_iter().take(if owned { 3 } else { 1 }) {
                    check(Observed {
                        object: object.clone(),
                        waits: entry.as_ref().map(|entry| entry.waits(now())).unwrap_or_default(),
                        entry: entry.clone(),
                        standing,
                        provider: "fake".to_owned(),
                        shared: shared.clone(),
                        generation: 1,
                    });
                }
            }
        }
    }
}

/// Whether this provider is to serve the object.
fn is_wanted(observed: &Observed) -> bool {
    let alive = |object: &Service| object.metadata.deletion_timestamp.is_none();
    observed.standing == Standing::Mine && observed.object.as_deref().is_some_and(alive)
}

fn is_same_object(observed: &Observed) -> bool {
    let uid = observed.object.as_ref().and_then(|object| object.metadata.uid.clone());
    observed.entry.as_ref().is_none_or(|entry| uid.as_ref() == Some(&entry.service.uid))
}

fn shown(observed: &Observed, plan: &Plan) -> String {
    let Observed { object, entry, standing, .. } = observed;
    format!("{plan:?}\nof {standing:?} {entry:?}\nand {object:?}")
}

#[test]
fn what_is_wanted_is_never_deleted_and_what_is_not_wanted_is_never_made() {
    for_all(|observed| {
        let plan = plan(&observed);
        let wanted = is_wanted(&observed) && is_same_object(&observed);
        let allowed = match plan {
            Plan::Nothing => true,
            Plan::DeleteRemembered(_) | Plan::Forget | Plan::Cleanup(_) | Plan::Release(_) => !wanted,
            Plan::Refuse(_) | Plan::Ensure { .. } | Plan::Update(_) | Plan::Repair { .. } | Plan::Wait(_) => wanted,
        };
        assert!(allowed, "{}", shown(&observed, &plan));
    });
}

#[test]
fn what_is_held_for_an_object_that_is_gone_is_deleted_once() {
    for_all(|observed| {
        let Some(entry) = observed.entry.as_ref().filter(|_| !is_same_object(&observed)) else { return };
        let plan = plan(&observed);
        let expected = match entry.state {
            State::Deleted => Plan::Forget,
            _ => Plan::DeleteRemembered(Arc::clone(&entry.service)),
        };
        assert_eq!(plan, expected, "{}", shown(&observed, &plan));
    });
}

/// Whatever is refused, has failed or is contested.
#[test]
fn what_serves_never_rests_with_nodes_that_are_gone() {
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
fn after_two_failed_updates_what_can_be_ensured_is_not_updated() {
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

/// A provider and an API server that do what they are asked: each state comes to rest, and the rest
/// is what the object wants.
#[test]
fn every_state_comes_to_rest_where_all_calls_succeed() {
    for_all(|mut observed| {
        let first = shown(&observed, &plan(&observed));
        for _ in 0..STEPS_MAX {
            match plan(&observed) {
                Plan::Nothing | Plan::Refuse(_) => break,
                done => succeed(&mut observed, done),
            }
        }
        let rest = plan(&observed);
        assert!(matches!(rest, Plan::Nothing | Plan::Refuse(_)), "{rest:?} at last, and first\n{first}");
        if rest == Plan::Nothing {
            assert_eq!(after_success(&observed), Next::OnChange);
        }
        let state = observed.entry.as_ref().map(|entry| &entry.state);
        let object = observed.object.as_deref();
        if is_wanted(&observed) && rest == Plan::Nothing {
            let serves = matches!(state, Some(State::Serving(_) | State::Elsewhere { .. }));
            assert!(serves && object.is_some_and(has_finalizer), "{first}");
        }
        let leaves =
            object.is_none_or(|object| !is_load_balancer(object) || object.metadata.deletion_timestamp.is_some());
        if leaves {
            assert!(state.is_none(), "{state:?} at last, and first\n{first}");
        }
    });
}

/// Does what the plan says, as `service/apply.rs` where nothing fails.
fn succeed(observed: &mut Observed, plan: Plan) {
    let Observed { object, entry, shared, waits, generation, .. } = observed;
    let mut current = object.as_deref().cloned();
    let finalizers = Some(vec![names::LOAD_BALANCER_FINALIZER.to_owned()]);
    match plan {
        Plan::Nothing | Plan::Refuse(_) => {}
        Plan::Wait(wait) => waits.repair = waits.repair.saturating_sub(wait),
        Plan::DeleteRemembered(_) | Plan::Forget => *entry = None,
        Plan::Cleanup(_) | Plan::Release(_) => {
            *entry = None;
            if let Some(object) = &mut current {
                (object.metadata.finalizers, object.status) = (None, None);
            }
        }
        Plan::Ensure { service, add_finalizer, .. } => {
            let former = entry.take().unwrap_or_else(|| Entry::new("fake", Arc::clone(&service), State::Hearsay));
            let mut begun = former.ensured(service);
            begun.state = State::Serving(Serving {
                nodes: Backends::Known(shared.membership),
                generation: *generation,
                status: address(),
                written: Written::At(Some(VERSION)),
                overdue: false,
            });
            *entry = Some(begun);
            if let Some(object) = &mut current {
                write_status(object);
                if add_finalizer {
                    object.metadata.finalizers = finalizers;
                }
            }
        }
        Plan::Update(_) => entry.as_mut().unwrap().updated(shared.membership),
        Plan::Repair { add_finalizer, status } => {
            let (entry, object) = (entry.as_mut().unwrap(), current.as_mut().unwrap());
            entry.repairs.begin(now());
            waits.repair = entry.repairs.wait(now());
            if add_finalizer {
                object.metadata.finalizers = finalizers;
            }
            if status.is_some() {
                write_status(object);
                entry.status_written(Some(VERSION));
            }
        }
    }
    *object = current.map(Arc::new);
}

/// A provider that fails with each call: no state has it called again at once, unless nodes went
/// while an `ensure` failed.
#[test]
fn no_failure_is_tried_again_at_once() {
    let retry = Retry { after: Duration::from_secs(5), counts: true, until_change: false };
    for_all(|observed| {
        assert_eq!(after_failure(&observed, observed.shared.membership, retry), Next::After(retry.after));
        let moved = after_failure(&observed, observed.shared.membership + 1, retry);
        let serves_on = matches!(&observed.entry, Some(Entry { state: State::Unsettled { before: Some(_) }, .. }));
        assert!(moved == Next::After(retry.after) || serves_on);
    });
}

/// Only nodes were brought: the `ensure` that failed keeps its wait.
#[test]
fn the_wait_of_a_failed_ensure_outlives_an_update() {
    for_all(|mut observed| {
        let retry = observed.waits.retry;
        let Plan::Update(_) = plan(&observed) else { return };
        let entry = observed.entry.as_mut().unwrap();
        entry.updated(observed.shared.membership);
        observed.waits = entry.waits(now());
        if let (Plan::Ensure { .. }, Some(left)) = (plan(&observed), retry) {
            assert_eq!(after_success(&observed), Next::After(left));
        }
    });
}

/// An object that is being deleted by force, or that a person takes the finalizer from.
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
