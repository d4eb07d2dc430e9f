//! Nodes and immutable sets of them.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{StringMap, SystemUuid};

/// As `NodeAddressType`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AddressKind {
    /// `Hostname`.
    Hostname,
    /// `InternalIP`.
    InternalIp,
    /// `ExternalIP`.
    ExternalIp,
    /// `InternalDNS`.
    InternalDns,
    /// `ExternalDNS`.
    ExternalDns,
    /// A type that Kubernetes' list does not know.
    Other(String),
}

impl AddressKind {
    /// The type as the API server has it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
            Self::Other(kind) => kind,
        }
    }
}

/// One entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddress {
    /// The type of the address.
    pub kind: AddressKind,
    /// The address.
    pub address: String,
}

/// A node of the cluster: the fields that providers read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.addresses`, in order.
    pub addresses: Vec<NodeAddress>,
    /// All labels.
    pub labels: StringMap,
    /// All annotations.
    pub annotations: StringMap,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<String>,
    /// Whether the condition `Ready` is true.
    pub ready: bool,
    /// `status.nodeInfo.systemUUID`; none if it is empty.
    pub system_uuid: Option<SystemUuid>,
}

/// One field of each node of a set, in the set's order. All readers share it.
pub type Column<T> = Arc<[T]>;

/// An immutable set of nodes, sorted by name. Clones share the nodes, and the columns that one of
/// the clones was asked for.
#[derive(Clone, Debug)]
pub struct NodeSet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    nodes: Box<[Arc<Node>]>,
    digest: u64,
    names: OnceLock<Column<Arc<str>>>,
    provider_ids: OnceLock<Column<Option<Arc<str>>>>,
    internal_ips: OnceLock<Column<Column<Arc<str>>>>,
    external_ips: OnceLock<Column<Column<Arc<str>>>>,
}

impl NodeSet {
    /// A set of these nodes; if two have the same name, the later one wins.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = Arc<Node>>) -> Self {
        let by_name: BTreeMap<String, Arc<Node>> = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        let nodes: Box<[Arc<Node>]> = by_name.into_values().collect();
        // Fixed keys: equal content has to give equal digests for as long as one release lives.
        let mut hasher = DefaultHasher::new();
        nodes.hash(&mut hasher);
        Self(Arc::new(Shared {
            digest: hasher.finish(),
            nodes,
            names: OnceLock::new(),
            provider_ids: OnceLock::new(),
            internal_ips: OnceLock::new(),
            external_ips: OnceLock::new(),
        }))
    }

    /// Sorted by name.
    #[must_use]
    pub fn as_slice(&self) -> &[Arc<Node>] {
        &self.0.nodes
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.nodes.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.nodes.is_empty()
    }

    /// Equal digests mean equal content, within one process.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// The names.
    #[must_use]
    pub fn names(&self) -> Column<Arc<str>> {
        Arc::clone(self.0.names.get_or_init(|| self.column(|node| node.name.as_str().into())))
    }

    /// `spec.providerID` of each node.
    #[must_use]
    pub fn provider_ids(&self) -> Column<Option<Arc<str>>> {
        let build = || self.column(|node| node.provider_id.as_deref().map(Into::into));
        Arc::clone(self.0.provider_ids.get_or_init(build))
    }

    /// The addresses of one kind of each node. IPs, which load balancers need, are kept; another
    /// kind is collected each time.
    #[must_use]
    pub fn addresses(&self, kind: &AddressKind) -> Column<Column<Arc<str>>> {
        let of_kind = |node: &Node| {
            let addresses = node.addresses.iter().filter(|address| address.kind == *kind);
            addresses.map(|address| address.address.as_str().into()).collect()
        };
        let build = || self.column(of_kind);
        match kind {
            AddressKind::InternalIp => Arc::clone(self.0.internal_ips.get_or_init(build)),
            AddressKind::ExternalIp => Arc::clone(self.0.external_ips.get_or_init(build)),
            _ => build(),
        }
    }

    fn column<T>(&self, entry: impl Fn(&Node) -> T) -> Column<T> {
        self.0.nodes.iter().map(|node| entry(node)).collect()
    }

    /// Consecutive sets of at most `size` nodes.
    pub fn pages(&self, size: usize) -> impl Iterator<Item = Self> + '_ {
        self.0.nodes.chunks(size.max(1)).map(|page| Self::new(page.iter().cloned()))
    }
}

impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.digest == other.0.digest && self.0.nodes == other.0.nodes)
    }
}

impl Eq for NodeSet {}

impl Serialize for NodeSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.nodes.iter().map(Arc::as_ref))
    }
}

impl<'de> Deserialize<'de> for NodeSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::new(Vec::<Node>::deserialize(from)?.into_iter().map(Arc::new)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{AddressKind, Node, NodeAddress, NodeSet};

    fn node(name: &str) -> Arc<Node> {
        Arc::new(Node { name: name.to_owned(), ..Node::default() })
    }

    #[test]
    fn a_set_is_sorted_and_its_digest_does_not_depend_on_the_order_given() {
        let one = NodeSet::new([node("b"), node("a")]);
        let other = NodeSet::new([node("a"), node("b")]);
        assert_eq!(one, other);
        assert_eq!(one.digest(), other.digest());
        assert_eq!(one.as_slice()[0].name, "a");
    }

    #[test]
    fn columns_are_in_the_sets_order_and_shared_by_its_clones() {
        let address = |kind, text: &str| NodeAddress { kind, address: text.to_owned() };
        let internal = address(AddressKind::InternalIp, "10.0.0.1");
        let one = Node {
            provider_id: Some("example://1".to_owned()),
            addresses: vec![address(AddressKind::Hostname, "b"), internal],
            ..(*node("b")).clone()
        };
        let set = NodeSet::new([Arc::new(one), node("a")]);
        assert_eq!(*set.names(), ["a", "b"].map(Into::into));
        assert_eq!(*set.provider_ids(), [None, Some("example://1".into())]);
        let texts = |kind| set.addresses(&kind).iter().map(|column| column.join(",")).collect::<Vec<_>>();
        assert_eq!(texts(AddressKind::InternalIp), ["", "10.0.0.1"]);
        assert_eq!(texts(AddressKind::Hostname), ["", "b"]);
        assert_eq!(texts(AddressKind::ExternalIp), ["", ""]);
        assert!(Arc::ptr_eq(&set.names(), &set.clone().names()));
    }

    #[test]
    fn a_changed_field_changes_the_digest() {
        let ready = Arc::new(Node { ready: true, ..(*node("a")).clone() });
        assert_ne!(NodeSet::new([node("a")]).digest(), NodeSet::new([ready]).digest());
    }

    #[test]
    fn pages_cover_the_set_in_order() {
        let set = NodeSet::new(["a", "b", "c"].map(node));
        let pages: Vec<_> = set.pages(2).map(|page| page.len()).collect();
        assert_eq!(pages, [2, 1]);
    }
}
