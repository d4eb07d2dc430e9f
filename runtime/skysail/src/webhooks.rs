//! The admission webhooks of this process (KEP-2699).

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use skysail_controllers::{PersistentVolumeLabeler, Providers, Review};
use skysail_provider::text::one_line;
use skysail_serving::webhook::{AdmissionRequest, AdmissionResponse, Operation, Webhook, WebhookError};
use tokio::sync::watch;

/// Longest error of the parser, in bytes: the error repeats texts of the object.
const ERROR_BYTES_MAX: usize = 300;

/// All webhooks; `--webhooks` selects from them.
pub(crate) fn all(providers: watch::Receiver<Providers>, cluster: String) -> Vec<Arc<dyn Webhook>> {
    vec![Arc::new(PersistentVolumeLabel { providers, cluster })]
}

/// Labels volumes with their zone and region, as the admission plugin `PersistentVolumeLabel` of
/// Kubernetes up to 1.30.
struct PersistentVolumeLabel {
    /// The current providers; empty before they were first read.
    providers: watch::Receiver<Providers>,
    cluster: String,
}

#[async_trait::async_trait]
impl Webhook for PersistentVolumeLabel {
    fn name(&self) -> &'static str {
        "persistentvolumelabel"
    }

    fn path(&self) -> &'static str {
        "/persistentvolumelabel"
    }

    async fn handle(&self, request: AdmissionRequest) -> Result<AdmissionResponse, WebhookError> {
        let is_volume = request.kind.get("kind").is_some_and(|kind| kind == "PersistentVolume");
        if request.operation != Operation::Create || !is_volume {
            return Ok(AdmissionResponse::allow());
        }
        let object: core::PersistentVolume = serde_json::from_value(request.object)
            .map_err(|error| one_line(&error.to_string(), ERROR_BYTES_MAX))
            .map_err(|error| WebhookError(format!("the object is not a valid PersistentVolume: {error}")))?;
        let providers = self.providers.borrow().clone();
        if providers.entries().is_empty() {
            return Err(WebhookError("the manager is starting and has no providers yet".to_owned()));
        }
        match PersistentVolumeLabeler::new(providers, self.cluster.clone()).review(&object).await {
            Ok(Review::Unchanged) => Ok(AdmissionResponse::allow()),
            Ok(Review::Changed { patch, warnings }) => {
                Ok(AdmissionResponse { warnings, ..AdmissionResponse::patch(patch.into()) })
            }
            Ok(Review::Refused(message)) => Ok(AdmissionResponse::deny(message)),
            Err(error) => Err(WebhookError(format!("the provider could not locate the volume: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests;
