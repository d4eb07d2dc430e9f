//! What a pause of a Service holds back (pure), and the reports about pauses.
//!
//! # Guarantees
//! - While a Service is paused, no provider is called to make, change or delete its load balancer,
//!   whatever asks for it: the user, nodes, releases, drift repair, a restart. A step that has
//!   begun goes on.
//! - Our own writes to the object go on: a load balancer that exists keeps its finalizer and its
//!   addresses.
//! - The pause ends with the annotation, and with the object.
//!
//! The annotation of the Service decides first, so that it also lets a Service through while its
//! provider is paused.

use k8s_openapi::api::core::v1 as core;
use skysail_provider::EventKind;

use super::{
    Subject,
    plan::{ObjectOwner, Observed, Plan, shows_last_write},
    predicates::needs_update,
};
use crate::{
    context::Context,
    findings::Finding,
    lane::Lane,
    ledger::{Entry, State, Written},
    metrics,
    names::{PAUSED_ANNOTATION, reasons},
    ownership::LaneId,
    pauses::{Pause, PauseNotice},
    service_spec::{has_finalizer, named_holder, paused, shown},
    watch::ObjectKey,
};

/// The plan while the Service may be paused: `next`, unless it calls a paused provider or the
/// Service is paused.
pub(super) fn held(observed: &Observed, next: Plan) -> Plan {
    let called = called(observed, &next);
    let Some(pause) = pause(observed, called).filter(|_| !called.is_empty()) else { return next };
    let entry = observed.entry.as_ref().zip(observed.object.as_deref());
    let upkeep = entry.and_then(|(entry, object)| upkeep(observed, entry, object));
    upkeep.unwrap_or_else(|| Plan::Paused { pause, held: Box::new(next) })
}

/// What pauses the Service; a paused provider counts if it is one of these.
fn pause(observed: &Observed, providers: &[LaneId]) -> Option<Pause> {
    let of_provider = || providers.iter().copied().find(|lane| observed.paused.contains(lane)).map(Pause::Provider);
    annotated(observed.object.as_deref()).unwrap_or_else(of_provider)
}

/// What the annotation decides; none without it.
fn annotated(object: Option<&core::Service>) -> Option<Option<Pause>> {
    Some(match paused(object?)? {
        "false" => None,
        "true" => Some(Pause::Annotated),
        _ => Some(Pause::Unclear),
    })
}

/// Whether nothing may change in the cloud of this provider for the Service.
pub(super) fn is_paused(lane: &Lane, object: Option<&core::Service>) -> bool {
    annotated(object).map_or_else(|| lane.is_paused(), |pause| pause.is_some())
}

/// The providers that this step, or the next ones, ask to change their cloud.
fn called<'a>(observed: &'a Observed, plan: &'a Plan) -> &'a [LaneId] {
    match plan {
        Plan::Cleanup { holders, .. } => holders,
        // A look-up has a deletion as its aim.
        Plan::Confirm(_)
        | Plan::DeleteRemembered(_)
        | Plan::RetainRemembered(_)
        | Plan::Ensure { .. }
        | Plan::Update(_) => std::slice::from_ref(&observed.lane),
        Plan::Nothing
        | Plan::Wait(_)
        | Plan::LookUp(_)
        | Plan::GiveBack(..)
        | Plan::Forget
        | Plan::NoHolder
        | Plan::Release { .. }
        | Plan::Refuse(_)
        | Plan::Repair { .. }
        | Plan::Paused { .. } => &[],
    }
}

/// The repair of our writes to an object whose load balancer exists.
fn upkeep(observed: &Observed, entry: &Entry, object: &core::Service) -> Option<Plan> {
    let is_going = object.metadata.deletion_timestamp.is_some();
    if is_going || object.metadata.uid.as_deref() != Some(&entry.object_uid) || !shows_last_write(entry, object) {
        return None;
    }
    let is_kept = has_finalizer(object) && named_holder(object).is_none_or(|name| name == observed.provider);
    let is_known = matches!(entry.state, State::Unsettled { .. } | State::Serving(_));
    let add_finalizer = is_known && !is_kept && !entry.repairs.are_undone();
    let status = match &entry.state {
        State::Serving(serving) if observed.object_owner == ObjectOwner::Own => {
            let is_lost = serving.written == Written::No || entry.lost_status(object);
            is_lost.then(|| serving.status.clone())
        }
        _ => None,
    };
    match observed.waits.repair {
        _ if !add_finalizer && status.is_none() => None,
        wait if wait.is_zero() => Some(Plan::Repair { add_finalizer, status }),
        wait => Some(Plan::Wait(wait)),
    }
}

