//! Plans the next step for one Service (pure), from its object, its ledger entry, the node set, the
//! release, and the answers to the questions of earlier plans of the same turn. All decisions are
//! here; `outcome.rs` records their outcomes.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};

use super::{
    pause,
    predicates::needs_update,
    retention::{self, Identity, Records},
};
use crate::{
    backoff::Retry,
    ledger::{Backends, Entry, Generation, Serving, State, Waits, Written, version},
    nodes::SharedNodes,
    ownership::LaneId,
    pauses::Pause,
    queue::Next,
    retained::{RetainedKey, RetainedLoadBalancer},
    service_spec::{Converted, convert, has_finalizer, is_load_balancer, named_holder, names_another},
};

/// After this many consecutive failed `update` calls the Service is ensured: an `update` changes
/// only the backends of an existing load balancer, and only an `ensure` creates missing parts.
/// Upstream's first sync after a failed node sync is an ensure. A retry-after does not count,
/// however often it comes: the provider says that the same call succeeds later, and that its cloud
/// is busy, where an `ensure` would begin more work.
const FAILED_UPDATES_MAX: u32 = 2;
/// Interval of checks of a Service that the API has and the watch does not show.
const LATE_WATCH: Duration = Duration::from_secs(5);

/// The owner of the object from the view of the planning provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectOwner {
    /// This provider.
    Own,
    /// Another provider of this process.
    OtherProvider,
    /// No provider or more than one, or the Service is not of type LoadBalancer.
    NoOwner,
}

/// The input of a plan.
#[derive(Clone)]
pub(crate) struct Observed {
    /// The cached object; none after its deletion.
    pub(crate) object: Option<Arc<core::Service>>,
    /// The planning provider's ledger entry.
    pub(crate) entry: Option<Entry>,
    pub(crate) object_owner: ObjectOwner,
    /// Name of the planning provider.
    pub(crate) provider: String,
    /// The planning provider.
    pub(crate) lane: LaneId,
    /// The providers that may have made a load balancer: those with load balancers, and those
    /// without a release.
    pub(crate) may_hold: Vec<LaneId>,
    /// The providers that have deleted the load balancer of this object, which has not changed
    /// since; see `emptied.rs`.
    pub(crate) emptied: Vec<LaneId>,
    /// The providers that the operator has paused.
    pub(crate) paused: Vec<LaneId>,
    /// The providers that retain the load balancer in place of a deletion.
    pub(crate) retains: Vec<LaneId>,
    /// What the records say about retained and adopted load balancers.
    pub(crate) records: Records,
    pub(crate) answers: PlanAnswers,
    pub(crate) shared: SharedNodes,
    /// Generation of the planning provider.
    pub(crate) generation: Generation,
    /// The waits of the entry.
    pub(crate) waits: Waits,
    /// None if this process has not removed our finalizer lately. Otherwise how long the next
    /// removal has to wait, because another controller adds the finalizer each time.
    pub(crate) release_wait: Option<Duration>,
}

impl Observed {
    /// UID of the object of this Service, which is in the provider's form: with the UID by which
    /// the provider finds the load balancer.
    pub(crate) fn object_uid<'a>(&'a self, service: &'a Service) -> &'a str {
        if let Some(entry) = self.entry.as_ref().filter(|entry| entry.service.uid == service.uid) {
            return &entry.object_uid;
        }
        let Records { own, named, .. } = &self.records;
        let is_adopted = own.iter().chain(named).any(|(key, _)| key.uid == service.uid);
        let object = self.object.as_deref().filter(|_| is_adopted);
        object.and_then(|object| object.metadata.uid.as_deref()).unwrap_or(&service.uid)
    }

    /// Whether the planning provider must have made the load balancer, whatever its cloud shows.
    pub(crate) fn must_hold(&self) -> bool {
        match &self.entry {
            Some(entry) => !matches!(entry.state, State::Unconfirmed | State::Elsewhere { .. }),
            None => self.object_owner == ObjectOwner::Own,
        }
    }
}

