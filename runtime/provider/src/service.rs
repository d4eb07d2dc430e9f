//! A Service of type LoadBalancer as a provider sees it, and the status that the provider returns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IpFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// `spec.ipFamilyPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IpFamilyPolicy {
    /// One family.
    SingleStack,
    /// Two families if the cluster has two.
    PreferDualStack,
    /// Two families, or the Service is refused.
    RequireDualStack,
}

/// `spec.externalTrafficPolicy` and `spec.internalTrafficPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrafficPolicy {
    /// Any node may take the traffic.
    Cluster,
    /// Only nodes with an endpoint.
    Local,
}

/// `spec.sessionAffinity` with its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SessionAffinity {
    /// No affinity.
    None,
    /// Requests of one client address reach the same backend.
    ClientIp {
        /// Timeout in seconds, 1 to 86400.
        timeout_seconds: u32,
    },
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Empty if the port has no name.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// As in the object.
    pub app_protocol: Option<String>,
    /// 1 to 65535.
    pub port: u16,
    /// 0 if none is allocated.
    pub node_port: u16,
    /// A port number or name, as in the object.
    pub target_port: String,
}

/// The status of one port of an ingress.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortStatus {
    /// Port of the Service.
    pub port: u16,
    /// The port's protocol.
    pub protocol: Protocol,
    /// A CamelCase reason or `domain/Reason`.
    pub error: Option<String>,
}

/// How traffic to an ingress IP arrives at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IpMode {
    /// With the load balancer's address as destination.
    Vip,
    /// With the node's or pod's address as destination.
    Proxy,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// IPv4 or IPv6 address.
    pub ip: Option<String>,
    /// DNS name.
    pub hostname: Option<String>,
    /// Only if `ip` is set.
    pub ip_mode: Option<IpMode>,
    /// Ports with problems, or all.
    pub ports: Vec<PortStatus>,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// The addresses of the load balancer.
    pub ingress: Vec<Ingress>,
}

/// A Service of type LoadBalancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// The entries of `spec.ports`, in the object's order.
    pub ports: Vec<ServicePort>,
    /// Session affinity with its timeout.
    pub session_affinity: SessionAffinity,
    /// `spec.loadBalancerIP`.
    pub load_balancer_ip: Option<String>,
    /// `spec.loadBalancerClass`.
    pub load_balancer_class: Option<String>,
    /// CIDRs; empty allows every source.
    pub source_ranges: Vec<String>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<String>,
    /// `spec.externalTrafficPolicy`.
    pub external_traffic_policy: TrafficPolicy,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: TrafficPolicy,
    /// 0 if there is none.
    pub health_check_node_port: u16,
    /// `spec.ipFamilies`.
    pub ip_families: Vec<IpFamily>,
    /// `spec.ipFamilyPolicy`.
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// `spec.allocateLoadBalancerNodePorts`.
    pub allocate_node_ports: bool,
    /// The current `status.loadBalancer` of the object.
    pub status: LoadBalancerStatus,
}

impl Service {
    /// A Service without ports, with the defaults of the API server.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            ports: Vec::new(),
            session_affinity: SessionAffinity::None,
            load_balancer_ip: None,
            load_balancer_class: None,
            source_ranges: Vec::new(),
            external_ips: Vec::new(),
            external_traffic_policy: TrafficPolicy::Cluster,
            internal_traffic_policy: TrafficPolicy::Cluster,
            health_check_node_port: 0,
            ip_families: Vec::new(),
            ip_family_policy: None,
            allocate_node_ports: true,
            status: LoadBalancerStatus::default(),
        }
    }
}
