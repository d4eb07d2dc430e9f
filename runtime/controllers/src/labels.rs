//! Labels of nodes (pure): the labels from the description of the machine, and the newer spellings
//! kept equal to the older ones.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Instance, StringMap};

use crate::names;

/// Why a description's labels cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LabelError {
    #[error("the provider returned the label key {0:?}, which is not a valid label key in Kubernetes")]
    Key(String),
    #[error(
        "the provider returned the value {value:?} for the label {key:?}, which is not a valid label value in Kubernetes"
    )]
    Value { key: String, value: String },
    #[error("the provider returned {0} labels; at most {LABELS_MAX} are allowed")]
    TooMany(usize),
}

/// The maximum number of additional labels of one node. The labels are part of the object, which
/// every client of nodes reads.
pub(crate) const LABELS_MAX: usize = 128;

/// The pairs that upstream keeps equal: the older spelling is the source.
const MIRRORED: [(&str, &str); 3] = [
    (names::BETA_ZONE_LABEL, names::ZONE_LABEL),
    (names::BETA_REGION_LABEL, names::REGION_LABEL),
    (names::BETA_INSTANCE_TYPE_LABEL, names::INSTANCE_TYPE_LABEL),
];

/// The labels to set when a node is initialised: type, zone and region in both spellings replace
/// present values; additional labels are set only if the key is unused and outside Kubernetes' own
/// namespaces.
///
/// # Errors
/// A key or value that Kubernetes does not accept. No label is written then, so that a provider's
/// bug becomes visible and is not half applied.
pub(crate) fn from_instance(
    present: &BTreeMap<String, String>,
    instance: &Instance,
) -> Result<BTreeMap<String, String>, LabelError> {
    let mut labels = further(instance)?;
    labels.retain(|key, _| !present.contains_key(key));
    labels.extend(known(instance)?);
    Ok(labels)
}

/// The labels to change on an initialised node so that it matches its machine: type, zone, region
/// and additional labels replace present values. A label that the provider does not return any more
/// stays, because its author is unknown.
pub(crate) fn refreshed(present: &StringMap, instance: &Instance) -> Result<BTreeMap<String, String>, LabelError> {
    let mut labels = further(instance)?;
    labels.extend(known(instance)?);
    labels.retain(|key, value| present.get(key) != Some(value.as_str()));
    Ok(labels)
}

/// Type, zone and region, each in both spellings; empty values are skipped.
fn known(instance: &Instance) -> Result<BTreeMap<String, String>, LabelError> {
    let known = [
        (&instance.instance_type, [names::INSTANCE_TYPE_LABEL, names::BETA_INSTANCE_TYPE_LABEL]),
        (&instance.zone, [names::ZONE_LABEL, names::BETA_ZONE_LABEL]),
        (&instance.region, [names::REGION_LABEL, names::BETA_REGION_LABEL]),
    ];
    let mut labels = BTreeMap::new();
    for (value, keys) in known.into_iter().filter(|(value, _)| !value.is_empty()) {
        for key in keys {
            check_value(key, value)?;
            labels.insert(key.to_owned(), value.clone());
        }
    }
    Ok(labels)
}

/// The additional labels of the provider, without Kubernetes' own namespaces.
fn further(instance: &Instance) -> Result<BTreeMap<String, String>, LabelError> {
    if instance.labels.len() > LABELS_MAX {
        return Err(LabelError::TooMany(instance.labels.len()));
    }
    let mut labels = BTreeMap::new();
    for (key, value) in instance.labels.iter().filter(|(key, _)| !is_reserved(key)) {
        check(key, value)?;
        labels.insert(key.clone(), value.clone());
    }
    Ok(labels)
}

/// The labels to change on an initialised node so that each newer spelling equals the older one.
fn mirrored(present: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (source, mirror) in MIRRORED {
        if let Some(value) = present.get(source).filter(|value| present.get(mirror) != Some(value)) {
            labels.insert(mirror.to_owned(), value.clone());
        }
    }
    labels
}

/// [`mirrored`] for the labels of this node.
pub(crate) fn to_mirror(node: &core::Node) -> BTreeMap<String, String> {
    node.metadata.labels.as_ref().map(mirrored).unwrap_or_default()
}

/// Whether an API server accepts the label.
pub(crate) fn check(key: &str, value: &str) -> Result<(), LabelError> {
    check_key(key).and_then(|()| check_value(key, value))
}

/// In `kubernetes.io` or `k8s.io`, or in a subdomain of them.
fn is_reserved(key: &str) -> bool {
    ["kubernetes.io/", "k8s.io/"]
        .iter()
        .any(|domain| key.match_indices(domain).any(|(at, _)| at == 0 || key.as_bytes().get(at - 1) == Some(&b'.')))
}

fn check_key(key: &str) -> Result<(), LabelError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_ok = prefix.is_none_or(|prefix| {
        let part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        prefix.len() <= 253 && prefix.split('.').all(part)
    });
    if prefix_ok && !name.is_empty() && is_name(name) {
        return Ok(());
    }
    Err(LabelError::Key(key.chars().take(100).collect()))
}

fn check_value(key: &str, value: &str) -> Result<(), LabelError> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    let cut = |text: &str| text.chars().take(100).collect();
    Err(LabelError::Value { key: cut(key), value: cut(value) })
}

/// Up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests;
