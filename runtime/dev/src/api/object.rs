//! Small readers and writers for objects held as JSON.
//!
//! Paths are JSON pointers with fixed, escape-free segments. Nothing here knows a kind.

use std::sync::Arc;

use serde_json::{Map, Value};

/// A stored, immutable object.
pub(crate) type Object = Arc<Value>;

/// The string at `path`, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The list at `path`, or an empty one.
pub(crate) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether something other than null, an empty string, list or map is at `path`.
pub(crate) fn has(object: &Value, path: &str) -> bool {
    match object.pointer(path) {
        None | Some(Value::Null) => false,
        Some(Value::String(s)) => !s.is_empty(),
        Some(Value::Array(a)) => !a.is_empty(),
        Some(Value::Object(o)) => !o.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => true,
    }
}

/// Writes `value` at `path`, creating the maps on the way; a non-map on the way is replaced.
pub(crate) fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    let mut at = object;
    for segment in path.split('/').skip(1) {
        at = map_mut(at).entry(segment).or_insert(Value::Null);
    }
    *at = value.into();
}

/// Writes `value` at `path` where nothing, null or an empty string is.
pub(crate) fn set_default(object: &mut Value, path: &str, value: impl Into<Value>) {
    if matches!(object.pointer(path), None | Some(Value::Null)) || object.pointer(path) == Some(&Value::from("")) {
        set(object, path, value);
    }
}

/// Removes what is at `path`.
pub(crate) fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = path.rsplit_once('/')?;
    object.pointer_mut(parent)?.as_object_mut()?.remove(key)
}

/// Copies `path` from one object to another; what is absent there becomes absent here.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &str) {
    match from.pointer(path) {
        Some(value) => set(to, path, value.clone()),
        None => {
            remove(to, path);
        }
    }
}

/// The value as a map; anything else becomes an empty map.
pub(crate) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("the line above made it a map")
        }
    }
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// Whether the object waits for its finalizers.
pub(crate) fn is_deleting(object: &Value) -> bool {
    has(object, "/metadata/deletionTimestamp")
}

/// The object with its resourceVersion set.
pub(crate) fn with_resource_version(mut object: Value, revision: u64) -> Value {
    set(&mut object, "/metadata/resourceVersion", revision.to_string());
    object
}
