//! What has to be done for one Service (pure): its object, what the ledger remembers, the node set
//! and the release in; one plan out. Nothing else decides.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};

use super::predicates::needs_update;
use crate::{
    backoff::Retry,
    ledger::{Backends, Entry, Serving, State, Waits, Written, version},
    nodes::SharedNodes,
    queue::Next,
    service_spec::{Converted, convert, has_finalizer, is_load_balancer, named_holder, names_another},
};

/// After this many failed `update` calls in a row the Service is ensured: an `update` changes the
/// backends of what is there, and only an `ensure` makes what is missing beside them. Upstream's
/// first sync after a failed node sync is an ensure.
const FAILED_UPDATES_MAX: u32 = 2;

/// Who owns the object, as the provider that plans sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// This provider.
    Mine,
    /// Another provider of this process.
    Anothers,
    /// No provider, or more than one; or it is not of type LoadBalancer.
    Nobodys,
}

/// What a plan is made from.
pub(crate) struct Observed {
    /// As the cache has it; none where it is gone.
    pub(crate) object: Option<Arc<core::Service>>,
    /// What the provider that plans holds for it.
    pub(crate) entry: Option<Entry>,
    pub(crate) standing: Standing,
    /// Name of the provider that plans.
    pub(crate) provider: String,
    pub(crate) shared: SharedNodes,
    /// Of the provider.
    pub(crate) generation: u64,
    /// Of the entry, from now on.
    pub(crate) waits: Waits,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// A repair is due after this time.
    Wait(Duration),
    /// The object is gone, or another has its name: delete by what the ledger remembers.
    DeleteRemembered(Arc<Service>),
    /// The same, and the load balancer is deleted already.
    Forget,
    /// The object is there and its load balancer has to go.
    Cleanup(Arc<Service>),
    /// Its load balancer is deleted, and our finalizer and the status have to go.
    Release(Arc<Service>),
    /// The Service is not what a provider may be asked for.
    Refuse(Vec<String>),
    Ensure {
        service: Arc<Service>,
        /// The finalizer is missing, or the object names another holder beside it.
        add_finalizer: bool,
        /// Only its turn of drift repair asks for it.
        repeated: bool,
    },
    /// Only the nodes of this Service changed, as it was ensured last.
    Update(Arc<Service>),
    /// Only our writes to the object are missing.
    Repair {
        add_finalizer: bool,
        status: Option<LoadBalancerStatus>,
    },
}

/// The plan for one Service.
pub(crate) fn plan(observed: &Observed) -> Plan {
    let entry = observed.entry.as_ref();
    let Some(object) = observed.object.as_deref() else { return entry.map_or(Plan::Nothing, delete_remembered) };
    let Converted { service, problems } = convert(object);
    if let Some(entry) = entry.filter(|entry| entry.service.uid != service.uid) {
        return delete_remembered(entry);
    }
    if observed.standing != Standing::Mine || object.metadata.deletion_timestamp.is_some() {
        return departure(observed, object, service);
    }
    let refused = !problems.is_empty();
    if let Some(service) = entry.and_then(|entry| outdated(entry, observed.shared.membership, refused)) {
        return Plan::Update(service);
    }
    if refused {
        return Plan::Refuse(problems);
    }
    let add_finalizer = !has_finalizer(object) || names_another(object, &observed.provider);
    match entry.map(|entry| (entry, &entry.state)) {
        Some((entry, _)) if needs_update(&entry.service, &service) => {}
        Some((entry, State::Serving(serving)))
            if serving.generation == observed.generation && serving.nodes.failed() < FAILED_UPDATES_MAX =>
        {
            if serving.overdue {
                return Plan::Ensure { service: Arc::new(service), add_finalizer, repeated: true };
            }
            return upkeep(observed, (entry, Some(serving)), (object, service), add_finalizer);
        }
        Some((entry, State::Elsewhere { generation })) if *generation == observed.generation => {
            return upkeep(observed, (entry, None), (object, service), add_finalizer);
        }
        Some(_) | None => {}
    }
    // The provider's name has to be written before anything is made, also where the finalizer is
    // another manager's. Once is enough: a user who removes the annotation later is left in peace.
    let is_first = entry
        .is_none_or(|entry| matches!(entry.state, State::Hearsay | State::Unsettled { before: None } | State::Deleted));
    let unnamed = is_first && named_holder(object).is_none();
    Plan::Ensure { service: Arc::new(service), add_finalizer: add_finalizer || unnamed, repeated: false }
}

