//! The service controller: a cloud load balancer for each Service of type LoadBalancer.
//!
//! One reconcile looks at the whole state of one Service and brings it one step on; it does not know why it was woken. A provider's queue gives each
//! Service one run at a time, and `service/turns.rs` one provider at a time, so the calls of one Service never overlap.
//!
//! # Flow
//! 1. observe (pure): the object, what the ledger remembers, the provider's node set, its release.
//! 2. plan (pure): `service/plan.rs`, on the object as `service/validate.rs` reads it.
//! 3. apply (provider, client): `service/apply.rs`; what the provider answers is judged by `service/status.rs`.
//! 4. report: Events and the outcome, `report.rs`; when to come back: `backoff.rs`.

mod apply;
pub(crate) mod drift;
pub(crate) mod ledger;
pub(crate) mod orphans;
mod plan;
pub(crate) mod predicates;
mod status;
pub(crate) mod turns;
pub(crate) mod unclaimed;
pub(crate) mod validate;

use std::{sync::Arc, time::Duration};

use skysail_provider::{Code, EventKind};
use tokio::time::Instant;

use self::{
    apply::Subject,
    plan::{Observed, Plan, Standing},
};
use crate::{
    backoff::{Retry, retry_counted},
    context::Context,
    error::{Error, chain},
    lane::Lane,
    names::{controllers, reasons},
    queue::Next,
    report::{Voice, is_expected},
    triggers,
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
    // A release may have become active a moment ago, and its word about its schemes not be heard yet.
    triggers::claims_changed(context);
    let voice = Voice { controller: controllers::SERVICE, provider: lane.name.clone() };
    let queue = &lane.services;
    if let Some(other) = context.route_service(key).filter(|other| other != lane) {
        // It was this provider's once, and waited: what another one holds is that one's to clean up first.
        queue.forget(key);
        other.services.add(key.clone());
        return Next::OnChange;
    }
    let (object, result) = reconcile(context, lane, key, &voice).await;
    let result = result.map_err(|error| (retry_counted(queue, key, &error), error));
    let next_try = result.as_ref().err().map(|(retry, _)| retry.after);
    let outcome = result.as_ref().map(|_| ()).map_err(|(_, error)| error);
    context.reporter.reconciled(&voice, &object, outcome, next_try);
    match result {
        Ok(next) => {
            // Where only the nodes of what serves were brought, the `ensure` that failed counts on.
            if context.ledger.waits(key).is_none() {
                queue.forget(key);
            }
            // Another provider may have to go on where this one has cleaned up.
            if let Some(other) = context.route_service(key).filter(|other| other != lane) {
                other.services.add(key.clone());
            }
            next
        }
        Err((retry, _)) => {
            context.ledger.retries_at(key, Instant::now() + retry.after, retry.until_change);
            match retry {
                Retry { after, until_change: true, .. } => Next::Within(after),
                Retry { after, .. } => Next::After(after),
            }
        }
    }
}

