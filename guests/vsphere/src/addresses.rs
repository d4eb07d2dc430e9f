//! Which addresses of a machine become addresses of its node: as the Kubernetes vSphere Cloud
//! Provider selects them.
//!
//! For each IP family one internal and one external address: the first one in the configured
//! subnets, else the first one on the configured network, else, where neither kind was found, the
//! first one of all for both kinds.

mod metadata;

use std::net::IpAddr;

use skysail_guest_sdk::{AddressKind, Cidr, Error, IpFamily, NodeAddress, Result, nodes::add_address};

use crate::{
    settings::{Nodes, Selection},
    vim::Machine,
};

/// An address of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate<'a> {
    address: IpAddr,
    /// The address as VMware Tools report it.
    text: &'a str,
    network: &'a str,
}

impl Candidate<'_> {
    /// In the canonical form. An IPv4 address has only one, and to format it costs more than to
    /// read it.
    fn canonical(&self) -> String {
        if self.address.is_ipv4() { self.text.to_owned() } else { self.address.to_string() }
    }
}

/// The addresses of the node of a machine.
///
/// # Errors
///
/// `unavailable` where VMware Tools report no suitable address: the node keeps those that it has.
pub(crate) fn addresses(machine: &Machine, nodes: &Nodes, families: &[IpFamily]) -> Result<Vec<NodeAddress>> {
    let id = &machine.id;
    if machine.host_name.is_empty() || machine.nics.is_empty() {
        return Err(Error::Unavailable(format!(
            "machine {id}: VMware Tools report no host name or no network; install VMware Tools and start them"
        )));
    }
    if let (Some(internal), Some(external)) = (&nodes.internal.network, &nodes.external.network)
        && !devices(machine).any(|nic| is_network(&nic.network, internal) || is_network(&nic.network, external))
    {
        return Err(Error::Unavailable(format!(
            "machine {id} is neither on network {internal:?} nor on {external:?}; correct `internal-vm-network-name` \
             or `external-vm-network-name`"
        )));
    }
    let candidates = candidates(machine);
    let mut addresses = vec![NodeAddress::new(AddressKind::Hostname, machine.host_name.as_str())];
    for family in families {
        let of_family: Vec<_> = candidates.iter().copied().filter(|c| is_of(c.address, *family)).collect();
        let [internal, external] = select(&of_family, nodes);
        if internal.is_none() && external.is_none() {
            return Err(Error::Unavailable(format!(
                "machine {id} reports no {} address that the node may have; correct `ip-family` or the section \
                 [Nodes], or configure the machine's network",
                if *family == IpFamily::Ipv4 { "IPv4" } else { "IPv6" }
            )));
        }
        for (kind, address) in [(AddressKind::InternalIp, internal), (AddressKind::ExternalIp, external)] {
            if let Some(address) = address {
                add_address(&mut addresses, NodeAddress::new(kind, address.canonical()));
            }
        }
    }
    Ok(addresses)
}

/// The interfaces that vCenter gave the machine: not those of a container runtime inside.
fn devices(machine: &Machine) -> impl Iterator<Item = &crate::vim::Nic> {
    machine.nics.iter().filter(|nic| nic.is_device)
}

/// The addresses that leave the machine; first those that its cloud-init was given.
fn candidates(machine: &Machine) -> Vec<Candidate<'_>> {
    let all = devices(machine).flat_map(|nic| {
        let network = nic.network.as_str();
        nic.addresses.iter().filter_map(move |text| Some(Candidate { address: text.parse().ok()?, text, network }))
    });
    let mut candidates: Vec<_> = all.filter(|candidate| !is_local(candidate.address)).collect();
    let configured = metadata::addresses(&machine.metadata, &machine.metadata_encoding);
    let rank = |candidate: &Candidate<'_>| configured.iter().position(|address| *address == candidate.address);
    // Stable: the other addresses stay in the order of the interfaces.
    candidates.sort_by_key(|candidate| rank(candidate).unwrap_or(usize::MAX));
    candidates
}

/// The internal and the external address among those of one family.
fn select<'a>(candidates: &[Candidate<'a>], nodes: &Nodes) -> [Option<Candidate<'a>>; 2] {
    let allowed = [&nodes.internal, &nodes.external].map(|selection| {
        let excluded = |c: &Candidate<'_>| selection.excluded.iter().any(|subnet| subnet.contains(c.address));
        (selection, candidates.iter().copied().filter(|c| !excluded(c)).collect::<Vec<_>>())
    });
    let preferred = allowed.each_ref().map(|(selection, allowed)| preferred(allowed, selection));
    match preferred {
        [None, None] => allowed.map(|(_, allowed)| allowed.first().copied()),
        found => found,
    }
}

/// The first address in the subnets, else the first one on the network.
fn preferred<'a>(allowed: &[Candidate<'a>], selection: &Selection) -> Option<Candidate<'a>> {
    let in_subnet = |subnet: &Cidr| allowed.iter().find(|c| subnet.contains(c.address));
    let on_network = |network: &String| allowed.iter().find(|c| is_network(c.network, network));
    let found = selection.subnets.iter().find_map(in_subnet);
    found.or_else(|| selection.network.as_ref().and_then(on_network)).copied()
}

fn is_network(found: &str, wanted: &str) -> bool {
    found.to_lowercase() == wanted.to_lowercase()
}

const fn is_of(address: IpAddr, family: IpFamily) -> bool {
    match family {
        IpFamily::Ipv4 => address.is_ipv4(),
        IpFamily::Ipv6 => address.is_ipv6(),
    }
}

/// Loopback, unspecified and link-local addresses.
fn is_local(address: IpAddr) -> bool {
    let local = match address {
        // 224.0.0.0/24 and ff02::/16 are the link-local groups.
        IpAddr::V4(v4) => v4.is_link_local() || matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local() || matches!(v6.segments(), [first, ..] if first & 0xff0f == 0xff02)
        }
    };
    local || address.is_loopback() || address.is_unspecified()
}

#[cfg(test)]
mod tests;
