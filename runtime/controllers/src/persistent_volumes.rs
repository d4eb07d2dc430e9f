//! Labels of volumes, as the admission plugin `PersistentVolumeLabel` of Kubernetes up to 1.30 set
//! them: the location of the volume, and the matching node affinity.
//!
//! This module reviews an object that is being created and writes nothing; the server of the
//! admission webhook calls it.

mod convert;
mod plan;

use k8s_openapi::api::core::v1 as core;
use serde_json::Value;
use skysail_provider::{Call, Code, Error, Result};

pub use self::convert::provider_volume;
use crate::{
    ownership::{self, Owner},
    providers::{ProviderEntry, Providers},
};

/// The result of the review of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Review {
    /// The volume needs no change, or has no owner.
    Unchanged,
    /// The volume needs these changes.
    Changed {
        /// Operations of a JSON patch (RFC 6902).
        patch: Vec<Value>,
        /// For the creator of the volume: labels that differ from the cloud's labels; they stay.
        warnings: Vec<String>,
    },
    /// The cloud does not have the volume, or the volume is invalid.
    Refused(String),
}

/// Determines the labels of a volume.
#[derive(Clone, Debug)]
pub struct PersistentVolumeLabeler {
    providers: Providers,
    cluster: String,
}

impl PersistentVolumeLabeler {
    /// A labeler with these providers; `cluster` is passed to them.
    #[must_use]
    pub const fn new(providers: Providers, cluster: String) -> Self {
        Self { providers, cluster }
    }

    /// Reviews a volume that is being created. The API server may ask again about the same volume.
    ///
    /// The labeler asks the provider that has the scheme of the volume's handle, otherwise the
    /// default provider. It asks no provider about a volume that is not in a cloud.
    ///
    /// # Errors
    /// The labels are unknown: the cloud or its provider failed, or the provider returned invalid
    /// labels.
    pub async fn review(&self, object: &core::PersistentVolume) -> Result<Review> {
        let present = object.metadata.labels.clone().unwrap_or_default();
        if let Some(labels) = plan::trusted(object, &present) {
            return plan::review(object, &labels);
        }
        let Some(volume) = provider_volume(object) else { return Ok(Review::Unchanged) };
        let Some(entry) = self.owner(&volume.handle) else { return Ok(Review::Unchanged) };
        let Some(labels) = entry.provider.persistent_volume_labels() else { return unasked(entry) };
        match labels.labels(&Call::default(), &self.cluster, &volume).await {
            Ok(labels) => plan::review(object, &labels),
            Err(error) => match error.code {
                // As upstream, which left volumes without a plugin unchanged.
                Code::Unsupported | Code::ImplementedElsewhere => Ok(Review::Unchanged),
                Code::NotFound | Code::Invalid => Ok(Review::Refused(error.message)),
                _ => Err(error),
            },
        }
    }

    fn owner(&self, handle: &str) -> Option<&ProviderEntry> {
        match ownership::volume_owner(&self.providers.claims(), handle) {
            Owner::Provider(place) => self.providers.entries().get(place),
            Owner::Unowned | Owner::Contested(..) | Owner::Malformed => None,
        }
    }
}

/// A provider that does not implement the interface leaves the volume unchanged; without a serving
/// release that is unknown.
fn unasked(entry: &ProviderEntry) -> Result<Review> {
    match entry.provider.info() {
        Some(_) => Ok(Review::Unchanged),
        None => Err(Error::new(
            Code::NotServing,
            format!("provider {:?} has no release that serves; retry when one serves", entry.name),
        )),
    }
}

#[cfg(test)]
mod tests;
