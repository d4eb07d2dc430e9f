//! The addresses that a node's status shall have (pure): the cloud's, with the kubelet's host name
//! kept and `--node-ip` honoured.

use std::net::IpAddr;

use skysail_provider::{AddressKind, NodeAddress};

/// Why the addresses cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error(
        "annotation alpha.kubernetes.io/provided-node-ip is {0:?}: it must be one IP, or two of different families"
    )]
    Annotation(String),
    #[error("the cloud does not know the node IP {0} that the kubelet was given")]
    NodeIpUnknown(IpAddr),
    #[error("the provider gave {0} addresses; at most {ADDRESSES_MAX} are written")]
    TooMany(usize),
    #[error("the provider gave the address {0:?}, which is not valid for its type")]
    Malformed(String),
    #[error("the provider gave no InternalIP, and the node has one: its addresses are kept until the answer is whole")]
    Partial,
}

/// Most addresses of one node: they are written into the object, and every client reads them.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// The list to write; empty where the cloud gave none, which keeps what is there.
///
/// # Errors
/// The annotation is not valid or names an address that the cloud does not know; an address is
/// malformed, or there are too many.
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
    // The annotation is judged even where there is nothing to filter: a node must not lose its
    // taint with a wrong one.
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
    /// Those that the node loses.
    pub(crate) removed: Vec<NodeAddress>,
}

/// What to write to a node that was initialised; none where nothing differs.
///
/// # Errors
/// As [`desired`]; and a list without any `InternalIP` for a node that has one: some clouds answer
/// in part while they are in trouble, and an API server does not reach a kubelet that lost it.
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

/// In order: the first address of a type is the one that others use. Upstream compares by type,
/// keeps the last of each, and so patches dual-stack nodes for ever and never sees a new order. An
/// empty list is no change: it keeps what is there.
pub(crate) fn is_changed(present: &[NodeAddress], desired: &[NodeAddress]) -> bool {
    !desired.is_empty() && desired != present
}

/// Appends those that are not there yet, by type and address.
fn add<'a>(addresses: &mut Vec<NodeAddress>, more: impl Iterator<Item = &'a NodeAddress>) {
    for address in more {
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }
}

/// For each node IP the addresses equal to it; then all whose type none of them matched.
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

/// One IP, or two of different families with a comma and no space between; of two, neither
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

/// Leading zeros of IPv4 octets are read as decimal: kubelets wrote them.
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
