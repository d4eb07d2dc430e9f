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

/// Says whether something is as it should be: ok, or a sentence for each thing that is missing.
pub(crate) type Check = Arc<dyn Fn() -> Result<(), Vec<String>> + Send + Sync>;

/// What is served.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) registry: Arc<Registry>,
    /// Whether the manager does its work.
    pub(crate) readiness: Check,
    /// Whether it can go on at all: a process that cannot is ended by the kubelet.
    pub(crate) liveness: Check,
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
pub(crate) async fn serve(listener: TcpListener, served: Served, shutdown: CancellationToken) -> anyhow::Result<()> {
    axum::serve(listener, router(served))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
        .context("the metrics server broke")
}

fn router(served: Served) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|State(served): State<Served>| async move { answer(&served.liveness) }))
        .route("/readyz", get(|State(served): State<Served>| async move { answer(&served.readiness) }))
        .with_state(served)
}

async fn metrics(State(served): State<Served>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &served.registry) {
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

fn answer(check: &Check) -> (StatusCode, String) {
    match check() {
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

    use super::{Check, Served, router};

    async fn ask(path: &str, readiness: Check) -> (u16, String) {
        ask_with(path, readiness, Arc::new(|| Ok(()))).await
    }

    async fn ask_with(path: &str, readiness: Check, liveness: Check) -> (u16, String) {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("calls", "Count of calls", counter);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let served = Served { registry: Arc::new(registry), readiness, liveness };
        let response = router(served).oneshot(request).await.unwrap();
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
        let missing: Check = Arc::new(|| Err(vec!["provider \"sim\": no release serves".to_owned()]));
        assert_eq!(ask("/readyz", missing.clone()).await, (503, "provider \"sim\": no release serves\n".to_owned()));
        assert_eq!(ask("/livez", missing).await.0, 200);
    }

    #[tokio::test]
    async fn liveness_tells_what_cannot_go_on() {
        let dead: Check = Arc::new(|| Err(vec!["leaderElection: failed election to renew".to_owned()]));
        let answer = ask_with("/livez", Arc::new(|| Ok(())), dead).await;
        assert_eq!(answer, (503, "leaderElection: failed election to renew\n".to_owned()));
    }
}