async fn reconcile(
    context: &Context,
    lane: &Arc<Lane>,
    key: &ObjectKey,
    voice: &Voice,
) -> (skysail_provider::ObjectReference, Result<Next, Error>) {
    // observe (pure)
    let object = context.services.get(key);
    let entry = context.held(key, lane);
    let shared = context.nodes.shared(lane.id);
    let generation = lane.generation();
    let standing = match object.as_ref().and_then(|object| context.service_owner(object).provider()) {
        Some(owner) if owner == lane.id => Standing::Mine,
        Some(_) => Standing::Anothers,
        None => Standing::Nobodys,
    };
    // plan (pure)
    let observed = Observed {
        object: object.as_deref(),
        entry: entry.as_ref(),
        standing,
        provider: &voice.provider,
        shared: &shared,
        generation,
        now: Instant::now(),
    };
    let plan = plan::plan(&observed);
    let subject = Subject { context, lane, key, voice, generation, shared: &shared };
    let reference = match (&object, &entry) {
        (Some(object), _) => apply::object_reference(object),
        (None, Some(entry)) => subject_reference(key, &entry.service.uid),
        (None, None) => subject_reference(key, ""),
    };
    if let (Plan::Ensure { .. } | Plan::Cleanup(_), Some(former)) = (&plan, unclaimed::former_holder(context, key)) {
        let text = unclaimed::taken_over(&former, &voice.provider);
        context.reporter.event(voice, &reference, (EventKind::Warning, reasons::LOAD_BALANCER_LEFT_BEHIND), text);
    }
    // apply (provider, client)
    let remembered = matches!(plan, Plan::DeleteRemembered(_));
    let updating = matches!(plan, Plan::Update { .. });
    let ensuring = matches!(plan, Plan::Ensure { .. });
    let called = updating || ensuring;
    let mut result = apply(&subject, object.as_deref(), plan).await;
    if called && result.is_ok() && subject.is_outdated() {
        // Whoever published meanwhile may have looked into the ledger before this Service was in it.
        result = Ok(Next::After(Duration::ZERO));
    }
    if ensuring && result.is_err() && subject.is_outdated() && context.ledger.serves_as_before(key) {
        // Whoever published meanwhile left it to the try that failed. What serves is not left with nodes that are gone.
        lane.services.add(key.clone());
    }
    if let Some(object) = context.services.get(key)
        && context.ledger.notice_loss(key, &object)
        && result.is_ok()
    {
        // It was lost before the answer to the write that it undid was here.
        result = Ok(Next::After(Duration::ZERO));
    }
    // report
    if let Err(error) = &result {
        let text = chain(error);
        let (reason, text) = match () {
            () if is_expected(error) => return (reference, result),
            () if remembered => (reasons::DELETE_LOAD_BALANCER_FAILED, format!("Error deleting load balancer: {text}")),
            () if updating => {
                let nodes = apply::nodes_text(&shared);
                let text = format!("Error updating load balancer with new hosts {nodes}: {text}");
                (reasons::UPDATE_LOAD_BALANCER_FAILED, text)
            }
            () => (reasons::SYNC_LOAD_BALANCER_FAILED, format!("Error syncing load balancer: {text}")),
        };
        context.reporter.event(voice, &reference, (EventKind::Warning, reason), text);
    }
    (reference, result)
}

async fn apply(
    subject: &Subject<'_>,
    object: Option<&k8s_openapi::api::core::v1::Service>,
    plan: Plan,
) -> Result<Next, Error> {
    let again = Next::After(Duration::ZERO);
    match (plan, object) {
        (Plan::DeleteRemembered(service), object) => {
            if object.is_none() && subject.is_still_there(&service).await? {
                return Ok(Next::After(LATE_WATCH));
            }
            subject.delete_remembered(&service).await?;
            // Another object has the name by now: its turn comes next.
            Ok(if object.is_some() { again } else { Next::OnChange })
        }
        (Plan::Cleanup(service), Some(object)) => subject.cleanup(object, &service).await.map(|()| Next::OnChange),
        (Plan::Release(service), Some(object)) => subject.release(object, &service).await.map(|()| Next::OnChange),
        (Plan::Forget, object) => {
            subject.context.ledger.remove(subject.key);
            Ok(if object.is_some() { again } else { Next::OnChange })
        }
        (Plan::Wait(wait), Some(_)) => Ok(Next::Within(wait)),
        (Plan::Ensure { service, add_finalizer }, Some(object)) => {
            subject.ensure(object, &service, add_finalizer).await.map(|()| Next::OnChange)
        }
        (Plan::Update { service, settled, refused }, Some(_)) => {
            let gone = subject.update(&service, settled).await?;
            let left = subject.context.ledger.waits(subject.key).map_or(Next::OnChange, Next::After);
            // A refusal has to be told, and waits for nothing.
            Ok(if gone || refused { again } else { left })
        }
        (Plan::Repair { add_finalizer, status }, Some(object)) => {
            subject.repair(object, add_finalizer, status).await?;
            // The nodes may have changed too, and a plan does one thing.
            Ok(again)
        }
        (Plan::Refuse(problems), Some(_)) => {
            let invalid = skysail_provider::Error::new(Code::Invalid, problems.join("; "));
            Err(Error::provider("understand the Service")(invalid))
        }
        (Plan::Nothing, _) | (_, None) => Ok(Next::OnChange),
    }
}

fn subject_reference(key: &ObjectKey, uid: &str) -> skysail_provider::ObjectReference {
    skysail_provider::ObjectReference {
        kind: "Service",
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: uid.to_owned(),
    }
}
