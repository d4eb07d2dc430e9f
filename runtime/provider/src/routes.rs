//! Routes to the pods of each node: upstream's `Routes` with lists.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Call, Node, NodeAddress, Result};

/// How the cloud identifies the node to which a route sends packets: name, provider ID or IP
/// address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// The node with this name.
    Node(String),
    /// The node with this `spec.providerID`.
    ProviderId(String),
    /// The node that has this IP address in `status.addresses`.
    Address(String),
    /// The cloud does not say, or the target is not a machine of the cluster.
    #[default]
    None,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "the node {name:?}"),
            Self::ProviderId(id) => write!(f, "the provider ID {id:?}"),
            Self::Address(address) => write!(f, "the address {address:?}"),
            Self::None => f.write_str("no known target"),
        }
    }
}

/// A route in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Route {
    /// The cloud's name of the route.
    pub name: String,
    /// What the route leads to.
    pub target: Target,
    /// Addresses of the target.
    pub target_addresses: Vec<NodeAddress>,
    /// For example `10.244.3.0/24`.
    pub destination_cidr: String,
    /// The target of the route no longer exists.
    pub blackhole: bool,
    /// The controller replaces the route if its addresses differ from those of the node. Upstream's
    /// `EnableNodeAddresses`.
    pub enable_node_addresses: bool,
    /// The provider's own keys and values, which it gets back when the route is deleted.
    pub extra: Vec<(String, String)>,
}

impl Route {
    /// Whether the target is the node of this wanted route, by the name, the provider ID or an
    /// address that the wanted route has.
    #[must_use]
    pub fn leads_to(&self, wanted: &NewRoute) -> bool {
        match &self.target {
            Target::Node(name) => *name == wanted.node,
            Target::ProviderId(id) => Some(id) == wanted.provider_id.as_ref(),
            Target::Address(address) => wanted.addresses.iter().any(|known| known.address == *address),
            Target::None => false,
        }
    }
}

/// A route that a node needs.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewRoute {
    /// Upstream's `nameHint`, the node's UID.
    pub name_hint: String,
    /// Name of the node.
    pub node: String,
    /// `spec.providerID` of the node; none while the node is uninitialised.
    #[serde(default)]
    pub provider_id: Option<String>,
    /// `status.addresses` of the node.
    #[serde(default)]
    pub addresses: Vec<NodeAddress>,
    /// One of the node's pod CIDRs.
    pub destination_cidr: String,
}

impl NewRoute {
    /// The route of this node to one of its pod CIDRs. As upstream, the name hint is the UID of the
    /// node for each of its routes.
    #[must_use]
    pub fn of(node: &Node, destination_cidr: &str) -> Self {
        Self {
            name_hint: node.uid.clone(),
            node: node.name.clone(),
            provider_id: node.provider_id.clone(),
            addresses: node.addresses.clone(),
            destination_cidr: destination_cidr.to_owned(),
        }
    }
}

/// Routes of one cluster.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Every route that this cluster owns, blackholes included.
    ///
    /// # Errors
    /// `Denied`, `RetryAfter`, `Unavailable`, `Internal`, those of the sandbox; `Unsupported` if
    /// the provider's settings switch this interface off.
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>>;

    /// Creates routes; one result for each, in order.
    ///
    /// # Errors
    /// An outer error means that nothing was done.
    async fn create(&self, call: &Call, cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>>;

    /// Deletes routes that `list` returned; one result for each, in order.
    ///
    /// # Errors
    /// An outer error means that nothing was done.
    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>>;
}
