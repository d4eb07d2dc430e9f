//! The HTTP handler of a webhook.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::any,
};
use bytes::Bytes;
use http::{Method, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use skysail_provider::text::with_causes;
use tokio::{sync::Semaphore, time::Instant};

use super::{Webhook, WebhookLabels, WebhookMetrics, admission};
use crate::limits::{REVIEW_BYTES_MAX, WEBHOOKS_AT_ONCE};

/// One path for each webhook.
pub(super) fn router(webhooks: &[Arc<dyn Webhook>], metrics: &WebhookMetrics) -> Router {
    let at_once = Arc::new(Semaphore::new(WEBHOOKS_AT_ONCE));
    let route = |router: Router, webhook: &Arc<dyn Webhook>| {
        let (webhook, metrics, at_once) = (Arc::clone(webhook), metrics.clone(), Arc::clone(&at_once));
        let path = webhook.path().to_owned();
        router.route(&path, any(move |request| answer(webhook, metrics, at_once, request)))
    };
    webhooks.iter().fold(Router::new(), route).fallback(|| async { (StatusCode::NOT_FOUND, "404 page not found\n") })
}

async fn answer(
    webhook: Arc<dyn Webhook>,
    metrics: WebhookMetrics,
    at_once: Arc<Semaphore>,
    request: Request,
) -> Response {
    let start = Instant::now();
    let _permit = at_once.acquire().await;
    let (code, response) = match review(&*webhook, request).await {
        Ok(review) => (StatusCode::OK, ([(CONTENT_TYPE, "application/json")], review.to_string()).into_response()),
        Err((code, problem)) => {
            tracing::warn!("the webhook {:?} answers {code}: {problem}", webhook.name());
            (code, (code, problem + "\n").into_response())
        }
    };
    let labels = WebhookLabels { code: code.as_u16(), webhook: webhook.name().to_owned() };
    metrics.requests.get_or_create(&labels).inc();
    metrics.durations.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    response
}

async fn review(webhook: &dyn Webhook, request: Request) -> Result<Value, (StatusCode, String)> {
    let bad = |problem: String| (StatusCode::BAD_REQUEST, problem);
    let body = body(request).await.map_err(bad)?;
    let question = admission::request(&body).map_err(bad)?;
    let uid = question.uid.clone();
    let decided = webhook.handle(question).await;
    decided
        .map(|response| response.review(&uid))
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, with_causes(&error)))
}

/// The body of a POST of exactly `application/json`.
async fn body(request: Request<Body>) -> Result<Bytes, String> {
    if request.method() != Method::POST {
        return Err(format!("expected POST, got {}", request.method()));
    }
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind != "application/json" {
        return Err(format!("expected the content type application/json, got {kind:?}"));
    }
    let read = Limited::new(request.into_body(), REVIEW_BYTES_MAX).collect().await;
    let body = read
        .map_err(|error| format!("the body (at most {REVIEW_BYTES_MAX} bytes) cannot be read: {error}"))?
        .to_bytes();
    if body.is_empty() { Err("the body is empty".to_owned()) } else { Ok(body) }
}
