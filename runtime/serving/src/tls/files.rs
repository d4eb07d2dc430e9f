//! Reads files with certificates, up to a size limit.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::OFlags;

use crate::{error::ServingError, limits::PEM_BYTES_MAX};

/// The bytes of a file.
///
/// # Errors
/// The file cannot be read, is not a regular file, or is larger than [`PEM_BYTES_MAX`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ServingError> {
    let bytes = start(path).map_err(|source| ServingError::File { path: path.to_owned(), source })?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= PEM_BYTES_MAX) {
        Ok(bytes)
    } else {
        let problem = format!("it is larger than {PEM_BYTES_MAX} bytes; name a file with certificates in PEM");
        Err(ServingError::Content { path: path.to_owned(), problem })
    }
}

/// At most one byte more than the limit.
fn start(path: &Path) -> io::Result<Vec<u8>> {
    // With NONBLOCK the opening of a pipe does not wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, fs::File, process::Command};

    use super::{PEM_BYTES_MAX, read};
    use crate::error::ServingError;

    #[test]
    fn a_pipe_is_refused_at_once_and_a_file_above_the_limit_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let error = read(&path("pipe")).unwrap_err();
        assert_eq!(error.source().unwrap().to_string(), "it is not a regular file");
        File::create(path("large")).unwrap().set_len(PEM_BYTES_MAX + 1).unwrap();
        assert!(matches!(read(&path("large")).unwrap_err(), ServingError::Content { .. }));
    }
}
