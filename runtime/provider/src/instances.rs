//! The machines behind nodes, as upstream's `InstancesV2` in one look-up.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use crate::{Call, NodeAddress, NodeSet, Result};

/// Most nodes that one [`Instances::describe`] is asked about. Part of the contract.
pub const NODES_PER_PAGE: usize = 500;

/// How much of an [`Instance`] is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// `<scheme>://<rest>`.
    pub provider_id: String,
    /// The cloud has no IDs: a node that has none is initialised without one. Else an empty
    /// [`Self::provider_id`] is a failure.
    pub without_provider_id: bool,
    /// Off or being switched off, and still there.
    pub shutdown: bool,
    /// Empty where the cloud has none.
    pub instance_type: String,
    /// Empty where the cloud has none.
    pub zone: String,
    /// Empty where the cloud has none.
    pub region: String,
    /// In the order that the node's status shall have.
    pub addresses: Vec<NodeAddress>,
    /// Further labels for the node, as the provider gave them: not yet judged.
    pub labels: BTreeMap<String, String>,
}

/// Look-up of machines.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Looks up the machines of these nodes, at most [`NODES_PER_PAGE`]; one result for each node,
    /// in order.
    ///
    /// An inner [`crate::Code::NotFound`] says that the machine is gone for certain. The length of
    /// the answer is that of `nodes`: an implementation that cannot promise it answers
    /// [`crate::Code::Internal`].
    ///
    /// # Errors
    /// The outer error means that nothing was learnt about any node.
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>>;
}
