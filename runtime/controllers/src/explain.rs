//! Explains to a person why a Service has, or has not, its load balancer: who owns the Service,
//! what the manager knows about the load balancer, the next step and its reason, and when the next
//! run is.
//!
//! # Rules
//! An explanation is read from the state of the controllers, and changes nothing in it. Times are
//! durations up to or from the moment of the explanation, from tokio's clock.

mod owner;
mod queue;
mod view;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Ingress, LoadBalancerStatus};

use self::view::milliseconds;
pub use self::view::{
    LastOutcome, LoadBalancerRecord, PlannedStep, QueuePlace, QueueStatus, ServiceExplanation, ServiceObject,
    ServiceOwner, ServiceProvider,
};
use crate::{
    context::Context,
    lane::Lane,
    last_outcomes::Outcome,
    ledger::{Entry, Serving, State, Written},
    service::explain::{NextRun, backends, planned, state},
    service_spec::{class, is_load_balancer, named_holder, status},
    watch::ObjectKey,
};

/// Why there is no explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexplained {
    /// The controller of the object does not run in this process.
    #[error("the service controller does not run in this process")]
    NotRunning,
    /// The controller has just started.
    #[error("the first list of Services is not complete yet; ask again in a few seconds")]
    NotListed,
    /// Neither the cluster nor a record of a load balancer has such an object.
    #[error("there is no such Service")]
    Unknown,
}

/// Explains the objects of the manager that it is given to ([`crate::Manager::explained`]). Clones
/// explain the same manager.
#[derive(Clone, Debug, Default)]
pub struct Explainer {
    context: Arc<Mutex<Weak<Context>>>,
}

impl Explainer {
    /// Explains the objects of this manager from now on, until the manager ends.
    pub(crate) fn attach(&self, context: &Arc<Context>) {
        *self.context.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(context);
    }

    /// Explains one Service.
    ///
    /// # Errors
    /// The controller does not run or has not listed the Services, or there is no such Service.
    pub fn service(&self, namespace: &str, name: &str) -> Result<ServiceExplanation, Unexplained> {
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let context = context.ok_or(Unexplained::NotRunning)?;
        let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
        if !*context.services.synced().borrow() {
            return Err(Unexplained::NotListed);
        }
        let (object, entry) = (context.services.get(&key), context.ledger.get(&key));
        if object.is_none() && entry.is_none() {
            return Err(Unexplained::Unknown);
        }
        let lane = context.route_service(&key);
        let queue = lane.as_ref().map(|lane| queue::status(lane, &key));
        let next = lane.as_ref().map(|lane| planned(&context, lane, &key));
        let next = next.unwrap_or_else(|| NextRun {
            step: "Nothing",
            reason: owner::nobody_works(&context, &key),
            paused: None,
            deletion_policy: None,
        });
        Ok(ServiceExplanation {
            owner: owner::of(&context, &key, object.as_deref()),
            object: object.as_deref().map(shown),
            load_balancer: entry.as_ref().map(|entry| record(&context, entry)),
            provider: lane.as_ref().map(|lane| provider(&context, lane)),
            plan: PlannedStep { step: next.step.to_owned(), reason: next.reason },
            paused: next.paused,
            deletion_policy: next.deletion_policy,
            queue,
            last_outcome: context.last_outcomes.get(&key).map(outcome),
            namespace: key.namespace,
            name: key.name,
        })
    }
}

fn shown(object: &core::Service) -> ServiceObject {
    ServiceObject {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        wants_load_balancer: is_load_balancer(object),
        class: class(object).map(str::to_owned),
        deleting: object.metadata.deletion_timestamp.is_some(),
        finalizers: object.metadata.finalizers.clone().unwrap_or_default(),
        named_provider: named_holder(object).map(str::to_owned),
        ingress: addresses(&status(object)),
    }
}

fn addresses(status: &LoadBalancerStatus) -> Vec<String> {
    let address = |ingress: &Ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone());
    status.ingress.iter().filter_map(address).collect()
}

fn record(context: &Context, entry: &Entry) -> LoadBalancerRecord {
    let (name, explanation) = state(&entry.state);
    let lane = context.lanes.named(&entry.provider);
    let serving = if let State::Serving(serving) = &entry.state { Some(serving) } else { None };
    LoadBalancerRecord {
        provider: entry.provider.to_string(),
        provider_exists: lane.is_some(),
        state: name.to_owned(),
        explanation: explanation.to_owned(),
        nodes: lane.and_then(|lane| backends(&entry.state, &context.nodes.peek(lane.id))).map(str::to_owned),
        ingress: serving.map(|Serving { status, .. }| addresses(status)),
        status_written: serving.map(|Serving { written, .. }| *written != Written::No),
    }
}

fn provider(context: &Context, lane: &Lane) -> ServiceProvider {
    let (info, shared) = (lane.provider.info(), context.nodes.peek(lane.id));
    ServiceProvider {
        name: lane.name.clone(),
        release: info.as_ref().map(|info| format!("{} {}", info.name, info.version)),
        exports_load_balancers: info.is_some().then(|| lane.provider.load_balancers().is_some()),
        nodes: shared.settled.then(|| shared.nodes.as_slice().len()),
    }
}

fn outcome(outcome: Outcome) -> LastOutcome {
    let Outcome { ended, provider, step, failure } = outcome;
    LastOutcome {
        ago_ms: milliseconds(ended.elapsed()),
        provider: provider.into(),
        step: step.to_owned(),
        code: failure.as_ref().map_or("Ok", |failure| failure.category).to_owned(),
        message: failure.map(|failure| failure.text.into()),
    }
}
