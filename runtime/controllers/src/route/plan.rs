//! Plans deletions, creations and Events from a provider's routes and nodes. Pure.
//!
//! A route is deleted if it lies in the cluster CIDRs and is a blackhole, or leads to no node, or
//! to a node of this provider that does not need it; `route/targets.rs` finds the node. A route to
//! a node of another provider, or of no provider, is ignored, and so is a route whose target is
//! unknown: whether such a route is in the way of a new one is for the provider to say.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ipnet::IpNet;
use skysail_provider::{NewRoute, Node, Route};

use super::{
    pod_cidrs::{self, Ranges},
    targets::{Found, Targets},
};

/// The input of a pass.
pub(crate) struct Observed<'a> {
    /// The routes that the provider lists.
    pub(crate) routes: &'a [Route],
    /// The nodes of the provider.
    pub(crate) nodes: &'a [Arc<Node>],
    /// The other nodes of the cluster.
    pub(crate) others: &'a [Arc<Node>],
    /// The networks of the cluster.
    pub(crate) cluster: &'a [IpNet],
}

/// A route to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Index of the node.
    pub(crate) node: usize,
    pub(crate) route: NewRoute,
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

impl Plan {
    /// The plan while the provider is paused: nothing changes, and a node whose route would be
    /// created lacks it.
    pub(crate) fn paused(mut self) -> Self {
        for Creation { node, .. } in std::mem::take(&mut self.creations) {
            if let Some(has_routes) = self.has_routes.get_mut(node) {
                *has_routes = Some(false);
            }
        }
        Self { deletions: Vec::new(), ..self }
    }
}

/// A listed route whose destination is a network.
struct Listed<'a> {
    route: &'a Route,
    network: IpNet,
    found: Found,
    keep: bool,
}

/// Plans a pass.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { routes, nodes, others, cluster } = *observed;
    let targets = Targets::new(nodes, others);
    let mut listed = read(routes, &targets);
    let live = index(&listed);
    let by_reference: Vec<&Node> = nodes.iter().map(Arc::as_ref).collect();
    let has_route =
        |node: &str, network: &IpNet| targets.own(node).is_some_and(|node| live.contains_key(&(node, *network)));
    let judged = pod_cidrs::judge(&by_reference, cluster, has_route);

    let mut plan = Plan::default();
    let targeted: HashSet<usize> = listed.iter().filter_map(Listed::own).collect();
    for (index, (node, ranges)) in nodes.iter().zip(&judged).enumerate() {
        for range in &ranges.routed {
            let candidates = live.get(&(index, range.network)).map(Vec::as_slice).unwrap_or_default();
            if !keep_one(&mut listed, candidates, node) {
                plan.creations.push(Creation { node: index, route: NewRoute::of(node, &range.text) });
            }
        }
        for network in &ranges.contested {
            for candidate in live.get(&(index, *network)).into_iter().flatten() {
                mark(&mut listed, *candidate);
            }
        }
        plan.has_routes.push(expected(node, ranges, targeted.contains(&index)));
        plan.complaints.push(ranges.complaints.join("; "));
    }
    // The cache may be empty by mistake, and then every route would seem to lead to no node.
    if !(nodes.is_empty() && others.is_empty()) {
        let stale = listed.iter().filter(|listed| is_stale(listed, cluster));
        plan.deletions = stale.map(|listed| listed.route.clone()).collect();
    }
    plan
}

/// Routes whose destination is not a network are left out: no node needs them, and they are never
/// deleted.
fn read<'a>(routes: &'a [Route], targets: &Targets<'_>) -> Vec<Listed<'a>> {
    let listed = |route: &'a Route| {
        let network = pod_cidrs::network(&route.destination_cidr)?;
        Some(Listed { route, network, found: targets.find(route, &network), keep: false })
    };
    routes.iter().filter_map(listed).collect()
}

impl Listed<'_> {
    /// Index of the provider's node that the route leads to.
    const fn own(&self) -> Option<usize> {
        match self.found {
            Found::Own(index) => Some(index),
            Found::Elsewhere | Found::NoNode | Found::Unknown => None,
        }
    }
}

/// The routes to nodes of the provider, by node and network. Upstream compares CIDRs as text; a
/// network has more than one spelling, and a cloud may return another one. Blackholes are skipped:
/// upstream counts a blackhole as the node's route in the same pass in which it deletes it.
fn index(listed: &[Listed<'_>]) -> HashMap<(usize, IpNet), Vec<usize>> {
    let mut live: HashMap<(usize, IpNet), Vec<usize>> = HashMap::new();
    for (index, one) in listed.iter().enumerate() {
        if let Some(node) = one.own()
            && !one.route.blackhole
        {
            live.entry((node, one.network)).or_default().push(index);
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

fn is_stale(listed: &Listed<'_>, cluster: &[IpNet]) -> bool {
    let Listed { route, network, found, keep } = listed;
    let is_needless = match found {
        Found::Own(_) | Found::NoNode => true,
        Found::Elsewhere => false,
        Found::Unknown => route.blackhole,
    };
    !keep && is_needless && pod_cidrs::is_responsible(network, cluster)
}

#[cfg(test)]
mod tests;
