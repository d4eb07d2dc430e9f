//! Responses in JSON, and errors: `{"error": {"code", "message"}}`.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::cloud::error::CloudError;

/// A refused request, as the error of a handler.
pub(super) struct ErrorResponse(Box<Response>);

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<CloudError> for ErrorResponse {
    fn from(error: CloudError) -> Self {
        let cause = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Self(Box::new(refusal(error.status(), error.code(), &format!("{error}{cause}"))))
    }
}

pub(super) fn refusal(status: u16, code: &str, message: &str) -> Response {
    reply(status, &json!({ "error": { "code": code, "message": message } }))
}

pub(super) fn reply<T: Serialize>(status: u16, value: &T) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(value)).into_response()
}

/// The body, in exactly the form of `openapi.json`.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorResponse> {
    serde_json::from_slice(body).map_err(|error| {
        let status = if error.is_data() { 422 } else { 400 };
        ErrorResponse(Box::new(refusal(
            status,
            "invalid",
            &format!("the body does not have the schema of this path: {error}"),
        )))
    })
}
