//! Reads text files, with errors that have a remedy.

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use skysail_host::read_file;

/// Reads a text file of at most `bytes_max`; the error has the reason and the remedy.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<String, String> {
    decode(read_file(path, bytes_max), bytes_max)
}

/// The bytes as UTF-8 text; the error has the reason and the remedy.
pub(super) fn decode(read: io::Result<Vec<u8>>, bytes_max: u64) -> Result<String, String> {
    let bytes = read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "does not exist; create it, or correct the path".to_owned(),
        ErrorKind::PermissionDenied => "cannot be read: permission denied; check its owner and mode".to_owned(),
        ErrorKind::IsADirectory => "is a folder; name a file in it".to_owned(),
        ErrorKind::InvalidInput => "is a pipe, a socket or a device; name a regular file".to_owned(),
        ErrorKind::FileTooLarge => format!("is larger than {bytes_max} bytes; check that the path is right"),
        _ => format!("cannot be read: {error}; check the path and its mount"),
    })?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; check that the path is right".to_owned())
}
