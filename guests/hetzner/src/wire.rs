//! The types of the API that this provider uses. No decisions here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::refusal::Said;

/// Labels of an object of the cloud.
pub(crate) type Labels = BTreeMap<String, String>;

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    #[serde(alias = "servers", alias = "load_balancers", alias = "networks", alias = "certificates")]
    pub(crate) entries: Vec<T>,
    pub(crate) meta: Meta,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Meta {
    pub(crate) pagination: Pagination,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pagination {
    pub(crate) next_page: Option<u64>,
    /// Null where the cloud does not count.
    pub(crate) total_entries: Option<usize>,
}

/// The envelope of one object.
#[derive(Debug, Deserialize)]
pub(crate) struct One<T> {
    #[serde(alias = "server", alias = "load_balancer", alias = "network", alias = "certificate", alias = "action")]
    pub(crate) object: T,
}

/// The answer to a creation.
#[derive(Debug, Deserialize)]
pub(crate) struct Created<T> {
    #[serde(alias = "load_balancer", alias = "certificate")]
    pub(crate) object: T,
    /// Null where there is nothing to wait for.
    pub(crate) action: Option<Action>,
}

/// Work of the cloud.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Action {
    pub(crate) id: u64,
    pub(crate) command: String,
    pub(crate) status: ActionStatus,
    pub(crate) error: Option<Said>,
    /// The objects that the action is about.
    #[serde(default)]
    pub(crate) resources: Vec<Resource>,
}

/// An object of any kind.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Resource {
    pub(crate) id: u64,
    pub(crate) r#type: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActionStatus {
    Running,
    Success,
    Error,
}

/// A server, of which only these fields are read.
#[derive(Debug, Deserialize)]
pub(crate) struct Server {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) server_type: Named,
    pub(crate) location: Named,
    #[serde(default)]
    pub(crate) public_net: PublicNet,
    #[serde(default)]
    pub(crate) private_net: Vec<PrivateNet>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

/// Public addresses of a server; null where it has none of the family.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PublicNet {
    pub(crate) ipv4: Option<Address>,
    /// A network such as `2001:db8::/64`.
    pub(crate) ipv6: Option<Address>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Address {
    pub(crate) ip: String,
}

/// The attachment of a server or a load balancer to a network.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct PrivateNet {
    pub(crate) network: u64,
    #[serde(default)]
    pub(crate) ip: String,
}

/// A private network.
#[derive(Debug, Deserialize)]
pub(crate) struct Network {
    pub(crate) id: u64,
    pub(crate) ip_range: String,
    #[serde(default)]
    pub(crate) routes: Vec<NetworkRoute>,
    /// IDs of the attached servers.
    #[serde(default)]
    pub(crate) servers: Vec<u64>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct NetworkRoute {
    pub(crate) destination: String,
    pub(crate) gateway: String,
}

/// A certificate.
#[derive(Debug, Deserialize)]
pub(crate) struct Certificate {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) r#type: String,
    #[serde(default)]
    pub(crate) labels: Labels,
    /// Null for an uploaded certificate.
    pub(crate) status: Option<CertificateStatus>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CertificateStatus {
    /// `pending`, `completed` or `failed`.
    #[serde(default)]
    pub(crate) issuance: String,
    pub(crate) error: Option<Said>,
}

/// A load balancer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) id: u64,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) labels: Labels,
    pub(crate) load_balancer_type: LoadBalancerType,
    pub(crate) algorithm: LoadBalancerAlgorithm,
    pub(crate) public_net: LoadBalancerPublicNet,
    #[serde(default)]
    pub(crate) private_net: Vec<PrivateNet>,
    #[serde(default)]
    pub(crate) services: Vec<LoadBalancerService>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
    pub(crate) protection: Protection,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LoadBalancerType {
    pub(crate) name: String,
    pub(crate) max_targets: usize,
    /// The day of the deprecation.
    pub(crate) deprecated: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct LoadBalancerAlgorithm {
    pub(crate) r#type: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Protection {
    pub(crate) delete: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LoadBalancerPublicNet {
    pub(crate) enabled: bool,
    pub(crate) ipv4: LoadBalancerAddress,
    pub(crate) ipv6: LoadBalancerAddress,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LoadBalancerAddress {
    pub(crate) ip: Option<String>,
    pub(crate) dns_ptr: Option<String>,
}

/// A target in requests and in responses.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Target {
    /// `server`, `ip` or `label_selector`.
    pub(crate) r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<Ip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) use_private_ip: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Id {
    pub(crate) id: u64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Ip {
    pub(crate) ip: String,
}

/// A service of a load balancer, in requests and in responses. An absent field of a request leaves
/// the cloud's value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct LoadBalancerService {
    /// `tcp`, `http` or `https`.
    pub(crate) protocol: String,
    pub(crate) listen_port: u16,
    pub(crate) destination_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxyprotocol: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http: Option<Http>,
    pub(crate) health_check: HealthCheck,
}

/// Options of a service with the protocol `http` or `https`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Http {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cookie_name: Option<String>,
    /// The lifetime of the cookie, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cookie_lifetime: Option<u64>,
    /// Seconds after which an idle connection is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_idle: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificates: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redirect_http: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sticky_sessions: Option<bool>,
}

/// The health check of a service.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct HealthCheck {
    /// `tcp` or `http`.
    pub(crate) protocol: String,
    pub(crate) port: u16,
    /// Seconds between two checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<u64>,
    /// Seconds until a check without answer fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http: Option<HealthCheckHttp>,
}

/// Options of a health check with the protocol `http`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct HealthCheckHttp {
    /// The inner none is JSON's null: no `Host` header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status_codes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<bool>,
}
