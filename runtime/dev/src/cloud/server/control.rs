//! The control API for tests and people: `/control`, with a separate token.

use axum::{
    Json,
    body::Bytes,
    extract::State as Extract,
    http::StatusCode,
    response::Response,
    routing::{MethodRouter, get, post},
};
use serde_json::{Value, json};

use super::reply::{ErrorResponse, parse, reply};
use crate::cloud::{Knobs, SimCloud};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<SimCloud>)> {
    vec![
        ("/control/knobs", get(knobs).put(put_knobs)),
        ("/control/requests", get(requests).delete(clear_requests)),
        ("/control/state", get(state)),
        ("/control/token/expire", post(expire_token)),
        ("/control/token/renew", post(renew_token)),
    ]
}

async fn knobs(Extract(cloud): Extract<SimCloud>) -> Response {
    reply(200, &cloud.knobs())
}

async fn put_knobs(Extract(cloud): Extract<SimCloud>, body: Bytes) -> Result<Response, ErrorResponse> {
    cloud.set_knobs(parse::<Knobs>(&body)?)?;
    Ok(reply(200, &cloud.knobs()))
}

async fn requests(Extract(cloud): Extract<SimCloud>) -> Response {
    reply(200, &cloud.requests())
}

async fn clear_requests(Extract(cloud): Extract<SimCloud>) -> StatusCode {
    cloud.clear_requests();
    StatusCode::NO_CONTENT
}

async fn state(Extract(cloud): Extract<SimCloud>) -> Response {
    reply(200, &cloud.snapshot())
}

async fn expire_token(Extract(cloud): Extract<SimCloud>) -> StatusCode {
    cloud.expire_token();
    StatusCode::NO_CONTENT
}

async fn renew_token(Extract(cloud): Extract<SimCloud>) -> Json<Value> {
    Json(json!({ "token": cloud.renew_token() }))
}
