//! Why a source has nothing to offer. Every text names the place, the reason and the way out.

use std::{error::Error, io, path::PathBuf, sync::Arc};

use crate::{ConfigMapFailure, RegistryFailure};

/// Why a source has nothing to offer at the moment. The source keeps watching: none of these ends
/// it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is no such file. What is in the folder instead is listed, at most
    /// [`SourceError::NEIGHBOURS_MAX`] names.
    #[error(
        "file {} is missing{}: create it, or correct the path; it is taken up as soon as it is there",
        crate::text::path(path),
        listed(neighbours)
    )]
    Missing {
        /// The path as the operator gave it.
        path: PathBuf,
        /// Names of other files in the same folder, sorted.
        neighbours: Vec<String>,
    },
    /// The file is there and cannot be read.
    #[error("file {} cannot be read: check its permissions and those of the folders above it", crate::text::path(path))]
    Unreadable {
        /// The path as the operator gave it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The path leads to a directory, a pipe, a socket or a device.
    #[error("{} is not a regular file but {kind}: name the component's file", crate::text::path(path))]
    NotAFile {
        /// The path as the operator gave it.
        path: PathBuf,
        /// `a directory`, or what else it is.
        kind: &'static str,
    },
    /// The file has no content.
    #[error(
        "file {} is empty: copy the component to it again, preferably under another name and then renamed",
        crate::text::path(path)
    )]
    Empty {
        /// The path as the operator gave it.
        path: PathBuf,
    },
    /// The file is larger than the limit; it was not read.
    #[error(
        "file {} has {size} bytes, and the limit componentBytes is {max}: build the component smaller (release profile, opt-level \"s\", \
         stripped), or raise the limit",
        crate::text::path(path)
    )]
    TooLarge {
        /// The path as the operator gave it.
        path: PathBuf,
        /// Bytes of the file, or what had been read when the limit was met.
        size: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The file was written again and again and never rested.
    #[error(
        "file {} changes without pause: write the component once, under another name, and rename it to this one",
        crate::text::path(path)
    )]
    Unsettled {
        /// The path as the operator gave it.
        path: PathBuf,
    },
    /// The ConfigMaps hold nothing that could be offered.
    #[error("{reference}")]
    ConfigMap {
        /// For people: `configmap skysail-system/provider`.
        reference: String,
        /// Why.
        #[source]
        failure: Arc<ConfigMapFailure>,
    },
    /// The registry gave nothing.
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
    /// Names listed beside a missing file: enough to see a misspelling, short enough for one line.
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

    /// Whether a person would read the same in both: what was said once is not said again at each
    /// poll.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        self.told() == other.told()
    }

    /// With its causes and the way out, on one line.
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Self::Registry { failure, .. } => format!("{self}: {}", failure.told()),
            _ => with_causes(self),
        }
    }
}

pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn listed(neighbours: &[String]) -> String {
    if neighbours.is_empty() { String::new() } else { format!(" (the folder has: {})", neighbours.join(", ")) }
}
