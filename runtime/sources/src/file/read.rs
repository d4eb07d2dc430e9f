//! One reading of a file: size checked before and while reading, through one resolved path.

use std::{
    fs::{self, FileType, Metadata},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use skysail_egress::open_file;

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
/// The size and the kind are taken from the open file, so that they belong to the content that is
/// read, even while the kubelet exchanges the `..data` link of a ConfigMap volume.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Reading, SourceError> {
    let failed = |error| failure(path, error);
    let not_a_file = |kind| SourceError::NotAFile { path: path.to_owned(), kind };
    let mut file = open_file(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => not_a_file("a socket"),
        _ => failed(error),
    })?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() {
        return Err(not_a_file(name_of(kind)));
    }
    let too_large = |size| SourceError::TooLarge { path: path.to_owned(), size, max: bytes_max };
    let size = file.metadata().map_err(failed)?.len();
    if size > bytes_max {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    // One byte more than allowed, because the file may grow after its size was read.
    file.by_ref().take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(bytes.len() as u64));
    }
    if bytes.is_empty() {
        return Err(SourceError::Empty { path: path.to_owned() });
    }
    let stamp = Stamp::of(&file.metadata().map_err(failed)?);
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

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}
