//! The service controller: a cloud load balancer for each Service of type LoadBalancer.
//!
//! A reconcile reads the complete state of one Service and carries out one step; it does not depend
//! on the event that triggered it. A provider's queue runs each Service once at a time, and
//! `turns.rs` allows one provider at a time, so the calls for one Service never overlap.
//!
//! # Flow
//! 1. observe (pure): the object, its ledger entry, the provider's node set, its release.
//! 2. plan (pure): `service/plan.rs`, on the object as `service_spec.rs` reads it.
//! 3. apply (provider, client): `service/apply.rs`; `service/status.rs` validates the provider's
//!    answer.
//! 4. report: Events and the outcome, `report.rs`. The next run: `backoff.rs` after a failure,
//!    otherwise `service/plan.rs` on the new state.

mod apply;
pub(crate) mod drift;
pub(crate) mod orphans;
mod plan;
pub(crate) mod predicates;
mod status;
pub(crate) mod unclaimed;

use std::{sync::Arc, time::Duration};

use skysail_provider::{Code, EventKind, ObjectReference};
use tokio::time::Instant;

use self::{
    apply::Subject,
    plan::{Observed, Plan, Standing},
};
use crate::{
    backoff::retry_counted,
    context::Context,
    convert,
    error::{Error, chain},
    lane::Lane,
    names::{controllers, reasons},
    queue::Next,
    report::{Actor, is_expected},
    watch::ObjectKey,
};

/// Interval of checks of a Service that the API has and the watch does not show.
const LATE_WATCH: Duration = Duration::from_secs(5);

/// Reconciles one Service; returns when to run it again.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Next {
    if !context.turns.begin(key, lane.id) {
        // Another provider works on this Service; its end adds the key again.
        return Next::OnChange;
    }
    let next = run_in_turn(context, lane, key).await;
    for other in context.turns.end(key).into_iter().filter_map(|other| context.lanes.get(other)) {
        other.services.add(key.clone());
    }
    next
}

