//! Results on standard output.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

/// Prints a result. Whoever closed standard output has read enough: that is no failure.
///
/// # Errors
/// It cannot be written, for example to a full disk.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        Ok(()) | Err(_) => Ok(()),
    }
}
