//! The connections and the deadlines of all clients of the Kubernetes API.
//!
//! Clients use HTTP/1.1, as kube's own do: one connection carries one request at a time. A
//! request that ends without an answer closes its connection, so that no later request meets a dead
//! connection. HTTP/2 would need pings, and a request that ends early would leave the dead
//! connection to the next one.
//!
//! # Guarantees
//! - A request that hits its deadline fails with a sentence; the next request uses another
//!   connection.
//! - A watch on a dead connection ends after [`WATCH`] and [`WATCH_MARGIN`].
//! - No request is retried here. The caller decides what to do about an answer.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use tokio::time::{sleep, timeout};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, util::BoxService};

/// Connecting, with TLS. kube's default is 30 s, half of the minute after which every controller
/// has to work again.
const CONNECT: Duration = Duration::from_secs(10);
/// Deadline of `get`, `list` and the start of a watch. API Priority and Fairness lets a request
/// wait for 15 s before it answers 429.
const READ: Duration = Duration::from_secs(30);
/// Deadline of all other verbs. The API server itself ends a write after 34 s and answers 504.
const WRITE: Duration = Duration::from_secs(35);
/// How long one watch lasts. A watch on a dead connection looks like a watch without changes, so
/// each watch is started again this often.
const WATCH: Duration = Duration::from_secs(30);
/// How much later the client ends a watch that the API server did not end.
const WATCH_MARGIN: Duration = Duration::from_secs(5);
/// An idle connection is closed after this. It is less than any deadline: when a request has met
/// its deadline on a dead connection, all connections that died with it have expired.
const IDLE: Duration = Duration::from_secs(20);

const _: () = assert!(IDLE.as_secs() < READ.as_secs() && READ.as_secs() < WRITE.as_secs());

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The HTTP service that sends the requests of a client.
pub(super) type Transport = BoxService<Request<Body>, Answer, BoxError>;

/// The transport to the API server of this configuration.
///
/// # Errors
/// The configuration is invalid.
pub(super) fn transport(config: &Config) -> anyhow::Result<Transport> {
    if let Some(proxy) = &config.proxy_url {
        bail!(
            "the kubeconfig has the proxy-url {proxy}, but proxies are not supported; remove it and name a server that is reachable"
        );
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let connector = connector.map_future(|connecting| {
        let connected = async { timeout(CONNECT, connecting).await.map_err(BoxError::from)? };
        connected.boxed()
    });
    let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).build(connector);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context("the credentials of the kubeconfig")?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_response(|answer: Response<Incoming>| answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        .service(client);
    Ok(Deadlines(stack).boxed())
}

/// Ends each request at its deadline, and each watch after [`WATCH`].
struct Deadlines<S>(S);

impl<S> Service<Request<Body>> for Deadlines<S>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let deadline = if request.method() == Method::GET { READ } else { WRITE };
        let what = format!("{} {}", request.method(), request.uri().path());
        let watch = shorter_watch(request.uri());
        let watches = watch.is_some();
        if let Some(uri) = watch {
            *request.uri_mut() = uri;
        }
        let answer = self.0.call(request);
        let whole = async move {
            let answer = answer.await?;
            if watches {
                return Ok(answer.map(until_watch_ends));
            }
            let (head, body) = answer.into_parts();
            let body = Full::new(body.collect().await?.to_bytes()).map_err(|never| match never {});
            Ok(Response::from_parts(head, body.boxed_unsync()))
        };
        let bounded = async move {
            timeout(deadline, whole).await.unwrap_or_else(|_elapsed| {
                let seconds = deadline.as_secs();
                Err(format!("{what}: the API server did not answer within {seconds} s; check the network to it").into())
            })
        };
        bounded.boxed()
    }
}

/// The URI of a watch with a `timeoutSeconds` of [`WATCH`]; `None` if the request is not a watch.
fn shorter_watch(uri: &Uri) -> Option<Uri> {
    let pairs = || uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    if !pairs().any(|pair| matches!(pair, "watch=true" | "watch=1")) {
        return None;
    }
    let others: Vec<_> = pairs().filter(|pair| !pair.starts_with("timeoutSeconds=")).collect();
    format!("{}?{}&timeoutSeconds={}", uri.path(), others.join("&"), WATCH.as_secs()).parse().ok()
}

fn until_watch_ends(body: UnsyncBoxBody<Bytes, BoxError>) -> UnsyncBoxBody<Bytes, BoxError> {
    StreamBody::new(BodyStream::new(body).take_until(sleep(WATCH + WATCH_MARGIN))).boxed_unsync()
}

#[cfg(test)]
mod tests;