/// The answers to the questions of this turn; none before the question. A plan asks each question
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanAnswers {
    /// Whether the API has the object that the watch does not show.
    pub(crate) exists: Option<bool>,
    /// Whether the provider that the annotation names has the load balancer.
    pub(crate) found: Option<bool>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// A repair, or another look at the API, is due after this time.
    Wait(Duration),
    /// Ask the API for an object that the watch does not show. Our finalizer keeps the object, so a
    /// missing one was deleted by force, or a list omitted it by mistake.
    LookUp(Arc<Service>),
    /// Ask the provider that the annotation names whether it has the load balancer.
    Confirm(Arc<Service>),
    /// The object is deleted, or another object has its name: delete the load balancer of the
    /// ledger entry.
    DeleteRemembered(Arc<Service>),
    /// The same where the load balancer stays in the cloud.
    RetainRemembered(Arc<Service>),
    /// The Service that had this load balancer went without a deletion: nobody has it any more.
    GiveBack(RetainedKey, RetainedLoadBalancer),
    /// The entry is obsolete: its load balancer is deleted, or does not exist.
    Forget,
    /// The load balancer has to be deleted, and no provider can have made it: an error.
    NoHolder,
    /// Delete the load balancer at each of these providers; at none if all have deleted it.
    Cleanup {
        service: Arc<Service>,
        holders: Vec<LaneId>,
        /// Those of the holders whose load balancer stays in the cloud.
        retained: Vec<LaneId>,
        /// The annotation named the wrong provider, and the load balancer of the owner stays.
        misnamed: bool,
    },
    /// The load balancer is deleted: our finalizer has to be removed, and the status emptied.
    Release {
        service: Arc<Service>,
        empties_status: bool,
    },
    /// The Service is invalid; no provider is called.
    Refuse(Vec<String>),
    /// A pause holds this step back, until the pause ends.
    Paused {
        pause: Pause,
        held: Box<Plan>,
    },
    Ensure {
        service: Arc<Service>,
        /// The finalizer is missing, or the annotations name another provider.
        add_finalizer: bool,
        /// Only drift repair requires it.
        repeated: bool,
        /// The load balancer is retained, and becomes this Service's first.
        claims: bool,
    },
    /// Only the nodes changed; the Service is the last ensured one.
    Update(Arc<Service>),
    /// Only our writes to the object are missing.
    Repair {
        add_finalizer: bool,
        status: Option<LoadBalancerStatus>,
    },
}

/// The plan for one Service, which may be paused.
pub(crate) fn plan(observed: &Observed) -> Plan {
    pause::held(observed, without_pause(observed))
}

