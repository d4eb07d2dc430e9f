//! All states that a plan may observe.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus as CoreStatus, Service, ServiceStatus};
use tokio::time::Instant;

use super::super::{address, object};
use crate::{
    backoff::Repairs,
    ledger::{Backends, Before, Entry, NextTry, Serving, State, Written},
    nodes::{Nodes, SharedNodes},
    ownership::LaneId,
    service::{
        plan::{ObjectOwner, Observed, PlanAnswers},
        retention::Records,
    },
    service_spec::{convert, is_load_balancer},
};

/// The resource version of each object.
const VERSION: u64 = 10;
/// The planning provider, and another one.
pub(super) const LANES: [LaneId; 2] = [1, 2];
/// Time left until a further removal of our finalizer, or until the retry of a failed `ensure`.
const LEFT: Duration = Duration::from_secs(60);

/// The same moment for all cases.
pub(super) fn now() -> Instant {
    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    *NOW
}

/// Writes the address of the load balancer into the object.
pub(super) fn write_status(object: &mut Service) {
    let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".to_owned()), ..LoadBalancerIngress::default() };
    let load_balancer = Some(CoreStatus { ingress: Some(vec![ingress]) });
    object.status = Some(ServiceStatus { load_balancer, ..ServiceStatus::default() });
}

/// Calls `check` with all observable states.
pub(super) fn for_all(mut check: impl FnMut(Observed)) {
    let shared = Nodes::default().shared(0);
    let service = Arc::new(convert(&object("one", 80, &|word| word == "lb")).service);
    let entries = entries(&service, shared.membership);
    for object in objects() {
        let object = object.map(Arc::new);
        // Only a Service of type LoadBalancer has an owner.
        let owned = object.as_deref().is_some_and(is_load_balancer);
        let owners = [ObjectOwner::NoOwner, ObjectOwner::Own, ObjectOwner::OtherProvider];
        for object_owner in owners.into_iter().take(if owned { 3 } else { 1 }) {
            for entry in &entries {
                let observed = observed((object.clone(), object_owner), entry.clone(), &shared);
                for release_wait in [None, Some(Duration::ZERO), Some(LEFT)] {
                    with_answers(&Observed { release_wait, ..observed.clone() }, &mut check);
                }
            }
        }
    }
}

/// Calls `check` with all answers that may be known in this state, and with and without the
/// interface `load-balancers` where the plan may ask for it.
fn with_answers(observed: &Observed, check: &mut impl FnMut(Observed)) {
    let state = observed.entry.as_ref().map(|entry| &entry.state);
    // The API is asked for the object of an entry that the watch does not show.
    let exists: &[_] =
        if state.is_some() && observed.object.is_none() { &[None, Some(true), Some(false)] } else { &[None] };
    // The provider is asked where only the annotation names it; the answer outlives the next step
    // of the turn.
    let found: &[_] = match state {
        Some(State::Unconfirmed | State::Deleted) => &[None, Some(false)],
        Some(State::Unsettled { before: None }) => &[None, Some(true), Some(false)],
        _ => &[None],
    };
    let may_hold: &[&[_]] = match state {
        None | Some(State::Unconfirmed) => &[&LANES, &LANES[1..], &[]],
        _ => &[&LANES],
    };
    // Only what is not of type LoadBalancer may be held by several, which delete one by one.
    let emptied: &[&[_]] = match state {
        None | Some(State::Unconfirmed | State::Unsettled { before: None }) if observed.object.is_some() => {
            &[&[], &LANES[..1], &LANES]
        }
        _ => &[&[]],
    };
    for &exists in exists {
        for &found in found {
            for may_hold in may_hold {
                for emptied in emptied {
                    let (may_hold, emptied) = (may_hold.to_vec(), emptied.to_vec());
                    check(Observed { answers: PlanAnswers { exists, found }, may_hold, emptied, ..observed.clone() });
                }
            }
        }
    }
}

fn observed(
    (object, object_owner): (Option<Arc<Service>>, ObjectOwner),
    entry: Option<Entry>,
    shared: &SharedNodes,
) -> Observed {
    Observed {
        object,
        waits: entry.as_ref().map(|entry| entry.waits(now())).unwrap_or_default(),
        release_wait: None,
        entry,
        object_owner,
        provider: "fake".to_owned(),
        lane: LANES[0],
        may_hold: LANES.into(),
        emptied: Vec::new(),
        paused: Vec::new(),
        retains: Vec::new(),
        records: Records::default(),
        answers: PlanAnswers::default(),
        shared: shared.clone(),
        generation: (1, 1),
    }
}

/// All ledger entries: the last write of ours is unknown, or the one that the object shows, or a
/// newer one.
fn entries(service: &Arc<skysail_provider::Service>, membership: u64) -> Vec<Option<Entry>> {
    let mut repaired = Repairs::default();
    repaired.begin(now());
    let mut entries = vec![None];
    for state in states(service, membership) {
        for repairs in [Repairs::default(), repaired] {
            for wrote in [None, Some(VERSION), Some(VERSION + 1)] {
                let entry = Entry::new("fake", Arc::clone(service), state.clone());
                entries.push(Some(Entry { repairs, wrote, ..entry }));
            }
        }
    }
    entries
}

/// All states of a ledger entry.
fn states(service: &Arc<skysail_provider::Service>, membership: u64) -> Vec<State> {
    let nodes = [
        Backends::Known(membership),
        Backends::Known(membership + 1),
        Backends::Unknown { failed: 0 },
        Backends::Unknown { failed: 1 },
        Backends::Unknown { failed: 2 },
    ];
    let mut states = vec![State::Unconfirmed, State::Unsettled { before: None }, State::Deleted];
    states.extend([1, 2].map(|release| State::Elsewhere { generation: (1, release) }));
    for nodes in nodes {
        let next = |until_change| Some(NextTry { at: now() + LEFT, until_change });
        for retry in [None, next(false), next(true)] {
            let before = Before { service: Arc::clone(service), nodes, retry };
            states.push(State::Unsettled { before: Some(before) });
        }
        for (generation, written, overdue) in [
            (1, Written::At(Some(VERSION)), false),
            (1, Written::At(Some(VERSION - 1)), false),
            (1, Written::At(None), true),
            (1, Written::No, false),
            (2, Written::At(None), false),
        ] {
            states.push(State::Serving(Serving {
                nodes,
                generation: (1, generation),
                status: address(),
                written,
                overdue,
            }));
        }
    }
    states
}

/// All objects; none is a deleted object.
fn objects() -> Vec<Option<Service>> {
    let words = ["lb", "clusterip", "lb other-class", "lb bad-port", "lb names-this", "lb names-another"];
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
