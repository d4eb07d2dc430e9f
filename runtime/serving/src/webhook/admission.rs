//! The types of admission.k8s.io/v1 that webhooks of this process use. Objects stay JSON, of which
//! a webhook reads the fields that it needs.
//!
//! `kube::core::admission` is not used: its response writes the patch as an array of numbers, where
//! the API defines base64, and its request refuses a review without `userInfo`, which no webhook
//! reads.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};
use skysail_provider::text::one_line;

use crate::limits::{REVIEW_PARTS_MAX, TEXT_BYTES_MAX};

/// The only supported version.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection to a subresource.
    Connect,
}

/// A request of an API server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Identifies this request.
    pub uid: String,
    /// The operation.
    pub operation: Operation,
    /// Group, version and kind of `object`.
    pub kind: Value,
    /// The object's name; empty if the API server generates it.
    #[serde(default)]
    pub name: String,
    /// The object's namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// The new object; null on deletion.
    #[serde(default)]
    pub object: Value,
    /// The object will not be stored, so a webhook must have no side effects.
    #[serde(default)]
    pub dry_run: bool,
}

/// The decision of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionResponse {
    /// Whether the operation is allowed.
    pub allowed: bool,
    /// The reason of a denial, for the user.
    pub message: Option<String>,
    /// A JSON patch: a list of operations.
    pub patch: Option<Value>,
    /// Warnings for the user; an API server cuts each after about 256 characters.
    pub warnings: Vec<String>,
}

impl AdmissionResponse {
    /// Allows the operation without a change.
    #[must_use]
    pub fn allow() -> Self {
        Self { allowed: true, message: None, patch: None, warnings: Vec::new() }
    }

    /// Denies the operation.
    #[must_use]
    pub fn deny(message: impl Into<String>) -> Self {
        Self { allowed: false, message: Some(message.into()), ..Self::allow() }
    }

    /// Allows the operation with this JSON patch.
    #[must_use]
    pub fn patch(patch: Value) -> Self {
        Self { patch: Some(patch), ..Self::allow() }
    }

    /// The review that answers the request with this UID.
    pub(super) fn review(&self, uid: &str) -> Value {
        let mut response = json!({ "uid": uid, "allowed": self.allowed });
        let mut set = |key: &str, value: Value| {
            if let Some(map) = response.as_object_mut() {
                map.insert(key.to_owned(), value);
            }
        };
        if let Some(message) = &self.message {
            set("status", json!({ "message": message }));
        }
        if let Some(patch) = &self.patch {
            set("patchType", json!("JSONPatch"));
            set("patch", json!(STANDARD.encode(patch.to_string())));
        }
        if !self.warnings.is_empty() {
            set("warnings", json!(self.warnings));
        }
        json!({ "apiVersion": API_VERSION, "kind": KIND, "response": response })
    }
}

/// The body of a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest>,
}

/// Parses the request in a body.
///
/// # Errors
/// The reason, for the API server.
pub(super) fn request(body: &[u8]) -> Result<AdmissionRequest, String> {
    let parts = body.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
    if parts > REVIEW_PARTS_MAX {
        return Err(format!("the review has {parts} members and items, at most {REVIEW_PARTS_MAX} are allowed"));
    }
    let review: Review = serde_json::from_slice(body)
        // The parser's error repeats texts of the body.
        .map_err(|error| format!("not an AdmissionReview: {}", one_line(&error.to_string(), TEXT_BYTES_MAX)))?;
    if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
        let shown = |text: &str| one_line(text, TEXT_BYTES_MAX);
        let (kind, version) = (shown(&review.kind), shown(&review.api_version));
        return Err(format!("expected an {KIND} of {API_VERSION}, got {kind:?} of {version:?}"));
    }
    review.request.ok_or_else(|| "the AdmissionReview has no request".to_owned())
}
