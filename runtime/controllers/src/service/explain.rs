//! The plan for one Service in words: the next step, and why it is the next one. This module
//! decides and changes nothing.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::{
    observe_with, pause,
    plan::{ObjectOwner, Observed, Plan, PlanAnswers, plan},
    predicates::changed_fields,
    retention,
};
use crate::{
    context::Context,
    lane::Lane,
    ledger::{Backends, Entry, Serving, State},
    names::{LOAD_BALANCER_FINALIZER, LOAD_BALANCER_PROVIDER_ANNOTATION},
    nodes::SharedNodes,
    ownership::LaneId,
    service_spec::{convert, has_finalizer, is_load_balancer},
    watch::ObjectKey,
};

/// The next run of a Service.
pub(crate) struct NextRun {
    /// The step that a run would begin with now.
    pub(crate) step: &'static str,
    /// Why this step is the next one.
    pub(crate) reason: String,
    /// What pauses the Service, and how to continue; none if it is not paused.
    pub(crate) paused: Option<String>,
    /// What becomes of the load balancer when the Service goes; none if no provider has the
    /// Service.
    pub(crate) deletion_policy: Option<String>,
}

/// What a run of the Service would begin with now, and why. Changes nothing.
pub(crate) fn planned(context: &Context, lane: &Arc<Lane>, key: &ObjectKey) -> NextRun {
    let shared = context.nodes.peek(lane.id);
    let observed = observe_with(context, (lane, key), PlanAnswers::default(), shared);
    let plan = plan(&observed);
    let name =
        |id: LaneId| context.lanes.get(id).map_or_else(|| "a removed provider".to_owned(), |lane| lane.name.clone());
    let paused = pause::explained((context, lane, key), &observed, &plan);
    let deletion_policy = Some(retention::explained(&observed));
    NextRun { step: step(&plan), reason: reason(&plan, &observed, &name), paused, deletion_policy }
}

/// The name of a step.
pub(crate) const fn step(plan: &Plan) -> &'static str {
    match plan {
        Plan::Nothing => "Nothing",
        Plan::Wait(_) => "Wait",
        Plan::LookUp(_) => "LookUp",
        Plan::Confirm(_) => "Confirm",
        Plan::DeleteRemembered(_) => "DeleteRemembered",
        Plan::RetainRemembered(_) => "RetainRemembered",
        Plan::GiveBack(..) => "GiveBack",
        Plan::Forget => "Forget",
        Plan::NoHolder => "NoHolder",
        Plan::Cleanup { .. } => "Cleanup",
        Plan::Release { .. } => "Release",
        Plan::Refuse(_) => "Refuse",
        Plan::Paused { .. } => "Paused",
        Plan::Ensure { .. } => "Ensure",
        Plan::Update(_) => "Update",
        Plan::Repair { .. } => "Repair",
    }
}

/// Whether the step calls neither the provider nor the API.
pub(crate) const fn is_idle(plan: &Plan) -> bool {
    matches!(plan, Plan::Nothing | Plan::Wait(_) | Plan::Paused { .. })
}

fn reason(plan: &Plan, observed: &Observed, name: &dyn Fn(LaneId) -> String) -> String {
    let provider = &observed.provider;
    match plan {
        Plan::Nothing => nothing(observed),
        Plan::Wait(_) => wait(observed),
        Plan::LookUp(_) => {
            "the watch shows the Service no more; the manager asks the API server whether the Service is gone before it deletes the load balancer".to_owned()
        }
        Plan::Confirm(_) => format!(
            "only the annotation {LOAD_BALANCER_PROVIDER_ANNOTATION} says that the load balancer is of {provider}; the manager asks {provider} whether it has one"
        ),
        Plan::DeleteRemembered(_) => format!(
            "the Service is deleted, or another Service has its name; {provider} deletes the load balancer that it made"
        ),
        Plan::RetainRemembered(_) => format!(
            "the Service is deleted, or another Service has its name; its deletion policy keeps the load balancer of {provider} in the cloud"
        ),
        Plan::GiveBack(key, _) => format!(
            "the Service that had adopted the load balancer with the UID {} went without a deletion; the load balancer is retained again",
            key.uid
        ),
        Plan::Forget => "the load balancer of a former Service is gone; only the manager's record of it is left".to_owned(),
        Plan::NoHolder => {
            "the load balancer has to be deleted, and no provider exports load-balancers; add the provider that made it".to_owned()
        }
        Plan::Cleanup { holders, misnamed, retained, .. } => {
            let deleting = holders.iter().filter(|holder| !retained.contains(holder));
            let names = |ids: &mut dyn Iterator<Item = &LaneId>| ids.map(|id| name(*id)).collect::<Vec<_>>();
            cleanup(observed, *misnamed, (&names(&mut deleting.into_iter()), &names(&mut retained.iter())))
        }
        Plan::Release { empties_status, .. } => {
            let status = if *empties_status { ", and empties the status" } else { "" };
            let what = if observed.records.is_kept { "retained" } else { "deleted" };
            format!("the load balancer is {what}; the manager removes the finalizer {LOAD_BALANCER_FINALIZER}{status}")
        }
        Plan::Refuse(problems) => {
            format!("the Service is invalid, so no provider is called: {}; correct the Service", problems.join("; "))
        }
        Plan::Paused { held, .. } => format!("the pause holds the step {} back: {}", step(held), reason(held, observed, name)),
        Plan::Ensure { repeated: true, .. } => "a drift repair is due; nothing of the Service has changed".to_owned(),
        Plan::Ensure { repeated: false, .. } => ensure(observed),
        Plan::Update(_) => update(observed),
        Plan::Repair { add_finalizer, status } => repair(observed, *add_finalizer, status.is_some()),
    }
}

