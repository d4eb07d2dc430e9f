//! A server for admission webhooks (KEP-2699): a separate port without authentication, with one
//! path for each selected webhook.
//!
//! Webhooks implement [`Webhook`]; this module contains none.

mod admission;
mod serve;

use std::{fmt, sync::Arc};

use axum::Router;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

pub use admission::{AdmissionRequest, AdmissionResponse, Operation};

use crate::error::ServingError;

/// A webhook failed; the API server receives 500 and applies the configuration's `failurePolicy`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WebhookError(pub String);

/// Checks or changes objects before they are stored. A webhook runs on every replica, not only on
/// the leader.
#[async_trait::async_trait]
pub trait Webhook: Send + Sync + 'static {
    /// The name in `--webhooks` and in metrics.
    fn name(&self) -> &str;

    /// The path, with a slash at the beginning.
    fn path(&self) -> &str;

    /// Decides about a request. The caller adds the UID to the answer.
    ///
    /// # Errors
    /// The webhook cannot decide. The text goes to the log and to the API server.
    async fn handle(&self, request: AdmissionRequest) -> Result<AdmissionResponse, WebhookError>;
}

/// The selected webhooks.
#[derive(Clone)]
pub struct Webhooks {
    selected: Vec<Arc<dyn Webhook>>,
    metrics: WebhookMetrics,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.selected.iter().map(|webhook| webhook.name())).finish()
    }
}

impl Webhooks {
    /// Selects from `known` by the patterns of `--webhooks`: `x` on, `-x` off, `*` all others; the
    /// first matching pattern counts. No pattern selects no webhook.
    ///
    /// # Errors
    /// A pattern names an unknown webhook.
    pub fn select(
        known: &[Arc<dyn Webhook>],
        patterns: &[String],
        metrics: WebhookMetrics,
    ) -> Result<Self, ServingError> {
        let named = |pattern: &str, webhook: &Arc<dyn Webhook>| pattern.trim_start_matches('-') == webhook.name();
        let unknown =
            patterns.iter().find(|pattern| *pattern != "*" && !known.iter().any(|webhook| named(pattern, webhook)));
        if let Some(name) = unknown {
            let known: Vec<_> = known.iter().map(|webhook| webhook.name()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ServingError::UnknownWebhook { name: name.clone(), known });
        }
        let wanted = |webhook: &&Arc<dyn Webhook>| {
            let first = patterns.iter().find(|pattern| named(pattern, webhook));
            first.map_or_else(|| patterns.iter().any(|pattern| pattern == "*"), |pattern| !pattern.starts_with('-'))
        };
        Ok(Self { selected: known.iter().filter(wanted).cloned().collect(), metrics })
    }

    /// Whether no webhook is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.selected.is_empty()
    }

    pub(crate) fn router(&self) -> Router {
        serve::router(&self.selected, &self.metrics)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    code: u16,
    webhook: String,
}

/// The metrics of webhooks, with upstream's names.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    requests: Family<WebhookLabels, Counter>,
    durations: Family<WebhookLabels, Histogram>,
}

impl WebhookMetrics {
    /// Creates the metrics and registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        // 5 ms doubled, 12 buckets: to 10 s, after which an API server no longer waits by default.
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.005, 2.0, 12));
        let metrics = Self { requests: Family::default(), durations: Family::new_with_constructor(buckets) };
        registry.register(
            "cloud_provider_webhook_request",
            "Count of admission reviews by status code",
            metrics.requests.clone(),
        );
        registry.register(
            "cloud_provider_webhook_request_duration_seconds",
            "Time of one admission review",
            metrics.durations.clone(),
        );
        metrics
    }
}

#[cfg(test)]
mod tests;
