//! The types of the load-balancer API.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::null_is_default;

/// `GET /`: the versions of the API.
#[derive(Debug, Deserialize)]
pub(crate) struct Versions {
    pub(crate) versions: Vec<Version>,
}

/// One version: `v2.27`.
#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    pub(crate) id: String,
}

/// A load balancer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) project_id: String,
    /// `ACTIVE`, `PENDING_CREATE`, `PENDING_UPDATE`, `PENDING_DELETE`, `DELETED` or `ERROR`.
    pub(crate) provisioning_status: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) vip_address: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) vip_port_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) vip_subnet_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) tags: Vec<String>,
}

/// A listener.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LbListener {
    pub(crate) id: String,
    /// `TCP`, `UDP`, `SCTP`, `HTTP`, `TERMINATED_HTTPS`, …
    pub(crate) protocol: String,
    pub(crate) protocol_port: u16,
    /// -1 is no limit.
    pub(crate) connection_limit: Option<i64>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) default_tls_container_ref: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) insert_headers: BTreeMap<String, String>,
    pub(crate) timeout_client_data: Option<u32>,
    pub(crate) timeout_member_connect: Option<u32>,
    pub(crate) timeout_member_data: Option<u32>,
    pub(crate) timeout_tcp_inspect: Option<u32>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) allowed_cidrs: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) tags: Vec<String>,
}

/// A pool.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LbPool {
    pub(crate) id: String,
    pub(crate) protocol: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) lb_algorithm: String,
    pub(crate) session_persistence: Option<Persistence>,
    /// Empty where it has none.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) healthmonitor_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) listeners: Vec<Reference>,
}

/// How a pool keeps a client's connections on one member.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Persistence {
    pub(crate) r#type: String,
}

/// The ID of an object elsewhere.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Reference {
    pub(crate) id: String,
}

/// A member of a pool.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LbMember {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) protocol_port: u16,
    pub(crate) monitor_port: Option<u16>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) provisioning_status: String,
}

/// `GET loadbalancers/ID/status`: a load balancer as a tree.
#[derive(Debug, Deserialize)]
pub(crate) struct Statuses {
    pub(crate) loadbalancer: TreeOfListeners,
}

/// The listeners of the tree.
#[derive(Debug, Deserialize)]
pub(crate) struct TreeOfListeners {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) listeners: Vec<TreeOfPools>,
}

/// The pools of a listener of the tree.
#[derive(Debug, Deserialize)]
pub(crate) struct TreeOfPools {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) pools: Vec<TreeOfMembers>,
}

/// The members of a pool of the tree, without the ports of the health check.
#[derive(Debug, Deserialize)]
pub(crate) struct TreeOfMembers {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) members: Vec<LbMember>,
}

/// A health monitor.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LbMonitor {
    pub(crate) id: String,
    pub(crate) r#type: String,
    pub(crate) delay: u32,
    pub(crate) timeout: u32,
    pub(crate) max_retries: u32,
    pub(crate) max_retries_down: Option<u32>,
}
