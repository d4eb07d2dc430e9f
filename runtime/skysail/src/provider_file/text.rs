//! Texts from files, with errors that say what to do.

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use skysail_host::read_file;

/// Reads a text file of at most `bytes_max`; the error says what is wrong and what to do.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<String, String> {
    decode(read_file(path, bytes_max), bytes_max)
}

/// What was read as a text, or what is wrong and what to do.
pub(super) fn decode(read: io::Result<Vec<u8>>, bytes_max: u64) -> Result<String, String> {
    let bytes = read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "does not exist; create it, or correct the path".to_owned(),
        ErrorKind::PermissionDenied => "may not be read by this process; check its owner and mode".to_owned(),
        ErrorKind::IsADirectory => "is a folder; name a file in it".to_owned(),
        ErrorKind::InvalidInput => "is a pipe, a socket or a device; name a regular file".to_owned(),
        ErrorKind::FileTooLarge => format!("is larger than {bytes_max} bytes; is it the right file?"),
        _ => format!("cannot be read: {error}; check the path and what it is mounted from"),
    })?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; is it the right file?".to_owned())
}
