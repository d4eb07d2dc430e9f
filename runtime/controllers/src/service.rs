//! The service controller: a cloud load balancer for each Service of type LoadBalancer.
//!
//! A reconcile reads the complete state of one Service and carries out one step; it does not depend
//! on the event that triggered it. A provider's queue runs each Service once at a time, and
//! `service_locks.rs` allows one provider at a time, so the calls for one Service never overlap.
//!
//! # Flow
//! 1. observe (pure): the object, its ledger entry, the provider's node set, its release.
//! 2. plan (pure): `service/plan.rs`, on the object as `service_spec.rs` reads it.
//!    `service/retention.rs` says which load balancer the Service has, its own or one that it has
//!    adopted, and whether it stays when the Service goes. While the Service or its provider is
//!    paused, `service/pause.rs` holds back what changes the cloud.
//! 3. apply (provider, client): `service/apply.rs`, and `service/retain.rs` for the records of
//!    retained load balancers; `service/status.rs` validates the provider's
//!    answer, and `service/outcome.rs` (pure) turns the outcome into the next ledger entry. After a
//!    question, and between the deletion of a load balancer and the removal of the finalizer, the
//!    turn goes on at 1.
//! 4. report: Events and the outcome, `report.rs`; `explain.rs` tells people the plan. The next
//!    run: `backoff.rs` after a failure, otherwise `service/plan.rs` on the new state.

mod apply;
pub(crate) mod drift;
pub(crate) mod explain;
pub(crate) mod held;
pub(crate) mod orphans;
mod outcome;
pub(crate) mod pause;
mod plan;
pub(crate) mod predicates;
mod retain;
pub(crate) mod retention;
mod status;
pub(crate) mod unclaimed;

use std::sync::Arc;

use skysail_provider::{EventKind, ObjectReference};
use tokio::time::Instant;

use self::{
    apply::Subject,
    outcome::PlanOutcome,
    plan::{ObjectOwner, Observed, Plan, PlanAnswers},
    retention::Records,
};
use crate::{
    backoff::retry_counted,
    context::Context,
    convert,
    error::{Error, chain},
    lane::Lane,
    ledger::NextTry,
    names::{controllers, reasons},
    nodes::SharedNodes,
    queue::Next,
    report::{Actor, is_expected},
    watch::ObjectKey,
};

/// Reconciles one Service; returns when to run it again.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> Next {
    if !context.service_locks.begin(key, lane.id) {
        // Another provider works on this Service; its end adds the key again.
        return Next::OnChange;
    }
    let next = run_in_turn(context, lane, key).await;
    for other in context.service_locks.end(key).into_iter().filter_map(|other| context.lanes.get(other)) {
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
    let mut answers = PlanAnswers::default();
    loop {
        // observe, plan (pure)
        let observed = observe(context, lane, key, answers);
        let plan = plan::plan(&observed);
        let subject = Subject { context, lane, key, actor: &actor, observed: &observed, plan: &plan };
        report_takeover(&subject);
        pause::follow(&subject);
        // apply (provider, client)
        match subject.apply().await {
            Ok(Some(learnt)) => answers = learnt,
            Ok(None) => return succeeded(&subject),
            Err(error) => return failed(&subject, &error),
        }
    }
}

/// Reports that this provider acts on a Service whose load balancer a removed provider made.
fn report_takeover(subject: &Subject<'_>) {
    let Subject { context, key, actor, plan, .. } = subject;
    if let (Plan::Ensure { .. } | Plan::Cleanup { .. }, Some(former)) = (plan, unclaimed::former_holder(context, key)) {
        let text = unclaimed::taken_over(&former, &actor.provider);
        let kind = (EventKind::Warning, reasons::LOAD_BALANCER_LEFT_BEHIND);
        context.reporter.event(actor, &reference(subject), kind, text);
    }
}

