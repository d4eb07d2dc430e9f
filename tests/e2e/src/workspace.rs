//! What the tests take from this repository: its folders, the manager's binary, the components.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where Cargo builds.
#[must_use]
pub fn target() -> PathBuf {
    environment("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The manager, built now if it has to be.
///
/// # Errors
/// It does not build.
pub fn skysail() -> Result<PathBuf> {
    run(Command::new(env!("CARGO")).args(["build", "--quiet", "--locked", "-p", "skysail"]))?;
    Ok(target().join("debug/skysail"))
}

/// A bundled component, for example `incus`; built now if it has to be.
///
/// # Errors
/// It does not build: there is no toolchain for WebAssembly, for example.
pub fn component(name: &str) -> Result<PathBuf> {
    run(Command::new(root().join("guests/build.sh")).arg(format!("skysail-{name}")))?;
    Ok(target().join(format!("components/{name}.wasm")))
}

/// Runs a command in the repository's root.
///
/// # Errors
/// It cannot be started, or fails: with what it printed.
pub fn run(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.current_dir(root()).output().with_context(|| format!("cannot start {line}"))?;
    let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if !output.status.success() {
        bail!("{line}: {}\n{}\n{}", output.status, printed(&output.stdout), printed(&output.stderr));
    }
    Ok(printed(&output.stdout))
}

/// A variable of this process's environment.
#[expect(clippy::disallowed_methods, reason = "KUBEBUILDER_ASSETS and CARGO_TARGET_DIR are conventions of others")]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
