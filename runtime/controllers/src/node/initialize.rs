//! What to write when a node's machine was described (pure).

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
    #[error("the provider knows no provider ID for the node")]
    NoProviderId,
    #[error("the provider gave the provider ID {0:?}, which has none of its schemes ({1})")]
    ForeignProviderId(String, String),
    #[error(transparent)]
    Addresses(#[from] AddressError),
    #[error(transparent)]
    Labels(#[from] LabelError),
}

impl From<InitializeError> for skysail_provider::Error {
    fn from(error: InitializeError) -> Self {
        let code = match &error {
            // The node was given a wrong address: a person has to look.
            InitializeError::Addresses(AddressError::Annotation(_)) => Code::Invalid,
            // The cloud may learn the address yet.
            InitializeError::Addresses(AddressError::NodeIpUnknown(_) | AddressError::Partial) => Code::Unavailable,
            InitializeError::NoProviderId
            | InitializeError::ForeignProviderId(..)
            | InitializeError::Addresses(AddressError::TooMany(_) | AddressError::Malformed(_))
            | InitializeError::Labels(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

/// What to write to one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initialization {
    /// Where the node has none yet; it is immutable afterwards.
    pub(crate) provider_id: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Those that stay.
    pub(crate) taints: Vec<core::Taint>,
    /// None where the status has them already, or the cloud gave none.
    pub(crate) addresses: Option<Vec<NodeAddress>>,
}

/// What to write to this node.
///
/// # Errors
/// A field that the node needs is missing or cannot be right: its taint stays.
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
        // By key, whatever value and effect: as upstream.
        taints: convert::taints(object).iter().filter(|t| t.key != names::UNINITIALIZED_TAINT).cloned().collect(),
        addresses: Some(desired).filter(|desired| addresses::is_changed(&present, desired)),
    })
}

/// The kubelet's `--node-ip`.
fn provided_node_ip(object: &core::Node) -> Option<&str> {
    object.metadata.annotations.as_ref()?.get(names::PROVIDED_NODE_IP_ANNOTATION).map(String::as_str)
}

/// None only where the cloud has no IDs. An ID of another's scheme would make the node another's,
/// for ever.
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