/// Reports a success; returns when to run the Service again.
fn succeeded(subject: &Subject<'_>) -> Next {
    let Subject { context, lane, key, actor, observed, plan } = *subject;
    context.reporter.reconciled(actor, &reference(subject), Ok(()), None);
    held::follow(subject, None);
    let now = observe(context, lane, key, observed.answers);
    match (&now.object, &now.entry) {
        (None, None) => context.last_outcomes.remove(key),
        _ => context.last_outcomes.succeeded(key, &lane.name, explain::step(plan), explain::is_idle(plan)),
    }
    // If only the backends of an older load balancer were updated, the failures of `ensure` still
    // count.
    if now.waits.retry.is_none() {
        lane.services.forget(key);
    }
    // Another provider may have to continue after this cleanup.
    if let Some(other) = context.route_service(key).filter(|other| other != lane) {
        other.services.add(key.clone());
    }
    plan::after_success(plan, &now)
}

/// Reports a failure; returns when to run the Service again.
fn failed(subject: &Subject<'_>, error: &Error) -> Next {
    let Subject { context, lane, key, actor, observed, plan } = *subject;
    let retry = retry_counted(&lane.services, key, error);
    let reference = reference(subject);
    if !is_expected(error) {
        let (reason, text) = failure(plan, observed, &chain(error));
        context.reporter.event(actor, &reference, (EventKind::Warning, reason), text);
    }
    context.reporter.reconciled(actor, &reference, Err(error), Some(retry.after));
    held::follow(subject, Some(error));
    context.last_outcomes.failed(key, &lane.name, explain::step(plan), (error.category(), &chain(error)));
    let next = NextTry { at: Instant::now() + retry.after, until_change: retry.until_change };
    subject.record(PlanOutcome::Waits(next));
    plan::after_failure(plan, &observe(context, lane, key, observed.answers), observed.shared.membership, retry)
}

/// The Service as the subject of Events, also after its deletion.
fn reference(Subject { observed, key, .. }: &Subject<'_>) -> ObjectReference {
    let ObjectKey { namespace, name } = (*key).clone();
    match (&observed.object, &observed.entry) {
        (Some(object), _) => convert::service_reference(object),
        (None, entry) => {
            let uid = entry.as_ref().map(|entry| entry.object_uid.clone()).unwrap_or_default();
            ObjectReference { kind: "Service", namespace, name, uid }
        }
    }
}

fn observe(context: &Context, lane: &Arc<Lane>, key: &ObjectKey, answers: PlanAnswers) -> Observed {
    observe_with(context, (lane, key), answers, context.nodes.shared(lane.id))
}

fn observe_with(
    context: &Context,
    (lane, key): (&Arc<Lane>, &ObjectKey),
    answers: PlanAnswers,
    shared: SharedNodes,
) -> Observed {
    let object = context.services.get(key);
    let object_owner = match object.as_ref().and_then(|object| context.service_owner(object).provider()) {
        Some(owner) if owner == lane.id => ObjectOwner::Own,
        Some(_) => ObjectOwner::OtherProvider,
        None => ObjectOwner::NoOwner,
    };
    let entry = context.held(key, lane);
    let lanes = context.lanes.all();
    let may_hold = |lane: &&Arc<Lane>| lane.provider.info().is_none() || lane.provider.load_balancers().is_some();
    let deletions = object.as_ref().map(|object| context.emptied.of(key, object)).unwrap_or_default();
    let emptied = |lane: &&Arc<Lane>| deletions.contains(&lane.deletes_with());
    Observed {
        may_hold: lanes.iter().filter(may_hold).map(|lane| lane.id).collect(),
        emptied: lanes.iter().filter(emptied).map(|lane| lane.id).collect(),
        paused: lanes.iter().filter(|lane| lane.is_paused()).map(|lane| lane.id).collect(),
        retains: retention::retaining(context, object.as_deref(), entry.as_ref()),
        records: Records::read(context, (lane, key), object.as_deref(), entry.as_ref()),
        object,
        waits: entry.as_ref().map(|entry| entry.waits(Instant::now())).unwrap_or_default(),
        entry,
        object_owner,
        provider: lane.name.clone(),
        lane: lane.id,
        answers,
        release_wait: context.ledger.release_wait(key, Instant::now()),
        shared,
        generation: lane.generation(),
    }
}

/// The Event of a failed plan, in upstream's words.
fn failure(plan: &Plan, observed: &Observed, text: &str) -> (&'static str, String) {
    match plan {
        Plan::LookUp(_) | Plan::DeleteRemembered(_) | Plan::RetainRemembered(_) | Plan::GiveBack(..) => {
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
