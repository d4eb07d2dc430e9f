//! The deadlines of all requests to the Kubernetes API, and how soon the controllers work again
//! after the API server did not answer.
//!
//! # Guarantees
//! - A request that hits its deadline fails with a sentence; a body without an end does so too.
//! - A watch on a dead connection ends after [`WATCH`] and [`WATCH_MARGIN`].
//! - Each queue and each watch works again within [`WORKS_AGAIN`] after the API server can be
//!   reached. A periodic pass keeps its period.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture, stream};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Service};

use crate::{backoff::API_CAP, watch_backoff};

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
/// An idle connection is closed after this. So a dead connection receives its last request within
/// this time.
pub const CONNECTION_IDLE: Duration = Duration::from_secs(10);
/// How soon queues and watches work again after the API server can be reached.
const WORKS_AGAIN: Duration = Duration::from_mins(1);

/// Adds up the latest request on a dead connection, its deadline, and the wait before the next try,
/// which uses another connection.
const fn is_in_time(deadline: Duration, wait: Duration) -> bool {
    CONNECTION_IDLE.as_secs() + deadline.as_secs() + wait.as_secs() < WORKS_AGAIN.as_secs()
}

const _: () = assert!(is_in_time(WRITE, API_CAP) && is_in_time(READ, API_CAP));
const _: () = assert!(is_in_time(READ, watch_backoff::LONGEST));
const _: () = assert!(WATCH.as_secs() + WATCH_MARGIN.as_secs() + watch_backoff::LONGEST.as_secs() < 60);

/// An answer of the Kubernetes API.
pub type ApiResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Ends each request at its deadline, and each watch after [`WATCH`].
#[derive(Clone, Debug)]
pub struct Deadlines<S>(S);

impl<S> Deadlines<S> {
    /// Wraps the HTTP service of a client.
    pub const fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S> Service<Request<Body>> for Deadlines<S>
where
    S: Service<Request<Body>, Response = ApiResponse, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = ApiResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ApiResponse, BoxError>>;

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
    let end = Instant::now() + WATCH + WATCH_MARGIN;
    let frames = stream::unfold(body, move |mut body| async move {
        let frame = timeout_at(end, body.frame()).await.ok()??;
        Some((frame, body))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
        client::Body,
    };
    use tokio::time::Instant;
    use tower::{BoxError, ServiceExt as _, service_fn};

    use super::{ApiResponse, Deadlines, READ, WATCH, WATCH_MARGIN, WRITE};
    use crate::error::chain;

    type Answering = BoxFuture<'static, Result<ApiResponse, BoxError>>;

    /// A client of an API server that answers with `answer`.
    fn client(answer: impl Fn(Request<Body>) -> Answering + Send + 'static) -> Api<ConfigMap> {
        let client = Client::new(Deadlines::new(service_fn(answer)).boxed(), "default");
        Api::default_namespaced(client)
    }

    /// A body without data and without an end.
    fn endless() -> UnsyncBoxBody<Bytes, BoxError> {
        let nothing = BodyStream::new(Body::empty().map_err(BoxError::from));
        StreamBody::new(nothing.chain(futures::stream::pending())).boxed_unsync()
    }

    /// How long a request took, and why it failed.
    async fn failed_after<T>(request: impl Future<Output = kube::Result<T>>) -> (Duration, String) {
        let begin = Instant::now();
        let error = request.await.err().unwrap();
        (begin.elapsed(), chain(&error))
    }

    #[tokio::test(start_paused = true)]
    async fn each_verb_has_a_deadline_when_the_api_server_never_answers() {
        let api = client(|_| futures::future::pending().boxed());
        let (post, delete) = (PostParams::default(), DeleteParams::default());
        let (took, why) = failed_after(api.get("a")).await;
        assert_eq!(took, READ);
        assert!(why.contains("GET /api/v1/namespaces/default/configmaps/a: the API server did not answer"), "{why}");
        assert_eq!(failed_after(api.list(&ListParams::default())).await.0, READ);
        assert_eq!(
            failed_after(api.watch(&WatchParams::default(), "0").map(|started| started.map(drop))).await.0,
            READ
        );
        assert_eq!(failed_after(api.create(&post, &ConfigMap::default())).await.0, WRITE);
        assert_eq!(failed_after(api.replace("a", &post, &ConfigMap::default())).await.0, WRITE);
        let (patch, changes) = (PatchParams::default(), Patch::Merge(ConfigMap::default()));
        assert_eq!(failed_after(api.patch("a", &patch, &changes)).await.0, WRITE);
        assert_eq!(failed_after(api.delete("a", &delete)).await.0, WRITE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_hits_the_same_deadline() {
        let api = client(|_| async { Ok(Response::new(endless())) }.boxed());
        assert_eq!(failed_after(api.list(&ListParams::default())).await.0, READ);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_asked_for_a_short_time_and_ends_where_the_api_server_does_not_end_it() {
        let api = client(move |request| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            assert!(query.contains("watch=true") && query.ends_with("&timeoutSeconds=30"), "{query}");
            assert!(query.contains("resourceVersion=7") && !query.contains("290"), "{query}");
            async { Ok(Response::new(endless())) }.boxed()
        });
        let mut events = std::pin::pin!(api.watch(&WatchParams::default(), "7").await.unwrap());
        let begin = Instant::now();
        assert!(events.next().await.is_none());
        assert_eq!(begin.elapsed(), WATCH + WATCH_MARGIN);
    }
}
