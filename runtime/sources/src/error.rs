//! Errors of a source. Every message names the place, the reason and the remedy.

use std::{io, path::PathBuf, sync::Arc};

use skysail_provider::text::with_causes;

mod config_map;
mod registry;

pub use config_map::{ConfigMapFailure, DIGEST_ANNOTATION};
pub use registry::{RegistryFailure, TargetRefusal};

/// Why a source has no offer at the moment. No error ends the source: it keeps watching.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file does not exist. The message lists other files of the folder, at most
    /// [`SourceError::NEIGHBOURS_MAX`].
    #[error(
        "file {} is missing{}; create it, or correct the path; the manager uses it as soon as it exists",
        crate::text::path(path),
        listed(neighbours)
    )]
    Missing {
        /// The path as the operator gave it.
        path: PathBuf,
        /// Names of other files in the same folder, sorted.
        neighbours: Vec<String>,
    },
    /// The file exists and cannot be read.
    #[error("file {} cannot be read; check its permissions and those of the folders above it", crate::text::path(path))]
    Unreadable {
        /// The path as the operator gave it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The path leads to a directory, a pipe, a socket or a device.
    #[error("{} is not a regular file but {kind}; name the component's file", crate::text::path(path))]
    NotAFile {
        /// The path as the operator gave it.
        path: PathBuf,
        /// What it is instead, for example `a directory`.
        kind: &'static str,
    },
    /// The file has no content.
    #[error(
        "file {file} is empty; write the component to another file in the same directory, then rename that file to {file}",
        file = crate::text::path(path)
    )]
    Empty {
        /// The path as the operator gave it.
        path: PathBuf,
    },
    /// The file is larger than the limit; it was not read.
    #[error(
        "file {} has {size} bytes, and the limit componentBytes is {max}; build the component smaller (release profile, opt-level \"s\", \
         stripped), or raise the limit",
        crate::text::path(path)
    )]
    TooLarge {
        /// The path as the operator gave it.
        path: PathBuf,
        /// Bytes of the file, or the bytes read when the limit was reached.
        size: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The file changed between all readings.
    #[error(
        "file {} changes continuously; write the component once, under another name, and rename it to this one",
        crate::text::path(path)
    )]
    Unsettled {
        /// The path as the operator gave it.
        path: PathBuf,
    },
    /// The ConfigMaps hold no component.
    #[error("{reference}")]
    ConfigMap {
        /// For people: `configmap skysail-system/provider`.
        reference: String,
        /// Why.
        #[source]
        failure: Arc<ConfigMapFailure>,
    },
    /// The component could not be fetched from the registry.
    #[error("{reference} cannot be fetched")]
    Registry {
        /// As in `source.oci.reference`.
        reference: String,
        /// Why.
        #[source]
        failure: Arc<RegistryFailure>,
    },
}

impl SourceError {
    /// The most names listed for a missing file: enough to notice a misspelling, on one line.
    pub const NEIGHBOURS_MAX: usize = 8;

    /// A stable CamelCase name: metric label and reason of a status.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "SourceMissing",
            Self::Unreadable { .. } => "SourceUnreadable",
            Self::NotAFile { .. } => "SourceNotAFile",
            Self::Empty { .. } => "SourceEmpty",
            Self::TooLarge { .. } => "SourceTooLarge",
            Self::Unsettled { .. } => "SourceUnsettled",
            Self::Registry { failure, .. } => failure.category(),
            Self::ConfigMap { failure, .. } => failure.category(),
        }
    }

    /// Whether both errors have the same message. The same message is not repeated at each poll.
    pub(crate) fn has_same_message_as(&self, other: &Self) -> bool {
        self.message() == other.message()
    }

    /// The error with its causes and the remedy, on one line.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Registry { failure, .. } => format!("{self}: {}", failure.message()),
            _ => with_causes(self),
        }
    }
}

fn listed(neighbours: &[String]) -> String {
    if neighbours.is_empty() { String::new() } else { format!(" (the folder has: {})", neighbours.join(", ")) }
}