fn nothing(observed: &Observed) -> String {
    let provider = &observed.provider;
    let Some(object) = observed.object.as_deref() else {
        return "the Service is gone, and no load balancer of it is left".to_owned();
    };
    let deleting = object.metadata.deletion_timestamp.is_some();
    match (&observed.entry, observed.object_owner) {
        (Some(Entry { state: State::Elsewhere { .. }, .. }), ObjectOwner::Own) => format!(
            "{provider} answers that another controller manages the load balancer (ImplementedElsewhere); the manager asks again when the Service or the release changes"
        ),
        (Some(_), ObjectOwner::Own) => {
            "the load balancer is as the Service, the nodes and the release require".to_owned()
        }
        (Some(_), _) => format!(
            "no provider claims the Service any more; the load balancer of {provider} stays without updates until the Service is deleted"
        ),
        (None, _) if has_finalizer(object) => format!(
            "another controller set the finalizer {LOAD_BALANCER_FINALIZER}, and no provider here has made a load balancer"
        ),
        (None, _) if deleting => "the Service is being deleted, and no load balancer of it is left".to_owned(),
        (None, _) => "the Service wants no load balancer: spec.type is not LoadBalancer".to_owned(),
    }
}

fn wait(observed: &Observed) -> String {
    let undone = match (&observed.object, observed.release_wait) {
        (None, _) => return "the API server has the Service, and the watch does not show the Service yet".to_owned(),
        (Some(_), Some(wait)) if !wait.is_zero() => {
            "another controller adds the finalizer each time that the manager removes it"
        }
        (Some(_), _) => {
            "another controller undoes the manager's finalizer, annotations or status each time, or the API server refuses them"
        }
    };
    format!("{undone}; the manager writes again after a pause, at most 5 minutes. See the Event ServiceWriteConflict")
}

fn cleanup(observed: &Observed, misnamed: bool, (deleting, kept): (&[String], &[String])) -> String {
    let provider = &observed.provider;
    let why = match observed.object.as_deref() {
        _ if misnamed => format!(
            "the annotation {LOAD_BALANCER_PROVIDER_ANNOTATION} names {provider}, which has no load balancer of this Service"
        ),
        None => "the Service is deleted".to_owned(),
        Some(object) if object.metadata.deletion_timestamp.is_some() => {
            format!(
                "the Service is being deleted, and the finalizer {LOAD_BALANCER_FINALIZER} waits for the deletion of the load balancer"
            )
        }
        Some(object) if !is_load_balancer(object) => "spec.type is not LoadBalancer any more".to_owned(),
        Some(_) => match observed.object_owner {
            ObjectOwner::OtherProvider => {
                "another provider owns the Service now, and begins after this deletion".to_owned()
            }
            ObjectOwner::NoOwner => {
                "spec.loadBalancerClass has changed to a class that no provider here claims".to_owned()
            }
            ObjectOwner::Own => "the load balancer was made for another class".to_owned(),
        },
    };
    let deletion = match deleting {
        [] if !kept.is_empty() => why,
        [] if !observed.records.spared.is_empty() => {
            format!("{why}; the load balancer is retained, or another Service has it, and the finalizer is next")
        }
        [] => format!("{why}; every provider has deleted the load balancer, and the finalizer is next"),
        [holder] => format!("{why}; {holder} deletes the load balancer"),
        holders => format!(
            "{why}; no annotation says which provider made the load balancer, so each of these deletes it: {}",
            holders.join(", ")
        ),
    };
    match kept {
        [] => deletion,
        kept => format!("{deletion}; the deletion policy keeps the load balancer of {} in the cloud", kept.join(", ")),
    }
}

