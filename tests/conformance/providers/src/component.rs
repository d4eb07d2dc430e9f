//! The components that `make guests` builds.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

/// A component of `components` in the target folder of this test.
///
/// # Errors
/// The file is missing.
pub fn built(name: &str) -> Result<Vec<u8>> {
    let file: PathBuf = target()?.join("components").join(format!("{name}.wasm"));
    fs::read(&file).with_context(|| format!("{} is missing; run make guests", file.display()))
}

/// The target folder of this test.
///
/// # Errors
/// The test is in no target folder.
pub(crate) fn target() -> Result<PathBuf> {
    // TARGET/PROFILE/deps/providers-…
    let test = std::env::current_exe().context("the path of this test is unknown")?;
    Ok(test.ancestors().nth(3).context("this test is in no target folder")?.to_owned())
}
