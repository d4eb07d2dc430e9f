//! When a pass over a provider's routes begins.
//!
//! By default every `--route-reconciliation-period`, as upstream: a pass that took longer is
//! followed by the next at once. Behind the gate
//! `CloudControllerManagerWatchBasedRoutesReconciliation` when a node came, went, or changed what
//! its routes are made of, at most once in [`WATCH_PACE`]; upstream looks again only at the
//! informer's resync, we also after a failure, with backoff.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{Ended, Memory, run};
use crate::{
    backoff::retry_counted,
    context::Context,
    error::Error,
    lane::Lane,
    metrics::RouteSyncLabels,
    nodes::NodeView,
    queue::{Next, WorkQueue},
};

/// The one key of the queue, as upstream's.
const KEY: &str = "routes";
/// Upstream's limiter: one in 10 s, without a burst.
const WATCH_PACE: Duration = Duration::from_secs(10);
/// Upstream's informer hands all nodes out again after 12 to 24 h, and that is a pass. There are no
/// replicas of ours to spread it over.
const WATCH_RESYNC: Duration = Duration::from_hours(12);

/// Serves one provider until `stop`.
pub(crate) async fn serve((context, lane): (Arc<Context>, Arc<Lane>)) {
    let stop = &lane.stop;
    let mut synced = context.nodes_synced.subscribe();
    // Before the first list is complete every route would seem to lead to no node.
    if stop.run_until_cancelled(synced.wait_for(|synced| *synced)).await.is_none() {
        return;
    }
    let queue = &lane.routes;
    let watch_based = context.settings.watch_based_routes;
    let (mut releases, mut rotations) = (lane.releases.clone(), lane.rotations.clone());
    let mut memory = Memory::default();
    let mut earliest = Instant::now();
    queue.add(KEY);
    while stop.run_until_cancelled(queue.ready()).await.is_some() {
        // What the last release could not do, or was denied, another release or other credentials
        // may do.
        let woken = async {
            tokio::select! {
                () = stop.cancelled() => {}
                Ok(()) = releases.changed() => {}
                Ok(()) = rotations.changed() => {}
            }
        };
        if timeout_at(earliest, woken).await.is_ok() && stop.is_cancelled() {
            return;
        }
        if queue.try_next().is_none() {
            continue;
        }
        let begun = Instant::now();
        releases.mark_unchanged();
        rotations.mark_unchanged();
        let ended = context.turn(&lane, "the routes", run(&context, &lane, &mut memory, stop)).await;
        count(&context, &ended);
        let next = if watch_based {
            let next = after_change(queue, &ended);
            // A change of a node does not shorten what the provider asked for.
            earliest = match (&ended, next) {
                (Ended::Refused(_), Next::After(after)) => (begun + WATCH_PACE).max(Instant::now() + after),
                _ => begun + WATCH_PACE,
            };
            next
        } else {
            let due = (begun + context.settings.route_reconciliation_period).saturating_duration_since(Instant::now());
            Next::After(after_period(queue, &ended, due))
        };
        queue.done(KEY, next);
    }
}

/// The period goes on whatever failed, as upstream; but a cloud that wants to be left alone is.
fn after_period(queue: &WorkQueue<&'static str>, ended: &Ended, due: Duration) -> Duration {
    match ended {
        Ended::Refused(error) => due.max(backoff(queue, error)),
        Ended::Idle | Ended::Settled { .. } | Ended::Failed(_) => {
            queue.forget(&KEY);
            due
        }
    }
}

fn after_change(queue: &WorkQueue<&'static str>, ended: &Ended) -> Next {
    match ended {
        Ended::Refused(error) | Ended::Failed(error) => Next::After(backoff(queue, error)),
        Ended::Settled { .. } => {
            queue.forget(&KEY);
            Next::After(WATCH_RESYNC)
        }
        // Another release wakes us.
        Ended::Idle => Next::OnChange,
    }
}

fn backoff(queue: &WorkQueue<&'static str>, error: &Error) -> Duration {
    retry_counted(queue, &KEY, error).after
}

fn count(context: &Context, ended: &Ended) {
    let outcome = match ended {
        Ended::Idle => return,
        Ended::Settled { changed: true } => "changed",
        Ended::Settled { changed: false } => "noop",
        Ended::Refused(_) | Ended::Failed(_) => "error",
    };
    let trigger = if context.settings.watch_based_routes { "node_change" } else { "periodic" };
    context.reporter.metrics.route_syncs.get_or_create(&RouteSyncLabels { trigger, outcome }).inc();
}

/// A node appeared, changed or went.
pub(crate) fn node_changed(context: &Context, old: Option<&NodeView>, new: Option<&NodeView>) {
    if !context.settings.routes_enabled() || !context.settings.watch_based_routes || !matters(old, new) {
        return;
    }
    let owner = |view: Option<&NodeView>| view.and_then(|view| view.owner.provider());
    for lane in [owner(old), owner(new)].into_iter().flatten().filter_map(|lane| context.lanes.get(lane)) {
        lane.routes.add(KEY);
    }
    if old.is_none() && new.is_some() && context.nodes.len() == 1 {
        // While there was no node at all, no pass deleted anything: each provider may have routes
        // that lead nowhere.
        context.lanes.all().iter().for_each(|lane| lane.routes.add(KEY));
    }
}

/// Whether routes depend on what changed: who owns the node, its pod ranges, its addresses. As
/// upstream; a relist that repeats a node is no change.
fn matters(old: Option<&NodeView>, new: Option<&NodeView>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let content = |view: &NodeView| (view.owner, Arc::clone(&view.node));
    let ((old_owner, old), (new_owner, new)) = (content(old), content(new));
    old_owner != new_owner || old.uid != new.uid || old.pod_cidrs != new.pod_cidrs || old.addresses != new.addresses
}

/// Another release of this provider became active.
pub(crate) fn release_changed(context: &Context, lane: &Lane) {
    if context.settings.routes_enabled() {
        lane.routes.add(KEY);
    }
}
