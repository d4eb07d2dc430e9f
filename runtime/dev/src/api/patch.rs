//! `patch`: the patch formats, and their conversion into an update.

mod apply;
mod strategic;

use serde_json::Value;

use super::codec;
use super::errors::ApiError;
use super::schema;
use super::state::{Call, State, view};
use super::write::{self, Ownership, Written};

/// The API server's bound on the operations of one JSON patch.
const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;

/// The patch formats, by their content types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// The format of a content type.
    ///
    /// # Errors
    /// `UnsupportedMediaType` for any other one.
    pub(crate) fn of(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => {
                let code = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
                let mut error = ApiError::new(code, "UnsupportedMediaType", "415: Unsupported Media Type");
                error.details = serde_json::json!({});
                Err(error)
            }
        }
    }
}

impl State {
    /// Patches an object.
    pub(crate) fn patch(&mut self, call: &Call, patch_type: PatchType, patch: &Value) -> Result<Written, ApiError> {
        if patch_type == PatchType::Apply {
            return self.apply(call, patch);
        }
        let stored =
            self.store.get(&call.key()).cloned().ok_or_else(|| ApiError::not_found(&call.kind, &call.target.name))?;
        let current = (*view(&call.kind, &stored)).clone();
        let patched = match patch_type {
            PatchType::Json => json_patch(&current, patch)?,
            PatchType::Strategic => match schema::definition_of(&call.kind) {
                Some(definition) => strategic::apply(definition, &current, patch)?,
                None => {
                    let code = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
                    let message = "the body of the request was in an unknown format - accepted media types include: \
                        application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                    return Err(ApiError::new(code, "UnsupportedMediaType", message));
                }
            },
            PatchType::Merge | PatchType::Apply => {
                if !patch.is_object() {
                    return Err(ApiError::bad_request("a merge patch must be an object"));
                }
                let mut merged = current.clone();
                json_patch::merge(&mut merged, patch);
                merged
            }
        };
        let (new, warnings) = write::accept(call, codec::decode(&call.kind, &patched)?)?;
        let object = self.replace(call, new, &Ownership::Update, true)?;
        Ok(Written { object, created: false, warnings })
    }
}

fn json_patch(current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    if patch.0.len() > JSON_PATCH_OPERATIONS_MAX {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS_MAX}, got {}",
            patch.0.len()
        );
        return Err(ApiError::new(http::StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
    }
    let mut patched = current.clone();
    json_patch::patch(&mut patched, &patch).map_err(|_| {
        let code = http::StatusCode::UNPROCESSABLE_ENTITY;
        let message = "the server rejected our request due to an error in our request";
        let mut error = ApiError::new(code, "Invalid", message);
        error.details = serde_json::json!({});
        error
    })?;
    Ok(patched)
}
