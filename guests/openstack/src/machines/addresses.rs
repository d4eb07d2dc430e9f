//! The addresses of a server, in the order and by the rules of the vendor's manager: ports, access
//! addresses, host name, then what Nova and the ports of VLANs say for each network by its name.

use std::{cmp::Reverse, collections::HashMap, net::IpAddr};

use skysail_guest_sdk::{AddressKind, NodeAddress, Result, nodes::add_address};

use super::networks;
use crate::{
    client::{Call, Cloud},
    distinct,
    settings::{Api, Networking},
    wire::{Network, Port, Server},
};

/// Ports and networks of all servers of a call.
pub(super) struct Addresses<'a> {
    networking: &'a Networking,
    /// By the server's ID.
    ports: HashMap<&'a str, Vec<&'a Port>>,
    vlans: Vec<Vlan>,
}

impl<'a> Addresses<'a> {
    /// Reads more only where a server has ports of VLANs: those that `ports` lacks, and the names
    /// of their networks.
    pub(super) fn new(
        cloud: &impl Cloud,
        ports: &'a [Port],
        servers: &[&Server],
        networking: &'a Networking,
    ) -> Result<Self> {
        let servers = distinct(servers.iter().map(|server| server.id.as_str()));
        let mut of_servers: HashMap<&str, Vec<&Port>> = HashMap::new();
        for port in ports.iter().filter(|port| servers.binary_search(&port.device_id.as_str()).is_ok()) {
            of_servers.entry(&port.device_id).or_default().push(port);
        }
        let trunks = of_servers.values().flatten().flat_map(|port| &port.trunk_details.sub_ports);
        let vlans = distinct(trunks.map(|port| port.port_id.as_str()));
        let vlans = if vlans.is_empty() { Vec::new() } else { of_vlans(cloud, ports, &vlans)? };
        Ok(Self { networking, ports: of_servers, vlans })
    }

    /// The addresses of one server.
    pub(super) fn of(&self, server: &Server) -> Vec<NodeAddress> {
        let mut addresses = Vec::new();
        let ports = self.ports.get(server.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        for port in ports.iter().filter(|port| port.status == "ACTIVE") {
            for fixed in &port.fixed_ips {
                self.add(&mut addresses, AddressKind::InternalIp, &fixed.ip_address);
            }
        }
        for access in [&server.access_ipv4, &server.access_ipv6] {
            self.add(&mut addresses, AddressKind::ExternalIp, access);
        }
        let name = server.metadata.hostname.as_str();
        if !name.is_empty() {
            add_address(&mut addresses, NodeAddress::new(AddressKind::Hostname, name));
        }
        for (network, kind, address) in self.by_network(server, ports) {
            self.add_of_network(&mut addresses, network, kind, address);
        }
        self.sort(&mut addresses);
        addresses
    }

    /// Network, kind and address, in the order of the networks' names.
    fn by_network<'s>(&'s self, server: &'s Server, ports: &[&'s Port]) -> Vec<(&'s str, &'s str, &'s str)> {
        let listed = server.addresses.iter().flat_map(|(network, addresses)| {
            addresses.iter().map(move |address| (network.as_str(), address.kind.as_str(), address.addr.as_str()))
        });
        let vlans = ports.iter().flat_map(|port| &port.trunk_details.sub_ports);
        let vlans = vlans.filter_map(|port| self.vlans.iter().find(|vlan| vlan.port == port.port_id));
        let vlans = vlans
            .flat_map(|vlan| vlan.addresses.iter().map(|address| (vlan.network.as_str(), "fixed", address.as_str())));
        let mut all: Vec<_> = listed.chain(vlans).collect();
        all.sort_by_key(|(network, _, _)| *network);
        all
    }

    /// The networks' names decide what is external, internal, or no address of the node.
    fn add_of_network(&self, addresses: &mut Vec<NodeAddress>, network: &str, kind: &str, address: &str) {
        let Networking { public_networks, internal_networks, .. } = self.networking;
        let is_in = |names: &[String]| names.iter().any(|name| name == network);
        if kind == "floating" {
            return self.add(addresses, AddressKind::ExternalIp, address);
        }
        let kind = if is_in(public_networks) {
            Some(AddressKind::ExternalIp)
        } else {
            (internal_networks.is_empty() || is_in(internal_networks)).then_some(AddressKind::InternalIp)
        };
        if kind != Some(AddressKind::InternalIp) {
            addresses.retain(|known| known.address != address);
        }
        if let Some(kind) = kind {
            self.add(addresses, kind, address);
        }
    }

    /// Adds an address once for each kind; texts that are no addresses, and switched-off IPv6, are
    /// left out.
    fn add(&self, addresses: &mut Vec<NodeAddress>, kind: AddressKind, address: &str) {
        let served = match address.parse() {
            Ok(IpAddr::V4(_)) => true,
            Ok(IpAddr::V6(_)) => !self.networking.ipv6_disabled,
            Err(_) => false,
        };
        if served {
            add_address(addresses, NodeAddress::new(kind, address));
        }
    }

    /// `address-sort-order`: by the range, and within a range by the address.
    fn sort(&self, addresses: &mut [NodeAddress]) {
        let ranges = &self.networking.sort_order;
        addresses.sort_by_key(|address| {
            let address: Option<IpAddr> = address.address.parse().ok();
            let range = address.and_then(|address| ranges.iter().position(|range| range.contains(address)));
            (Reverse(range.map(|range| ranges.len() - range)), address.filter(|_| range.is_some()))
        });
    }
}

/// A port of a VLAN.
struct Vlan {
    port: String,
    /// Name of the port's network.
    network: String,
    addresses: Vec<String>,
}

/// The ports of VLANs with these IDs.
fn of_vlans(cloud: &impl Cloud, ports: &[Port], vlans: &[&str]) -> Result<Vec<Vlan>> {
    let known = distinct(ports.iter().map(|port| port.id.as_str()));
    let unknown: Vec<&str> = vlans.iter().copied().filter(|vlan| known.binary_search(vlan).is_err()).collect();
    let more = if unknown.is_empty() {
        Vec::new()
    } else {
        let call = Call::get(Api::Network, &["ports"]).queries("fields", super::PORT_FIELDS);
        cloud.list(call.queries("id", unknown))?
    };
    let vlans: Vec<&Port> =
        ports.iter().chain(&more).filter(|port| vlans.binary_search(&port.id.as_str()).is_ok()).collect();
    let networks = networks(cloud, &distinct(vlans.iter().map(|port| port.network_id.as_str())))?;
    let vlan = |port: &&Port| {
        let Network { name, .. } = networks.iter().find(|network| network.id == port.network_id)?;
        let addresses = port.fixed_ips.iter().map(|fixed| fixed.ip_address.clone()).collect();
        Some(Vlan { port: port.id.clone(), network: name.clone(), addresses })
    };
    Ok(vlans.iter().filter_map(vlan).collect())
}
