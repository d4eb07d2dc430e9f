//! Errors in the form of Kubernetes: a `Status` object with reason, code and details.
//!
//! Clients branch on `reason`, `code` and `details`, so these are exact; the messages follow the
//! API server's wording. No HTTP here: `http` turns an [`ApiError`] into a response.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::kinds::Kind;

/// One failed request, in the form in which the API server reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status.
    pub code: StatusCode,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    /// The `details` object; `null` when there is none.
    pub details: Value,
    /// The `metadata` of the `Status`, where it has a continue token.
    pub(crate) list_metadata: Option<Arc<Value>>,
}

/// One entry of `details.causes` of an `Invalid` error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    /// Path of the field, such as `spec.ports[0].port`.
    pub(crate) field: String,
    /// Reason, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Text without the field.
    pub(crate) message: String,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code.as_u16(), self.reason)
    }
}

impl std::error::Error for ApiError {}

impl Cause {
    /// `Required value`, with a detail when there is one.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".into() } else { format!("Required value: {detail}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// `Invalid value: …`; strings are quoted as Go's `%q` does.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {detail}") }
    }

    /// `Unsupported value: …` with the supported values.
    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let listed = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {value}: supported values: {listed}");
        Self { field: field.into(), reason: "FieldValueNotSupported", message }
    }

    /// `Forbidden: …`.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {detail}") }
    }

    /// `Duplicate value: …`.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}") }
    }
}

impl ApiError {
    /// An error with the given parts and no details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, list_metadata: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::of_object(StatusCode::NOT_FOUND, "NotFound", kind, name, |q| format!("{q} {name:?} not found"))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::of_object(StatusCode::CONFLICT, "AlreadyExists", kind, name, |q| format!("{q} {name:?} already exists"))
    }

    /// The resourceVersion of the request is not that of the stored object.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, cause: &str) -> Self {
        Self::of_object(StatusCode::CONFLICT, "Conflict", kind, name, |q| {
            format!("Operation cannot be fulfilled on {q} {name:?}: {cause}")
        })
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, cause: &str) -> Self {
        Self::of_object(StatusCode::FORBIDDEN, "Forbidden", kind, name, |q| {
            format!("{q} {name:?} is forbidden: {cause}")
        })
    }

    /// The path names no resource of a served group and version.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: json!({}), ..Self::new(StatusCode::NOT_FOUND, "NotFound", message) }
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: json!({}), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message) }
    }

    /// A failed precondition of a deletion; here the API server names the kind instead of the
    /// resource.
    pub(crate) fn delete_conflict(kind: &Kind, name: &str, cause: &str) -> Self {
        let qualified = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut details = json!({"name": name, "kind": kind.kind});
        insert_non_empty(&mut details, "group", &kind.group);
        let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {cause}");
        Self { details, ..Self::new(StatusCode::CONFLICT, "Conflict", message) }
    }

    /// The history that a list or watch needs was compacted.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The client asks for a revision that does not exist yet.
    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1
        });
        Self { details, ..Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message) }
    }

    /// The object breaks the rules of its kind.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let qualified = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        Self::invalid_named(&qualified, (&kind.group, &kind.kind), name, causes)
    }

    /// As [`ApiError::invalid`], for option objects, which are not a served kind.
    pub(crate) fn invalid_named(qualified: &str, gk: (&str, &str), name: &str, causes: &[Cause]) -> Self {
        let list: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let text = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = json!({"kind": gk.1, "causes": causes.iter().map(|c| {
            json!({"reason": c.reason, "message": c.message, "field": c.field})
        }).collect::<Vec<_>>()});
        insert_non_empty(&mut details, "name", name);
        insert_non_empty(&mut details, "group", gk.0);
        let message = format!("{qualified} {name:?} is invalid: {text}");
        Self { details, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message) }
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(map) = status.as_object_mut() {
            if !self.details.is_null() {
                map.insert("details".into(), self.details.clone());
            }
            if let Some(metadata) = &self.list_metadata {
                map.insert("metadata".into(), (**metadata).clone());
            }
            if self.reason.is_empty() {
                map.remove("reason");
            }
        }
        status
    }

    fn of_object(
        code: StatusCode,
        reason: &'static str,
        kind: &Kind,
        name: &str,
        message: impl FnOnce(&str) -> String,
    ) -> Self {
        let mut details = json!({"name": name, "kind": kind.plural});
        insert_non_empty(&mut details, "group", &kind.group);
        Self { details, ..Self::new(code, reason, message(&kind.qualified_resource())) }
    }
}

fn insert_non_empty(object: &mut Value, key: &str, text: &str) {
    if let (Some(map), false) = (object.as_object_mut(), text.is_empty()) {
        map.insert(key.into(), text.into());
    }
}
