//! Where volumes are, as upstream's `PVLabeler`.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{Call, Result};

/// A `PersistentVolume`: what its labels may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PersistentVolume {
    /// Name of the object.
    pub name: String,
    /// UID of the object; empty while it is being created.
    pub uid: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.storageClassName`; empty where it has none.
    pub storage_class: String,
    /// The member of `spec` that says what the volume is: `csi`, `awsElasticBlockStore`.
    pub source: String,
    /// Of `csi` and `flexVolume`; else empty.
    pub driver: String,
    /// What the cloud knows the volume by; empty where the source has no such field.
    pub handle: String,
    /// Every other text, number and truth value of the source, by its path.
    pub attributes: BTreeMap<String, String>,
}

/// Labels of volumes.
#[async_trait]
pub trait PersistentVolumeLabels: Send + Sync {
    /// Labels that say where the volume is, as the provider gave them: not yet judged.
    ///
    /// # Errors
    /// `Unsupported` and `ImplementedElsewhere` where it is no volume of this provider, `NotFound`
    /// where the cloud does not have it, `Invalid` where it cannot be one.
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>>;
}
