//! Plans the next step for one Service (pure), from its object, its ledger entry, the node set and
//! the release. All decisions are here.

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

/// After this many consecutive failed `update` calls the Service is ensured: an `update` changes
/// only the backends of an existing load balancer, and only an `ensure` creates missing parts.
/// Upstream's first sync after a failed node sync is an ensure.
const FAILED_UPDATES_MAX: u32 = 2;

/// The owner of the object from the view of the planning provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// This provider.
    Own,
    /// Another provider of this process.
    OtherProvider,
    /// No provider or more than one, or the Service is not of type LoadBalancer.
    NoOwner,
}

/// The input of a plan.
pub(crate) struct Observed {
    /// The cached object; none after its deletion.
    pub(crate) object: Option<Arc<core::Service>>,
    /// The planning provider's ledger entry.
    pub(crate) entry: Option<Entry>,
    pub(crate) standing: Standing,
    /// Name of the planning provider.
    pub(crate) provider: String,
    pub(crate) shared: SharedNodes,
    /// Generation of the planning provider.
    pub(crate) generation: u64,
    /// The waits of the entry.
    pub(crate) waits: Waits,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// A repair is due after this time.
    Wait(Duration),
    /// The object is deleted, or another object has its name: delete the load balancer of the
    /// ledger entry.
    DeleteRemembered(Arc<Service>),
    /// The same case, but the load balancer is deleted already: remove the entry.
    Forget,
    /// The object exists and its load balancer has to be deleted.
    Cleanup(Arc<Service>),
    /// The load balancer is deleted; our finalizer and the status have to be removed.
    Release(Arc<Service>),
    /// The Service is invalid; no provider is called.
    Refuse(Vec<String>),
    Ensure {
        service: Arc<Service>,
        /// The finalizer is missing, or the annotations name another provider.
        add_finalizer: bool,
        /// Only drift repair requires it.
        repeated: bool,
    },
    /// Only the nodes changed; the Service is the last ensured one.
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
    if observed.standing != Standing::Own || object.metadata.deletion_timestamp.is_some() {
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
    // The provider's name has to be written before the first `ensure`, also if another manager set
    // the finalizer. Once is enough: if a user removes the annotation later, it is not written
    // again.
    let is_first = entry.is_none_or(|entry| {
        matches!(entry.state, State::Unconfirmed | State::Unsettled { before: None } | State::Deleted)
    });
    let unnamed = is_first && named_holder(object).is_none();
    Plan::Ensure { service: Arc::new(service), add_finalizer: add_finalizer || unnamed, repeated: false }
}

/// When to run the Service again after a successful step: at once while any work is left.
pub(crate) fn after_success(observed: &Observed) -> Next {
    match (plan(observed), observed.waits.retry) {
        (Plan::Nothing, _) => Next::OnChange,
        (Plan::Wait(wait), _) => Next::Within(wait),
        // Only the backends were updated; the failed `ensure` keeps its wait.
        (Plan::Ensure { .. }, Some(wait)) => Next::After(wait),
        _ => Next::After(Duration::ZERO),
    }
}

/// When to run the Service again after a failure. If an `ensure` failed and the nodes changed
/// meanwhile, the earlier load balancer must be updated at once.
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

/// Plans for an existing object that this provider does not serve, or not any more.
///
/// The load balancer is deleted, also to make room for another provider's. But if the Service did
/// not change its class and only the claims changed, so that no provider owns the Service, the load
/// balancer stays, because an operator's mistake must not interrupt its clients. It is deleted with
/// the Service.
fn departure(observed: &Observed, object: &core::Service, service: Service) -> Plan {
    // A Service of type LoadBalancer with another owner has that owner's finalizer, even if the
    // finalizer has the same name.
    let foreign = is_load_balancer(object) && observed.standing != Standing::Own;
    let leaves = object.metadata.deletion_timestamp.is_some()
        || observed.standing == Standing::OtherProvider
        || !is_load_balancer(object);
    match &observed.entry {
        None if has_finalizer(object) && !foreign => Plan::Cleanup(Arc::new(service)),
        None => Plan::Nothing,
        Some(entry) if !leaves && entry.service.load_balancer_class == service.load_balancer_class => Plan::Nothing,
        Some(entry) if entry.state == State::Deleted => Plan::Release(Arc::clone(&entry.service)),
        // The cache trims the spec of an object that is neither of type LoadBalancer nor has our
        // finalizer.
        Some(entry) if !is_load_balancer(object) && !has_finalizer(object) => Plan::Cleanup(Arc::clone(&entry.service)),
        // With the class for which the load balancer was made: a provider may ignore Services of
        // other classes.
        Some(entry) => {
            let load_balancer_class = entry.service.load_balancer_class.clone();
            Plan::Cleanup(Arc::new(Service { load_balancer_class, ..service }))
        }
    }
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
/// up to date. If another controller undoes our writes, the backends do not wait for them.
fn upkeep(
    observed: &Observed,
    (entry, serving): (&Entry, Option<&Serving>),
    (object, service): (&core::Service, Service),
    add_finalizer: bool,
) -> Plan {
    // A lagging watch shows the object before our last write.
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