async fn run_in_turn(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Next {
    let actor = Actor { controller: controllers::SERVICE, provider: lane.name.clone() };
    let queue = &lane.services;
    if let Some(other) = context.route_service(key).filter(|other| other != lane) {
        // The Service moved to another provider, which holds the load balancer and has to clean up
        // first.
        queue.forget(key);
        other.services.add(key.clone());
        return Next::OnChange;
    }
    // observe, plan (pure)
    let observed = observe(context, lane, key);
    let plan = plan::plan(&observed);
    let reference = match (&observed.object, &observed.entry) {
        (Some(object), _) => convert::service_reference(object),
        (None, Some(entry)) => apply::reference(&entry.service),
        (None, None) => {
            let ObjectKey { namespace, name } = key.clone();
            ObjectReference { kind: "Service", namespace, name, uid: String::new() }
        }
    };
    if let (Plan::Ensure { .. } | Plan::Cleanup(_), Some(former)) = (&plan, unclaimed::former_holder(context, key)) {
        let text = unclaimed::taken_over(&former, &actor.provider);
        let kind = (EventKind::Warning, reasons::LOAD_BALANCER_LEFT_BEHIND);
        context.reporter.event(&actor, &reference, kind, text);
    }
    // apply (provider, client)
    let subject = Subject { context, lane, key, actor: &actor, observed: &observed };
    let result = apply(&subject, &plan).await;
    // report
    let retry = result.as_ref().err().map(|error| retry_counted(queue, key, error));
    if let Err(error) = &result
        && !is_expected(error)
    {
        let (reason, text) = failure(&plan, &observed, &chain(error));
        context.reporter.event(&actor, &reference, (EventKind::Warning, reason), text);
    }
    let next_try = retry.map(|retry| retry.after);
    context.reporter.reconciled(&actor, &reference, result.as_ref().map(|_| ()), next_try);
    let next = match (result, retry) {
        (Ok(Some(next)), _) => next,
        (Err(_), Some(retry)) => {
            let (at, until_change) = (Instant::now() + retry.after, retry.until_change);
            context.ledger.with(key, |entry| entry.failed(at, until_change));
            return plan::after_failure(&observe(context, lane, key), observed.shared.membership, retry);
        }
        _ => plan::after_success(&observe(context, lane, key)),
    };
    // If only the backends of an older load balancer were updated, the failures of `ensure` still
    // count.
    if !context.ledger.waits(key) {
        queue.forget(key);
    }
    // Another provider may have to continue after this cleanup.
    if let Some(other) = context.route_service(key).filter(|other| other != lane) {
        other.services.add(key.clone());
    }
    next
}

fn observe(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Observed {
    let object = context.services.get(key);
    let standing = match object.as_ref().and_then(|object| context.service_owner(object).provider()) {
        Some(owner) if owner == lane.id => Standing::Own,
        Some(_) => Standing::OtherProvider,
        None => Standing::NoOwner,
    };
    let entry = context.held(key, lane);
    Observed {
        object,
        waits: entry.as_ref().map(|entry| entry.waits(Instant::now())).unwrap_or_default(),
        entry,
        standing,
        provider: lane.name.clone(),
        shared: context.nodes.shared(lane.id),
        generation: lane.generation(),
    }
}

/// Returns when to run the Service again if that does not follow from the new state: after a
/// cleanup the watch may still show the earlier state.
async fn apply(subject: &Subject<'_>, plan: &Plan) -> Result<Option<Next>, Error> {
    let object = subject.observed.object.as_deref();
    // Another object may have the name by now; it is next.
    let next_object = Some(if object.is_some() { Next::After(Duration::ZERO) } else { Next::OnChange });
    match (plan, object) {
        (Plan::DeleteRemembered(service), object) => {
            if object.is_none() && subject.is_still_there(service).await? {
                return Ok(Some(Next::After(LATE_WATCH)));
            }
            subject.delete_remembered(service).await.map(|()| next_object)
        }
        (Plan::Forget, _) => {
            subject.context.ledger.remove(subject.key);
            Ok(next_object)
        }
        (Plan::Cleanup(service), Some(object)) => subject.cleanup(object, service).await.map(|()| Some(Next::OnChange)),
        (Plan::Release(service), Some(object)) => subject.release(object, service).await.map(|()| Some(Next::OnChange)),
        (Plan::Ensure { service, add_finalizer, repeated }, Some(object)) => {
            subject.ensure(object, service, (*add_finalizer, *repeated)).await.map(|()| None)
        }
        (Plan::Update(service), Some(_)) => subject.update(service).await.map(|()| None),
        (Plan::Repair { add_finalizer, status }, Some(object)) => {
            subject.repair(object, *add_finalizer, status.as_ref()).await.map(|()| None)
        }
        (Plan::Refuse(problems), Some(_)) => {
            let invalid = skysail_provider::Error::new(Code::Invalid, problems.join("; "));
            Err(Error::provider("read the Service")(invalid))
        }
        (Plan::Nothing | Plan::Wait(_), _) | (_, None) => Ok(None),
    }
}

/// The Event of a failed plan, in upstream's words.
fn failure(plan: &Plan, observed: &Observed, text: &str) -> (&'static str, String) {
    match plan {
        Plan::DeleteRemembered(_) => {
            (reasons::DELETE_LOAD_BALANCER_FAILED, format!("Error deleting load balancer: {text}"))
        }
        Plan::Update(_) => {
            let nodes = apply::nodes_text(&observed.shared);
            let text = format!("Error updating load balancer with new hosts {nodes}: {text}");
            (reasons::UPDATE_LOAD_BALANCER_FAILED, text)
        }
        _ => (reasons::SYNC_LOAD_BALANCER_FAILED, format!("Error syncing load balancer: {text}")),
    }
}
