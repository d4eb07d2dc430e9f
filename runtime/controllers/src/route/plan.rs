//! From the routes that a provider lists and the nodes that it owns to what is deleted, what is
//! created, and which Events each node gets. Pure.
//!
//! A route is deleted where it lies in the cluster's networks, and is a blackhole, or its target is
//! no node at all, or its target is a node of this provider that does not want it. What leads to a
//! node of another provider, or of nobody, is not judged.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ipnet::IpNet;
use skysail_provider::{Node, Route};

use super::pod_cidrs::{self, Range, Ranges};

/// What a pass sees.
pub(crate) struct Observed<'a> {
    /// As the provider lists them.
    pub(crate) routes: &'a [Route],
    /// The nodes of the provider.
    pub(crate) nodes: &'a [Arc<Node>],
    /// The networks of the cluster.
    pub(crate) cluster: &'a [IpNet],
    /// False while no node is known at all: that is how a cache looks that is empty by mistake, and
    /// every route would seem to lead nowhere.
    pub(crate) may_delete: bool,
}

/// A route to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Index of the node.
    pub(crate) node: usize,
    pub(crate) route: Route,
}

/// What a pass does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) deletions: Vec<Route>,
    pub(crate) creations: Vec<Creation>,
    /// For each node whether it will have its routes, once the creations have succeeded; none where
    /// that is not ours to say.
    pub(crate) has_routes: Vec<Option<bool>>,
    /// For each node what is wrong with its pod ranges; empty where nothing is.
    pub(crate) complaints: Vec<String>,
}

/// A listed route, read once.
struct Listed<'a> {
    route: &'a Route,
    network: Option<IpNet>,
    /// Index of its target among the nodes of the provider.
    node: Option<usize>,
    keep: bool,
}

/// Plans a pass. `is_known` says whether a node of this name is in the cluster, of any owner.
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

/// The routes that lead to a node of the provider, by name and network. Upstream compares CIDRs as
/// text; one network has more than one spelling, and a cloud need not give back ours. A blackhole
/// serves nobody: upstream takes it for the node's route in the same pass in which it deletes it.
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

/// Keeps the first route whose addresses are right; false where there is none. Further ones are
/// left to be deleted, as upstream never does: they are quota, and one that leads to an earlier
/// machine of the name takes traffic. One of the same name is the same route, listed twice.
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

/// As upstream: only where the provider asks for it, and in any order.
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

/// A node without pod range that has a route is in trouble, one without either is not ours; nor is
/// one whose ranges are all wrong: an Event says so, and a taint would help nobody.
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
