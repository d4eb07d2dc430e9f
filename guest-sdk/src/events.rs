//! Kubernetes Events on the object of the call, or on the cluster for a call without an object.

use crate::{
    bindings::imports::skysail::provider::events::{Kind, emit},
    native::host_only,
};

/// Publishes an Event of type `Normal`. `reason` in CamelCase, at most 128 bytes; the message is
/// cut at 1,024 bytes.
#[track_caller]
pub fn normal(reason: &str, message: &str) {
    host_only("events::normal");
    emit(Kind::Normal, reason, message);
}

/// Publishes an Event of type `Warning`; limits as for [`normal`].
#[track_caller]
pub fn warning(reason: &str, message: &str) {
    host_only("events::warning");
    emit(Kind::Warning, reason, message);
}