fn ensure(observed: &Observed) -> String {
    let Some(entry) = &observed.entry else {
        return "this process has not ensured the load balancer yet".to_owned();
    };
    let made = match &entry.state {
        State::Unsettled { before: Some(before) } => &before.service,
        _ => &entry.service,
    };
    let service = observed.object.as_deref().map(|object| convert(object).service);
    let changed: Vec<_> = service.iter().flat_map(|service| changed_fields(made, service)).collect();
    let state = match &entry.state {
        State::Deleted => "the load balancer was deleted, and the Service wants one again",
        State::Unconfirmed => "this process has not ensured the load balancer yet; an annotation names the provider",
        State::Unsettled { before: Some(_) } => {
            "the last ensure has not succeeded, and the load balancer of the ensure before it serves"
        }
        State::Unsettled { before: None } => "no ensure has succeeded since the last ensure or deletion began",
        State::Elsewhere { .. } => {
            "the release, or what it may assign, has changed since it said that another controller manages the load balancer"
        }
        State::Serving(Serving { generation, .. }) if *generation != observed.generation => {
            "another release serves, or the allowed addresses have changed, since the last ensure"
        }
        State::Serving(Serving { nodes, .. }) if nodes.failed() > 0 => {
            "updates of the nodes failed several times in a row; an ensure also creates what is missing"
        }
        State::Serving(_) => "",
    };
    match (changed.join(", "), state) {
        (changed, "") => format!("fields of the Service have changed since the last ensure: {changed}"),
        (changed, state) if changed.is_empty() => state.to_owned(),
        (changed, state) => format!("{state}; fields that differ: {changed}"),
    }
}

fn update(observed: &Observed) -> String {
    let nodes = format!("the nodes of {} have changed since the load balancer got its nodes", observed.provider);
    match observed.entry.as_ref().map(|entry| &entry.state) {
        Some(State::Serving(Serving { nodes: Backends::Unknown { .. }, .. })) => {
            "the last update of the nodes has not succeeded".to_owned()
        }
        Some(State::Unsettled { .. }) => {
            format!("{nodes}; the load balancer of the last successful ensure serves, while a later one fails")
        }
        _ => nodes,
    }
}

fn repair(observed: &Observed, add_finalizer: bool, status: bool) -> String {
    let lacks = |object: &core::Service| match has_finalizer(object) {
        true => "the annotations name another provider, object or class",
        false => "the finalizer is missing",
    };
    let finalizer = add_finalizer.then(|| observed.object.as_deref().map_or("the finalizer is missing", lacks));
    let status = status.then_some("the status does not have the addresses of the load balancer");
    let missing: Vec<_> = finalizer.into_iter().chain(status).collect();
    format!("{}; the manager writes to the Service again", missing.join(", and "))
}

/// The state of a load balancer's record: a name and a sentence.
pub(crate) const fn state(state: &State) -> (&'static str, &'static str) {
    match state {
        State::Unconfirmed => ("Unconfirmed", "only the annotation of the Service names the provider"),
        State::Unsettled { before: None } => {
            ("Unsettled", "an ensure or a deletion began and has not succeeded; the state in the cloud is not known")
        }
        State::Unsettled { before: Some(_) } => {
            ("Unsettled", "an ensure began and has not succeeded; the load balancer of the ensure before it serves")
        }
        State::Serving(_) => ("Serving", "the last ensure succeeded"),
        State::Elsewhere { .. } => ("Elsewhere", "another controller manages the load balancer, as the release says"),
        State::Deleted => ("Deleted", "the load balancer is deleted; the finalizer is still on the Service"),
    }
}

/// The nodes that the load balancer has, against those of the provider now.
pub(crate) fn backends(state: &State, shared: &SharedNodes) -> Option<&'static str> {
    let nodes = match state {
        State::Serving(serving) => serving.nodes,
        State::Unsettled { before: Some(before) } => before.nodes,
        State::Unconfirmed | State::Unsettled { before: None } | State::Elsewhere { .. } | State::Deleted => {
            return None;
        }
    };
    Some(match nodes {
        Backends::Known(membership) if membership == shared.membership => "Current",
        Backends::Known(_) => "Outdated",
        Backends::Unknown { .. } => "Unknown",
    })
}

#[cfg(test)]
mod tests;
