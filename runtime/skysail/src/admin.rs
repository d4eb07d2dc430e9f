//! `/metrics`, `/livez` and `/readyz`, over plain HTTP.
//!
//! Serves what it is given; it knows no controller and no provider.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Says whether the manager does its work: ok, or a sentence for each thing that is missing.
pub(crate) type Readiness = Arc<dyn Fn() -> Result<(), Vec<String>> + Send + Sync>;

#[derive(Clone)]
struct Shared {
    registry: Arc<Registry>,
    readiness: Readiness,
}

/// Takes the address, so that a port in use is an error at start.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot serve /metrics on {address}: is another manager running? Choose another --metrics-bind-address")
    })
}

/// Serves until the token is cancelled.
///
/// # Errors
/// The listener broke.
pub(crate) async fn serve(
    listener: TcpListener,
    registry: Arc<Registry>,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    axum::serve(listener, router(registry, readiness))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
        .context("the metrics server broke")
}

fn router(registry: Arc<Registry>, readiness: Readiness) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(Shared { registry, readiness })
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &shared.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            format!("cannot encode: {error}\n"),
        ),
    }
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, String) {
    match (shared.readiness)() {
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{body::Body, http::Request};
    use prometheus_client::{metrics::counter::Counter, registry::Registry};
    use tower::ServiceExt as _;

    use super::{Readiness, router};

    async fn ask(path: &str, readiness: Readiness) -> (u16, String) {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("calls", "Count of calls", counter);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(Arc::new(registry), readiness).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_are_in_the_open_metrics_text_format() {
        let (status, body) = ask("/metrics", Arc::new(|| Ok(()))).await;
        assert_eq!(status, 200);
        assert!(body.contains("calls_total 1\n") && body.ends_with("# EOF\n"), "{body}");
    }

    #[tokio::test]
    async fn readiness_tells_what_is_missing_and_liveness_does_not_depend_on_it() {
        let missing: Readiness = Arc::new(|| Err(vec!["provider \"sim\": no release serves".to_owned()]));
        assert_eq!(ask("/readyz", missing.clone()).await, (503, "provider \"sim\": no release serves\n".to_owned()));
        assert_eq!(ask("/livez", missing).await.0, 200);
    }
}
