//! What the benchmarks share: where `make bench` has put what they measure.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// A bundled component or a probe, for example `simcloud`.
///
/// # Errors
/// It is not built.
pub fn component(name: &str) -> Result<Vec<u8>> {
    let file = component_file(name)?;
    fs::read(&file).with_context(|| format!("cannot read {}: run make bench, which builds it", file.display()))
}

/// The file of a component.
///
/// # Errors
/// This program does not lie where Cargo puts it.
pub fn component_file(name: &str) -> Result<PathBuf> {
    let profile = profile()?;
    let target = profile.parent().context("no folder above the profile's")?;
    Ok(target.join("components").join(format!("{name}.wasm")))
}

/// The manager, built with the same profile as this program.
///
/// # Errors
/// It is not built.
pub fn skysail() -> Result<PathBuf> {
    let program = profile()?.join("skysail");
    anyhow::ensure!(program.is_file(), "there is no {}: run make bench, which builds it", program.display());
    Ok(program)
}

/// TARGET/PROFILE, for a program in TARGET/PROFILE/deps.
fn profile() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let folder = program.parent().and_then(Path::parent).context("this program is not where Cargo puts it")?;
    Ok(folder.to_owned())
}
