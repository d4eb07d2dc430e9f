//! The node lifecycle controller: deletes nodes whose machine does not exist any more, and taints
//! nodes whose machine is shut down.
//!
//! # Flow, one pass over a provider's nodes that are not ready
//! 1. observe (pure): the nodes that are not ready, and ready nodes with a leftover taint. A ready
//!    node only loses the taint, without a call.
//! 2. describe (provider): one call for each page.
//! 3. plan (pure): `node_lifecycle/plan.rs`, node by node.
//! 4. confirm (pure): `node_lifecycle/missing_machines.rs`; a machine has to be missing in several
//!    consecutive passes.
//! 5. judge (pure): `node_lifecycle/breaker.rs`, over the whole pass and the passes before it. If
//!    the result depends on it, the controller also asks the provider about all other nodes.
//! 6. report the nodes that the breaker or a pause of the provider keeps: `node_lifecycle/alarm.rs`
//!    decides when.
//! 7. apply (client): DELETE with preconditions, or a guarded patch of the taints.
//!
//! # Guarantees
//! - Only [`skysail_provider::Code::NotFound`] for the node itself, in several consecutive passes,
//!   deletes the node. A rejected credential, a failed call, a limit or a list of the wrong length
//!   never does.
//! - No node is deleted or tainted while an older provider may own it: while that provider has no
//!   release, no schemes in its spec and no remembered ones.
//! - While the operator has paused the provider, none of its nodes is deleted. Taints change.
//! - However many machines a provider reports as missing, the breaker bounds the number of its
//!   nodes that are deleted within a window.
//! - The DELETE has the preconditions UID and resource version. The UID protects a node that was
//!   created again under the same name. The resource version protects a node whose kubelet
//!   recovered during the call: nothing writes a node whose machine does not exist, so the
//!   precondition rarely fails, and after a conflict the next pass checks again.

mod alarm;
mod apply;
mod breaker;
mod missing_machines;
mod plan;
mod reporting;

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::ready, stream};
use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Detail, Interface, NodeSet, Result as ProviderResult};
use tokio::time::Instant;

use self::{
    alarm::Alarm,
    apply::{Deleted, apply, delete},
    breaker::{Breaker, BreakerLimits, Fleet, Judgement, Missing},
    missing_machines::{LookUp, MissingMachines},
    plan::{Action, Case, action},
};
use crate::{
    context::Context,
    convert,
    describe::describe,
    lane::Lane,
    names::{self, controllers},
    nodes::NodeView,
    report::Actor,
};

/// The time since the start of the first pass.
type Moment = Duration;

/// State that the passes over one provider's nodes share.
pub(crate) struct LifecycleState {
    /// Nodes first seen later than this count as arrivals.
    started: Instant,
    missing_machines: MissingMachines,
    breaker: Breaker,
    alarm: Alarm,
    /// UIDs of nodes that we deleted and that the watch still shows, because it lags or because of
    /// a finalizer. They do not count as nodes any more.
    deleted: HashSet<String>,
}

impl LifecycleState {
    /// Create it when the first list of nodes is complete.
    pub(crate) fn new() -> Self {
        let (missing_machines, breaker, alarm) = (MissingMachines::default(), Breaker::default(), Alarm::default());
        Self { started: Instant::now(), missing_machines, breaker, alarm, deleted: HashSet::new() }
    }
}

/// One pass over the nodes of a provider.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, state: &mut LifecycleState) {
    let began = Instant::now();
    let now: Moment = began.saturating_duration_since(state.started);
    let actor = Actor { controller: controllers::CLOUD_NODE_LIFECYCLE, provider: lane.name.clone() };
    if context.nodes.is_disputable(lane.id) {
        state.missing_machines.note(std::iter::empty(), now);
        reporting::disputable(context, lane);
        return;
    }
    // observe (pure), describe (provider), plan (pure)
    let planned = look(context, lane, began).await;
    // confirm (pure)
    state.missing_machines.note(planned.iter().filter_map(look_up), now);
    let shown: HashSet<&str> = planned.iter().map(|(view, _)| view.node.uid.as_str()).collect();
    state.deleted.retain(|uid| shown.contains(uid.as_str()));
    let mut missing = confirmed(context, state, &planned);
    // Skip nodes that another client deleted during the call: the breaker must not count them.
    missing.retain(|(view, _)| is_still_its(context, lane, view));
    // judge (pure)
    let mut judgement = judge(context, lane, state, &missing, (now, false));
    if judgement.depends_on_the_others() && others_found(context, lane, state, &missing).await {
        judgement = judge(context, lane, state, &missing, (now, true));
    }
    // report
    let (mut gone, mut held, mut paused) = (Vec::new(), Vec::new(), Vec::new());
    for (node, may_go) in missing.into_iter().zip(&judgement.may_go) {
        match (may_go, lane.is_paused()) {
            (true, false) => gone.push(node),
            (true, true) => paused.push(node.0),
            (false, _) => held.push(node.0),
        }
    }
    reporting::breaker(context, &actor, &mut state.alarm, &judgement, now);
    reporting::finding(context, lane, &actor, &judgement, &held);
    reporting::held(context, &actor, &mut state.alarm, (&held, &paused), now);
    // apply (client)
    let writes = context.settings.concurrent_node_lifecycle_syncs.max(1);
    let actor = &actor;
    stream::iter(planned)
        .filter(|(view, _)| ready(is_still_its(context, lane, view)))
        .for_each_concurrent(writes, |(view, action)| async move { apply(context, actor, &view, action).await })
        .await;
    let deletions = stream::iter(gone)
        .filter(|(view, _)| ready(is_still_its(context, lane, view)))
        .map(|(view, node)| async move { (delete(context, actor, &view).await, view, node) })
        .buffer_unordered(writes);
    let deletions: Vec<(Option<Deleted>, NodeView, Missing)> = deletions.collect().await;
    for (deleted, view, node) in deletions {
        let counts = matches!(deleted, Some(Deleted::ByUs | Deleted::Perhaps));
        if counts && !node.announced {
            state.breaker.deleted(&view.node.uid, node.arrived, state.started.elapsed());
        }
        if deleted == Some(Deleted::ByUs) {
            state.deleted.insert(view.node.uid.clone());
        }
    }
    context.reporter.metrics.monitor_nodes_duration.observe(began.elapsed().as_secs_f64());
}

