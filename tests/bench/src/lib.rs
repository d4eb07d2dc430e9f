//! Helpers of the benchmarks: the paths of the programs and components that `make bench` builds.

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
    fs::read(&file).with_context(|| format!("cannot read {}; run make bench, which builds it", file.display()))
}

/// The file of a component.
///
/// # Errors
/// This program is not in Cargo's target folder.
pub fn component_file(name: &str) -> Result<PathBuf> {
    Ok(target_folder()?.join("components").join(format!("{name}.wasm")))
}

/// Cargo's target folder.
///
/// # Errors
/// This program is not in Cargo's target folder.
pub fn target_folder() -> Result<PathBuf> {
    Ok(profile()?.parent().context("no folder above the profile's")?.to_owned())
}

/// The manager's executable: with the release profile of users if this program is optimised,
/// otherwise with the profile of the tests.
///
/// # Errors
/// It is not built.
pub fn skysail() -> Result<PathBuf> {
    let profile = profile()?;
    let program = if profile.ends_with("release") { profile.with_file_name("dist") } else { profile }.join("skysail");
    anyhow::ensure!(
        program.is_file(),
        "there is no {}; build skysail with that profile first (make bench and make test do)",
        program.display()
    );
    Ok(program)
}

/// The first argument of a benchmark that is started as its own compile jail. A benchmark has to
/// check for it first.
pub const JAIL: &str = "compile-jail";

/// The running program as its own compile jail, so that the jail has the same optimisation as the
/// benchmark.
///
/// # Errors
/// The path of this program is unknown.
pub fn own_jail() -> Result<JailCommand> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(JailCommand { program, args: vec![JAIL.into()] })
}

/// A size in the text of `/proc/PID/status`, for example `VmRSS:`, in MiB.
///
/// # Errors
/// The text does not contain the size.
pub fn mebibytes(status: &str, key: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let line = line.with_context(|| format!("/proc/PID/status has no {key}"))?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{key} in kB"))?;
    Ok(kibibytes / 1024.0)
}

/// TARGET/PROFILE, for a program there or in TARGET/PROFILE/deps.
fn profile() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let folder =
        program.parent().map(|folder| if folder.ends_with("deps") { folder.join("..") } else { folder.to_owned() });
    folder.context("this program is not in Cargo's target folder")?.canonicalize().context("this program's folder")
}
