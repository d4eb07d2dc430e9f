//! What the benchmarks share: where `make bench` has put what they measure.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use skysail_host::jail::JailCommand;

pub mod side_by_side;
pub mod swaps;

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
    Ok(target_folder()?.join("components").join(format!("{name}.wasm")))
}

/// Cargo's target folder.
///
/// # Errors
/// This program does not lie where Cargo puts it.
pub fn target_folder() -> Result<PathBuf> {
    Ok(profile()?.parent().context("no folder above the profile's")?.to_owned())
}

/// The manager: as users run it where this program is optimised, and otherwise as the tests run it.
///
/// # Errors
/// It is not built.
pub fn skysail() -> Result<PathBuf> {
    let profile = profile()?;
    let program = if profile.ends_with("release") { profile.with_file_name("dist") } else { profile }.join("skysail");
    anyhow::ensure!(
        program.is_file(),
        "there is no {}: build skysail with that profile first (make bench and make test do)",
        program.display()
    );
    Ok(program)
}

/// The first argument of a benchmark that is its own compile jail: it has to look for it before
/// anything else.
pub const JAIL: &str = "compile-jail";

/// The program that runs, as its own compile jail: with the optimisation that everything here has.
///
/// # Errors
/// It does not know where it lies.
pub fn own_jail() -> Result<JailCommand> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    Ok(JailCommand { program, args: vec![JAIL.into()] })
}

/// A size in the text of `/proc/PID/status`, for example `VmRSS:`, in MiB.
///
/// # Errors
/// The text does not have it.
pub fn mebibytes(status: &str, key: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let line = line.with_context(|| format!("/proc/PID/status has no {key}"))?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{key} in kB"))?;
    Ok(kibibytes / 1024.0)
}

/// TARGET/PROFILE, for a program there or in TARGET/PROFILE/deps.
fn profile() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let folder =
        program.parent().map(|folder| if folder.ends_with("deps") { folder.join("..") } else { folder.to_owned() });
    folder.context("this program is not where Cargo puts it")?.canonicalize().context("this program's folder")
}
