//! Merge patches that the API server rejects if the object changed since it was read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PatchParams;
use serde_json::{Value, json};

use crate::names;

/// Adds the object's resource version and UID to the patch. If another version, or another object
/// of the same name, exists, the API server answers 409 Conflict.
pub(crate) fn guarded(read: &ObjectMeta, mut patch: Value) -> Value {
    if let Some(root) = patch.as_object_mut()
        && let Some(metadata) = root.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert("resourceVersion".to_owned(), json!(read.resource_version));
        metadata.insert("uid".to_owned(), json!(read.uid));
    }
    patch
}

/// Patch parameters with our field manager.
pub(crate) fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::guarded;

    #[test]
    fn a_guard_is_merged_into_the_metadata_of_the_patch() {
        let read =
            ObjectMeta { resource_version: Some("7".to_owned()), uid: Some("u".to_owned()), ..ObjectMeta::default() };
        let patch = guarded(&read, json!({ "metadata": { "finalizers": [] } }));
        assert_eq!(patch, json!({ "metadata": { "finalizers": [], "resourceVersion": "7", "uid": "u" } }));
        let patch = guarded(&read, json!({ "status": {} }));
        assert_eq!(patch, json!({ "status": {}, "metadata": { "resourceVersion": "7", "uid": "u" } }));
    }
}
