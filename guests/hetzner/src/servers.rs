//! Servers as the machines of nodes. Pure: converts a server of the API to the contract's instance.

use std::net::{IpAddr, Ipv6Addr};

use skysail_guest_sdk::{AddressKind, Instance, NodeAddress, provider_id};

use crate::{
    SCHEME,
    settings::{AddressFamily, Settings},
    wire,
};

/// Label that tells cloud servers from dedicated ones.
const PROVIDED_BY: &str = "instance.hetzner.cloud/provided-by";

/// The status of a server that is off or being switched off.
const SHUTDOWN: [&str; 2] = ["off", "stopping"];

/// A server with the name and the instance of its node.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) instance: Instance,
}

impl Server {
    /// Converts a server of the list.
    pub(crate) fn new(settings: &Settings, network: Option<u64>, server: wire::Server) -> Self {
        let id = server.id.to_string();
        let mut instance = Instance::new(provider_id::format(SCHEME, &id));
        instance.shutdown = SHUTDOWN.contains(&server.status.as_str());
        instance.addresses = addresses(settings.family, network, &server);
        if settings.zone_label {
            instance.zone = zone(&server.location.name).to_owned();
        }
        instance.instance_type = server.server_type.name;
        instance.region = server.location.name;
        instance.labels = vec![(PROVIDED_BY.to_owned(), "cloud".to_owned())];
        Self { id, name: server.name, instance }
    }
}

/// Name, public addresses, and the addresses in the network.
fn addresses(family: AddressFamily, network: Option<u64>, server: &wire::Server) -> Vec<NodeAddress> {
    let mut addresses = vec![NodeAddress::new(AddressKind::Hostname, server.name.as_str())];
    let wire::PublicNet { ipv4, ipv6 } = &server.public_net;
    if let Some(address) = ipv4.as_ref().filter(|_| family != AddressFamily::Ipv6) {
        addresses.push(NodeAddress::new(AddressKind::ExternalIp, address.ip.as_str()));
    }
    let ipv6 = ipv6.as_ref().filter(|_| family != AddressFamily::Ipv4);
    if let Some(address) = ipv6.and_then(|address| host_address(&address.ip)) {
        addresses.push(NodeAddress::new(AddressKind::ExternalIp, address.to_string()));
    }
    let inside = server.private_net.iter().filter(|net| Some(net.network) == network);
    let inside = inside.filter(|net| net.ip.parse::<IpAddr>().is_ok());
    addresses.extend(inside.map(|net| NodeAddress::new(AddressKind::InternalIp, net.ip.as_str())));
    addresses
}

/// The address that a server configures in its IPv6 network: `2001:db8::1` in `2001:db8::/64`.
fn host_address(network: &str) -> Option<Ipv6Addr> {
    let address: Ipv6Addr = network.split('/').next()?.parse().ok()?;
    Some(Ipv6Addr::from_bits(address.to_bits() | 1))
}

/// The name of the only datacenter of each location until 2026, which the label of older nodes has;
/// later locations have none.
fn zone(location: &str) -> &str {
    match location {
        "nbg1" => "nbg1-dc3",
        "hel1" => "hel1-dc2",
        "fsn1" => "fsn1-dc14",
        "ash" => "ash-dc1",
        "hil" => "hil-dc1",
        "sin" => "sin-dc1",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skysail_guest_sdk::{AddressKind, NodeAddress};

    use super::Server;
    use crate::{settings, wire};

    fn server(config: &str, change: impl FnOnce(&mut Value)) -> Server {
        let mut body = json!({
            "id": 42, "name": "node-1", "status": "running",
            "server_type": {"name": "cpx31", "prices": []}, "location": {"name": "fsn1"},
            "public_net": {"ipv4": {"ip": "203.0.113.4"}, "ipv6": {"ip": "2001:db8:0:1::/64"}},
            "private_net": [{"network": 7, "ip": "10.0.1.4", "alias_ips": []}, {"network": 8, "ip": "10.9.0.2"}],
        });
        change(&mut body);
        let server: wire::Server = serde_json::from_value(body).unwrap();
        Server::new(&settings::parse(config).config().unwrap(), Some(7), server)
    }

    fn addresses(server: &Server) -> Vec<(&AddressKind, &str)> {
        server.instance.addresses.iter().map(|NodeAddress { kind, address }| (kind, address.as_str())).collect()
    }

    #[test]
    fn a_server_has_the_labels_and_addresses_of_the_vendors_manager() {
        let server = server("", |_| {});
        assert_eq!((server.id.as_str(), server.name.as_str()), ("42", "node-1"));
        let instance = &server.instance;
        assert_eq!(instance.provider_id, "hcloud://42");
        assert_eq!([&*instance.instance_type, &*instance.zone, &*instance.region], ["cpx31", "fsn1-dc14", "fsn1"]);
        assert_eq!(instance.labels, [("instance.hetzner.cloud/provided-by".to_owned(), "cloud".to_owned())]);
        let (name, outside, inside) = (AddressKind::Hostname, AddressKind::ExternalIp, AddressKind::InternalIp);
        let expected = [(&name, "node-1"), (&outside, "203.0.113.4"), (&inside, "10.0.1.4")];
        assert_eq!(addresses(&server), expected);
    }

    #[test]
    fn public_addresses_follow_the_configured_family() {
        let of = |config| {
            let server = server(config, |_| {});
            addresses(&server)[1..].iter().map(|(_, address)| (*address).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of("instances-address-family = ipv6\n"), ["2001:db8:0:1::1", "10.0.1.4"]);
        assert_eq!(of("instances-address-family = dualstack\n"), ["203.0.113.4", "2001:db8:0:1::1", "10.0.1.4"]);
    }

    #[test]
    fn a_server_without_public_addresses_has_private_ones_only() {
        let server = server("instances-address-family = dualstack\n", |body| {
            body["public_net"] = json!({"ipv4": null, "ipv6": null});
        });
        assert_eq!(addresses(&server).len(), 2);
    }

    #[test]
    fn the_zone_can_be_left_out_and_a_new_location_is_its_own_zone() {
        assert_eq!(server("instances-zone-label-enabled = false\n", |_| {}).instance.zone, "");
        let new = server("", |body| body["location"] = json!({"name": "osl1"}));
        assert_eq!(new.instance.zone, "osl1");
    }

    #[test]
    fn a_server_is_shut_down_while_it_is_off_or_stopping() {
        let shutdown = |status: &str| server("", |body| body["status"] = json!(status)).instance.shutdown;
        assert!(shutdown("off") && shutdown("stopping"));
        assert!(!["running", "starting", "rebuilding", "migrating", "unknown"].into_iter().any(shutdown));
    }
}
