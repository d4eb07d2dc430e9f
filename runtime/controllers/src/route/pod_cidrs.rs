//! The pod CIDRs of nodes: which of them get a route, and the problems of the others. Pure.
//!
//! A pod CIDR that cannot have a route, or whose route could never be deleted again, is rejected
//! before any call. Upstream creates the route: with a wrong `--cluster-cidr` it marks every node
//! of the cluster as unavailable, without an explanation.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;
use skysail_provider::Node;

/// A pod CIDR for which a node gets a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) network: IpNet,
    /// The node's spelling.
    pub(crate) text: String,
}

/// The pod CIDRs of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// The pod CIDRs that get a route, without duplicates.
    pub(crate) routed: Vec<Range>,
    /// Pod CIDRs that another node has too; their routes stay unchanged.
    pub(crate) contested: Vec<IpNet>,
    /// The problems as sentences for a person.
    pub(crate) complaints: Vec<String>,
}

/// Parses a CIDR and drops its host bits, as Kubernetes does.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|network| network.trunc())
}

/// Whether we may delete routes to this network. As upstream: its first or its last address lies in
/// a network of the cluster.
pub(crate) fn is_responsible(network: &IpNet, cluster: &[IpNet]) -> bool {
    cluster.iter().any(|own| own.contains(&network.network()) || own.contains(&network.broadcast()))
}

/// Checks the pod CIDRs of all nodes of a provider. If two nodes have the same CIDR, the node for
/// which `has_route` is true keeps it, otherwise the first by name.
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
                    "no route for {text}: the node {} has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR",
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
                .push(format!("no route for {text:?} in spec.podCIDRs: it is not a CIDR such as 10.244.3.0/24")),
            Some(network) if !seen.insert(network) => {
                ranges.complaints.push(format!("spec.podCIDRs contains {text} more than once; it gets one route"));
            }
            Some(network) if !is_responsible(&network, cluster) => ranges.complaints.push(format!(
                "no route for the pod CIDR {text}: it lies outside of --cluster-cidr {}. Correct --cluster-cidr, or disable routes with --configure-cloud-routes=false",
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
