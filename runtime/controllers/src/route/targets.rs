//! Finds the node that a listed route leads to. Pure.
//!
//! A cloud names the target of a route by the name, the provider ID or an address of a machine. A
//! provider ID may be spelt in another way than in the node's object, and a node's object may lack
//! an address of its machine. So a target that no node has proves only little, and
//! [`Targets::find`] returns [`Found::NoNode`] only where the route serves no node.

use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use skysail_provider::{Node, Route, Target};

use super::pod_cidrs;

/// The node that a route leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The provider's node with this index.
    Own(usize),
    /// A node of another provider, or of no provider.
    Elsewhere,
    /// No node of the cluster.
    NoNode,
    /// Unknown: a node of the cluster may be the target.
    Unknown,
}

/// All nodes of the cluster, the provider's nodes first, by what a route may name.
pub(crate) struct Targets<'a> {
    own: &'a [Arc<Node>],
    others: &'a [Arc<Node>],
    names: HashMap<&'a str, usize>,
    /// None for an ID, or an address, of several nodes. Built for the first route that needs it, as
    /// are the fields below.
    ids: OnceCell<HashMap<&'a str, Option<usize>>>,
    addresses: OnceCell<HashMap<IpAddr, Option<usize>>>,
    pod_networks: OnceCell<BTreeSet<IpNet>>,
    nameless: OnceCell<bool>,
    addressless: OnceCell<bool>,
}

impl<'a> Targets<'a> {
    pub(crate) fn new(own: &'a [Arc<Node>], others: &'a [Arc<Node>]) -> Self {
        let names = own.iter().chain(others).enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
        let (ids, addresses, pod_networks) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self {
            own,
            others,
            names,
            ids,
            addresses,
            pod_networks,
            nameless: OnceCell::new(),
            addressless: OnceCell::new(),
        }
    }

    /// Index of the provider's node with this name.
    pub(crate) fn own(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied().filter(|index| *index < self.own.len())
    }

    /// The node that the route to this network leads to.
    pub(crate) fn find(&self, route: &Route, network: &IpNet) -> Found {
        let (found, may_be_new) = match &route.target {
            Target::None => return Found::Unknown,
            Target::Node(name) => return self.names.get(name.as_str()).map_or(Found::NoNode, |index| self.at(*index)),
            Target::ProviderId(id) => {
                let lacks = |node: &Node| node.provider_id.is_none();
                (self.ids().get(id.as_str()), self.is_any_new(&self.nameless, lacks))
            }
            Target::Address(address) => {
                let found = address.parse::<IpAddr>().ok().and_then(|address| self.addresses().get(&address));
                let lacks = |node: &Node| ips(node).next().is_none();
                (found, self.is_any_new(&self.addressless, lacks))
            }
        };
        match found {
            Some(Some(index)) => self.at(*index),
            Some(None) => Found::Unknown,
            None if may_be_new || self.is_pod_network(network) => Found::Unknown,
            None => Found::NoNode,
        }
    }

    const fn at(&self, index: usize) -> Found {
        if index < self.own.len() { Found::Own(index) } else { Found::Elsewhere }
    }

    fn all(&self) -> impl Iterator<Item = (usize, &'a Node)> {
        self.own.iter().chain(self.others).map(Arc::as_ref).enumerate()
    }

    fn ids(&self) -> &HashMap<&'a str, Option<usize>> {
        let id = |node: &'a Node| node.provider_id.as_deref();
        self.ids.get_or_init(|| unique(self.all().filter_map(|(index, node)| Some((id(node)?, index)))))
    }

    fn addresses(&self) -> &HashMap<IpAddr, Option<usize>> {
        let of_node = |(index, node): (usize, &'a Node)| ips(node).map(move |ip| (ip, index));
        self.addresses.get_or_init(|| unique(self.all().flat_map(of_node)))
    }

    /// Whether a node lacks what would identify it, and its pod CIDR, too: it may be the target.
    fn is_any_new(&self, known: &OnceCell<bool>, lacks: impl Fn(&Node) -> bool) -> bool {
        *known.get_or_init(|| self.all().any(|(_, node)| node.pod_cidrs.is_empty() && lacks(node)))
    }

    /// Whether the network overlaps the pod CIDR of a node.
    fn is_pod_network(&self, network: &IpNet) -> bool {
        let networks = || self.all().flat_map(|(_, node)| &node.pod_cidrs).filter_map(|text| pod_cidrs::network(text));
        let networks = self.pod_networks.get_or_init(|| networks().collect());
        // The first network inside this one follows it in the order.
        let inside = networks.range(network..).next().is_some_and(|next| network.contains(next));
        inside || std::iter::successors(network.supernet(), IpNet::supernet).any(|outer| networks.contains(&outer))
    }
}

/// The index for each key; none for a key of several nodes.
fn unique<K: Eq + std::hash::Hash>(pairs: impl Iterator<Item = (K, usize)>) -> HashMap<K, Option<usize>> {
    let mut all = HashMap::new();
    for (key, index) in pairs {
        let known = all.entry(key).or_insert(Some(index));
        *known = known.filter(|known| *known == index);
    }
    all
}

/// The IP addresses of a node, of every kind.
fn ips(node: &Node) -> impl Iterator<Item = IpAddr> {
    node.addresses.iter().filter_map(|address| address.address.parse().ok())
}
