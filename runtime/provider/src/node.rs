//! Nodes and immutable sets of them.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
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

/// An immutable set of nodes, sorted by name. Clones share the nodes.
#[derive(Clone, Debug)]
pub struct NodeSet {
    nodes: Arc<[Arc<Node>]>,
    digest: u64,
}

impl NodeSet {
    /// A set of these nodes; if two have the same name, the later one wins.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = Arc<Node>>) -> Self {
        let by_name: BTreeMap<String, Arc<Node>> = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        let nodes: Arc<[Arc<Node>]> = by_name.into_values().collect();
        // Fixed keys: equal content has to give equal digests for as long as one release lives.
        let mut hasher = DefaultHasher::new();
        nodes.hash(&mut hasher);
        Self { digest: hasher.finish(), nodes }
    }

    /// Sorted by name.
    #[must_use]
    pub fn as_slice(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Equal digests mean equal content, within one process.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Consecutive sets of at most `size` nodes.
    pub fn pages(&self, size: usize) -> impl Iterator<Item = Self> + '_ {
        self.nodes.chunks(size.max(1)).map(|page| Self::new(page.iter().cloned()))
    }
}

impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.nodes, &other.nodes) || (self.digest == other.digest && self.nodes == other.nodes)
    }
}

impl Eq for NodeSet {}

impl Serialize for NodeSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.nodes.iter().map(Arc::as_ref))
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

    use super::{Node, NodeSet};

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
