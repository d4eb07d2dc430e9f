//! Hetzner Cloud for tests: the API under `/v1`, with the state of one project behind one lock.
//!
//! The validating proxy in front of it (`prism proxy --errors` with `data/hetzner-openapi.json`)
//! compares each request and each response with the vendor's OpenAPI document, so that this server
//! cannot drift from it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

mod project;

use self::project::{Answer, Project};

/// Requests of an hour; one becomes available each second.
const LIMIT: u32 = 3_600;

/// The token that the server accepts.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// One project of Hetzner Cloud.
#[derive(Clone, Debug, Default)]
pub struct HetznerCloud(Arc<Mutex<Account>>);

/// The project and the budget of its token.
#[derive(Debug, Default)]
struct Account {
    project: Project,
    /// Requests that were used up.
    used: u32,
}

impl HetznerCloud {
    /// Serves the API on this address; the URL of the API, and the task to abort at the end.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> std::io::Result<(String, JoinHandle<std::io::Result<()>>)> {
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let app = Router::new().fallback(answer).with_state(self.clone());
        #[expect(clippy::disallowed_methods, reason = "the caller owns the handle")]
        let task = tokio::spawn(async move { axum::serve(listener, app).await });
        Ok((url, task))
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

    /// Method and path of each request since the last call of this function.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.account().project.requests)
    }

    /// Sets the number of requests that an action lasts after the one that started it.
    pub fn set_action_requests(&self, requests: u32) {
        self.account().project.action_requests = requests;
    }

    /// Sets the most load balancers of the project.
    pub fn set_balancers_max(&self, most: usize) {
        self.account().project.balancers_max = most;
    }

    /// Lets the issue of managed certificates fail.
    pub fn set_issue_fails(&self, fails: bool) {
        self.account().project.issue_fails = fails;
    }

    /// Leaves this number of requests in the budget of the token.
    pub fn set_remaining(&self, remaining: u32) {
        self.account().used = LIMIT.saturating_sub(remaining);
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> (Answer, u32) {
        let mut account = self.account();
        if account.used >= LIMIT {
            return (refusal(429, "rate_limit_exceeded", "limit of 3600 requests per hour reached"), account.used);
        }
        account.used += 1;
        let Some(path) = path.strip_prefix("/v1") else {
            return (refusal(404, "not_found", "the API is under /v1"), account.used);
        };
        let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
        let answer = match body {
            Ok(body) => account.project.handle(method.as_str(), path, &pairs(query), &body),
            Err(error) => refusal(400, "json_error", &error.to_string()),
        };
        (answer, account.used)
    }
}

async fn answer(
    State(cloud): State<HetznerCloud>,
    method: Method,
    uri: Uri,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let known =
        headers.get("authorization").is_some_and(|value| value.as_bytes() == format!("Bearer {TOKEN}").as_bytes());
    let (Answer { status, body }, used) = if known {
        cloud.answer(&method, uri.path(), query.as_deref().unwrap_or_default(), &body)
    } else {
        (refusal(401, "unauthorized", "unable to authenticate"), 0)
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = if body.is_null() { status.into_response() } else { (status, axum::Json(body)).into_response() };
    let headers = [
        ("ratelimit-limit", u64::from(LIMIT)),
        ("ratelimit-remaining", LIMIT.saturating_sub(used).into()),
        ("ratelimit-reset", now() + u64::from(used)),
    ];
    for (name, value) in headers {
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
