//! Labels of nodes (pure): those that a machine's description gives, and the older spellings kept
//! equal to the newer ones.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Instance, StringMap};

use crate::names;

/// Why a description's labels cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LabelError {
    #[error("the provider gave the label key {0:?}, which no API server accepts")]
    Key(String),
    #[error("the provider gave the value {value:?} for label {key:?}, which no API server accepts")]
    Value { key: String, value: String },
    #[error("the provider gave {0} labels; at most {LABELS_MAX} are written")]
    TooMany(usize),
}

/// Most further labels of one node: they are written into the object, and every client reads them.
pub(crate) const LABELS_MAX: usize = 128;

/// The pairs that upstream keeps equal: the older spelling is the source.
const MIRRORED: [(&str, &str); 3] = [
    (names::BETA_ZONE_LABEL, names::ZONE_LABEL),
    (names::BETA_REGION_LABEL, names::REGION_LABEL),
    (names::BETA_INSTANCE_TYPE_LABEL, names::INSTANCE_TYPE_LABEL),
];

/// The labels to set when a node is initialised: type, zone and region in both spellings, whatever
/// is there; further ones only where the key is free and not in Kubernetes' own namespaces.
///
/// # Errors
/// A key or value that no API server accepts: nothing is written then, so that a bug of a provider
/// is seen and not half applied.
pub(crate) fn from_instance(
    present: &BTreeMap<String, String>,
    instance: &Instance,
) -> Result<BTreeMap<String, String>, LabelError> {
    let mut labels = further(instance)?;
    labels.retain(|key, _| !present.contains_key(key));
    labels.extend(known(instance)?);
    Ok(labels)
}

/// The labels to change on an initialised node so that it has what its machine has now: type, zone,
/// region and further ones, whatever is there. A label that the provider gives no longer stays:
/// nobody can tell who wrote it.
///
/// # Errors
/// As [`from_instance`].
pub(crate) fn refreshed(present: &StringMap, instance: &Instance) -> Result<BTreeMap<String, String>, LabelError> {
    let mut labels = further(instance)?;
    labels.extend(known(instance)?);
    labels.retain(|key, value| present.get(key) != Some(value.as_str()));
    Ok(labels)
}

/// Type, zone and region, each in both spellings; what the machine does not have is left alone.
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

/// Those that the provider gives beside, without Kubernetes' own namespaces.
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

/// The labels to change on an initialised node so that each newer spelling equals the older one;
/// empty where none does not.
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
