//! Converts from `skysail-provider` to the contract.

use skysail_provider as host;

use super::{ENABLE_NODE_ADDRESSES, SYSTEM_UUID};
use crate::bindings::{
    exports::skysail::provider::{instances, persistent_volume_labels as volumes, routes},
    skysail::provider::types as guest,
};

pub(crate) const fn detail(detail: host::Detail) -> instances::Detail {
    match detail {
        host::Detail::State => instances::Detail::State,
        host::Detail::Metadata => instances::Detail::Metadata,
    }
}

/// Approximate bytes of a node in a guest: its texts, and eight bytes for the pointer and the
/// length of each text.
pub(crate) fn node_bytes(node: &host::Node) -> usize {
    const ENTRY: usize = 8;
    const UUID_BYTES: usize = 36;
    let host::Node { name, uid, provider_id, addresses, labels, annotations, pod_cidrs, ready: _, system_uuid } = node;
    let pairs = |map: &host::StringMap| map.iter().map(|(k, v)| k.len() + v.len() + 2 * ENTRY).sum::<usize>();
    name.len()
        + uid.len()
        + provider_id.as_ref().map_or(0, String::len)
        + addresses.iter().map(|address| address.address.len() + 3 * ENTRY).sum::<usize>()
        + pairs(labels)
        + pairs(annotations)
        + pod_cidrs.iter().map(|cidr| cidr.len() + ENTRY).sum::<usize>()
        + system_uuid.as_ref().map_or(0, |_| SYSTEM_UUID.len() + UUID_BYTES + 2 * ENTRY)
        + 10 * ENTRY
}

pub(crate) fn node_to_guest(node: &host::Node) -> guest::Node {
    let host::Node { name, uid, provider_id, addresses, labels, annotations, pod_cidrs, ready, system_uuid } = node;
    guest::Node {
        name: name.clone(),
        uid: uid.clone(),
        provider_id: provider_id.clone(),
        addresses: addresses.iter().map(address_to_guest).collect(),
        labels: pairs(labels.iter()),
        annotations: pairs(annotations.iter()),
        pod_cidrs: pod_cidrs.clone(),
        ready: *ready,
        extra: system_uuid.iter().map(|uuid| (SYSTEM_UUID.to_owned(), uuid.to_string())).collect(),
    }
}

fn address_to_guest(address: &host::NodeAddress) -> guest::NodeAddress {
    let host::NodeAddress { kind, address } = address;
    let kind = match kind {
        host::AddressKind::Hostname => guest::AddressKind::Hostname,
        host::AddressKind::InternalIp => guest::AddressKind::InternalIp,
        host::AddressKind::ExternalIp => guest::AddressKind::ExternalIp,
        host::AddressKind::InternalDns => guest::AddressKind::InternalDns,
        host::AddressKind::ExternalDns => guest::AddressKind::ExternalDns,
        host::AddressKind::Other(kind) => guest::AddressKind::Other(kind.clone()),
    };
    guest::NodeAddress { kind, address: address.clone() }
}

/// As `list` returned the route.
pub(crate) fn route_to_guest(route: &host::Route) -> routes::Route {
    let host::Route { name, target, target_addresses, destination_cidr, blackhole, enable_node_addresses, extra } =
        route;
    let known = enable_node_addresses.then(|| (ENABLE_NODE_ADDRESSES.to_owned(), "true".to_owned()));
    routes::Route {
        name: name.clone(),
        target: match target {
            host::Target::Node(name) => routes::Target::Node(name.clone()),
            host::Target::ProviderId(id) => routes::Target::ProviderId(id.clone()),
            host::Target::Address(address) => routes::Target::Address(address.clone()),
            host::Target::None => routes::Target::None,
        },
        target_addresses: target_addresses.iter().map(address_to_guest).collect(),
        destination_cidr: destination_cidr.clone(),
        blackhole: *blackhole,
        extra: extra.iter().cloned().chain(known).collect(),
    }
}

pub(crate) fn new_route_to_guest(route: &host::NewRoute) -> routes::NewRoute {
    let host::NewRoute { name_hint, node, provider_id, addresses, destination_cidr } = route;
    routes::NewRoute {
        name_hint: name_hint.clone(),
        node: node.clone(),
        provider_id: provider_id.clone(),
        addresses: addresses.iter().map(address_to_guest).collect(),
        destination_cidr: destination_cidr.clone(),
        extra: Vec::new(),
    }
}

