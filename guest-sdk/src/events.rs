//! Kubernetes Events on the object of the call, or about the cluster where it has none.

use crate::bindings::imports::skysail::provider::events::{Kind, emit};

/// Publishes an Event of type `Normal`. `reason` in CamelCase, at most 128 bytes; the message is cut at 1,024 bytes.
pub fn normal(reason: &str, message: &str) {
    emit(Kind::Normal, reason, message);
}

/// Publishes an Event of type `Warning`; limits as for [`normal`].
pub fn warning(reason: &str, message: &str) {
    emit(Kind::Warning, reason, message);
}
