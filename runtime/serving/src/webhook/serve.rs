//! The HTTP handler of a webhook.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::any,
};
use bytes::Bytes;
use http::{Method, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use skysail_provider::text::{one_line, with_causes};
use tokio::time::{Instant, timeout};

use super::{Webhook, WebhookLabels, WebhookMetrics, admission};
use crate::{
    limits::{BODIES, BODY_TIMEOUT, REVIEW_BYTES_MAX, TEXT_BYTES_MAX, WEBHOOKS},
    line_rate::LineRate,
    peer_address::PeerAddress,
    waiting_places::WaitingPlaces,
};

/// One path for each webhook.
pub(super) fn router(webhooks: &[Arc<dyn Webhook>], metrics: &WebhookMetrics) -> Router {
    let admission = Arc::new(Admission {
        bodies: WaitingPlaces::new(BODIES),
        reviews: WaitingPlaces::new(WEBHOOKS),
        warnings: LineRate::default(),
    });
    let route = |router: Router, webhook: &Arc<dyn Webhook>| {
        let (webhook, metrics, admission) = (Arc::clone(webhook), metrics.clone(), Arc::clone(&admission));
        let path = webhook.path().to_owned();
        let answer =
            move |address, request| async move { answer(webhook, metrics, &admission, (address, request)).await };
        router.route(&path, any(answer))
    };
    webhooks.iter().fold(Router::new(), route).fallback(|| async { (StatusCode::NOT_FOUND, "404 page not found\n") })
}

/// The limits that all webhooks of a port share. A place for a body and one for a review are held
/// one after the other.
struct Admission {
    bodies: WaitingPlaces,
    reviews: WaitingPlaces,
    warnings: LineRate,
}

async fn answer(
    webhook: Arc<dyn Webhook>,
    metrics: WebhookMetrics,
    admission: &Admission,
    (address, request): (Extension<PeerAddress>, Request),
) -> Response {
    let start = Instant::now();
    let (code, response) = match review(&*webhook, admission, (address.0, request)).await {
        Ok(review) => (StatusCode::OK, ([(CONTENT_TYPE, "application/json")], review.to_string()).into_response()),
        Err((code, problem)) => {
            if let Some(left_out) = admission.warnings.take() {
                tracing::warn!("the webhook {:?} answers a request with {code}: {problem}{left_out}", webhook.name());
            }
            (code, (code, problem + "\n").into_response())
        }
    };
    let labels = WebhookLabels { code: code.as_u16(), webhook: webhook.name().to_owned() };
    metrics.requests.get_or_create(&labels).inc();
    metrics.durations.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    response
}

async fn review(
    webhook: &dyn Webhook,
    Admission { bodies, reviews, warnings: _ }: &Admission,
    (address, request): (PeerAddress, Request),
) -> Result<Value, (StatusCode, String)> {
    let bad = |problem: String| (StatusCode::BAD_REQUEST, problem);
    let closed = |_| (StatusCode::SERVICE_UNAVAILABLE, "the webhook is shut down".to_owned());
    let place = bodies.place(address).await.map_err(closed)?;
    let body = timeout(BODY_TIMEOUT, body(request)).await.map_err(|_| {
        (StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
    })?;
    let body = body.map_err(bad)?;
    let _review = reviews.place(address).await.map_err(closed)?;
    let question = admission::request(&body).map_err(bad)?;
    // Only the parsed review is left while the webhook decides.
    drop((body, place));
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
        return Err(format!("expected the content type application/json, got {:?}", one_line(kind, TEXT_BYTES_MAX)));
    }
    let read = Limited::new(request.into_body(), REVIEW_BYTES_MAX).collect().await;
    let body = read
        .map_err(|error| format!("the body (at most {REVIEW_BYTES_MAX} bytes) cannot be read: {error}"))?
        .to_bytes();
    if body.is_empty() { Err("the body is empty".to_owned()) } else { Ok(body) }
}
