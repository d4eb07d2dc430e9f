//! The cloud's machines behind the nodes: upstream's `InstancesV2` as one function.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Call, NodeAddress, NodeSet, Result};

/// The maximum number of nodes in one call of [`Instances::describe`]; a provider may ask for fewer
/// ([`crate::Info::page_nodes`]). Part of the contract.
pub const NODES_PER_PAGE: usize = 500;

/// How much of an [`Instance`] is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Detail {
    /// Existence and power state; the other fields may be empty.
    State,
    /// Everything.
    Metadata,
}

/// A machine in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// `<scheme>://<rest>`, or a text with a prefix that the operator claims.
    pub provider_id: String,
    /// The cloud has no machine IDs: the node is initialised without a provider ID. If false, an
    /// empty [`Self::provider_id`] is an error.
    pub without_provider_id: bool,
    /// The machine still exists and is powered off or shutting down.
    pub shutdown: bool,
    /// Empty if the cloud has none.
    pub instance_type: String,
    /// Empty if the cloud has none.
    pub zone: String,
    /// Empty if the cloud has none.
    pub region: String,
    /// In the order for `status.addresses` of the node.
    pub addresses: Vec<NodeAddress>,
    /// Additional labels for the node, as the provider returned them: not yet validated.
    pub labels: BTreeMap<String, String>,
}

/// Look-up of machines.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Looks up the machines of these nodes, at most [`NODES_PER_PAGE`]; one result for each node,
    /// in order.
    ///
    /// An inner [`crate::Code::NotFound`] means that the machine certainly does not exist. The
    /// result has as many entries as `nodes`; an implementation that cannot guarantee this returns
    /// [`crate::Code::Internal`].
    ///
    /// # Errors
    /// An outer error means that nothing is known about any node; an outer
    /// [`crate::Code::Unsupported`], that the provider's settings switch this interface off.
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>>;
}