/// When to look again after this was carried out: at once while anything is left to do.
pub(crate) fn after_success(observed: &Observed) -> Next {
    match (plan(observed), observed.waits.retry) {
        (Plan::Nothing, _) => Next::OnChange,
        (Plan::Wait(wait), _) => Next::Within(wait),
        // Only the nodes were brought, and the `ensure` that failed keeps its wait.
        (Plan::Ensure { .. }, Some(wait)) => Next::After(wait),
        _ => Next::After(Duration::ZERO),
    }
}

/// When to look again after a failure. Where an `ensure` failed and the nodes changed meanwhile,
/// what serves on must not be left with nodes that are gone.
pub(crate) fn after_failure(observed: &Observed, membership_before: u64, retry: Retry) -> Next {
    let serves_on = matches!(&observed.entry, Some(Entry { state: State::Unsettled { before: Some(_) }, .. }));
    match retry {
        _ if serves_on
            && observed.shared.membership != membership_before
            && matches!(plan(observed), Plan::Update(_)) =>
        {
            Next::After(Duration::ZERO)
        }
        Retry { after, until_change: true, .. } => Next::Within(after),
        Retry { after, .. } => Next::After(after),
    }
}

fn delete_remembered(entry: &Entry) -> Plan {
    if entry.state == State::Deleted { Plan::Forget } else { Plan::DeleteRemembered(Arc::clone(&entry.service)) }
}

/// The object is there, and this provider is not to serve it, or not any more.
///
/// The load balancer has to go, be it to make room for another provider's. But where the Service
/// wants what it wanted and only the claims changed so that nobody owns it any more, what serves
/// its clients stays: an operator's slip must not cost them. It goes with the Service.
fn departure(observed: &Observed, object: &core::Service, service: Service) -> Plan {
    // A Service of type LoadBalancer that is another's carries another's finalizer, even where it
    // has the same name.
    let foreign = is_load_balancer(object) && observed.standing != Standing::Mine;
    let leaves = object.metadata.deletion_timestamp.is_some()
        || observed.standing == Standing::Anothers
        || !is_load_balancer(object);
    match &observed.entry {
        None if has_finalizer(object) && !foreign => Plan::Cleanup(Arc::new(service)),
        None => Plan::Nothing,
        Some(entry) if !leaves && entry.service.load_balancer_class == service.load_balancer_class => Plan::Nothing,
        Some(entry) if entry.state == State::Deleted => Plan::Release(Arc::clone(&entry.service)),
        // Of an object that does not look like ours any more the cache keeps no fields that a
        // provider could read.
        Some(entry) if !is_load_balancer(object) && !has_finalizer(object) => Plan::Cleanup(Arc::clone(&entry.service)),
        // Of the class that it was made for: a provider may leave those of other classes alone.
        Some(entry) => {
            let load_balancer_class = entry.service.load_balancer_class.clone();
            Plan::Cleanup(Arc::new(Service { load_balancer_class, ..service }))
        }
    }
}

/// The Service that serves although what is wanted now is refused or has failed, where its nodes
/// are others now.
fn outdated(entry: &Entry, membership: u64, refused: bool) -> Option<Arc<Service>> {
    match &entry.state {
        State::Serving(serving) if refused && serving.nodes != Backends::Known(membership) => {
            Some(Arc::clone(&entry.service))
        }
        // After an `update` that failed it is the turn of the `ensure`, which brings the nodes as
        // well.
        State::Unsettled { before: Some(before) }
            if before.nodes != Backends::Known(membership) && before.nodes.failed() == 0 =>
        {
            Some(Arc::clone(&before.service))
        }
        _ => None,
    }
}

/// The load balancer is as the Service wants it, but for the nodes or our writes. Where another
/// controller undoes our writes, the nodes do not wait for them.
fn upkeep(
    observed: &Observed,
    (entry, serving): (&Entry, Option<&Serving>),
    (object, service): (&core::Service, Service),
    add_finalizer: bool,
) -> Plan {
    // A watch that lags shows the object as it was before our last write.
    let add_finalizer = add_finalizer && entry.wrote.is_none_or(|wrote| version(object).is_none_or(|now| now >= wrote));
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
mod tests;
