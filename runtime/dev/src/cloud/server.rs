//! The cloud's API over HTTP: authentication, the knobs, and the log. `handlers` has the requests.

mod control;
mod handlers;
mod list;
mod reply;

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{DefaultBodyLimit, MatchedPath, Request, State},
    http::{Method, header},
    middleware::{self, Next},
    response::Response,
    routing::MethodRouter,
};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Duration, Instant, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::reply::refusal;
use super::{RequestRecord, SimCloud, error::CloudError, knobs::Verdict, listener, requests::cut};

/// Longest body, in bytes: 5,000 real servers need a quarter of it.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The API on a socket; dropping it stops the server.
#[derive(Debug)]
pub struct SimServer {
    /// For example `http://127.0.0.1:41234`.
    pub url: String,
    /// The bearer token that may do everything in `/v1`.
    pub token: String,
    /// The bearer token for `/control`.
    pub admin_token: String,
    _stop: DropGuard,
    _tasks: JoinSet<()>,
}

impl SimServer {
    pub(super) fn start(cloud: SimCloud, address: SocketAddr) -> Result<Self, CloudError> {
        let listener = listener::listen(address)?;
        let bound = listener.local_addr().map_err(|source| CloudError::Listen { address, source })?;
        let (token, admin_token) = {
            let tokens = cloud.tokens();
            (tokens.full.clone().unwrap_or_default(), tokens.admin.clone())
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, router(cloud)).with_graceful_shutdown(stopped).await {
                tracing::error!(%error, "simulated cloud stopped serving");
            }
        });
        Ok(Self { url: format!("http://{bound}"), token, admin_token, _stop: stop.drop_guard(), _tasks: tasks })
    }
}

/// Every path of the API: `openapi.json` describes the same ones, and a test compares them.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<SimCloud>)> {
    let mut routes = handlers::routes();
    routes.extend(control::routes());
    routes
}

fn router(cloud: SimCloud) -> Router {
    let paths = routes().into_iter().fold(Router::new(), |router, (path, methods)| {
        let methods = methods.fallback(|| async { refusal(405, "no-method", "this path does not have this method") });
        router.route(path, methods)
    });
    paths
        .fallback(|| async { refusal(404, "no-path", "the API does not have this path; see /openapi.json") })
        .layer(middleware::from_fn_with_state(cloud.clone(), guard))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(cloud)
}

/// The steps around every request: the knobs and the log for `/v1`, the tokens for both parts.
///
/// As in a real cloud, a request to `/v1` takes effect even if its client disconnects.
async fn guard(State(cloud): State<SimCloud>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path.starts_with("/control/") {
        let admin = cloud.tokens().admin.clone();
        if bearer(&request) != Some(&admin) {
            return refusal(401, "unauthorized", "the control API needs its own bearer token");
        }
        return next.run(request).await;
    }
    if !path.starts_with("/v1/") {
        return next.run(request).await;
    }
    let came = Instant::now();
    let (head, body) = request.into_parts();
    // Read the body first: it is lost when the client disconnects.
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return refusal(413, "too-large", "the body is longer than 1 MiB, or ended early");
    };
    let target = head.uri.path_and_query().map_or(head.uri.path(), |target| target.as_str());
    let request_id = head.headers.get("x-request-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut record = RequestRecord {
        number: 0,
        at_ms: milliseconds(came - cloud.shared.start),
        took_ms: 0,
        method: head.method.to_string(),
        path: cut(target),
        status: 0,
        request_id: cut(request_id),
    };
    let route = head.extensions.get::<MatchedPath>().map_or("no path of the API", MatchedPath::as_str);
    cloud.state().requests.begin(&format!("{} {route}", head.method), &mut record);
    let (answer, answered) = oneshot::channel();
    let carried_out = cloud.clone();
    cloud.carry_out(async move {
        let response = under_knobs(&carried_out, Request::from_parts(head, body.into()), next).await;
        record.status = response.status().as_u16();
        record.took_ms = milliseconds(came.elapsed());
        carried_out.state().requests.end(record);
        // An error means that the client has disconnected.
        drop(answer.send(response));
    });
    answered.await.unwrap_or_else(|_| refusal(500, "broken", "the handler of this request failed"))
}

async fn under_knobs(cloud: &SimCloud, request: Request, next: Next) -> Response {
    let latency = Duration::from_millis(cloud.knobs().latency_ms);
    if !latency.is_zero() {
        sleep(latency).await;
    }
    let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
    let verdict = cloud.state().faults.judge(is_write, Instant::now());
    let lost = match verdict {
        Verdict::Pass => None,
        Verdict::LoseAnswer(status) => Some(status),
        Verdict::Fail(status) => return refusal(status, "fault", "a fault of the knobs; the request had no effect"),
        Verdict::TooMany { retry_after_s } => {
            let mut response = refusal(429, "too-many-requests", "more requests than the rate limit allows");
            response.headers_mut().insert(header::RETRY_AFTER, retry_after_s.into());
            return response;
        }
    };
    if let Err(refused) = authorized(cloud, &request, is_write) {
        return *refused;
    }
    let response = next.run(request).await;
    match lost {
        Some(status) => refusal(status, "fault", "a fault of the knobs; the request took effect"),
        None => response,
    }
}

fn authorized(cloud: &SimCloud, request: &Request, is_write: bool) -> Result<(), Box<Response>> {
    let tokens = cloud.tokens();
    let token = bearer(request);
    if token.is_some() && token == tokens.full.as_deref() {
        return Ok(());
    }
    if token != Some(&tokens.read_only) {
        return Err(Box::new(refusal(401, "unauthorized", "the bearer token is absent, unknown or expired")));
    }
    if is_write {
        return Err(Box::new(refusal(403, "forbidden", "this token may only read")));
    }
    Ok(())
}

fn bearer(request: &Request) -> Option<&str> {
    request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
