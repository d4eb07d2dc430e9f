//! Shortens untrusted text for messages.

use std::path::Path;

use skysail_provider::text::one_line;

/// The path of a file on one line: a file name may contain any character.
pub(crate) fn path(path: &Path) -> String {
    /// `PATH_MAX` of Linux.
    const BYTES_MAX: usize = 4096;
    one_line(&path.to_string_lossy(), BYTES_MAX)
}

/// A text from a registry, a certificate or a folder, on one short line.
pub(crate) fn shown(text: &str) -> String {
    const BYTES_MAX: usize = 480;
    one_line(text, BYTES_MAX)
}
