//! Converts the Kubernetes object to the provider's type (pure).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use serde_json::Value;
use skysail_provider::PersistentVolume;

/// Members of `spec` for volumes in a cloud, each with the field that identifies the volume there.
/// No cloud is asked about other kinds of volumes (`nfs`, `hostPath`, `local`, …).
const SOURCES: [(&str, &str); 9] = [
    ("awsElasticBlockStore", "volumeID"),
    ("azureDisk", "diskURI"),
    ("azureFile", "shareName"),
    ("cinder", "volumeID"),
    ("csi", "volumeHandle"),
    ("flexVolume", ""),
    ("gcePersistentDisk", "pdName"),
    ("photonPersistentDisk", "pdID"),
    ("vsphereVolume", "volumePath"),
];

/// The volume as a provider sees it; none if the volume is not in a cloud.
#[must_use]
pub fn provider_volume(object: &core::PersistentVolume) -> Option<PersistentVolume> {
    let spec = serde_json::to_value(object.spec.as_ref()?).ok()?;
    let (source, handle) = SOURCES.into_iter().find(|(source, _)| spec.get(source).is_some())?;
    let mut attributes = BTreeMap::new();
    flatten("", spec.get(source)?, &mut attributes);
    Some(PersistentVolume {
        name: object.metadata.name.clone().unwrap_or_default(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        annotations: object.metadata.annotations.clone().unwrap_or_default(),
        storage_class: spec.get("storageClassName").and_then(Value::as_str).unwrap_or_default().to_owned(),
        source: source.to_owned(),
        driver: attributes.remove("driver").unwrap_or_default(),
        handle: attributes.remove(handle).unwrap_or_default(),
        attributes,
    })
}

/// Collects strings, numbers and booleans by their path. The API's own types bound the depth.
fn flatten(path: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| flatten(&below(key), value, out)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| flatten(&below(&at.to_string()), value, out));
        }
        Value::Null => {}
        Value::String(text) => drop(out.insert(path.to_owned(), text.clone())),
        Value::Bool(_) | Value::Number(_) => drop(out.insert(path.to_owned(), value.to_string())),
    }
}
