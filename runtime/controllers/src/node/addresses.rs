//! The desired addresses of a node's status (pure): the cloud's addresses, with the kubelet's host
//! name kept and `--node-ip` honoured.

use std::net::IpAddr;

use skysail_provider::{AddressKind, NodeAddress};

/// Why the addresses cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error(
        "annotation alpha.kubernetes.io/provided-node-ip is {0:?}; set the kubelet's --node-ip to one IP, or to two of different families"
    )]
    Annotation(String),
    #[error(
        "the cloud's addresses of the machine do not include the kubelet's --node-ip {0}; correct --node-ip or the machine's addresses"
    )]
    NodeIpUnknown(IpAddr),
    #[error("the provider returned {0} addresses; at most {ADDRESSES_MAX} are allowed")]
    TooMany(usize),
    #[error("the provider returned the address {0:?}, which is not valid for its type")]
    Malformed(String),
    #[error(
        "the provider returned no InternalIP, but the node has one; the node keeps its addresses until the provider returns an InternalIP"
    )]
    Partial,
}

/// The maximum number of addresses of one node. The addresses are part of the object, which every
/// client of nodes reads.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// The list to write. An empty list means that the cloud returned no addresses; the node then keeps
/// its addresses.
pub(crate) fn desired(
    present: &[NodeAddress],
    cloud: &[NodeAddress],
    provided_node_ip: Option<&str>,
) -> Result<Vec<NodeAddress>, AddressError> {
    if cloud.len() > ADDRESSES_MAX {
        return Err(AddressError::TooMany(cloud.len()));
    }
    if let Some(bad) = cloud.iter().find(|address| !is_well_formed(address)) {
        return Err(AddressError::Malformed(bad.address.chars().take(64).collect()));
    }
    // The annotation is validated even if there is nothing to filter: a node with an invalid
    // annotation must keep its taint.
    let node_ips = provided_node_ip.map(parse_node_ips).transpose()?.unwrap_or_default();
    if cloud.is_empty() {
        return Ok(Vec::new());
    }
    let mut addresses = Vec::with_capacity(cloud.len());
    add(&mut addresses, cloud.iter());
    if !cloud.iter().any(|address| address.kind == AddressKind::Hostname) {
        add(&mut addresses, present.iter().filter(|address| address.kind == AddressKind::Hostname));
    }
    if node_ips.is_empty() { Ok(addresses) } else { filter(&addresses, &node_ips) }
}

/// What the periodic pass writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) addresses: Vec<NodeAddress>,
    /// Addresses that the node loses.
    pub(crate) removed: Vec<NodeAddress>,
}

/// The update for an initialised node; none if nothing differs.
///
/// # Errors
/// As [`desired`]; and a list without an `InternalIP` for a node that has one: some clouds return
/// partial lists during an outage, and an API server cannot reach a kubelet without its
/// `InternalIP`.
pub(crate) fn update(
    present: &[NodeAddress],
    cloud: &[NodeAddress],
    provided_node_ip: Option<&str>,
) -> Result<Option<Update>, AddressError> {
    let addresses = desired(present, cloud, provided_node_ip)?;
    if !is_changed(present, &addresses) {
        return Ok(None);
    }
    let has_internal_ip = |list: &[NodeAddress]| list.iter().any(|address| address.kind == AddressKind::InternalIp);
    if has_internal_ip(present) && !has_internal_ip(&addresses) {
        return Err(AddressError::Partial);
    }
    let removed = present.iter().filter(|address| !addresses.contains(address)).cloned().collect();
    Ok(Some(Update { addresses, removed }))
}

/// Compares the order as well: clients use the first address of a type. Upstream compares only the
/// last address of each type, so it patches dual-stack nodes for ever and misses a changed order.
/// An empty list is no change.
pub(crate) fn is_changed(present: &[NodeAddress], desired: &[NodeAddress]) -> bool {
    !desired.is_empty() && desired != present
}

/// Appends the addresses that the list does not contain, by type and address.
fn add<'a>(addresses: &mut Vec<NodeAddress>, more: impl Iterator<Item = &'a NodeAddress>) {
    for address in more {
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }
}

/// First the addresses equal to each node IP, then all addresses of types that no node IP matched.
fn filter(addresses: &[NodeAddress], node_ips: &[IpAddr]) -> Result<Vec<NodeAddress>, AddressError> {
    let mut kept: Vec<NodeAddress> = Vec::new();
    for node_ip in node_ips {
        let matches = |address: &&NodeAddress| address.address.parse::<IpAddr>().is_ok_and(|ip| ip == *node_ip);
        let before = kept.len();
        kept.extend(addresses.iter().filter(matches).cloned());
        if kept.len() == before {
            return Err(AddressError::NodeIpUnknown(*node_ip));
        }
    }
    let matched: Vec<AddressKind> = kept.iter().map(|address| address.kind.clone()).collect();
    kept.extend(addresses.iter().filter(|address| !matched.contains(&address.kind)).cloned());
    Ok(kept)
}

/// One IP, or two of different families with a comma and no space between. With two, neither may be
/// unspecified.
fn parse_node_ips(text: &str) -> Result<Vec<IpAddr>, AddressError> {
    let malformed = || AddressError::Annotation(text.chars().take(100).collect());
    let ips: Vec<IpAddr> = text.split(',').map(parse_ip).collect::<Option<_>>().ok_or_else(malformed)?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [a, b] if a.is_ipv4() != b.is_ipv4() && !a.is_unspecified() && !b.is_unspecified() => Ok(ips),
        _ => Err(malformed()),
    }
}

/// Reads leading zeros of IPv4 octets as decimal: kubelets wrote them.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let octet = |octet: &str| {
        let digits = !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| octet.trim_start_matches('0')).and_then(|o| if o.is_empty() { Some(0) } else { o.parse().ok() })
    };
    let octets: Vec<u8> = text.split('.').map(octet).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(IpAddr::from)
}

fn is_well_formed(address: &NodeAddress) -> bool {
    let text = &address.address;
    match &address.kind {
        AddressKind::InternalIp | AddressKind::ExternalIp => text.parse::<IpAddr>().is_ok(),
        AddressKind::Hostname | AddressKind::InternalDns | AddressKind::ExternalDns | AddressKind::Other(_) => {
            !text.is_empty() && text.len() <= 253 && text.bytes().all(|b| b.is_ascii_graphic())
        }
    }
}

#[cfg(test)]
mod tests;