fn without_pause(observed: &Observed) -> Plan {
    let entry = observed.entry.as_ref();
    if let Some((key, record)) = observed.records.left_behind(entry) {
        return match observed.answers.exists {
            None => Plan::LookUp(Arc::new(retention::former(record))),
            Some(true) => Plan::Wait(LATE_WATCH),
            Some(false) => Plan::GiveBack(key.clone(), record.clone()),
        };
    }
    let Some(object) = observed.object.as_deref() else {
        return entry.map_or(Plan::Nothing, |entry| missing(observed, entry));
    };
    let Converted { mut service, mut problems } = convert(object);
    if let Some(entry) = entry.filter(|entry| entry.object_uid != service.uid) {
        return gone(observed, entry);
    }
    let is_wanted = observed.object_owner == ObjectOwner::Own && object.metadata.deletion_timestamp.is_none();
    let Identity { uid, name, claims, problem } = retention::identity(observed, object, is_wanted);
    (service.uid, service.name) = (uid, name);
    if !is_wanted {
        return departure(observed, object, service);
    }
    problems.extend(problem);
    let refused = !problems.is_empty();
    if let Some(service) = entry.and_then(|entry| outdated(entry, observed.shared.membership, refused)) {
        return Plan::Update(service);
    }
    if refused {
        return Plan::Refuse(problems);
    }
    // Before a load balancer is taken, the guarded write proves that the object is no old one.
    let add_finalizer = claims || !has_finalizer(object) || names_another(object, &observed.provider);
    match entry.map(|entry| (entry, &entry.state)) {
        Some((entry, _)) if claims || needs_update(&entry.service, &service) => {}
        Some((entry, State::Serving(serving)))
            if serving.generation == observed.generation && serving.nodes.failed() < FAILED_UPDATES_MAX =>
        {
            if serving.overdue {
                return Plan::Ensure { service: Arc::new(service), add_finalizer, repeated: true, claims };
            }
            return upkeep(observed, (entry, Some(serving)), (object, service), add_finalizer);
        }
        Some((entry, State::Elsewhere { generation })) if *generation == observed.generation => {
            return upkeep(observed, (entry, None), (object, service), add_finalizer);
        }
        Some(_) | None => {}
    }
    // The provider's name has to be written before the first `ensure`, also if another manager set
    // the finalizer. Once is enough: if a user removes the annotation later, it is not written
    // again.
    let is_first =
        entry.is_none_or(|entry| matches!(entry.state, State::Unconfirmed | State::Unsettled { before: None }));
    let unnamed = is_first && named_holder(object).is_none();
    // The watch may still show the finalizer that this process has removed, or tried to remove
    // without an answer. The API server refuses the guarded write if the object is an old one.
    let is_released = observed.release_wait.is_some() || entry.is_some_and(|entry| entry.state == State::Deleted);
    let add_finalizer = add_finalizer || unnamed || is_released;
    Plan::Ensure { service: Arc::new(service), add_finalizer, repeated: false, claims }
}

/// When to run the Service again after this successful step: at once while any work is left.
pub(crate) fn after_success(done: &Plan, observed: &Observed) -> Next {
    match (done, plan(observed), observed.waits.retry) {
        // The watch may still show the finalizer.
        (Plan::Release { .. }, _, _) | (_, Plan::Nothing | Plan::Paused { .. }, _) => Next::OnChange,
        (_, Plan::Wait(wait), _) => Next::Within(wait),
        // Only the backends were updated; the failed `ensure` keeps its wait.
        (_, Plan::Ensure { .. }, Some(wait)) => Next::After(wait),
        _ => Next::After(Duration::ZERO),
    }
}

/// When to run the Service again after this step failed. If an `ensure` failed and the nodes
/// changed meanwhile, the earlier load balancer must be updated at once. If only our write to the
/// object failed, an update of the backends follows at once, now or when the nodes change.
pub(crate) fn after_failure(failed: &Plan, observed: &Observed, membership_before: u64, retry: Retry) -> Next {
    let serves_on = matches!(&observed.entry, Some(Entry { state: State::Unsettled { before: Some(_) }, .. }));
    let serves = matches!(&observed.entry, Some(Entry { state: State::Serving(_), .. }));
    let is_write = matches!(failed, Plan::Repair { .. }) || (serves && matches!(failed, Plan::Ensure { .. }));
    match retry {
        _ if serves_on
            && observed.shared.membership != membership_before
            && matches!(plan(observed), Plan::Update(_)) =>
        {
            Next::After(Duration::ZERO)
        }
        _ if is_write && matches!(plan(observed), Plan::Update(_)) => Next::After(Duration::ZERO),
        Retry { after, until_change, .. } if until_change || is_write => Next::Within(after),
        Retry { after, .. } => Next::After(after),
    }
}

/// Plans for an entry whose object the watch does not show.
fn missing(observed: &Observed, entry: &Entry) -> Plan {
    match observed.answers.exists {
        _ if entry.state == State::Deleted => Plan::Forget,
        None => Plan::LookUp(Arc::clone(&entry.service)),
        Some(true) => Plan::Wait(LATE_WATCH),
        Some(false) => gone(observed, entry),
    }
}

