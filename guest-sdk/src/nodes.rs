//! Picking node addresses.

use std::net::IpAddr;

use crate::{AddressKind, IpFamily, NodeAddress, NodeSet};

impl IpFamily {
    /// Whether the text is an address of this family.
    #[must_use]
    pub fn matches(self, address: &str) -> bool {
        match address.parse() {
            Ok(IpAddr::V4(_)) => self == Self::Ipv4,
            Ok(IpAddr::V6(_)) => self == Self::Ipv6,
            Err(_) => false,
        }
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
    /// Name and first address of this kind and family of each node; nodes that have none are left out. Reads two columns.
    #[must_use]
    pub fn named_addresses(&self, kind: &AddressKind, family: IpFamily) -> Vec<(String, String)> {
        let columns = self.names().into_iter().zip(self.addresses(kind));
        columns.filter_map(|(name, addresses)| Some((name, pick(addresses, family)?))).collect()
    }

    /// Internal addresses, as [`NodeSet::named_addresses`]: what backends of a load balancer in the cloud's own network are.
    #[must_use]
    pub fn internal_ips(&self, family: IpFamily) -> Vec<(String, String)> {
        self.named_addresses(&AddressKind::InternalIp, family)
    }
}

/// The first address of the family.
#[must_use]
pub fn pick(addresses: Vec<String>, family: IpFamily) -> Option<String> {
    addresses.into_iter().find(|address| family.matches(address))
}

/// Appends unless an entry with the same kind and address is there.
pub fn add_address(addresses: &mut Vec<NodeAddress>, new: NodeAddress) {
    if !addresses.contains(&new) {
        addresses.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::{add_address, pick};
    use crate::{AddressKind, IpFamily, NodeAddress};

    #[test]
    fn the_first_address_of_the_family_is_picked() {
        let addresses = || ["node-1", "fd00::1", "10.0.0.1", "10.0.0.2"].map(str::to_owned).to_vec();
        assert_eq!(pick(addresses(), IpFamily::Ipv4).as_deref(), Some("10.0.0.1"));
        assert_eq!(pick(addresses(), IpFamily::Ipv6).as_deref(), Some("fd00::1"));
        assert_eq!(pick(vec!["node-1".to_owned()], IpFamily::Ipv4), None);
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
