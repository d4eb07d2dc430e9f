//! Reports the breaker's decisions: Events on the Namespace that represents the cluster and on the
//! kept nodes, and metrics.

use super::{
    Moment,
    alarm::{Alarm, BreakerNotice},
    breaker::Judgement,
};
use crate::{
    context::Context,
    findings::Finding,
    lane::Lane,
    metrics::{ProviderLabels, set_count},
    names::{self, reasons},
    nodes::NodeView,
    report::{Actor, cluster},
};
use skysail_provider::EventKind;

/// Reports the breaker's state in the metrics and as an Event about the cluster.
pub(crate) fn breaker(context: &Context, actor: &Actor, alarm: &mut Alarm, judgement: &Judgement, now: Moment) {
    let metrics = &context.reporter.metrics;
    let labels = ProviderLabels { provider: actor.provider.clone() };
    let held = judgement.may_go.iter().filter(|may_go| !**may_go).count();
    metrics.node_deletion_stopped.get_or_create(&labels).set(i64::from(judgement.is_open()));
    set_count(&metrics.nodes_held, &actor.provider, held);
    let notice = alarm.notice(judgement.is_open(), now);
    if notice == BreakerNotice::Opened {
        metrics.node_deletion_stops.get_or_create(&labels).inc();
    }
    let (kind, reason, text) = match notice {
        BreakerNotice::Unchanged => return,
        BreakerNotice::Closed => {
            let text = format!(
                "The breaker of the provider {} closed: Skysail deletes nodes whose machines do not exist again",
                actor.provider
            );
            (EventKind::Normal, reasons::NODE_DELETION_RESUMED, text)
        }
        BreakerNotice::Opened | BreakerNotice::Reminded => {
            (EventKind::Warning, reasons::NODE_DELETION_STOPPED, stopped(context, actor, judgement))
        }
    };
    context.reporter.event(actor, &cluster(), (kind, reason), text);
}

fn stopped(context: &Context, actor: &Actor, Judgement { loss, budget, peak, .. }: &Judgement) -> String {
    format!(
        "The breaker stopped the deletion of nodes of the provider {}: {loss} of {peak} nodes would be lost, and at most {budget} may be deleted within {} minutes. \
         If the machines still exist in the cloud, correct the provider or its credential. If they do not, delete the nodes with kubectl, or annotate them: {}=true",
        actor.provider,
        context.settings.node_deletion_window.as_secs() / 60,
        names::ALLOW_DELETION_ANNOTATION,
    )
}

/// Reports the nodes that are kept as a finding about the provider.
pub(crate) fn finding(context: &Context, lane: &Lane, actor: &Actor, judgement: &Judgement, held: &[NodeView]) {
    let finding = held.first().map(|first| {
        let stopped = stopped(context, actor, judgement);
        format!(
            "the breaker keeps {} nodes whose machines were not found, such as {}. {stopped}",
            held.len(),
            first.node.name
        )
    });
    lane.findings.set(Finding::NodesHeld, finding);
}

/// Reports the nodes that are not ready while an older provider may own them.
pub(crate) fn disputable(context: &Context, lane: &Lane) {
    let troubled = context.nodes.troubled(lane.id);
    let finding = troubled.first().map(|first| {
        format!(
            "{} nodes that are not ready, such as {}, are neither deleted nor tainted, because an older provider without a release may claim their provider-ID \
             scheme. Correct the older provider's source, list its schemes in its spec.providerIdSchemes, or delete it",
            troubled.len(),
            first.node.name
        )
    });
    lane.findings.set(Finding::NodesHeld, finding);
}

/// Emits the Events about the nodes that the breaker keeps, and those that the pause keeps.
pub(crate) fn held(
    context: &Context,
    actor: &Actor,
    alarm: &mut Alarm,
    (held, paused): (&[NodeView], &[NodeView]),
    now: Moment,
) {
    let all = held.iter().map(|view| (view, false)).chain(paused.iter().map(|view| (view, true)));
    for (view, is_paused) in alarm.due(all.map(|(view, is_paused)| (view.node.uid.as_str(), (view, is_paused))), now) {
        let provider = &actor.provider;
        let text = match is_paused {
            true => format!(
                "The provider {provider} is paused (spec.paused), so Skysail keeps this node although its machine does not exist. To delete the node: kubectl delete node {}",
                view.node.name
            ),
            false => format!(
                "The breaker keeps this node: the provider {provider} reports too many missing machines, among them this node's. If the machine does not exist, delete the node with kubectl, or annotate it: {}=true",
                names::ALLOW_DELETION_ANNOTATION,
            ),
        };
        let kind = (EventKind::Warning, reasons::NODE_DELETION_HELD);
        context.reporter.event(actor, &view.reference(), kind, text);
    }
}