/// Plans for an entry whose object is deleted.
fn gone(observed: &Observed, entry: &Entry) -> Plan {
    let service = Arc::clone(&entry.service);
    match entry.state {
        State::Deleted => Plan::Forget,
        _ if observed.records.spared.contains(&observed.lane) => Plan::Forget,
        State::Unconfirmed if is_unasked(observed) => Plan::Confirm(service),
        State::Unconfirmed => misnamed(observed, service),
        State::Unsettled { .. } | State::Serving(_) | State::Elsewhere { .. } => {
            match observed.retains.contains(&observed.lane) {
                true => Plan::RetainRemembered(service),
                false => Plan::DeleteRemembered(service),
            }
        }
    }
}

/// Whether the controller has to ask the provider for the load balancer, because only the
/// annotation names the provider. A provider without the interface `load-balancers` cannot have
/// made one.
fn is_unasked(observed: &Observed) -> bool {
    observed.answers.found.is_none() && observed.may_hold.contains(&observed.lane)
}

/// Plans for a load balancer that the provider of the annotation does not have. The provider
/// deletes or retains it in any case, because a cloud may return stale data, and parts may exist
/// without a load balancer.
fn misnamed(observed: &Observed, service: Arc<Service>) -> Plan {
    let (holders, retained) = leaving(observed, &[observed.lane]);
    match observed.may_hold.contains(&observed.lane) {
        true => Plan::Cleanup { service, holders, retained, misnamed: true },
        false => Plan::Forget,
    }
}

/// Plans what becomes of the load balancer at the providers that may have made it.
fn cleanup(observed: &Observed, service: Arc<Service>, holders: &[LaneId]) -> Plan {
    if holders.is_empty() {
        return Plan::NoHolder;
    }
    let (holders, retained) = leaving(observed, holders);
    Plan::Cleanup { service, holders, retained, misnamed: false }
}

/// Those that have not deleted or retained the load balancer yet, and have none of it that is
/// another Service's; and those of them that retain it.
fn leaving(observed: &Observed, holders: &[LaneId]) -> (Vec<LaneId>, Vec<LaneId>) {
    let holders = unemptied(observed, holders);
    let retained = holders.iter().copied().filter(|holder| observed.retains.contains(holder)).collect();
    (holders, retained)
}

/// The planning provider is among them although it has deleted the load balancer, if it has just
/// said that the load balancer exists.
fn unemptied(observed: &Observed, holders: &[LaneId]) -> Vec<LaneId> {
    let is_found = |holder| holder == observed.lane && observed.answers.found == Some(true);
    let is_left = |holder: &LaneId| {
        (is_found(*holder) || !observed.emptied.contains(holder)) && !observed.records.spared.contains(holder)
    };
    holders.iter().copied().filter(is_left).collect()
}

/// Plans for an existing object that this provider does not serve, or not any more.
///
/// The load balancer is deleted, also to make room for another provider's. But if the Service did
/// not change its class and only the claims changed, so that no provider owns the Service, the load
/// balancer stays, because an operator's mistake must not interrupt its clients. It is deleted with
/// the Service.
fn departure(observed: &Observed, object: &core::Service, service: Service) -> Plan {
    let is_wanted = is_load_balancer(object) && object.metadata.deletion_timestamp.is_none();
    let leaves = !is_wanted || observed.object_owner == ObjectOwner::OtherProvider;
    let this = [observed.lane];
    let Some(entry) = &observed.entry else {
        return match (has_finalizer(object), is_load_balancer(object)) {
            (false, _) => Plan::Nothing,
            // If the type changed while this process was down, the class is lost with it, and no
            // annotation names a provider.
            (true, false) if let Some(wait) = observed.release_wait.filter(|wait| !wait.is_zero()) => Plan::Wait(wait),
            (true, false) => cleanup(observed, Arc::new(service), &observed.may_hold),
            (true, true) if observed.object_owner == ObjectOwner::Own => cleanup(observed, Arc::new(service), &this),
            // The finalizer of the other owner, even if it has the same name.
            (true, true) => Plan::Nothing,
        };
    };
    if !leaves && entry.service.load_balancer_class == service.load_balancer_class {
        return Plan::Nothing;
    }
    // The Service has a class that no provider here claims. A class changes only together with the
    // type, which empties the status.
    let is_foreign = is_wanted && observed.object_owner == ObjectOwner::NoOwner;
    let release = |service| Plan::Release { service, empties_status: !is_foreign };
    let service = match &entry.state {
        State::Deleted => return release(Arc::clone(&entry.service)),
        // The cache trims the spec of an object that is neither of type LoadBalancer nor has our
        // finalizer.
        _ if !is_load_balancer(object) && !has_finalizer(object) => Arc::clone(&entry.service),
        // With the class for which the load balancer was made: a provider may ignore Services of
        // other classes.
        _ => Arc::new(Service { load_balancer_class: entry.service.load_balancer_class.clone(), ..service }),
    };
    if entry.state != State::Unconfirmed {
        match is_unprotected(observed, entry, object) && !is_foreign {
            true => Plan::Repair { add_finalizer: true, status: None },
            false => cleanup(observed, service, &this),
        }
    } else if is_unasked(observed) {
        Plan::Confirm(service)
    } else if is_foreign {
        // Other load balancers for it belong to the controller of that class.
        match observed.may_hold.contains(&observed.lane) {
            true => cleanup(observed, service, &this),
            false => release(service),
        }
    } else if is_wanted {
        // The owner's load balancer stays.
        misnamed(observed, service)
    } else {
        cleanup(observed, service, &observed.may_hold)
    }
}

