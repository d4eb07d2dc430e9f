//! The paths of the secure port, which serve the documents and checks of [`Endpoints`].

use std::{fmt, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, RawQuery, State},
    middleware,
    response::{IntoResponse as _, Response},
    routing::{get, put},
};
use http::{StatusCode, header::CONTENT_TYPE, header::X_CONTENT_TYPE_OPTIONS};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};

use crate::{
    guard::{Guard, guard, status},
    health::{HealthChecks, HealthMetrics},
    limits::VERBOSITY_BYTES_MAX,
};

/// Receives the body of a PUT to `/debug/flags/v`; returns the result or the reason of a refusal.
pub type SetVerbosity = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// Builds a document without secrets for each request.
type Document = Arc<dyn Fn() -> Value + Send + Sync>;

/// Builds a document without secrets about the object with this namespace and name.
pub type ObjectDocument = Arc<dyn Fn(&str, &str) -> Result<Value, NoDocument> + Send + Sync>;

/// Why there is no document about an object; the text is for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDocument {
    /// 404 Not Found: there is no such object.
    NotFound(String),
    /// 503 Service Unavailable: this process does not know the object, and another one may.
    Unavailable(String),
}

/// The key of the configuration in `/configz`, as upstream's.
const CONFIGZ: &str = "cloudcontrollermanager.config.k8s.io";

/// The answer of `/debug/pprof`, which upstream serves with `--profiling`.
const NO_PPROF: &str = "/debug/pprof is Go's profiler and this program has none; use perf on the process, and /metrics for \
    what each provider call cost. --profiling serves /debug/flags/v here\n";

/// The content of the endpoints.
#[derive(Clone)]
pub struct Endpoints {
    /// `/healthz`: the leader's lease and each started controller, as upstream.
    pub healthz: HealthChecks,
    /// `/livez`: whether a restart would help.
    pub livez: HealthChecks,
    /// `/readyz`: whether the process can do its work.
    pub readyz: HealthChecks,
    /// `/metrics`.
    pub registry: Arc<Registry>,
    /// `/configz`: the effective configuration.
    pub configuration: Document,
    /// `/providers`: the state of the operator's Providers.
    pub providers: Document,
    /// `/services/NAMESPACE/NAME`: why a Service has, or has not, its load balancer.
    pub services: ObjectDocument,
    /// `/debug/flags/v`; `None` with `--profiling=false`.
    pub verbosity: Option<SetVerbosity>,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("healthz", &self.healthz).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Shared {
    endpoints: Endpoints,
    slis: Arc<Registry>,
    health: HealthMetrics,
}

impl Endpoints {
    /// The router, with the guard before each path; the guard also decides which paths are public.
    pub(crate) fn router(self, by: Arc<Guard>) -> Router {
        let debug = self.verbosity.is_some();
        let mut slis = Registry::default();
        let health = HealthMetrics::register(&mut slis);
        let shared = Shared { endpoints: self, slis: Arc::new(slis), health };
        let mut router = Router::new()
            .route("/healthz", get(healthz))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/metrics/slis", get(slis_metrics))
            .route("/configz", get(configz))
            .route("/providers", get(providers))
            .route("/services/{namespace}/{name}", get(service));
        if debug {
            let pprof = get(|| async { (StatusCode::NOT_FOUND, NO_PPROF) });
            router = router
                .route("/debug/flags/v", put(set_verbosity).layer(DefaultBodyLimit::max(VERBOSITY_BYTES_MAX)))
                .route("/debug/pprof", pprof.clone())
                .route("/debug/pprof/", pprof.clone())
                .route("/debug/pprof/{*profile}", pprof);
        }
        router
            .fallback(|| async { (StatusCode::NOT_FOUND, "404 page not found\n") })
            .with_state(shared)
            .layer(middleware::from_fn_with_state(by, guard))
    }
}

async fn healthz(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    health("healthz", &shared.endpoints.healthz, query, &shared)
}

async fn livez(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    health("livez", &shared.endpoints.livez, query, &shared)
}

async fn readyz(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    health("readyz", &shared.endpoints.readyz, query, &shared)
}

fn health(endpoint: &'static str, checks: &HealthChecks, query: Option<String>, shared: &Shared) -> Response {
    let answer = checks.answer(endpoint, &query.unwrap_or_default(), &shared.health);
    let mut response = answer.into_response();
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}

async fn metrics(State(shared): State<Shared>) -> Response {
    encoded(&shared.endpoints.registry)
}

async fn slis_metrics(State(shared): State<Shared>) -> Response {
    encoded(&shared.slis)
}

fn encoded(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode: {error}\n")).into_response(),
    }
}

async fn configz(State(shared): State<Shared>) -> Response {
    json_of(&json!({ CONFIGZ: (shared.endpoints.configuration)() }))
}

async fn providers(State(shared): State<Shared>) -> Response {
    json_of(&(shared.endpoints.providers)())
}

async fn service(State(shared): State<Shared>, Path((namespace, name)): Path<(String, String)>) -> Response {
    match (shared.endpoints.services)(&namespace, &name) {
        Ok(document) => json_of(&document),
        Err(NoDocument::NotFound(why)) => {
            let details = json!({ "kind": "services", "name": name });
            status(StatusCode::NOT_FOUND, "NotFound", &why, details)
        }
        Err(NoDocument::Unavailable(why)) => {
            status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &why, json!({}))
        }
    }
}

fn json_of(document: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], document.to_string()).into_response()
}

async fn set_verbosity(State(shared): State<Shared>, body: Bytes) -> Response {
    let wanted = std::str::from_utf8(&body).map(str::trim).unwrap_or_default();
    let Some(set) = &shared.endpoints.verbosity else { return StatusCode::NOT_FOUND.into_response() };
    match set(wanted) {
        Ok(said) => (StatusCode::OK, said + "\n").into_response(),
        Err(problem) => (StatusCode::BAD_REQUEST, problem + "\n").into_response(),
    }
}
