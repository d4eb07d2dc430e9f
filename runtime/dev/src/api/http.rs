//! From an HTTP request to an answer: routing, content negotiation, bodies; and the `tower` service
//! over it.

pub(crate) mod serve;

use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WARNING};
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use super::ApiServer;
use super::delete::DeleteOptions;
use super::discovery;
use super::errors::ApiError;
use super::fault::{Fault, RequestInfo, WatchFault};
use super::openapi;
use super::patch::PatchType;
use super::protobuf;
use super::request::{Params, Target};
use super::requests;
use super::reviews;
use super::state::Call;
use super::table::Tabulator;
use super::watch::Form;
use super::write::Written;

/// The largest request body, the API server's limit.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The API server as a `tower::Service`, for `kube::Client::new`.
#[derive(Clone, Debug)]
pub struct ApiService(pub(crate) Arc<ApiServer>);

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(_) => {
                    let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
                    let code = StatusCode::PAYLOAD_TOO_LARGE;
                    return Ok(refusal(&ApiError::new(code, "RequestEntityTooLarge", message)));
                }
            };
            let incoming = Incoming { method: parts.method, uri: parts.uri, headers: parts.headers, body };
            Ok(server.answer(&incoming).await)
        }
        .boxed()
    }
}

/// A request whose body has been read.
#[derive(Debug)]
struct Incoming {
    method: Method,
    uri: ::http::Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Incoming {
    fn header(&self, name: ::http::HeaderName) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON, or as YAML by its content type; an empty body is null.
    fn decoded(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let content_type = self.header(CONTENT_TYPE);
        if content_type.contains("yaml") {
            return serde_saphyr::from_slice(&self.body)
                .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")));
        }
        if content_type.starts_with("application/vnd.kubernetes.protobuf")
            && let Some(object) = protobuf::decode(&self.body)
        {
            return Ok(object);
        }
        if !content_type.is_empty() && !content_type.contains("json") {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                application/json, application/yaml";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message));
        }
        serde_json::from_slice(&self.body)
            .map_err(|e| ApiError::bad_request(format!("the object provided is unrecognized: json parse error: {e}")))
    }
}

impl ApiServer {
    async fn answer(self: &Arc<Self>, incoming: &Incoming) -> Response<Body> {
        let Some(target) = Target::parse(incoming.uri.path()) else { return self.fixed(incoming) };
        let params = match Params::parse(&incoming.uri) {
            Ok(params) => params,
            Err(error) => return refusal(&error),
        };
        let Some(verb) = target.verb(&incoming.method, &params) else {
            return refusal(&ApiError::method_not_allowed());
        };
        let info = RequestInfo {
            verb,
            group: target.group.clone(),
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            subresource: target.subresource.clone(),
            user_agent: incoming.header(USER_AGENT).to_owned(),
        };
        let fault = self.judge(&info);
        if let Fault::Latency(latency) = &fault {
            tokio::time::sleep(*latency).await;
        }
        let response = match &fault {
            Fault::Refuse(error) => refusal(error),
            Fault::LoseAnswer(error) => {
                drop(self.route(incoming, target, params, &fault));
                refusal(error)
            }
            Fault::NeverAnswer { done } => {
                if *done {
                    drop(self.route(incoming, target, params, &fault));
                }
                return std::future::pending().await;
            }
            Fault::None
            | Fault::Latency(_)
            | Fault::LateAnswer(_)
            | Fault::DropWatchAfter(_)
            | Fault::ExpireWatch
            | Fault::DelayWatch(_)
            | Fault::StaleList(_) => {
                self.route(incoming, target, params, &fault).unwrap_or_else(|error| refusal(&error))
            }
        };
        if let Fault::LateAnswer(late) = &fault {
            tokio::time::sleep(*late).await;
        }
        self.requests().record(requests::Request { info, status: response.status() });
        response
    }

