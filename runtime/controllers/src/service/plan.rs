//! What has to be done for one Service (pure): its object, what the ledger remembers, the node set and the release in; one plan out.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};
use tokio::time::Instant;

use super::{
    ledger::{Entry, Settled},
    predicates::needs_update,
    validate::{Converted, convert, has_finalizer, is_load_balancer, named_holder, names_another},
};
use crate::nodes::SharedNodes;

/// After this many failed `update` calls in a row the Service is ensured: an `update` changes the backends of what is there, and only an `ensure` makes what
/// is missing beside them. Upstream's first sync after a failed node sync is an ensure.
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
pub(crate) struct Observed<'a> {
    /// As the cache has it; none where it is gone.
    pub(crate) object: Option<&'a core::Service>,
    /// What the provider that plans holds for it.
    pub(crate) entry: Option<&'a Entry>,
    pub(crate) standing: Standing,
    /// Name of the provider that plans.
    pub(crate) provider: &'a str,
    pub(crate) shared: &'a SharedNodes,
    /// Of the provider, read before anything is called.
    pub(crate) generation: u64,
    pub(crate) now: Instant,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// The object is gone, or another has its name: delete by what the ledger remembers.
    DeleteRemembered(Arc<Service>),
    /// The object is there and its load balancer has to go.
    Cleanup(Arc<Service>),
    /// Its load balancer is deleted, and our finalizer and the status have to go.
    Release(Arc<Service>),
    /// Its load balancer is deleted, and so is the object.
    Forget,
    /// The Service is not what a provider may be asked for.
    Refuse(Vec<String>),
    Ensure {
        service: Arc<Service>,
        /// The finalizer is missing, or the object names another holder beside it.
        add_finalizer: bool,
    },
    /// Only the nodes changed; or nothing but they can be brought to what is wanted, and then it is the Service as it was ensured last.
    Update {
        service: Arc<Service>,
        settled: Settled,
        /// What is wanted now is refused, which has to be told when the nodes are brought.
        refused: bool,
    },
    /// Only our writes to the object are missing.
    Repair {
        add_finalizer: bool,
        status: Option<LoadBalancerStatus>,
    },
    /// A repair is due after this time.
    Wait(Duration),
}

/// The plan for one Service.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let Some(object) = observed.object else {
        return observed.entry.map_or(Plan::Nothing, delete_remembered);
    };
    let Converted { service, problems } = convert(object);
    match observed.entry {
        Some(entry) if entry.service.uid != service.uid => {
            return delete_remembered(entry);
        }
        _ => {}
    }
    if observed.standing != Standing::Mine || object.metadata.deletion_timestamp.is_some() {
        // A Service of type LoadBalancer that is another's carries another's finalizer, even where it has the same name.
        let foreign = is_load_balancer(object) && observed.standing != Standing::Mine;
        let held = observed.entry.is_some() || (has_finalizer(object) && !foreign);
        return match observed.entry {
            _ if !held || !has_to_go(object, &service, observed) => Plan::Nothing,
            Some(entry) if entry.deleted => Plan::Release(Arc::clone(&entry.service)),
            // Of an object that does not look like ours any more the cache keeps no fields that a provider could read.
            Some(entry) if !is_load_balancer(object) && !has_finalizer(object) => {
                Plan::Cleanup(Arc::clone(&entry.service))
            }
            // Of the class that it was made for: a provider may leave those of other classes to whoever has them.
            Some(entry) => {
                let load_balancer_class = entry.service.load_balancer_class.clone();
                Plan::Cleanup(Arc::new(Service { load_balancer_class, ..service }))
            }
            None => Plan::Cleanup(Arc::new(service)),
        };
    }
    if let Some(update) = observed.entry.and_then(|entry| update_of_before(entry, observed, !problems.is_empty())) {
        return update;
    }
    if !problems.is_empty() {
        return Plan::Refuse(problems);
    }
    let add_finalizer = !has_finalizer(object) || names_another(object, observed.provider);
    let settled = observed.entry.filter(|entry| !entry.overdue);
    let settled = settled.and_then(|entry| Some((&entry.service, entry.settled.as_ref()?)));
    match settled {
        Some((ensured, settled))
            if !needs_update(ensured, &service)
                && settled.generation == observed.generation
                && settled.failed_updates < FAILED_UPDATES_MAX =>
        {
            let wait = observed.entry.map_or(Duration::ZERO, |entry| entry.repairs.wait(observed.now));
            settled_plan(service, settled, observed, (add_finalizer, wait))
        }
        _ => {
            // Who makes it has to be known before anything is made, also where the finalizer is another manager's of before. Once is enough: who takes the line
            // away is left in peace.
            let is_first = observed.entry.is_none_or(|entry| entry.settled.is_none() && entry.before.is_none());
            let unnamed = is_first && named_holder(object).is_none();
            Plan::Ensure { service: Arc::new(service), add_finalizer: add_finalizer || unnamed }
        }
    }
}

fn delete_remembered(entry: &Entry) -> Plan {
    if entry.deleted { Plan::Forget } else { Plan::DeleteRemembered(Arc::clone(&entry.service)) }
}

/// What is wanted now is refused or has failed: what was ensured last serves on, and must not be left with nodes that are gone.
fn update_of_before(entry: &Entry, observed: &Observed<'_>, refused: bool) -> Option<Plan> {
    let (service, settled) = match (&entry.settled, &entry.before) {
        (Some(settled), _) if refused => (&entry.service, settled),
        // After an `update` that failed it is the `ensure`'s turn, which brings the nodes as well.
        (None, Some((service, settled))) if settled.membership.is_some() => (service, settled),
        (Some(_), _) | (None, _) => return None,
    };
    let outdated = settled.status.is_some() && settled.membership != Some(observed.shared.membership);
    outdated.then(|| Plan::Update { service: Arc::clone(service), settled: settled.clone(), refused })
}

/// Whether the load balancer has to go, be it to make room for another provider's.
///
/// Where the Service wants what it wanted and only the claims changed so that nobody owns it any more, what serves its clients stays: an
/// operator's slip must not cost them. It goes with the Service.
fn has_to_go(object: &core::Service, service: &Service, observed: &Observed<'_>) -> bool {
    let same_wish = |entry: &Entry| entry.service.load_balancer_class == service.load_balancer_class;
    object.metadata.deletion_timestamp.is_some()
        || observed.standing == Standing::Anothers
        || !is_load_balancer(object)
        || !observed.entry.is_some_and(same_wish)
}

/// The load balancer is as the Service wants it, but for the nodes or our writes. Where somebody else undoes our writes, the nodes do not wait for them.
fn settled_plan(
    service: Service,
    settled: &Settled,
    observed: &Observed<'_>,
    (add_finalizer, wait): (bool, Duration),
) -> Plan {
    // Another controller does the work: nothing of it is ours to update.
    let elsewhere = settled.status.is_none();
    let status = settled.status.clone().filter(|_| !settled.written);
    let is_lacking = add_finalizer || status.is_some();
    if is_lacking && wait.is_zero() {
        return Plan::Repair { add_finalizer, status };
    }
    if !elsewhere && settled.membership != Some(observed.shared.membership) {
        return Plan::Update { service: Arc::new(service), settled: settled.clone(), refused: false };
    }
    if is_lacking { Plan::Wait(wait) } else { Plan::Nothing }
}

#[cfg(test)]
mod tests;