/// Whether the node exists and the provider may still act on it.
fn is_still_its(context: &Context, lane: &Lane, view: &NodeView) -> bool {
    context.nodes.still_owned(view, lane.id).is_some() && !context.nodes.is_disputable(lane.id)
}

/// Plans the action for each node that is not ready, and for each ready node that still has the
/// taint of a node that was shut down.
async fn look(context: &Context, lane: &Arc<Lane>, now: Instant) -> Vec<(NodeView, Action)> {
    // observe (pure)
    let views = context.nodes.troubled(lane.id);
    let (ready, not_ready): (Vec<_>, Vec<_>) = views.into_iter().partition(|view| view.node.ready);
    // As upstream: a provider without instances is not asked.
    let not_ready = if lane.instances().is_some() { not_ready } else { Vec::new() };
    // describe (provider)
    let set = NodeSet::new(not_ready.iter().map(|view| Arc::clone(&view.node)));
    let described = describe(context, lane, &set, Detail::State).await;
    let not_ready = if lane.off_for(Interface::Instances).is_none() { not_ready } else { Vec::new() };
    // plan (pure); both lists are sorted by name
    let recovered = ready.into_iter().map(|view| (view, None));
    let asked = not_ready.into_iter().zip(described.into_iter().map(Some));
    let plan = |(view, answer): (NodeView, _)| {
        let age = now.saturating_duration_since(view.first_seen);
        let action = action(&Case { object: &view.object(), age, answer }, context.settings.uninitialized_node_grace);
        (view, action)
    };
    recovered.chain(asked).map(plan).collect()
}

/// The result of this pass for a machine that may be missing.
fn look_up((view, action): &(NodeView, Action)) -> Option<(&str, LookUp)> {
    match action {
        Action::Gone => Some((&view.node.uid, LookUp::Missing)),
        Action::Unknown(_) => Some((&view.node.uid, LookUp::Failed)),
        Action::Keep | Action::SetTaints(_) => None,
    }
}

/// The nodes whose machine was missing in enough consecutive passes.
fn confirmed(context: &Context, state: &LifecycleState, planned: &[(NodeView, Action)]) -> Vec<(NodeView, Missing)> {
    let passes = context.settings.node_deletion_confirmations;
    let gone = planned.iter().filter(|(_, action)| *action == Action::Gone).map(|(view, _)| view);
    gone.filter(|view| !state.deleted.contains(&view.node.uid))
        .filter_map(|view| {
            let since = state.missing_machines.confirmed(&view.node.uid, passes)?;
            let arrived = view.first_seen.checked_duration_since(state.started).filter(|age| !age.is_zero());
            Some((view.clone(), Missing { since, arrived, announced: is_announced(&view.object()) }))
        })
        .collect()
}

/// Whether the provider finds the machine of each other node, and the other nodes outnumber the
/// missing ones. Uninitialised nodes do not count: the cloud may not list their machines yet.
async fn others_found(
    context: &Context,
    lane: &Arc<Lane>,
    state: &LifecycleState,
    missing: &[(NodeView, Missing)],
) -> bool {
    let gone: HashSet<&str> = missing.iter().map(|(view, _)| view.node.uid.as_str()).collect();
    let is_other = |view: &NodeView| {
        let uid = &view.node.uid;
        !view.uninitialized && !gone.contains(uid.as_str()) && !state.deleted.contains(uid)
    };
    let views = context.nodes.owned(lane.id);
    let others = NodeSet::new(views.iter().filter(|view| is_other(view)).map(|view| Arc::clone(&view.node)));
    others.len() > missing.len()
        && describe(context, lane, &others, Detail::State).await.iter().all(ProviderResult::is_ok)
}

/// Whether a person or the cluster autoscaler, not the provider, announced the deletion of this
/// node.
fn is_announced(object: &core::Node) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(names::ALLOW_DELETION_ANNOTATION)).is_some_and(|value| value == "true")
        || convert::taints(object).iter().any(|taint| taint.key == names::CLUSTER_AUTOSCALER_TAINT)
}

fn judge(
    context: &Context,
    lane: &Arc<Lane>,
    state: &mut LifecycleState,
    missing: &[(NodeView, Missing)],
    (now, others_found): (Moment, bool),
) -> Judgement {
    let settings = &context.settings;
    let limits =
        BreakerLimits { percent_max: settings.node_deletion_percent_max, window: settings.node_deletion_window };
    // Count the nodes only if a machine is missing.
    let (nodes, arrivals) =
        if missing.is_empty() { (0, Vec::new()) } else { context.nodes.fleet(lane.id, state.started) };
    let missing: Vec<Missing> = missing.iter().map(|(_, missing)| *missing).collect();
    let arrivals = arrivals.into_iter().map(|seen| seen.saturating_duration_since(state.started)).collect();
    let nodes = nodes.saturating_sub(state.deleted.len());
    state.breaker.judge(limits, &Fleet { nodes, arrivals, others_found }, &missing, now)
}
