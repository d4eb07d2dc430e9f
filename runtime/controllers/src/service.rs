//! The service controller: a cloud load balancer for each Service of type LoadBalancer.
//!
//! One reconcile looks at the whole state of one Service and brings it one step on; it does not
//! know why it was woken. A provider's queue gives each Service one run at a time, and
//! `turns.rs` one provider at a time, so the calls of one Service never overlap.
//!
//! # Flow
//! 1. observe (pure): the object, what the ledger remembers, the provider's node set, its release.
//! 2. plan (pure): `service/plan.rs`, on the object as `service_spec.rs` reads it.
//! 3. apply (provider, client): `service/apply.rs`; what the provider answers is judged by
//!    `service/status.rs`.
//! 4. report: Events and the outcome, `report.rs`. When to come back: `backoff.rs` after a failure,
//!    else `service/plan.rs` on what is observed then.

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
    report::{Voice, is_expected},
    watch::ObjectKey,
};

/// Between two looks at a Service that the API has and the watch does not show.
const LATE_WATCH: Duration = Duration::from_secs(5);

/// Reconciles one Service and says when to come back.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Next {
    if !context.turns.begin(key, lane.id) {
        // Another provider works on it; its end wakes this one.
        return Next::OnChange;
    }
    let next = run_in_turn(context, lane, key).await;
    for other in context.turns.end(key).into_iter().filter_map(|other| context.lanes.get(other)) {
        other.services.add(key.clone());
    }
    next
}

async fn run_in_turn(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Next {
    let voice = Voice { controller: controllers::SERVICE, provider: lane.name.clone() };
    let queue = &lane.services;
    if let Some(other) = context.route_service(key).filter(|other| other != lane) {
        // It was this provider's once, and waited: the provider that holds it has to clean up
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
        let text = unclaimed::taken_over(&former, &voice.provider);
        let kind = (EventKind::Warning, reasons::LOAD_BALANCER_LEFT_BEHIND);
        context.reporter.event(&voice, &reference, kind, text);
    }
    // apply (provider, client)
    let subject = Subject { context, lane, key, voice: &voice, observed: &observed };
    let result = apply(&subject, &plan).await;
    // report
    let retry = result.as_ref().err().map(|error| retry_counted(queue, key, error));
    if let Err(error) = &result
        && !is_expected(error)
    {
        let (reason, text) = failure(&plan, &observed, &chain(error));
        context.reporter.event(&voice, &reference, (EventKind::Warning, reason), text);
    }
    let next_try = retry.map(|retry| retry.after);
    context.reporter.reconciled(&voice, &reference, result.as_ref().map(|_| ()), next_try);
    let next = match (result, retry) {
        (Ok(Some(next)), _) => next,
        (Err(_), Some(retry)) => {
            let (at, until_change) = (Instant::now() + retry.after, retry.until_change);
            context.ledger.with(key, |entry| entry.failed(at, until_change));
            return plan::after_failure(&observe(context, lane, key), observed.shared.membership, retry);
        }
        _ => plan::after_success(&observe(context, lane, key)),
    };
    // Where only the nodes of what serves were brought, the failures of the `ensure` count on.
    if !context.ledger.waits(key) {
        queue.forget(key);
    }
    // Another provider may have to go on where this one has cleaned up.
    if let Some(other) = context.route_service(key).filter(|other| other != lane) {
        other.services.add(key.clone());
    }
    next
}

fn observe(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Observed {
    let object = context.services.get(key);
    let standing = match object.as_ref().and_then(|object| context.service_owner(object).provider()) {
        Some(owner) if owner == lane.id => Standing::Mine,
        Some(_) => Standing::Anothers,
        None => Standing::Nobodys,
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

/// Says when to come back where that does not follow from what is observed afterwards: of a Service
/// that nothing is held for any more, the watch may still show the state of before.
async fn apply(subject: &Subject<'_>, plan: &Plan) -> Result<Option<Next>, Error> {
    let object = subject.observed.object.as_deref();
    // Another object has the name by now: its turn comes next.
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
            Err(Error::provider("understand the Service")(invalid))
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
