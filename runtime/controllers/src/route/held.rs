//! Reports the deletions of routes that the operator's budget of deletions holds back.

use skysail_provider::{EventKind, Route};

use super::{
    plan::Observed,
    pod_cidrs,
    targets::{Found, Targets},
};
use crate::{
    context::Context,
    lane::Lane,
    names::reasons,
    nodes::NodeView,
    report::{Actor, cluster},
};

/// Counts the routes whose deletion a pass could not send, and emits an Event about each new one:
/// on the node that the route leads to, or on the cluster if the route leads to no node of the
/// provider. A call about many routes may have deleted some of them before; the next pass lists
/// those that are left.
pub(super) fn report(
    context: &Context,
    (lane, actor): (&Lane, &Actor),
    (observed, views): (&Observed<'_>, &[NodeView]),
    held: &[(&Route, String)],
) {
    let cidrs = held.iter().map(|(route, _)| route.destination_cidr.clone()).collect();
    let new = context.held_deletions.routes(&lane.name, cidrs);
    context.count_held_deletions(lane);
    if new.is_empty() {
        return;
    }
    let targets = Targets::new(observed.nodes, observed.others);
    for (route, reason) in held.iter().filter(|(route, _)| new.contains(&route.destination_cidr)) {
        let cidr = &route.destination_cidr;
        let node = pod_cidrs::network(cidr).and_then(|network| match targets.find(route, &network) {
            Found::Own(index) => views.get(index),
            Found::Elsewhere | Found::NoNode | Found::Unknown => None,
        });
        let text = format!(
            "A deletion is held back in the call that deletes the route {cidr}: {reason}; raise spec.deletionBudget of the Provider {} to delete the route earlier",
            lane.name
        );
        let object = node.map_or_else(cluster, NodeView::reference);
        context.reporter.event(actor, &object, (EventKind::Warning, reasons::DELETION_HELD), text);
    }
}
