//! The fields in which two JSON documents differ.

use json_patch::PatchOperation;
use serde::Serialize;
use serde_json::Value;
use skysail_provider::text::one_line;

/// Longest value in the text, in bytes.
const VALUE_BYTES_MAX: usize = 500;

/// One field that has another value.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// JSON pointer (RFC 6901).
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Value>,
}

/// The fields that differ. Of an object that does not exist yet each field is one.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let empty = Value::Object(serde_json::Map::new());
    let before = match before {
        Value::Null if after.is_object() => &empty,
        before => before,
    };
    let value = |object: &Value, path: &str| object.pointer(path).cloned();
    let operations = json_patch::diff(before, after);
    let change = |operation: &PatchOperation| {
        let path = operation.path().to_string();
        let (before, after) = match operation {
            PatchOperation::Add(add) => (None, Some(add.value.clone())),
            PatchOperation::Replace(replace) => (value(before, &path), Some(replace.value.clone())),
            PatchOperation::Remove(_) => (value(before, &path), None),
            // `diff` produces none of them.
            PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => (None, None),
        };
        Change { path, before, after }
    };
    operations.iter().map(change).collect()
}

/// One line.
pub(super) fn change_text(Change { path, before, after }: &Change) -> String {
    let value = |value: &Value| one_line(&value.to_string(), VALUE_BYTES_MAX);
    match (before, after) {
        (None, Some(after)) => format!("+ {path}: {}", value(after)),
        (Some(before), None) => format!("- {path}: {}", value(before)),
        (Some(before), Some(after)) => format!("~ {path}: {} -> {}", value(before), value(after)),
        (None, None) => path.clone(),
    }
}
