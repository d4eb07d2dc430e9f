//! Routes to the pods of each node, as upstream's `Routes` in lists.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Call, NodeAddress, Result};

/// A route in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Route {
    /// As the cloud names it; ignored when a route is created.
    pub name: String,
    /// Node name; none where it leads to no node of the cluster.
    pub target_node: Option<String>,
    /// Addresses of the target.
    pub target_addresses: Vec<NodeAddress>,
    /// For example `10.244.3.0/24`.
    pub destination_cidr: String,
    /// Leads nowhere: its target is gone.
    pub blackhole: bool,
    /// Of a listed route: its addresses are to be kept equal to those of its node, so the route is
    /// replaced where they differ. Upstream's `EnableNodeAddresses`.
    pub enable_node_addresses: bool,
}

/// Routes of one cluster.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Every route that this cluster owns, blackholes included.
    ///
    /// # Errors
    /// `Denied`, `RetryAfter`, `Unavailable`, `Internal`, those of the sandbox.
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>>;

    /// Makes routes, each with a name hint; one result for each, in order.
    ///
    /// # Errors
    /// The outer error means that nothing was done.
    async fn create(&self, call: &Call, cluster: &str, routes: &[(String, Route)]) -> Result<Vec<Result<()>>>;

    /// Deletes routes that `list` gave; one result for each, in order.
    ///
    /// # Errors
    /// The outer error means that nothing was done.
    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>>;
}
