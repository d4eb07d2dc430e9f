//! One reading of a file, with its digest and the identity of the file.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use skysail_egress::{ReadError, read_open_file};

use crate::{Digest, SourceError, text};

/// The result of one reading.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
    pub(super) stamp: Stamp,
}

/// The identity of a file and its last change. A write that does not change the digest still
/// changes the stamp.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Reads the file at `path`. Blocks, but never for a pipe's writer.
///
/// The size and the kind are those of the open file, so that they belong to the content that is
/// read, even while the kubelet exchanges the `..data` link of a ConfigMap volume.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Reading, SourceError> {
    let (bytes, file) = read_open_file(path, bytes_max).map_err(|error| match error {
        ReadError::Irregular(kind) => SourceError::NotAFile { path: path.to_owned(), kind },
        ReadError::TooLarge { size, bytes_max } => {
            SourceError::TooLarge { path: path.to_owned(), size, max: bytes_max }
        }
        ReadError::System(error) => failure(path, error),
    })?;
    if bytes.is_empty() {
        return Err(SourceError::Empty { path: path.to_owned() });
    }
    let stamp = Stamp::of(&file.metadata().map_err(|error| failure(path, error))?);
    Ok(Reading { digest: Digest::of(&bytes), bytes: Bytes::from(bytes), stamp })
}

fn failure(path: &Path, error: io::Error) -> SourceError {
    match error.kind() {
        io::ErrorKind::NotFound => SourceError::Missing { path: path.to_owned(), neighbours: neighbours(path) },
        _ => SourceError::Unreadable { path: path.to_owned(), source: Arc::new(error) },
    }
}

/// Names of visible files in the folder of a missing file; none if the folder cannot be read.
fn neighbours(path: &Path) -> Vec<String> {
    /// Directory entries that are read, which bounds the time in a large folder.
    const ENTRIES_MAX: usize = 200;
    let Some(Ok(entries)) = path.parent().map(fs::read_dir) else { return Vec::new() };
    let names = entries.take(ENTRIES_MAX).flatten().map(|entry| text::shown(&entry.file_name().to_string_lossy()));
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names.truncate(SourceError::NEIGHBOURS_MAX);
    names
}
