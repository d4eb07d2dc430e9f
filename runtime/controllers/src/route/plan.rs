//! Plans deletions, creations and Events from a provider's routes and nodes. Pure.
//!
//! A route is deleted if it lies in the cluster CIDRs and is a blackhole, or its target is not a
//! node, or its target is a node of this provider that does not need it. A route to a node of
//! another provider, or of no provider, is ignored.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ipnet::IpNet;
use skysail_provider::{Node, Route};

use super::pod_cidrs::{self, Range, Ranges};

/// The input of a pass.
pub(crate) struct Observed<'a> {
    /// The routes that the provider lists.
    pub(crate) routes: &'a [Route],
    /// The nodes of the provider.
    pub(crate) nodes: &'a [Arc<Node>],
    /// The networks of the cluster.
    pub(crate) cluster: &'a [IpNet],
    /// False while no node is known at all: the cache may be empty by mistake, and every route
    /// would seem to have no target.
    pub(crate) may_delete: bool,
}

/// A route to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Index of the node.
    pub(crate) node: usize,
    pub(crate) route: Route,
}

/// The result of a pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) deletions: Vec<Route>,
    pub(crate) creations: Vec<Creation>,
    /// For each node whether it will have its routes after the creations; none if the condition is
    /// not ours.
    pub(crate) has_routes: Vec<Option<bool>>,
    /// For each node the problems of its pod CIDRs; empty without a problem.
    pub(crate) complaints: Vec<String>,
}

/// A listed route with parsed fields.
struct Listed<'a> {
    route: &'a Route,
    network: Option<IpNet>,
    /// Index of its target among the nodes of the provider.
    node: Option<usize>,
    keep: bool,
}

/// Plans a pass. `is_known` returns whether a node with this name exists, whatever its owner.
pub(crate) fn plan(observed: &Observed<'_>, is_known: impl Fn(&str) -> bool) -> Plan {
    let Observed { nodes, cluster, may_delete, .. } = *observed;
    let mut listed = read(observed);
    let live = index(&listed);
    let by_reference: Vec<&Node> = nodes.iter().map(Arc::as_ref).collect();
    let judged =
        pod_cidrs::judge(&by_reference, cluster, |node, network| live.contains_key(&(node.to_owned(), *network)));

    let mut plan = Plan::default();
    let targeted: HashSet<usize> = listed.iter().filter_map(|listed| listed.node).collect();
    for (index, (node, ranges)) in nodes.iter().zip(&judged).enumerate() {
        for range in &ranges.routed {
            let candidates = live.get(&(node.name.clone(), range.network)).map(Vec::as_slice).unwrap_or_default();
            if !keep_one(&mut listed, candidates, node) {
                plan.creations.push(Creation { node: index, route: wanted(node, range) });
            }
        }
        for network in &ranges.contested {
            for candidate in live.get(&(node.name.clone(), *network)).into_iter().flatten() {
                mark(&mut listed, *candidate);
            }
        }
        plan.has_routes.push(expected(node, ranges, targeted.contains(&index)));
        plan.complaints.push(ranges.complaints.join("; "));
    }
    if may_delete {
        let stale = listed.iter().filter(|listed| is_stale(listed, cluster, &is_known));
        plan.deletions = stale.map(|listed| listed.route.clone()).collect();
    }
    plan
}

fn read<'a>(observed: &Observed<'a>) -> Vec<Listed<'a>> {
    let nodes: HashMap<&str, usize> =
        observed.nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let listed = |route: &'a Route| Listed {
        route,
        network: pod_cidrs::network(&route.destination_cidr),
        node: target(route).and_then(|name| nodes.get(name).copied()),
        keep: false,
    };
    observed.routes.iter().map(listed).collect()
}

fn target(route: &Route) -> Option<&str> {
    route.target_node.as_deref().filter(|name| !name.is_empty())
}

/// The routes to nodes of the provider, by node name and network. Upstream compares CIDRs as text;
/// a network has more than one spelling, and a cloud may return another one. Blackholes are
/// skipped: upstream counts a blackhole as the node's route in the same pass in which it deletes
/// it.
fn index(listed: &[Listed<'_>]) -> HashMap<(String, IpNet), Vec<usize>> {
    let mut live: HashMap<(String, IpNet), Vec<usize>> = HashMap::new();
    for (index, Listed { route, network, node, .. }) in listed.iter().enumerate() {
        if let (Some(network), Some(_), Some(name)) = (network, node, target(route))
            && !route.blackhole
        {
            live.entry((name.to_owned(), *network)).or_default().push(index);
        }
    }
    live
}

/// Keeps the first route with the right addresses; returns false without one. Further routes are
/// deleted; upstream leaves them, but they use quota, and a route to an earlier machine of the same
/// name misdirects traffic. A route with the same name as the kept one is the same route, listed
/// twice.
fn keep_one(listed: &mut [Listed<'_>], candidates: &[usize], node: &Node) -> bool {
    let right = |index: &&usize| listed.get(**index).is_some_and(|listed| has_right_addresses(listed.route, node));
    let Some(kept) = candidates.iter().find(right).and_then(|index| listed.get(*index)).map(|kept| kept.route) else {
        return false;
    };
    for candidate in candidates {
        if let Some(listed) = listed.get_mut(*candidate)
            && listed.route.name == kept.name
        {
            listed.keep = true;
        }
    }
    true
}

fn mark(listed: &mut [Listed<'_>], index: usize) {
    if let Some(listed) = listed.get_mut(index) {
        listed.keep = true;
    }
}

/// As upstream: compares addresses only if the provider enables it, in any order.
fn has_right_addresses(route: &Route, node: &Node) -> bool {
    let Route { target_addresses, enable_node_addresses, .. } = route;
    !enable_node_addresses
        || (target_addresses.len() == node.addresses.len()
            && node.addresses.iter().all(|address| target_addresses.contains(address)))
}

fn wanted(node: &Node, range: &Range) -> Route {
    Route {
        name: String::new(),
        target_node: Some(node.name.clone()),
        target_addresses: node.addresses.clone(),
        destination_cidr: range.text.clone(),
        blackhole: false,
        enable_node_addresses: false,
    }
}

/// A node without a pod CIDR but with a route lacks its network; a node without both is not ours.
/// Neither is a node with only invalid pod CIDRs: an Event reports it, and a taint would not help.
const fn expected(node: &Node, ranges: &Ranges, is_targeted: bool) -> Option<bool> {
    if !ranges.routed.is_empty() {
        Some(true)
    } else if node.pod_cidrs.is_empty() && is_targeted {
        Some(false)
    } else {
        None
    }
}

fn is_stale(listed: &Listed<'_>, cluster: &[IpNet], is_known: impl Fn(&str) -> bool) -> bool {
    let Listed { route, network, node, keep } = listed;
    let responsible = network.is_some_and(|network| pod_cidrs::is_responsible(&network, cluster));
    let elsewhere = node.is_none() && target(route).is_some_and(is_known);
    !keep && responsible && !elsewhere
}

#[cfg(test)]
mod tests;
