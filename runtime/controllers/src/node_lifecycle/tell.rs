//! Says what the breaker does: on the namespace that stands for the cluster, on the nodes that are
//! kept, and as metrics.

use super::{
    Moment,
    alarm::{Alarm, Turn},
    breaker::Judgement,
};
use crate::{
    context::Context,
    findings::Finding,
    lane::Lane,
    metrics::ProviderLabels,
    names::{self, reasons},
    nodes::NodeView,
    report::{Voice, cluster},
};
use skysail_provider::EventKind;

/// Tells the cluster and the metrics of the breaker's state.
pub(crate) fn breaker(context: &Context, voice: &Voice, alarm: &mut Alarm, judgement: &Judgement, now: Moment) {
    let metrics = &context.reporter.metrics;
    let labels = ProviderLabels { provider: voice.provider.clone() };
    let held = judgement.may_go.iter().filter(|may_go| !**may_go).count();
    metrics.node_deletion_stopped.get_or_create(&labels).set(i64::from(judgement.is_open()));
    metrics.nodes_held.get_or_create(&labels).set(i64::try_from(held).unwrap_or(i64::MAX));
    let turn = alarm.turn(judgement.is_open(), now);
    if turn == Turn::Opened {
        metrics.node_deletion_stops.get_or_create(&labels).inc();
    }
    let (kind, reason, text) = match turn {
        Turn::Unchanged => return,
        Turn::Closed => {
            let text =
                format!("Nodes of the provider {} are deleted again when their machines are gone", voice.provider);
            (EventKind::Normal, reasons::NODE_DELETION_RESUMED, text)
        }
        Turn::Opened | Turn::Reminded => {
            (EventKind::Warning, reasons::NODE_DELETION_STOPPED, stopped(context, voice, judgement))
        }
    };
    context.reporter.event(voice, &cluster(), (kind, reason), text);
}

fn stopped(context: &Context, voice: &Voice, Judgement { loss, budget, peak, .. }: &Judgement) -> String {
    format!(
        "The provider {} would be down by {loss} of {peak} nodes, and {budget} may go within {} minutes: no more are deleted. \
         If the cloud did not lose these machines, mend the provider or its credential. If it did, delete the nodes with kubectl, or annotate them: {}=true",
        voice.provider,
        context.settings.node_deletion_window.as_secs() / 60,
        names::ALLOW_DELETION_ANNOTATION,
    )
}

/// Reports the nodes that are kept as a finding about the provider.
pub(crate) fn finding(context: &Context, lane: &Lane, voice: &Voice, judgement: &Judgement, held: &[NodeView]) {
    let finding = held.first().map(|first| {
        let stopped = stopped(context, voice, judgement);
        format!("{} nodes whose machines are not found are kept, such as {}. {stopped}", held.len(), first.node.name)
    });
    lane.findings.set(Finding::NodesHeld, finding);
}

/// Tells the nodes that are kept.
pub(crate) fn held(context: &Context, voice: &Voice, alarm: &mut Alarm, held: &[NodeView], now: Moment) {
    for view in alarm.due(held.iter().map(|view| (view.node.uid.as_str(), view)), now) {
        let text = format!(
            "The provider {} says that the machine is gone, and says so of too many nodes: this one is kept. If it is true, delete it with kubectl, or annotate it: {}=true",
            voice.provider,
            names::ALLOW_DELETION_ANNOTATION,
        );
        let kind = (EventKind::Warning, reasons::NODE_DELETION_HELD);
        context.reporter.event(voice, &view.reference(), kind, text);
    }
}
