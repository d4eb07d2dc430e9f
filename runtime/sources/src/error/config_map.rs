//! Why ConfigMaps hold no component.

use crate::Digest;

/// Digest of the whole component, as `sha256:…`; on each part where there are several.
pub const DIGEST_ANNOTATION: &str = "skysail.dev/component-digest";

/// What is wrong with the ConfigMaps. Every message names what was found and the remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigMapFailure {
    /// A ConfigMap does not exist.
    #[error(
        "the ConfigMap {name} does not exist; create it, or correct the name; the manager uses it as soon as it exists"
    )]
    Missing {
        /// The ConfigMap's name.
        name: String,
    },
    /// The ConfigMap's `binaryData` lacks the named key, or is empty.
    #[error(
        "the ConfigMap {name} has no {wanted} (it has {there}); create one with kubectl create configmap --from-file=provider.wasm, or correct the key"
    )]
    NoKey {
        /// Name of the ConfigMap.
        name: String,
        /// `key provider.wasm of binaryData`, or what else was looked for.
        wanted: String,
        /// What it has instead.
        there: String,
    },
    /// No key is named, and it has several.
    #[error(
        "the ConfigMap {name} has several keys ({keys}); set source.configMap.key to the one that has the component"
    )]
    SeveralKeys {
        /// Name of the ConfigMap.
        name: String,
        /// The keys' names.
        keys: String,
    },
    /// One of several parts has no digest annotation.
    #[error(
        "the ConfigMap {name} is one of several parts and has no annotation {DIGEST_ANNOTATION}; annotate each part with the digest (sha256:…) of the whole, uncompressed component"
    )]
    NoDigest {
        /// Name of the ConfigMap.
        name: String,
    },
    /// The annotation is not a digest.
    #[error("the annotation {DIGEST_ANNOTATION} of the ConfigMap {name} is {text:?}; write sha256: and 64 hex digits")]
    BadDigest {
        /// Name of the ConfigMap.
        name: String,
        /// The beginning of the annotation.
        text: String,
    },
    /// Parts of two components.
    #[error(
        "the ConfigMaps {first} and {other} are parts of different components; write the others too; the manager uses them when all name the same digest"
    )]
    PartsDiffer {
        /// The name of one ConfigMap.
        first: String,
        /// The name of another ConfigMap.
        other: String,
    },
    /// The digest of the component differs from the annotation.
    #[error(
        "the component has the digest {actual}, and the annotation {DIGEST_ANNOTATION} says {expected}; write the component again, in all its parts where it has several, or correct the annotation"
    )]
    WrongDigest {
        /// The digest that the annotations name.
        expected: Digest,
        /// The digest of the content.
        actual: Digest,
    },
    /// The content begins like gzip and cannot be decompressed.
    #[error("the gzip data cannot be decompressed ({reason}); compress it again")]
    Gzip {
        /// Why.
        reason: String,
    },
    /// The decompressed component exceeds the limit.
    #[error(
        "the component has more than {max} bytes, the limit componentBytes; build it smaller (release profile, opt-level \"s\", stripped), or raise the limit"
    )]
    TooLarge {
        /// Bytes allowed.
        max: u64,
    },
    /// The Kubernetes API does not return a ConfigMap.
    #[error(
        "the Kubernetes API does not return it ({reason}); the manager retries; if access is denied, allow the ServiceAccount get, list and watch for \
         ConfigMaps of these names, by a Role and a RoleBinding"
    )]
    Api {
        /// The error of the API.
        reason: String,
    },
}

impl ConfigMapFailure {
    /// A stable CamelCase name: metric label and reason of a status.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "ConfigMapMissing",
            Self::NoKey { .. } => "ConfigMapKeyMissing",
            Self::SeveralKeys { .. } => "ConfigMapKeyAmbiguous",
            Self::NoDigest { .. } | Self::BadDigest { .. } | Self::PartsDiffer { .. } => "ConfigMapPartsDiffer",
            Self::WrongDigest { .. } => "ConfigMapWrongDigest",
            Self::Gzip { .. } => "ConfigMapGzip",
            Self::TooLarge { .. } => "SourceTooLarge",
            Self::Api { .. } => "ConfigMapUnreadable",
        }
    }
}
