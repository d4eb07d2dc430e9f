//! Reading files with certificates, with a bound.

use std::{fs::File, io::Read as _, path::Path};

use crate::{error::ServingError, limits::PEM_BYTES_MAX};

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or is far larger than any that holds certificates.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ServingError> {
    let failed = |source| ServingError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= PEM_BYTES_MAX) {
        Ok(bytes)
    } else {
        let problem = format!("is larger than {PEM_BYTES_MAX} bytes: it should hold certificates in PEM");
        Err(ServingError::Content { path: path.to_owned(), problem })
    }
}
