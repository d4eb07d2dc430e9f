//! Topology labels of volumes: upstream's `PVLabeler`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Call, Result};

/// The fields of a `PersistentVolume` that its labels can depend on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolume {
    /// Name of the object.
    pub name: String,
    /// UID of the object; empty while it is being created.
    pub uid: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.storageClassName`; empty if it has none.
    pub storage_class: String,
    /// The volume source, a field of `spec`: `csi`, `awsElasticBlockStore`.
    pub source: String,
    /// The driver of `csi` and `flexVolume`; otherwise empty.
    pub driver: String,
    /// The cloud's ID of the volume; empty if the source has no such field.
    pub handle: String,
    /// Every other string, number and boolean of the source, by its path.
    pub attributes: BTreeMap<String, String>,
}

/// Labels of volumes.
#[async_trait]
pub trait PersistentVolumeLabels: Send + Sync {
    /// The topology labels of the volume, as the provider returned them: not yet validated.
    ///
    /// # Errors
    /// `Unsupported` and `ImplementedElsewhere` if the volume does not belong to this provider,
    /// `NotFound` if it does not exist in the cloud, `Invalid` if the object cannot describe a
    /// volume of this cloud.
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>>;
}
