//! Texts from files, with errors that say what to do.

use std::{
    fs::File,
    io::{self, ErrorKind, Read as _},
    path::Path,
};

/// Reads a text file of at most `bytes_max`; the error says what is wrong and what to do.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<String, String> {
    decode(bytes(path, bytes_max), bytes_max)
}

/// What a file holds, one byte beyond `bytes_max` at most: what is larger is not read whole.
pub(super) fn bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What was read as a text, or what is wrong and what to do.
pub(super) fn decode(read: io::Result<Vec<u8>>, bytes_max: u64) -> Result<String, String> {
    let bytes = read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "does not exist; create it, or correct the path".to_owned(),
        ErrorKind::PermissionDenied => "may not be read by this process; check its owner and mode".to_owned(),
        ErrorKind::IsADirectory => "is a folder; name a file in it".to_owned(),
        _ => format!("cannot be read: {error}; check the path and what it is mounted from"),
    })?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("is larger than {bytes_max} bytes; is it the right file?"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; is it the right file?".to_owned())
}
