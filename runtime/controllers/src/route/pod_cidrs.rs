//! The pod ranges of nodes: which of them get a route, and what is wrong with the others. Pure.
//!
//! A range that no route can be made for, or that a route was made for which could never be deleted
//! again, is judged here, before anything happens. Upstream tries: with a wrong `--cluster-cidr` it
//! marks every node of the cluster unavailable and says nothing.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;
use skysail_provider::Node;

/// A pod range that a node gets a route for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) network: IpNet,
    /// As the node spells it.
    pub(crate) text: String,
}

/// The pod ranges of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Those that get a route; no two are one network.
    pub(crate) routed: Vec<Range>,
    /// Those that are another node's too: what leads there is left as it is.
    pub(crate) contested: Vec<IpNet>,
    /// What is wrong, for a person; one sentence each.
    pub(crate) complaints: Vec<String>,
}

/// A network as Kubernetes' CIDRs are meant: without the bits of the host part.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|network| network.trunc())
}

/// Whether routes to this network are ours to delete: its first or its last address lies in a
/// network of the cluster. As upstream.
pub(crate) fn is_responsible(network: &IpNet, cluster: &[IpNet]) -> bool {
    cluster.iter().any(|own| own.contains(&network.network()) || own.contains(&network.broadcast()))
}

/// Judges the ranges of all nodes of a provider. Where two nodes have one range, the one that
/// `has_route` keeps it, else the first by name.
pub(crate) fn judge(nodes: &[&Node], cluster: &[IpNet], has_route: impl Fn(&str, &IpNet) -> bool) -> Vec<Ranges> {
    let mut judged: Vec<Ranges> = nodes.iter().map(|node| judge_one(node, cluster)).collect();
    let mut holders: HashMap<IpNet, &Node> = HashMap::new();
    for (node, ranges) in nodes.iter().zip(&judged) {
        for Range { network, .. } in &ranges.routed {
            let holder = holders.entry(*network).or_insert(node);
            if !has_route(&holder.name, network) && has_route(&node.name, network) {
                *holder = node;
            }
        }
    }
    for (node, ranges) in nodes.iter().zip(&mut judged) {
        let Ranges { routed, contested, complaints } = ranges;
        routed.retain(|Range { network, text }| {
            let holder = holders.get(network).filter(|holder| holder.name != node.name);
            if let Some(holder) = holder {
                contested.push(*network);
                complaints.push(format!(
                    "{text} is the pod range of node {} too, which keeps its route: no route is made to this node. Delete one of the nodes, so that it comes back with a range of its own",
                    holder.name
                ));
            }
            holder.is_none()
        });
    }
    judged
}

fn judge_one(node: &Node, cluster: &[IpNet]) -> Ranges {
    let mut ranges = Ranges::default();
    let mut seen = HashSet::new();
    for text in node.pod_cidrs.iter().filter(|text| !text.is_empty()) {
        match network(text) {
            None => ranges
                .complaints
                .push(format!("{text:?} in spec.podCIDRs is no network such as 10.244.3.0/24: no route is made for it")),
            Some(network) if !seen.insert(network) => {
                ranges.complaints.push(format!("spec.podCIDRs names {text} more than once: it gets one route"));
            }
            Some(network) if !is_responsible(&network, cluster) => ranges.complaints.push(format!(
                "the pod range {text} lies outside of --cluster-cidr {}: no route is made for it. Correct --cluster-cidr, or switch routes off with --configure-cloud-routes=false",
                shown(cluster)
            )),
            Some(network) => ranges.routed.push(Range { network, text: text.clone() }),
        }
    }
    ranges
}

fn shown(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