/// Whether the load balancer would be leaked if this process ended before the deletion succeeds:
/// the object lacks our finalizer or names another provider, because another client changed it, or
/// because an old list made this process ensure the Service. If the API server keeps refusing the
/// write, the deletion does not wait for it.
fn is_unprotected(observed: &Observed, entry: &Entry, object: &core::Service) -> bool {
    let is_kept = has_finalizer(object) && named_holder(object).is_none_or(|name| name == observed.provider);
    !is_kept
        && object.metadata.deletion_timestamp.is_none()
        && shows_last_write(entry, object)
        && observed.waits.repair.is_zero()
        && !entry.repairs.are_undone()
}

/// Whether the object is as new as our last write: the watch may lag.
pub(super) fn shows_last_write(entry: &Entry, object: &core::Service) -> bool {
    entry.wrote.is_none_or(|wrote| version(object).is_none_or(|now| now >= wrote))
}

/// The last ensured Service, if its load balancer serves while the wanted one is refused or failed,
/// and its nodes are outdated.
fn outdated(entry: &Entry, membership: u64, refused: bool) -> Option<Arc<Service>> {
    match &entry.state {
        State::Serving(serving) if refused && serving.nodes != Backends::Known(membership) => {
            Some(Arc::clone(&entry.service))
        }
        // After a failed `update`, `ensure` is next, which also sets the backends.
        State::Unsettled { before: Some(before) }
            if before.nodes != Backends::Known(membership) && before.nodes.failed() == 0 =>
        {
            Some(Arc::clone(&before.service))
        }
        _ => None,
    }
}

/// Plans the update of the backends and the repair of our writes; the rest of the load balancer is
/// up to date. If another controller undoes our writes, or the API server refuses them, the
/// backends do not wait for them.
fn upkeep(
    observed: &Observed,
    (entry, serving): (&Entry, Option<&Serving>),
    (object, service): (&core::Service, Service),
    add_finalizer: bool,
) -> Plan {
    let add_finalizer = add_finalizer && shows_last_write(entry, object);
    let unwritten = |serving: &&Serving| serving.written == Written::No || entry.lost_status(object);
    let status = serving.filter(unwritten).map(|serving| serving.status.clone());
    let is_lacking = add_finalizer || status.is_some();
    let wait = observed.waits.repair;
    if is_lacking && wait.is_zero() {
        return Plan::Repair { add_finalizer, status };
    }
    if serving.is_some_and(|serving| serving.nodes != Backends::Known(observed.shared.membership)) {
        return Plan::Update(Arc::new(service));
    }
    if is_lacking { Plan::Wait(wait) } else { Plan::Nothing }
}

#[cfg(test)]
pub(super) mod tests;
