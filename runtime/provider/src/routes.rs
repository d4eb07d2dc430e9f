//! Routes to the pods of each node: upstream's `Routes` with lists.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Call, NodeAddress, Result};

/// A route in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Route {
    /// The cloud's name of the route; ignored when a route is created.
    pub name: String,
    /// Node name; none if the route leads to no node of the cluster.
    pub target_node: Option<String>,
    /// Addresses of the target.
    pub target_addresses: Vec<NodeAddress>,
    /// For example `10.244.3.0/24`.
    pub destination_cidr: String,
    /// The target of the route no longer exists.
    pub blackhole: bool,
    /// Of a listed route: the controller replaces the route if its addresses differ from those of
    /// the node. Upstream's `EnableNodeAddresses`.
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

    /// Creates routes, each with a name hint; one result for each, in order.
    ///
    /// # Errors
    /// An outer error means that nothing was done.
    async fn create(&self, call: &Call, cluster: &str, routes: &[(String, Route)]) -> Result<Vec<Result<()>>>;

    /// Deletes routes that `list` returned; one result for each, in order.
    ///
    /// # Errors
    /// An outer error means that nothing was done.
    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>>;
}
