//! The legacy interfaces, which no controller calls: zones, clusters, and functions that Kubernetes
//! 1.6 called in in-tree providers.

use async_trait::async_trait;
use serde::Serialize;

use crate::{Call, Result};

/// A failure domain and its region.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// As upstream's `Zone.FailureDomain`.
    pub failure_domain: String,
    /// As upstream's `Zone.Region`.
    pub region: String,
}

/// As upstream's `Zones`.
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone this process runs in.
    ///
    /// # Errors
    /// `Unsupported` if the cloud cannot tell.
    async fn current(&self, call: &Call) -> Result<Zone>;

    /// The zone of a machine by its provider ID.
    ///
    /// # Errors
    /// `NotFound` if the machine does not exist, `Invalid` for an ID of another provider.
    async fn by_provider_id(&self, call: &Call, provider_id: &str) -> Result<Zone>;

    /// The zone of a machine by the name of its node.
    ///
    /// # Errors
    /// `NotFound` if the machine does not exist.
    async fn by_node_name(&self, call: &Call, node: &str) -> Result<Zone>;
}

/// As upstream's `Clusters`.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// Names of the clusters that the cloud knows.
    ///
    /// # Errors
    /// `Denied`, `RetryAfter`, `Unavailable`, `Internal`, those of the sandbox.
    async fn list(&self, call: &Call) -> Result<Vec<String>>;

    /// Address of the named cluster's master.
    ///
    /// # Errors
    /// `NotFound` for an absent cluster.
    async fn master(&self, call: &Call, cluster: &str) -> Result<String>;
}

/// Functions that kubelet and API server called in the in-tree providers of Kubernetes 1.6.
#[async_trait]
pub trait NodeLegacy: Send + Sync {
    /// Adds an SSH public key (OpenSSH format) to every machine.
    ///
    /// # Errors
    /// `Unsupported` if the cloud does not support it.
    async fn add_ssh_key_to_all_instances(&self, call: &Call, user: &str, key: &[u8]) -> Result<()>;

    /// The node name of the machine with this host name.
    ///
    /// # Errors
    /// `NotFound` for an absent machine.
    async fn current_node_name(&self, call: &Call, hostname: &str) -> Result<String>;

    /// Filters nameservers and search domains: returns those that pods should see.
    ///
    /// # Errors
    /// Only those of the sandbox.
    async fn scrub_dns(
        &self,
        call: &Call,
        nameservers: &[String],
        searches: &[String],
    ) -> Result<(Vec<String>, Vec<String>)>;
}