pub(crate) fn volume_to_guest(volume: &host::PersistentVolume) -> volumes::PersistentVolume {
    let host::PersistentVolume { name, uid, labels, annotations, storage_class, source, driver, handle, attributes } =
        volume;
    volumes::PersistentVolume {
        name: name.clone(),
        uid: uid.clone(),
        labels: pairs(labels),
        annotations: pairs(annotations),
        storage_class: storage_class.clone(),
        source: source.clone(),
        driver: driver.clone(),
        handle: handle.clone(),
        attributes: pairs(attributes),
        extra: Vec::new(),
    }
}

pub(crate) fn service_to_guest(service: &host::Service) -> guest::Service {
    let host::Service {
        namespace,
        name,
        uid,
        labels,
        annotations,
        ports,
        session_affinity,
        load_balancer_ip,
        load_balancer_class,
        source_ranges,
        external_ips,
        external_traffic_policy,
        internal_traffic_policy,
        health_check_node_port,
        ip_families,
        ip_family_policy,
        allocate_node_ports,
        status,
    } = service;
    guest::Service {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: uid.clone(),
        labels: pairs(labels),
        annotations: pairs(annotations),
        ports: ports.iter().map(port).collect(),
        session_affinity: match session_affinity {
            host::SessionAffinity::None => guest::SessionAffinity::None,
            host::SessionAffinity::ClientIp { timeout_seconds } => guest::SessionAffinity::ClientIp(*timeout_seconds),
        },
        load_balancer_ip: load_balancer_ip.clone(),
        load_balancer_class: load_balancer_class.clone(),
        source_ranges: source_ranges.clone(),
        external_ips: external_ips.clone(),
        external_traffic_policy: traffic_policy(*external_traffic_policy),
        internal_traffic_policy: traffic_policy(*internal_traffic_policy),
        health_check_node_port: *health_check_node_port,
        ip_families: ip_families
            .iter()
            .map(|family| match family {
                host::IpFamily::Ipv4 => guest::IpFamily::Ipv4,
                host::IpFamily::Ipv6 => guest::IpFamily::Ipv6,
            })
            .collect(),
        ip_family_policy: ip_family_policy.map(|policy| match policy {
            host::IpFamilyPolicy::SingleStack => guest::IpFamilyPolicy::SingleStack,
            host::IpFamilyPolicy::PreferDualStack => guest::IpFamilyPolicy::PreferDualStack,
            host::IpFamilyPolicy::RequireDualStack => guest::IpFamilyPolicy::RequireDualStack,
        }),
        allocate_node_ports: *allocate_node_ports,
        status: status_to_guest(status),
        extra: Vec::new(),
    }
}

fn port(port: &host::ServicePort) -> guest::ServicePort {
    let host::ServicePort { name, protocol, app_protocol, port, node_port, target_port } = port;
    guest::ServicePort {
        name: name.clone(),
        protocol: protocol_to_guest(*protocol),
        app_protocol: app_protocol.clone(),
        port: *port,
        node_port: *node_port,
        target_port: target_port.clone(),
        extra: Vec::new(),
    }
}

const fn protocol_to_guest(protocol: host::Protocol) -> guest::Protocol {
    match protocol {
        host::Protocol::Tcp => guest::Protocol::Tcp,
        host::Protocol::Udp => guest::Protocol::Udp,
        host::Protocol::Sctp => guest::Protocol::Sctp,
    }
}

const fn traffic_policy(policy: host::TrafficPolicy) -> guest::TrafficPolicy {
    match policy {
        host::TrafficPolicy::Cluster => guest::TrafficPolicy::Cluster,
        host::TrafficPolicy::Local => guest::TrafficPolicy::Local,
    }
}

fn status_to_guest(status: &host::LoadBalancerStatus) -> guest::LoadBalancerStatus {
    let host::LoadBalancerStatus { ingress } = status;
    guest::LoadBalancerStatus { ingress: ingress.iter().map(ingress_to_guest).collect() }
}

fn ingress_to_guest(ingress: &host::Ingress) -> guest::Ingress {
    let host::Ingress { ip, hostname, ip_mode, ports } = ingress;
    guest::Ingress {
        ip: ip.clone(),
        hostname: hostname.clone(),
        ip_mode: ip_mode.map(|mode| match mode {
            host::IpMode::Vip => guest::IpMode::Vip,
            host::IpMode::Proxy => guest::IpMode::Proxy,
        }),
        ports: ports
            .iter()
            .map(|port| {
                let host::PortStatus { port, protocol, error } = port;
                guest::PortStatus { port: *port, protocol: protocol_to_guest(*protocol), error: error.clone() }
            })
            .collect(),
        extra: Vec::new(),
    }
}

fn pairs(map: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Vec<guest::Pair> {
    map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}
