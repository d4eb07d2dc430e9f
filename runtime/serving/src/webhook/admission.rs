//! admission.k8s.io/v1, as far as webhooks of this process use it. Objects stay JSON: a webhook
//! reads of them what it needs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

/// The version that is read and written.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What is about to happen.
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

/// What an API server asks about.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Identifies this question.
    pub uid: String,
    /// What is about to happen.
    pub operation: Operation,
    /// Group, version and kind of `object`.
    pub kind: Value,
    /// Group, version and resource.
    pub resource: Value,
    /// The object's name; empty where the API server makes it.
    #[serde(default)]
    pub name: String,
    /// The object's namespace; empty for those of the cluster.
    #[serde(default)]
    pub namespace: String,
    /// The new object; null on deletion.
    #[serde(default)]
    pub object: Value,
    /// The old object; null on creation.
    #[serde(default)]
    pub old_object: Value,
    /// Nothing will be stored: a webhook with side effects leaves them.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a webhook decides.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionResponse {
    /// Whether it may happen.
    pub allowed: bool,
    /// Why not, for the user.
    pub message: Option<String>,
    /// A JSON patch: a list of operations.
    pub patch: Option<Value>,
    /// Shown to the user; an API server cuts each after 256 characters or so.
    pub warnings: Vec<String>,
}

impl AdmissionResponse {
    /// It may happen as it is.
    #[must_use]
    pub fn allow() -> Self {
        Self { allowed: true, message: None, patch: None, warnings: Vec::new() }
    }

    /// It may not happen.
    #[must_use]
    pub fn deny(message: impl Into<String>) -> Self {
        Self { allowed: false, message: Some(message.into()), ..Self::allow() }
    }

    /// It may happen with this JSON patch applied.
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

/// What comes in the body.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest>,
}

/// The request in a body.
///
/// # Errors
/// A sentence for the API server.
pub(super) fn request(body: &[u8]) -> Result<AdmissionRequest, String> {
    let review: Review = serde_json::from_slice(body).map_err(|error| format!("no AdmissionReview: {error}"))?;
    if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
        return Err(format!("expected an {KIND} of {API_VERSION}, got {:?} of {:?}", review.kind, review.api_version));
    }
    review.request.ok_or_else(|| "the AdmissionReview has no request".to_owned())
}
