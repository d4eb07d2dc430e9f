//! Field ownership: `metadata.managedFields`, who owns what after each write.

use serde_json::Value;

use super::clock::Clock;
use super::object;
use super::state::Call;
use super::write::Ownership;

/// Managers.
pub(crate) type Managers = Vec<Value>;

pub(crate) fn follow_write(_call: &Call, _old: Option<&Value>, _new: &mut Value, _o: &Ownership, _clock: &Clock) {}

/// Whether a write would change nothing but timestamps of ownership.
pub(crate) fn is_same(old: &Value, new: &Value) -> bool {
    let plain = |o: &Value| {
        let mut o = o.clone();
        object::remove(&mut o, "/metadata/managedFields");
        o
    };
    plain(old) == plain(new)
}
