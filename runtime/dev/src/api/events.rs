//! The two views of an Event: core/v1, in which Events are stored, and events.k8s.io/v1.
//!
//! The API server stores one object and converts it; this module converts field by field.

use serde_json::{Map, Value};

use super::kinds::Kind;

/// Fields with different names: core/v1, then events.k8s.io/v1.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
];

/// Whether objects of `kind` are shown in another version than they are stored in.
pub(crate) fn is_converted(kind: &Kind) -> bool {
    &*kind.storage == "events" && !kind.group.is_empty()
}

/// A stored Event as events.k8s.io/v1 shows it.
pub(crate) fn to_new(stored: &Value) -> Value {
    rename(stored, "events.k8s.io/v1", |key| RENAMED.iter().find(|(core, _)| *core == key).map(|(_, new)| *new))
}

/// An events.k8s.io/v1 Event as it is stored.
pub(crate) fn to_core(new: &Value) -> Value {
    let mut stored = rename(new, "v1", |key| RENAMED.iter().find(|(_, n)| *n == key).map(|(core, _)| *core));
    complete(&mut stored);
    stored
}

/// Adds the fields that core/v1 always shows, null or empty.
pub(crate) fn complete(stored: &mut Value) {
    for (path, empty) in [
        ("/involvedObject", Value::Object(Map::new())),
        ("/source", Value::Object(Map::new())),
        ("/firstTimestamp", Value::Null),
        ("/lastTimestamp", Value::Null),
        ("/eventTime", Value::Null),
        ("/reportingComponent", Value::from("")),
        ("/reportingInstance", Value::from("")),
    ] {
        if stored.pointer(path).is_none() {
            super::object::set(stored, path, empty);
        }
    }
}

fn rename(object: &Value, api_version: &str, new_name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let renamed = object.as_object().into_iter().flatten().map(|(key, value)| {
        if key == "apiVersion" {
            return (key.clone(), Value::from(api_version));
        }
        (new_name(key).unwrap_or(key).to_owned(), value.clone())
    });
    Value::Object(renamed.collect())
}
