//! Labels of volumes, as the admission plugin `PersistentVolumeLabel` of Kubernetes up to 1.30 set
//! them: where the volume is, and the node affinity that goes with it.
//!
//! It reviews an object that is being created and writes nothing: what serves the API server's
//! webhook calls it.

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

/// What becomes of an object that is being created.
#[derive(Clone, Debug, PartialEq)]
pub enum Review {
    /// It is good as it is, or has no owner.
    Unchanged,
    /// These changes belong to it.
    Changed {
        /// Operations of a JSON patch (RFC 6902).
        patch: Vec<Value>,
        /// For the creator of the volume: labels that differ from the cloud's, and stay.
        warnings: Vec<String>,
    },
    /// It names a volume that the cloud does not have, or that cannot be one.
    Refused(String),
}

/// Says what labels belong to a volume.
#[derive(Clone, Debug)]
pub struct PersistentVolumeLabeler {
    providers: Providers,
    cluster: String,
}

impl PersistentVolumeLabeler {
    /// Asks these providers, in the name of this cluster.
    #[must_use]
    pub const fn new(providers: Providers, cluster: String) -> Self {
        Self { providers, cluster }
    }

    /// Reviews a volume that is being created. It may be asked again about the same one.
    ///
    /// Asked is the provider that has the scheme of the volume's handle, else the default one;
    /// nobody about a volume that is no cloud's.
    ///
    /// # Errors
    /// Nothing was learnt: the cloud or its provider failed, or the provider's labels are none.
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
                // As upstream, which left alone what no plugin of its own had.
                Code::Unsupported | Code::ImplementedElsewhere => Ok(Review::Unchanged),
                Code::NotFound | Code::Invalid => Ok(Review::Refused(error.message)),
                _ => Err(error),
            },
        }
    }

    fn owner(&self, handle: &str) -> Option<&ProviderEntry> {
        match ownership::volume_owner(&self.providers.claims(), handle) {
            Owner::Provider(place) => self.providers.entries().get(place),
            Owner::Nobody | Owner::Contested(..) | Owner::Malformed => None,
        }
    }
}

/// A provider without the interface has no labels to give; one that does not serve yet may have.
fn unasked(entry: &ProviderEntry) -> Result<Review> {
    match entry.provider.info() {
        Some(_) => Ok(Review::Unchanged),
        None => Err(Error::new(Code::NotServing, format!("provider {:?} has no release that serves", entry.name))),
    }
}

#[cfg(test)]
mod tests;
