//! The patch that initialises a node from the description of its machine (pure).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Code, Instance, NodeAddress};

use super::addresses::{self, AddressError};
use crate::{
    convert,
    labels::{self, LabelError},
    names,
    ownership::{Claim, LaneId, id_owner},
};

/// Why a described node cannot be initialised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InitializeError {
    #[error("the provider returned no provider ID for the node")]
    NoProviderId,
    #[error(
        "the provider returned the provider ID {0:?}, which has none of the schemes and prefixes that the provider claims ({1})"
    )]
    ForeignProviderId(String, String),
    #[error(transparent)]
    Addresses(#[from] AddressError),
    #[error(transparent)]
    Labels(#[from] LabelError),
}

impl From<InitializeError> for skysail_provider::Error {
    fn from(error: InitializeError) -> Self {
        let code = match &error {
            // The kubelet's `--node-ip` is wrong; a person has to correct it.
            InitializeError::Addresses(AddressError::Annotation(_)) => Code::Invalid,
            // The cloud may return the address later.
            InitializeError::Addresses(AddressError::NodeIpUnknown(_) | AddressError::Partial) => Code::Unavailable,
            InitializeError::NoProviderId
            | InitializeError::ForeignProviderId(..)
            | InitializeError::Addresses(AddressError::TooMany(_) | AddressError::Malformed(_))
            | InitializeError::Labels(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

/// The content of the patch of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initialization {
    /// Set if the node has no provider ID yet; the field is immutable afterwards.
    pub(crate) provider_id: Option<String>,
    /// Whether the node stays without provider ID, so that an annotation has to name its provider.
    pub(crate) names_holder: bool,
    pub(crate) labels: BTreeMap<String, String>,
    /// The remaining taints.
    pub(crate) taints: Vec<core::Taint>,
    /// None if the status has these addresses already, or the cloud returned none.
    pub(crate) addresses: Option<Vec<NodeAddress>>,
}

/// Plans the patch of this node. `claims` are those of all providers, and `lane` is the provider
/// that initialises the node.
///
/// # Errors
/// A field that the node needs is missing or invalid: the node keeps its taint.
pub(crate) fn initialize(
    object: &core::Node,
    instance: &Instance,
    (claims, lane): (&[Claim], LaneId),
) -> Result<Initialization, InitializeError> {
    let present = convert::addresses(object);
    let empty = BTreeMap::new();
    let labels = object.metadata.labels.as_ref().unwrap_or(&empty);
    let provider_id = match convert::provider_id(object) {
        Some(_) => None,
        None => own_provider_id(instance, claims, lane)?,
    };
    let desired = addresses::desired(&present, &instance.addresses, provided_node_ip(object))?;
    Ok(Initialization {
        names_holder: provider_id.is_none() && convert::provider_id(object).is_none(),
        provider_id,
        labels: labels::from_instance(labels, instance)?,
        // As upstream: compared by key; value and effect are ignored.
        taints: convert::taints(object).iter().filter(|t| t.key != names::UNINITIALIZED_TAINT).cloned().collect(),
        addresses: Some(desired).filter(|desired| addresses::is_changed(&present, desired)),
    })
}

/// The kubelet's `--node-ip`.
fn provided_node_ip(object: &core::Node) -> Option<&str> {
    object.metadata.annotations.as_ref()?.get(names::PROVIDED_NODE_IP_ANNOTATION).map(String::as_str)
}

/// None only for a cloud without provider IDs. A provider ID that another provider claims would
/// assign the node to that provider permanently.
fn own_provider_id(instance: &Instance, claims: &[Claim], lane: LaneId) -> Result<Option<String>, InitializeError> {
    let id = &instance.provider_id;
    if id.is_empty() {
        return if instance.without_provider_id { Ok(None) } else { Err(InitializeError::NoProviderId) };
    }
    if id_owner(claims, id).provider() == Some(lane) {
        return Ok(Some(id.clone()));
    }
    let own = claims.iter().filter(|claim| claim.lane == lane);
    let own: Vec<&str> =
        own.flat_map(|claim| claim.schemes.iter().chain(&claim.prefixes)).map(String::as_str).collect();
    Err(InitializeError::ForeignProviderId(id.chars().take(100).collect(), own.join(", ")))
}

#[cfg(test)]
mod tests;
