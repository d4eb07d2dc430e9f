//! Counts requests to the API server as client-go does, in a layer around the client, so that each
//! counted request is one of a caller.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;
use tower::{Layer, Service};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
    host: String,
}

/// Counts requests to API servers.
#[derive(Clone, Debug)]
pub struct RestClientMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram>,
}

impl RestClientMetrics {
    /// Creates the metrics and registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        // 5 ms doubled, 14 buckets: to 41 s.
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.005, 2.0, 14));
        let metrics = Self { requests: Family::default(), durations: Family::new_with_constructor(buckets) };
        let help = "Count of requests to API servers by status code, method and host";
        registry.register("rest_client_requests", help, metrics.requests.clone());
        let help = "Time from a request to an API server to the head of its answer";
        registry.register("rest_client_request_duration_seconds", help, metrics.durations.clone());
        metrics
    }

    /// The layer for a client of this host: `HOST:PORT`.
    #[must_use]
    pub fn layer(&self, host: impl Into<String>) -> RestClientLayer {
        RestClientLayer { metrics: self.clone(), host: host.into() }
    }

    fn observe(&self, code: String, method: &str, host: &str, start: Instant) {
        let labels = RequestLabels { code, method: method.to_owned(), host: host.to_owned() };
        self.requests.get_or_create(&labels).inc();
        let labels = DurationLabels { verb: method.to_owned(), host: host.to_owned() };
        self.durations.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    }
}

/// The layer for `kube::client::ClientBuilder::with_layer`.
#[derive(Clone, Debug)]
pub struct RestClientLayer {
    metrics: RestClientMetrics,
    host: String,
}

impl<S> Layer<S> for RestClientLayer {
    type Service = RestClientService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RestClientService { inner, layer: self.clone() }
    }
}

/// A client whose requests are counted.
#[derive(Clone, Debug)]
pub struct RestClientService<S> {
    inner: S,
    layer: RestClientLayer,
}

impl<S, B, R> Service<Request<B>> for RestClientService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let RestClientLayer { metrics, host } = self.layer.clone();
        let (method, start) = (request.method().clone(), Instant::now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // client-go's code for a request without an answer.
            let code = answer.as_ref().map_or_else(|_| "<error>".to_owned(), |it| it.status().as_str().to_owned());
            metrics.observe(code, method.as_str(), &host, start);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    use super::RestClientMetrics;

    #[tokio::test]
    async fn requests_are_counted_by_code_method_and_host() {
        let mut registry = Registry::default();
        let layer = RestClientMetrics::register(&mut registry).layer("192.0.2.1:6443");
        let answer = |request: Request<()>| async move {
            match request.uri().path() {
                "/ok" => Ok(Response::new(())),
                _ => Err(std::io::Error::other("gone")),
            }
        };
        for path in ["/ok", "/ok", "/gone"] {
            let request = Request::post(path).body(()).unwrap();
            drop(layer.layer(service_fn(answer)).oneshot(request).await);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"rest_client_requests_total{code="200",method="POST",host="192.0.2.1:6443"} 2"#,
            r#"rest_client_requests_total{code="<error>",method="POST",host="192.0.2.1:6443"} 1"#,
            r#"rest_client_request_duration_seconds_count{verb="POST",host="192.0.2.1:6443"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
