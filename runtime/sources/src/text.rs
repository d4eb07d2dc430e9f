//! Foreign text in sentences of ours.

use std::path::Path;

use skysail_provider::text::one_line;

/// The path of a file: a name may have any character in it.
pub(crate) fn path(path: &Path) -> String {
    /// As long as a path can be on Linux.
    const BYTES_MAX: usize = 4096;
    one_line(&path.to_string_lossy(), BYTES_MAX)
}

/// What a registry, a certificate or a folder says, on one short line.
pub(crate) fn shown(text: &str) -> String {
    const BYTES_MAX: usize = 480;
    one_line(text, BYTES_MAX)
}
