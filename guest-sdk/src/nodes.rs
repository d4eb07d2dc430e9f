//! The nodes of a call, and the selection of their addresses.

use std::net::IpAddr;

#[cfg(target_arch = "wasm32")]
use crate::bindings::imports::skysail::provider::types::NodeSet as Held;
use crate::{AddressKind, IpFamily, Node, NodeAddress};

/// Outside the sandbox a set holds the nodes of a test.
#[cfg(not(target_arch = "wasm32"))]
type Held = Vec<Node>;

/// The nodes of a call. The host holds them; a guest reads the columns that it needs, at the cost
/// of those columns only.
///
/// Every column has `len` entries in the same order, sorted by name. A set never changes while the
/// guest holds it. Reads count against the call's limit `hostCallBytes`.
#[derive(Debug)]
pub struct NodeSet(Held);

/// The functions that the bindings require of a resource's type, and the resource's methods.
#[cfg(target_arch = "wasm32")]
impl NodeSet {
    #[doc(hidden)]
    #[must_use]
    #[expect(unsafe_code, reason = "the bindings make a resource of the handle that the host gave")]
    pub unsafe fn from_handle(handle: u32) -> Self {
        // SAFETY: the caller's promise is the same.
        Self(unsafe { Held::from_handle(handle) })
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.len()
    }

    /// Equal digests mean equal content, within one release's life: a provider may skip work that
    /// it has done.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest()
    }

    /// Names of all nodes, ascending.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.names()
    }

    /// `spec.providerID` of each node; none where the node is uninitialised.
    #[must_use]
    pub fn provider_ids(&self) -> Vec<Option<String>> {
        self.0.provider_ids()
    }

    /// All addresses of one kind of each node, in the node's order; an empty list where it has
    /// none.
    #[must_use]
    pub fn addresses(&self, kind: &AddressKind) -> Vec<Vec<String>> {
        self.0.addresses(kind)
    }

    /// Value of one label of each node; none where the node does not carry it.
    #[must_use]
    pub fn label(&self, key: &str) -> Vec<Option<String>> {
        self.0.label(key)
    }

    /// One node whole; none past the end.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<Node> {
        self.0.get(index)
    }
}

/// The same methods over the nodes of a test.
#[cfg(not(target_arch = "wasm32"))]
impl NodeSet {
    /// The nodes of a native test, in any order, for functions of a provider that take a set.
    #[must_use]
    pub fn of(mut nodes: Vec<Node>) -> Self {
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Self(nodes)
    }

    #[doc(hidden)]
    #[must_use]
    pub fn from_handle(_handle: u32) -> Self {
        // The generated bindings need this function to compile. Nothing calls an export, and
        // thereby this function, outside of the sandbox.
        Self::of(Vec::new())
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Whether the set has no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Equal digests mean equal content, within one release's life: a provider may skip work that
    /// it has done.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&format!("{:?}", self.0), &mut hasher);
        std::hash::Hasher::finish(&hasher)
    }

    /// Names of all nodes, ascending.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|node| node.name.clone()).collect()
    }

    /// `spec.providerID` of each node; none where the node is uninitialised.
    #[must_use]
    pub fn provider_ids(&self) -> Vec<Option<String>> {
        self.0.iter().map(|node| node.provider_id.clone()).collect()
    }

    /// All addresses of one kind of each node, in the node's order; an empty list where it has
    /// none.
    #[must_use]
    pub fn addresses(&self, kind: &AddressKind) -> Vec<Vec<String>> {
        let of_kind = |node: &Node| {
            let addresses = node.addresses.iter().filter(|address| address.kind == *kind);
            addresses.map(|address| address.address.clone()).collect()
        };
        self.0.iter().map(of_kind).collect()
    }

    /// Value of one label of each node; none where the node does not carry it.
    #[must_use]
    pub fn label(&self, key: &str) -> Vec<Option<String>> {
        let value = |node: &Node| node.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        self.0.iter().map(value).collect()
    }

    /// One node whole; none past the end.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<Node> {
        self.0.get(usize::try_from(index).ok()?).cloned()
    }
}

