//! The patch that initialises a node from the description of its machine (pure).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Code, Instance, NodeAddress, ProviderId};

use super::addresses::{self, AddressError};
use crate::{
    convert,
    labels::{self, LabelError},
    names,
};

/// Why a described node cannot be initialised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InitializeError {
    #[error("the provider returned no provider ID for the node")]
    NoProviderId,
    #[error("the provider returned the provider ID {0:?}, which has none of the provider's schemes ({1})")]
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
    pub(crate) labels: BTreeMap<String, String>,
    /// The remaining taints.
    pub(crate) taints: Vec<core::Taint>,
    /// None if the status has these addresses already, or the cloud returned none.
    pub(crate) addresses: Option<Vec<NodeAddress>>,
}

/// Plans the patch of this node.
///
/// # Errors
/// A field that the node needs is missing or invalid: the node keeps its taint.
pub(crate) fn initialize(
    object: &core::Node,
    instance: &Instance,
    schemes: &[String],
) -> Result<Initialization, InitializeError> {
    let present = convert::addresses(object);
    let empty = BTreeMap::new();
    let labels = object.metadata.labels.as_ref().unwrap_or(&empty);
    let provider_id = match convert::provider_id(object) {
        Some(_) => None,
        None => own_provider_id(instance, schemes)?,
    };
    let desired = addresses::desired(&present, &instance.addresses, provided_node_ip(object))?;
    Ok(Initialization {
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

/// None only for a cloud without provider IDs. A provider ID with another provider's scheme would
/// assign the node to that provider permanently.
fn own_provider_id(instance: &Instance, schemes: &[String]) -> Result<Option<String>, InitializeError> {
    if instance.provider_id.is_empty() {
        return if instance.without_provider_id { Ok(None) } else { Err(InitializeError::NoProviderId) };
    }
    match instance.provider_id.parse::<ProviderId>() {
        Ok(id) if schemes.iter().any(|scheme| scheme == id.scheme()) => Ok(Some(instance.provider_id.clone())),
        _ => Err(InitializeError::ForeignProviderId(
            instance.provider_id.chars().take(100).collect(),
            schemes.join(", "),
        )),
    }
}

#[cfg(test)]
mod tests;