    fn route(
        self: &Arc<Self>,
        incoming: &Incoming,
        target: Target,
        params: Params,
        fault: &Fault,
    ) -> Result<Response<Body>, ApiError> {
        let verb = target.verb(&incoming.method, &params).ok_or_else(ApiError::method_not_allowed)?;
        let accept = Accept::of(incoming.header(ACCEPT))?;
        if let Some(review) = reviews::at(&target) {
            return match verb {
                "create" => Ok(json_response(StatusCode::CREATED, &review.answer(&incoming.decoded()?))),
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        let mut state = self.state();
        let kind = match state.kind_of(&target) {
            Ok(kind) => kind,
            Err(_) if discovery::resources(&state, &target.group, &target.version).is_none() => {
                return Ok(if target.group.is_empty() { refusal(&ApiError::no_such_resource()) } else { lost() });
            }
            Err(error) => return Err(error),
        };
        check_scope(&kind, &target, verb)?;
        let manager = manager(&params, incoming.header(USER_AGENT));
        let call = Call { kind, target, params, manager };
        let one = |value: &Value, code| json_answer(code, value, accept.table.as_ref(), &call, self);
        match verb {
            "watch" => {
                drop(state);
                let form = accept.table.clone().map_or(Form::Objects, Form::Tables);
                let stream = self.watch(&call, form, WatchFault::of(fault))?;
                Ok(with_type(Response::new(Body::from_stream(stream)), "application/json"))
            }
            "get" => {
                let object = state.read(&call)?;
                drop(state);
                Ok(one(&object, StatusCode::OK))
            }
            "list" => {
                let lag = if let Fault::StaleList(revisions) = fault { *revisions } else { 0 };
                let page = state.list_page(&call, lag)?;
                let answer = match &accept.table {
                    Some(table) => table.many(&call.kind, &page.items, page.metadata(), &state.clock),
                    None => json!({
                        "kind": call.kind.list_kind, "apiVersion": call.kind.api_version(),
                        "metadata": page.metadata(), "items": listed(&page.items),
                    }),
                };
                Ok(json_response(StatusCode::OK, &answer))
            }
            "create" => write_response(state.create(&call, &incoming.decoded()?)?, one),
            "update" => write_response(state.update(&call, &incoming.decoded()?)?, one),
            "patch" => {
                let patch_type = PatchType::of(incoming.header(CONTENT_TYPE))?;
                write_response(state.patch(&call, patch_type, &incoming.decoded()?)?, one)
            }
            "delete" => {
                let answer = state.delete(&call, &DeleteOptions::parse(&incoming.decoded()?)?)?;
                Ok(json_response(StatusCode::OK, &answer))
            }
            _ => Ok(json_response(StatusCode::OK, &state.delete_collection(&call)?)),
        }
    }

    /// Paths that are not resources.
    fn fixed(self: &Arc<Self>, incoming: &Incoming) -> Response<Body> {
        if incoming.method != Method::GET {
            return refusal(&ApiError::method_not_allowed());
        }
        let path = incoming.uri.path().trim_matches('/');
        let parts: Vec<&str> = path.split('/').collect();
        let state = self.state();
        let found = match parts.as_slice() {
            ["version"] => Some(discovery::version()),
            ["healthz" | "livez" | "readyz"] => {
                return with_type(Response::new(Body::from("ok")), "text/plain; charset=utf-8");
            }
            ["openapi", "v2"] => return openapi::v2(incoming.header(ACCEPT)),
            ["api"] => Some(discovery::core_versions()),
            ["apis"] => Some(discovery::group_list(&state)),
            ["openapi", "v3"] => Some(openapi::index(&state)),
            ["openapi", "v3", "api", version] => openapi::document(&state, "", version),
            ["openapi", "v3", "apis", group, version] => openapi::document(&state, group, version),
            ["apis", group] => discovery::group(&state, group),
            ["api", version] => discovery::resources(&state, "", version),
            ["apis", group, version] => discovery::resources(&state, group, version),
            _ => None,
        };
        match found {
            Some(answer) => json_response(StatusCode::OK, &answer),
            None if path.starts_with("api/") => refusal(&ApiError::no_such_resource()),
            None => lost(),
        }
    }
}

fn listed(items: &[super::object::Object]) -> Value {
    // As in the API server, items of a list have no apiVersion and kind.
    let stripped = items.iter().map(|item| {
        let mut item = (**item).clone();
        if let Some(map) = item.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        item
    });
    Value::Array(stripped.collect())
}

fn check_scope(kind: &super::kinds::Kind, target: &Target, verb: &str) -> Result<(), ApiError> {
    let needs_namespace = kind.namespaced && target.namespace.is_empty() && !matches!(verb, "list" | "watch");
    if needs_namespace || !kind.namespaced && !target.namespace.is_empty() {
        return Err(if needs_namespace { ApiError::method_not_allowed() } else { ApiError::no_such_resource() });
    }
    match target.subresource.as_str() {
        "" => Ok(()),
        "status" if kind.status && matches!(verb, "get" | "update" | "patch") => Ok(()),
        "status" if kind.status => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_such_resource()),
    }
}

/// The field manager: `fieldManager`, else the user agent up to its first slash.
fn manager(params: &Params, user_agent: &str) -> String {
    if !params.field_manager.is_empty() {
        return params.field_manager.clone();
    }
    let agent = user_agent.split('/').next().unwrap_or_default();
    if agent.is_empty() { "unknown".to_owned() } else { agent.chars().take(128).collect() }
}

/// The response to a write, with its warnings.
fn write_response(
    written: Written,
    one: impl FnOnce(&Value, StatusCode) -> Response<Body>,
) -> Result<Response<Body>, ApiError> {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = one(&written.object, code);
    for warning in &written.warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    Ok(response)
}

fn json_answer(
    code: StatusCode,
    value: &Value,
    table: Option<&Tabulator>,
    call: &Call,
    server: &ApiServer,
) -> Response<Body> {
    match table {
        Some(table) => json_response(code, &table.one(&call.kind, value, &server.clock())),
        None => json_response(code, value),
    }
}

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = with_type(Response::new(Body::from(value.to_string())), "application/json");
    *response.status_mut() = code;
    response
}

pub(crate) fn with_type(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = json_response(error.code, &error.to_status());
    let seconds = error.details.get("retryAfterSeconds").and_then(Value::as_u64);
    if let Some(value) = seconds.and_then(|s| HeaderValue::from_str(&s.to_string()).ok()) {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

fn lost() -> Response<Body> {
    let mut response = with_type(Response::new(Body::from("404 page not found\n")), "text/plain; charset=utf-8");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The form that the client accepts.
#[derive(Debug)]
struct Accept {
    table: Option<Tabulator>,
}

impl Accept {
    /// Chooses the first form that this server has. It never chooses protobuf: every client that
    /// accepts protobuf accepts JSON.
    fn of(header: &str) -> Result<Self, ApiError> {
        if header.is_empty() {
            return Ok(Self { table: None });
        }
        for range in header.split(',').map(str::trim) {
            let plain = range.split(';').next().unwrap_or_default().trim();
            if !matches!(plain, "application/json" | "application/*" | "*/*") {
                continue;
            }
            if range.contains("as=Table") {
                return Ok(Self { table: Some(Tabulator) });
            }
            if !range.contains("as=") {
                return Ok(Self { table: None });
            }
        }
        let message = "406: Not Acceptable\n\nAvailable representations: application/json";
        let mut error = ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message);
        error.details = json!({});
        Err(error)
    }
}