impl Node {
    /// A ready node without anything else, for a provider's tests.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            provider_id: None,
            addresses: Vec::new(),
            labels: Vec::new(),
            annotations: Vec::new(),
            pod_cidrs: Vec::new(),
            ready: true,
            extra: Vec::new(),
        }
    }

    /// `status.nodeInfo.systemUUID`, in lower case.
    #[must_use]
    pub fn system_uuid(&self) -> Option<&str> {
        self.extra.iter().find(|(key, _)| key == "system-uuid").map(|(_, uuid)| uuid.as_str())
    }
}

impl IpFamily {
    /// Whether the text is an address of this family.
    #[must_use]
    pub fn matches(self, address: &str) -> bool {
        address.parse().is_ok_and(|ip| self.includes(ip))
    }

    /// Whether the address is of this family.
    #[must_use]
    pub const fn includes(self, ip: IpAddr) -> bool {
        matches!((self, ip), (Self::Ipv4, IpAddr::V4(_)) | (Self::Ipv6, IpAddr::V6(_)))
    }
}

impl NodeAddress {
    /// An address of this kind.
    #[must_use]
    pub fn new(kind: AddressKind, address: impl Into<String>) -> Self {
        Self { kind, address: address.into() }
    }
}

impl NodeSet {
    /// The first internal address of this family of each node that has one: what backends of a load
    /// balancer in the cloud's own network are.
    #[must_use]
    pub fn internal_ips(&self, family: IpFamily) -> Vec<IpAddr> {
        let of_family = |address: &String| address.parse().ok().filter(|ip| family.includes(*ip));
        let column = self.addresses(&AddressKind::InternalIp);
        column.iter().filter_map(|addresses| addresses.iter().find_map(of_family)).collect()
    }
}

/// Appends unless an entry with the same kind and address is there.
pub fn add_address(addresses: &mut Vec<NodeAddress>, new: NodeAddress) {
    if !addresses.contains(&new) {
        addresses.push(new);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{NodeSet, add_address};
    use crate::{AddressKind, IpFamily, Node, NodeAddress};

    #[test]
    fn a_native_test_has_nodes() {
        let node = |name: &str, ip: &str| Node {
            provider_id: Some(format!("example://{name}")),
            addresses: vec![NodeAddress::new(AddressKind::InternalIp, ip)],
            labels: vec![("zone".to_owned(), "a".to_owned())],
            ..Node::new(name)
        };
        let nodes = NodeSet::of(vec![node("b", "10.0.0.2"), node("a", "10.0.0.1"), Node::new("c")]);
        assert_eq!((nodes.len(), nodes.names()), (3, ["a", "b", "c"].map(str::to_owned).to_vec()));
        assert_eq!(nodes.provider_ids()[2], None);
        assert_eq!(nodes.label("zone")[1].as_deref(), Some("a"));
        assert_eq!(nodes.addresses(&AddressKind::InternalIp), [vec!["10.0.0.1"], vec!["10.0.0.2"], vec![]]);
        assert_eq!((nodes.get(1).unwrap().name.as_str(), nodes.get(3)), ("b", None));
        assert_ne!(nodes.digest(), NodeSet::of(vec![Node::new("a")]).digest());
    }

    #[test]
    fn the_first_internal_address_of_the_family_is_a_backend() {
        let internal = |ip: &str| NodeAddress::new(AddressKind::InternalIp, ip);
        let addresses = ["node-1", "fd00::1", "10.0.0.1", "10.0.0.2"].map(internal);
        let external = NodeAddress::new(AddressKind::ExternalIp, "192.0.2.1");
        let nodes = NodeSet::of(vec![
            Node { addresses: [vec![external], addresses.to_vec()].concat(), ..Node::new("a") },
            Node { addresses: vec![internal("node-1")], ..Node::new("b") },
        ]);
        assert_eq!(nodes.internal_ips(IpFamily::Ipv4), [IpAddr::from([10, 0, 0, 1])]);
        assert_eq!(nodes.internal_ips(IpFamily::Ipv6), ["fd00::1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn an_address_is_added_once_for_each_kind() {
        let mut addresses = Vec::new();
        for kind in [AddressKind::InternalIp, AddressKind::InternalIp, AddressKind::ExternalIp] {
            add_address(&mut addresses, NodeAddress::new(kind, "10.0.0.1"));
        }
        assert_eq!(addresses.len(), 2);
    }
}
