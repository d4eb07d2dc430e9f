//! Plans the actions for the nodes of one pass (pure).

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Code, Error, Instance};

use crate::{convert, taints};

/// A node of the pass.
pub(crate) struct Case<'a> {
    pub(crate) object: &'a core::Node,
    /// Time since this process first saw the node.
    pub(crate) age: Duration,
    /// The provider's answer; none for a ready node, because the provider is not asked about it.
    pub(crate) answer: Option<Result<Instance, Error>>,
}

/// The action for a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Keep,
    /// The look-up failed: the node stays as it is.
    Unknown(Error),
    /// The provider reports that the machine does not exist. `MissingMachines` and the breaker
    /// decide whether the node is deleted.
    Gone,
    /// Replaces the whole list of taints.
    SetTaints(Vec<core::Taint>),
}

/// Plans the action for this node.
///
/// `grace` is how long a node that was never initialised is kept although the provider does not
/// find its machine.
pub(crate) fn action(case: &Case<'_>, grace: Duration) -> Action {
    let (present, shutdown) = (convert::taints(case.object), convert::shutdown_taint());
    match &case.answer {
        None => taints::without(present, &shutdown).map_or(Action::Keep, Action::SetTaints),
        Some(Err(error)) if error.code == Code::NotFound => {
            let young = convert::is_uninitialized(case.object) && case.age < grace;
            // The node is being deleted already; a second request is not needed.
            let going = case.object.metadata.deletion_timestamp.is_some();
            if young || going { Action::Keep } else { Action::Gone }
        }
        Some(Err(error)) => Action::Unknown(error.clone()),
        Some(Ok(instance)) if instance.shutdown && !taints::exists(present, &shutdown) => {
            Action::SetTaints(present.iter().cloned().chain([shutdown]).collect())
        }
        // As upstream: the taint of a machine that runs again stays until the node is ready.
        Some(Ok(_)) => Action::Keep,
    }
}

#[cfg(test)]
mod tests;