/// Whether the Service itself asks for the step that waits, and not its nodes or the release: such
/// a Service gets an Event also while only its provider is paused.
fn is_asked_for(observed: &Observed, held: &Plan) -> bool {
    match (held, &observed.entry) {
        (Plan::Ensure { service, .. }, Some(entry)) => {
            entry.state == State::Deleted || needs_update(&entry.service, service)
        }
        (Plan::Ensure { .. }, None) => observed.object.as_deref().is_some_and(|object| !has_finalizer(object)),
        (Plan::Confirm(_) | Plan::DeleteRemembered(_) | Plan::RetainRemembered(_) | Plan::Cleanup { .. }, _) => true,
        _ => false,
    }
}

/// What pauses a Service of this provider, also where no step waits.
fn of(lane: &Lane, observed: &Observed, plan: &Plan) -> Option<Pause> {
    match plan {
        Plan::Paused { pause, .. } => Some(*pause),
        _ => pause(observed, &[lane.id]),
    }
}

/// Records the pause of the Service, and emits the Event about its begin or end.
pub(super) fn follow(subject: &Subject<'_>) {
    let Subject { context, lane, key, actor, observed, plan } = subject;
    let exists = observed.object.is_some() || observed.entry.is_some();
    let now = of(lane, observed, plan).filter(|_| exists);
    let is_asked_for = matches!(plan, Plan::Paused { held, .. } if is_asked_for(observed, held));
    let is_told = is_asked_for || matches!(now, Some(Pause::Annotated | Pause::Unclear));
    let notice = context.pauses.follow(key, &lane.name, now.map(|pause| (pause, is_told)));
    let (kind, reason, text) = match notice {
        PauseNotice::Unchanged => return,
        PauseNotice::Counted => return count_all(context),
        PauseNotice::Began(Pause::Unclear) => {
            (EventKind::Warning, reasons::PAUSED, text(context, key, observed, Pause::Unclear))
        }
        PauseNotice::Began(pause) => (EventKind::Normal, reasons::PAUSED, text(context, key, observed, pause)),
        PauseNotice::Ended => {
            let text = "The pause of this Service has ended. Skysail continues with what has changed meanwhile";
            (EventKind::Normal, reasons::RESUMED, text.to_owned())
        }
    };
    count_all(context);
    if exists {
        context.reporter.event(actor, &super::reference(subject), (kind, reason), text);
    }
}

/// Forgets the pause of a Service that is gone.
pub(crate) fn forget(context: &Context, key: &ObjectKey) {
    if context.pauses.remove(key) {
        count_all(context);
    }
}

/// The Service may have been another provider's before.
fn count_all(context: &Context) {
    context.lanes.all().iter().for_each(|lane| count(context, lane));
}

/// Reports how many Services of the provider are paused.
pub(crate) fn count(context: &Context, lane: &Lane) {
    let (all, annotated) = context.pauses.of(&lane.name);
    metrics::set_count(&context.reporter.metrics.paused_services, &lane.name, all);
    let finding = annotated.map(|(count, first)| {
        format!(
            "Services that their annotation {PAUSED_ANNOTATION} pauses: {count}, such as {first}. To continue with one: kubectl annotate service NAME --namespace \
             NAMESPACE {PAUSED_ANNOTATION}-"
        )
    });
    lane.findings.set(Finding::ServicesPaused, finding);
}

/// Why nothing changes in the cloud for the Service, and how to continue.
fn text(context: &Context, key: &ObjectKey, observed: &Observed, pause: Pause) -> String {
    let ObjectKey { namespace, name } = key;
    let what = "Skysail neither makes, changes nor deletes its load balancer, and a deletion of the Service waits";
    let resume = format!(
        "To continue, remove the annotation: kubectl annotate service {name} --namespace {namespace} {PAUSED_ANNOTATION}-"
    );
    match pause {
        Pause::Annotated => format!("The annotation {PAUSED_ANNOTATION} pauses this Service: {what}. {resume}"),
        Pause::Unclear => {
            let value = shown(observed.object.as_deref().and_then(paused).unwrap_or_default());
            format!(
                "The annotation {PAUSED_ANNOTATION} is {value}, which is neither \"true\" nor \"false\", so Skysail treats this Service as paused: {what}. {resume}"
            )
        }
        Pause::Provider(provider) => {
            let provider = context.lanes.get(provider).map(|lane| lane.name.clone()).unwrap_or_default();
            format!(
                "The provider {provider} is paused (spec.paused), so this Service waits: {what}. To let only this Service through: kubectl annotate service {name} --namespace \
                 {namespace} {PAUSED_ANNOTATION}=false"
            )
        }
    }
}

/// The pause of a Service with this plan, in words; none if it is not paused.
pub(super) fn explained(
    (context, lane, key): (&Context, &Lane, &ObjectKey),
    observed: &Observed,
    plan: &Plan,
) -> Option<String> {
    of(lane, observed, plan).map(|pause| text(context, key, observed, pause))
}

#[cfg(test)]
mod tests;
