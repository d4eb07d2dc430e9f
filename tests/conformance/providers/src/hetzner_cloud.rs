//! Hetzner Cloud for tests: the API under `/v1`, with the state of one project behind one lock.
//!
//! Each request and each response is compared with the vendor's OpenAPI document, so that neither
//! the provider nor this server can drift from it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

mod document;
mod project;

use self::{
    document::Document,
    project::{Answer, Project},
};
use crate::published;

/// Requests of an hour. This server never refuses one; the proxy of a test does.
const LIMIT: u64 = 3_600;

/// The token that the server accepts.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// One project of Hetzner Cloud.
#[derive(Clone, Debug, Default)]
pub struct HetznerCloud(Arc<Mutex<Account>>);

/// The project, and whether its token is still valid.
#[derive(Debug, Default)]
struct Account {
    project: Project,
    revoked: bool,
}

impl HetznerCloud {
    /// Serves the API; its address, and the task to abort at the end.
    ///
    /// # Errors
    ///
    /// The vendor's document cannot be read, or no port can be bound.
    pub async fn serve(&self) -> Result<(SocketAddr, JoinHandle<std::io::Result<()>>)> {
        let state = (self.clone(), Document::vendors()?);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for Hetzner Cloud")?;
        let address = listener.local_addr()?;
        let app = Router::new().fallback(answer).with_state(state);
        #[expect(clippy::disallowed_methods, reason = "the caller owns the handle")]
        let task = tokio::spawn(async move { axum::serve(listener, app).await });
        Ok((address, task))
    }

    /// Sends a request without HTTP: to set up, and to read back.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let Answer { status, body } = self.account().project.handle(method, path, &[], body);
        (status, body)
    }

    /// Every object of a collection, such as `load_balancers`.
    pub fn all(&self, collection: &str) -> Vec<Value> {
        self.account().project.all(collection).into_iter().cloned().collect()
    }

    /// Lets the issue of managed certificates fail.
    pub fn set_issue_fails(&self, fails: bool) {
        self.account().project.issue_fails = fails;
    }

    /// Refuses the token from now on.
    pub fn revoke_token(&self) {
        self.account().revoked = true;
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, method: &str, path: &str, query: &[(String, String)], body: &Bytes) -> Answer {
        let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
        match body {
            Ok(body) => self.account().project.handle(method, path, query, &body),
            Err(error) => refusal(400, "json_error", &error.to_string()),
        }
    }
}

async fn answer(
    State((cloud, document)): State<(HetznerCloud, &'static Document)>,
    method: Method,
    uri: Uri,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let token = format!("Bearer {TOKEN}");
    let known = headers.get("authorization").is_some_and(|value| value.as_bytes() == token.as_bytes());
    let query = pairs(query.as_deref().unwrap_or_default());
    let Answer { status, body } = match uri.path().strip_prefix("/v1") {
        Some(path) => {
            let answer = if known && !cloud.account().revoked {
                cloud.answer(method.as_str(), path, &query, &body)
            } else {
                refusal(401, "unauthorized", "unable to authenticate")
            };
            if let Err(difference) = document.compare(method.as_str(), path, &query, &body, &answer) {
                published::differs("Hetzner's OpenAPI document", &difference);
            }
            answer
        }
        None => refusal(404, "not_found", "the API is under /v1"),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = if body.is_null() { status.into_response() } else { (status, axum::Json(body)).into_response() };
    for (name, value) in [("ratelimit-limit", LIMIT), ("ratelimit-remaining", LIMIT), ("ratelimit-reset", now())] {
        response.headers_mut().insert(name, HeaderValue::from(value));
    }
    response
}

/// Seconds since 1970: the header is a time, at which the whole budget is there again.
fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "clients compare the time with the header Date")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn refusal(status: u16, code: &str, message: &str) -> Answer {
    Answer { status, body: json!({"error": {"code": code, "message": message, "details": null}}) }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(key), decoded(value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match byte {
            b'%' => bytes.extend(hex(rest.next()).zip(hex(rest.next())).map(|(high, low)| high * 16 + low)),
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
