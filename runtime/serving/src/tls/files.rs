//! Reads files with certificates, up to a size limit.

use std::{fs::File, io::Read as _, path::Path};

use crate::{error::ServingError, limits::PEM_BYTES_MAX};

/// The bytes of a file.
///
/// # Errors
/// The file cannot be read, or is larger than [`PEM_BYTES_MAX`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ServingError> {
    let failed = |source| ServingError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= PEM_BYTES_MAX) {
        Ok(bytes)
    } else {
        let problem = format!("is larger than {PEM_BYTES_MAX} bytes: name a file with certificates in PEM");
        Err(ServingError::Content { path: path.to_owned(), problem })
    }
}
