//! What to do about the nodes of one pass (pure).

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Code, Error, Instance};

use crate::{convert, taints};

/// A node of the pass.
pub(crate) struct Case<'a> {
    pub(crate) object: &'a core::Node,
    /// Since this process first saw it.
    pub(crate) age: Duration,
    /// What the provider said; none for a node that is ready, about which nobody is asked.
    pub(crate) answer: Option<Result<Instance, Error>>,
}

/// What to do about a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Keep,
    /// Nothing was learnt: the node stays as it is.
    Unknown(Error),
    /// The machine is gone for certain, says the provider; whether the node goes is for the
    /// sightings and the breaker to say.
    Gone,
    /// The whole list.
    SetTaints(Vec<core::Taint>),
}

/// What to do about this node.
///
/// `grace` is how long a node that was never initialised is kept although its machine is not known.
pub(crate) fn action(case: &Case<'_>, grace: Duration) -> Action {
    let (present, shutdown) = (convert::taints(case.object), convert::shutdown_taint());
    match &case.answer {
        None => taints::without(present, &shutdown).map_or(Action::Keep, Action::SetTaints),
        Some(Err(error)) if error.code == Code::NotFound => {
            let young = convert::is_uninitialized(case.object) && case.age < grace;
            // A node that is going already needs no second request.
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
