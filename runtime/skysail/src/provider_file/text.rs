//! Texts from files, with errors that say what to do.

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::Path,
};

/// Reads a text file of at most `bytes_max`; the error says what is wrong and what to do.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<String, String> {
    let cannot = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => "does not exist; create it, or correct the path".to_owned(),
        ErrorKind::PermissionDenied => "may not be read by this process; check its owner and mode".to_owned(),
        ErrorKind::IsADirectory => "is a folder; name a file in it".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("is larger than {bytes_max} bytes; is it the right file?"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; is it the right file?".to_owned())
}
