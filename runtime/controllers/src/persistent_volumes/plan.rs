//! Plans the changes of a volume whose labels are known (pure).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as core;
use serde_json::json;
use skysail_provider::{Code, Error, Result};

use super::Review;
use crate::{labels, names};

/// Separates the zones of a volume that is in several zones.
const ZONES_SEPARATOR: &str = "__";

type Labels = BTreeMap<String, String>;

/// The location labels that the provisioner set, if it set both zone and region, in the newer or in
/// the older spelling.
pub(super) fn trusted(object: &core::PersistentVolume, present: &Labels) -> Option<Labels> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(names::PROVISIONED_BY_ANNOTATION)?;
    let pair = |keys: [&str; 2]| {
        let one = |key: &str| Some((key.to_owned(), present.get(key)?.clone()));
        keys.map(one).into_iter().collect::<Option<Labels>>()
    };
    pair([names::ZONE_LABEL, names::REGION_LABEL]).or_else(|| pair([names::BETA_ZONE_LABEL, names::BETA_REGION_LABEL]))
}

/// Adds the labels that are absent, and the matching node affinity.
///
/// Upstream replaced present labels. Here present labels stay, with a warning and without affinity,
/// so that a zone that the creator set is not overruled.
///
/// # Errors
/// A key or value that Kubernetes does not accept.
pub(super) fn review(object: &core::PersistentVolume, found: &Labels) -> Result<Review> {
    let mut labels = object.metadata.labels.clone().unwrap_or_default();
    let before = labels.len();
    let (mut requirements, mut warnings) = (Vec::new(), Vec::new());
    for (key, value) in found {
        labels::check(key, value).map_err(|error| Error::new(Code::Internal, error.to_string()))?;
        let kept = labels.entry(key.clone()).or_insert_with(|| value.clone());
        if kept == value {
            requirements.push(requirement(key, value)?);
        } else {
            warnings.push(format!(
                "label {key} stays {kept:?}, but the cloud reports {value:?}; correct the label if the cloud is right"
            ));
        }
    }
    let mut patch = Vec::new();
    if labels.len() > before {
        patch.push(json!({ "op": "add", "path": "/metadata/labels", "value": labels }));
    }
    if let Some(affinity) = with_requirements(object, requirements) {
        patch.push(json!({ "op": "add", "path": "/spec/nodeAffinity", "value": affinity }));
    }
    Ok(if patch.is_empty() && warnings.is_empty() { Review::Unchanged } else { Review::Changed { patch, warnings } })
}

/// A node has to carry the label with this value, or with one of these zones.
fn requirement(key: &str, value: &str) -> Result<core::NodeSelectorRequirement> {
    let is_zone = key == names::ZONE_LABEL || key == names::BETA_ZONE_LABEL;
    let values: BTreeSet<&str> = if is_zone { value.split(ZONES_SEPARATOR).collect() } else { [value].into() };
    if is_zone && values.contains("") {
        let text = format!("the provider returned the value {value:?} for the label {key:?}, in which a zone is empty");
        return Err(Error::new(Code::Internal, text));
    }
    Ok(core::NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.into_iter().map(str::to_owned).collect()),
    })
}

/// The volume's affinity with these requirements added to every term. None if there is no
/// requirement, or if a term already has one of the keys, because the affinity is then the
/// creator's own.
fn with_requirements(
    object: &core::PersistentVolume,
    requirements: Vec<core::NodeSelectorRequirement>,
) -> Option<core::VolumeNodeAffinity> {
    let mut affinity = object.spec.as_ref().and_then(|spec| spec.node_affinity.clone()).unwrap_or_default();
    let terms = &mut affinity.required.get_or_insert_default().node_selector_terms;
    let has = |term: &core::NodeSelectorTerm, key: &str| {
        term.match_expressions.iter().flatten().any(|expression| expression.key == key)
    };
    if requirements.is_empty() || requirements.iter().any(|new| terms.iter().any(|term| has(term, &new.key))) {
        return None;
    }
    if terms.is_empty() {
        terms.push(core::NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions.get_or_insert_default().extend(requirements.iter().cloned());
    }
    Some(affinity)
}
