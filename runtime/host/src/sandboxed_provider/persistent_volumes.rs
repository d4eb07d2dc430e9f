//! Interface `persistent-volume-labels`.

use std::collections::BTreeMap;

use super::{
    Call, Guest, Interface, PersistentVolume, PersistentVolumeLabels, Result, SandboxedProvider, absent, async_trait,
    convert, json,
};

#[async_trait]
impl PersistentVolumeLabels for SandboxedProvider {
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>> {
        let indices = self.release.exports().persistent_volume_labels.as_ref();
        let indices = indices.ok_or_else(|| absent(Interface::PersistentVolumeLabels))?;
        let given = convert::volume_to_guest(volume);
        self.run(
            call,
            ("persistent-volume-labels.labels", &|| json!({"cluster": cluster, "volume": volume})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_labels(store, cluster, &given).await })
            },
            |labels| convert::result(labels, convert::volume_labels),
        )
        .await
    }
}
