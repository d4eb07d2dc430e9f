//! When a pass over a provider's routes begins.
//!
//! By default every `--route-reconciliation-period`. As upstream, a pass that took longer than the
//! period is followed by the next one at once. With the feature gate
//! `CloudControllerManagerWatchBasedRoutesReconciliation` a pass begins when a node was added,
//! deleted, or changed in a field that its routes depend on, at most once in [`WATCH_PACE`].
//! Upstream then retries only at the informer's resync; this controller also retries a failure,
//! with backoff, and repeats the last pass once, [`WATCH_REPEAT`] later: the cloud's list may have
//! lacked a route.

use std::{sync::Arc, time::Duration};

use skysail_provider::Interface;
use tokio::time::{Instant, timeout_at};

use super::{Ended, Failure, ReportedRoutes, run};
use crate::{
    backoff::retry_counted,
    context::Context,
    error::{Error, chain},
    lane::Lane,
    metrics::RouteSyncLabels,
    names::controllers,
    nodes::NodeView,
    progress::{Work, fail},
    queue::{Next, WorkQueue},
    report::Actor,
};

/// The only key of the queue, as upstream's.
const KEY: &str = "routes";
/// Upstream's limiter: one in 10 s, without a burst.
const WATCH_PACE: Duration = Duration::from_secs(10);
/// Upstream's informer resyncs all nodes after 12 to 24 h, which triggers a pass. A fixed time
/// suffices here.
const WATCH_RESYNC: Duration = Duration::from_hours(12);

/// From the last pass that a change began to its repetition: lists of clouds lag by seconds.
const WATCH_REPEAT: Duration = Duration::from_mins(2);

/// Serves one provider until `stop`.
pub(crate) async fn serve((context, lane): (Arc<Context>, Arc<Lane>)) {
    let stop = &lane.stop;
    let mut synced = context.nodes_synced.subscribe();
    // Before the first list is complete every route would seem to have no target.
    if stop.run_until_cancelled(synced.wait_for(|synced| *synced)).await.is_none() {
        return;
    }
    let queue = &lane.routes;
    let watch_based = context.settings.watch_based_routes;
    let (mut releases, mut rotations) = (lane.releases.clone(), lane.rotations.clone());
    let mut reported = ReportedRoutes::default();
    let mut earliest = Instant::now();
    let mut repeat_at = None;
    queue.add(KEY);
    while stop.run_until_cancelled(queue.ready()).await.is_some() {
        // Another release or other credentials may succeed where the last pass failed or was
        // denied.
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
        let work = Work::Pass(controllers::ROUTE, "routes");
        let pass = async {
            let ended = run(&context, &lane, &mut reported, stop).await;
            if let Some((_, error)) = ended.failures().and_then(|(_, failures)| failures.last()) {
                fail(error.category(), &chain(error));
            }
            ended
        };
        let ended = context.turn(&lane, work, pass).await;
        count(&context, &ended);
        let now = Instant::now();
        let next = if watch_based {
            let next = after_change(&lane, &ended, begun, &mut repeat_at);
            // A change of a node does not shorten the provider's retry-after.
            earliest = match (&ended, next) {
                (Ended::Refused(..), Next::After(after)) => (begun + WATCH_PACE).max(now + after),
                _ => begun + WATCH_PACE,
            };
            next
        } else {
            let due = (begun + context.settings.route_reconciliation_period).saturating_duration_since(now);
            Next::After(after_period(queue, &ended, due))
        };
        if let (Some((_, failures)), Next::After(after)) = (ended.failures(), next) {
            report(&context, &lane, failures, after.max(earliest.saturating_duration_since(now)));
        }
        queue.done(KEY, next);
    }
}

fn report(context: &Context, lane: &Lane, failures: &[Failure], next_try: Duration) {
    let actor = Actor { controller: controllers::ROUTE, provider: lane.name.clone() };
    for (object, error) in failures {
        context.reporter.reconciled(&actor, object, Err(error), Some(next_try));
    }
}

/// As upstream, the period does not change after a failure; but a provider that rejects all calls
/// is not called before its backoff ends.
fn after_period(queue: &WorkQueue<&'static str>, ended: &Ended, due: Duration) -> Duration {
    match ended {
        Ended::Refused(error, _) => due.max(backoff(queue, error)),
        Ended::Idle | Ended::Settled { .. } | Ended::Failed(_) => {
            queue.forget(&KEY);
            due
        }
    }
}

/// `repeat_at` is when the pass after the last change is to be repeated; none once it was, and
/// after a failure.
fn after_change(lane: &Lane, ended: &Ended, begun: Instant, repeat_at: &mut Option<Instant>) -> Next {
    let queue = &lane.routes;
    let repeats = repeat_at.take().is_some_and(|at| begun >= at);
    match (ended, ended.failures()) {
        (_, Some((error, _))) => Next::After(backoff(queue, error)),
        // Another release adds the key.
        (Ended::Idle, _) => lane.off_for(Interface::Routes).map_or(Next::OnChange, Next::Within),
        (Ended::Settled { changed: false }, _) if repeats => {
            queue.forget(&KEY);
            Next::After(WATCH_RESYNC)
        }
        _ => {
            queue.forget(&KEY);
            *repeat_at = Some(Instant::now() + WATCH_REPEAT);
            Next::After(WATCH_REPEAT)
        }
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
        Ended::Refused(..) | Ended::Failed(_) => "error",
    };
    let trigger = if context.settings.watch_based_routes { "node_change" } else { "periodic" };
    context.reporter.metrics.route_syncs.get_or_create(&RouteSyncLabels { trigger, outcome }).inc();
}

/// Handles an added, changed or deleted node.
pub(crate) fn node_changed(context: &Context, old: Option<&NodeView>, new: Option<&NodeView>) {
    if !context.settings.routes_enabled() || !context.settings.watch_based_routes || !matters(old, new) {
        return;
    }
    let owner = |view: Option<&NodeView>| view.and_then(|view| view.owner.provider());
    for lane in [owner(old), owner(new)].into_iter().flatten().filter_map(|lane| context.lanes.get(lane)) {
        lane.routes.add(KEY);
    }
    if old.is_none() && new.is_some() && context.nodes.len() == 1 {
        // While no node was known, no pass deleted anything: each provider may have routes without
        // a target.
        context.lanes.all().iter().for_each(|lane| lane.routes.add(KEY));
    }
}

/// Whether the change affects routes: the owner of the node, its pod CIDRs, its addresses, as
/// upstream; and its provider ID, by which a cloud may name it. A relist that repeats a node is no
/// change.
fn matters(old: Option<&NodeView>, new: Option<&NodeView>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    content(old) != content(new)
}

fn content(NodeView { owner, node, .. }: &NodeView) -> impl PartialEq {
    (owner, &node.uid, &node.provider_id, &node.pod_cidrs, &node.addresses)
}

/// Handles another active release of this provider.
pub(crate) fn release_changed(context: &Context, lane: &Lane) {
    if context.settings.routes_enabled() {
        lane.routes.add(KEY);
    }
}
