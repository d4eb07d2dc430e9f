//! What has to be done for one Service (pure): its object, what the ledger remembers, the node set and the release in; one plan out.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};

use super::{
    ledger::{Entry, Settled},
    predicates::needs_update,
    validate::{Converted, convert, has_finalizer, is_load_balancer},
};
use crate::nodes::SharedNodes;

/// What a plan is made from.
pub(crate) struct Observed<'a> {
    /// As the cache has it; none where it is gone.
    pub(crate) object: Option<&'a core::Service>,
    pub(crate) entry: Option<&'a Entry>,
    /// The object is of type LoadBalancer and belongs to the provider that plans.
    pub(crate) mine: bool,
    pub(crate) shared: &'a SharedNodes,
    /// Of the provider, read before anything is called.
    pub(crate) generation: u64,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// The object is gone, or another has its name: delete by what the ledger remembers.
    DeleteRemembered(Arc<Service>),
    /// The object is there and its load balancer has to go.
    Cleanup(Arc<Service>),
    /// The Service is not what a provider may be asked for.
    Refuse(Vec<String>),
    Ensure {
        service: Arc<Service>,
        add_finalizer: bool,
    },
    /// Only the nodes changed.
    Update {
        service: Arc<Service>,
        settled: Settled,
    },
    /// Only our writes to the object are missing.
    Repair {
        add_finalizer: bool,
        status: Option<LoadBalancerStatus>,
    },
}

/// The plan for one Service.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let Some(object) = observed.object else {
        return observed.entry.map_or(Plan::Nothing, |entry| Plan::DeleteRemembered(Arc::clone(&entry.service)));
    };
    let Converted { service, problems } = convert(object);
    match observed.entry {
        Some(entry) if entry.service.uid != service.uid => {
            return Plan::DeleteRemembered(Arc::clone(&entry.service));
        }
        _ => {}
    }
    let deleting = object.metadata.deletion_timestamp.is_some();
    if !observed.mine || deleting {
        // A Service of type LoadBalancer that is another's carries another's finalizer, even where it has the same name.
        let foreign = is_load_balancer(object) && !observed.mine;
        let held = observed.entry.is_some() || (has_finalizer(object) && !foreign);
        return if held { Plan::Cleanup(Arc::new(service)) } else { Plan::Nothing };
    }
    if !problems.is_empty() {
        return Plan::Refuse(problems);
    }
    let add_finalizer = !has_finalizer(object);
    let settled = observed.entry.and_then(|entry| Some((&entry.service, entry.settled.as_ref()?)));
    match settled {
        Some((ensured, settled)) if !needs_update(ensured, &service) && settled.generation == observed.generation => {
            settled_plan(service, settled, observed, add_finalizer)
        }
        _ => Plan::Ensure { service: Arc::new(service), add_finalizer },
    }
}

/// The load balancer is as the Service wants it, but for the nodes or our writes.
fn settled_plan(service: Service, settled: &Settled, observed: &Observed<'_>, add_finalizer: bool) -> Plan {
    // Another controller does the work: nothing of it is ours to update.
    let elsewhere = settled.status.is_none();
    let status = settled.status.clone().filter(|_| !settled.written);
    if add_finalizer || status.is_some() {
        return Plan::Repair { add_finalizer, status };
    }
    if !elsewhere && settled.membership != observed.shared.membership {
        return Plan::Update { service: Arc::new(service), settled: settled.clone() };
    }
    Plan::Nothing
}

#[cfg(test)]
mod tests;
