//! The repository's folders, the manager's binary and the components.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context as _, Result, bail, ensure};

/// Seconds for one command: a cold build of the manager takes about 400 on two cores, everything
/// else far less.
const RUN_SECONDS: u32 = 1200;

/// The exit code of `timeout` after the time is over.
const TIMED_OUT: i32 = 124;

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Cargo's target folder.
#[must_use]
pub fn target() -> PathBuf {
    environment("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The manager's path: what the environment variable `SKYSAIL_BIN` says, relative to the
/// repository's root, for example the program of an image; without the variable, a new build.
///
/// # Errors
/// `SKYSAIL_BIN` names no file, or the manager does not build.
pub fn skysail() -> Result<PathBuf> {
    if let Some(program) = environment("SKYSAIL_BIN") {
        let program = root().join(program);
        ensure!(
            program.is_file(),
            "SKYSAIL_BIN: {} is no file; build the manager there, or unset it",
            program.display()
        );
        return Ok(program);
    }
    run(env!("CARGO"), &["build", "--quiet", "--locked", "-p", "skysail"])?;
    Ok(target().join("debug/skysail"))
}

/// Builds a bundled component, for example `incus`, and returns its path.
///
/// # Errors
/// The component does not build, for example because the toolchain for WebAssembly is missing.
pub fn component(name: &str) -> Result<PathBuf> {
    run(root().join("guests/build.sh"), &[&format!("skysail-{name}")])?;
    Ok(target().join(format!("components/{name}.wasm")))
}

/// The digest of a file's content, as a registry writes it: `sha256:…`.
///
/// # Errors
/// It cannot be read.
pub fn digest_of(file: &Path) -> Result<String> {
    let sums = run("sha256sum", &[&file.display().to_string()])?;
    Ok(format!("sha256:{}", sums.split(' ').next().context("no sum")?))
}

/// A process of a test. Dropping this value kills the process.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The kubeconfig that `skysail dev` has printed to this file.
///
/// # Errors
/// None is printed yet; the error has what is.
pub fn printed_kubeconfig(output: &Path) -> Result<String> {
    let text = fs::read_to_string(output)?;
    let path = text.lines().find_map(|line| line.trim().strip_prefix("export KUBECONFIG="));
    path.map(str::to_owned).with_context(|| text.clone())
}

/// A command without the variables that Cargo sets for the package of a test.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Runs a command in the repository's root, without Cargo's variables, for at most [`RUN_SECONDS`].
///
/// # Errors
/// The command cannot be started, fails or takes too long; the error has its output.
pub fn run(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String> {
    let line = format!("{} {}", program.as_ref().display(), arguments.join(" "));
    let mut command = command("timeout");
    command.arg("--kill-after=10").arg(RUN_SECONDS.to_string()).arg(program).args(arguments);
    let output = command.current_dir(root()).output().with_context(|| format!("cannot start {line}"))?;
    let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.code() == Some(TIMED_OUT) {
        bail!("{line}: not within {RUN_SECONDS} s\n{}\n{}", printed(&output.stdout), printed(&output.stderr));
    }
    if !output.status.success() {
        bail!("{line}: {}\n{}\n{}", output.status, printed(&output.stdout), printed(&output.stderr));
    }
    Ok(printed(&output.stdout))
}

/// Whether `cargo test` sets this variable for a test's package. A build inside a test must not see
/// these variables: build scripts that watch them (ring's does) would run again, with all dependent
/// crates, after each change between builds inside and outside of tests.
fn is_of_this_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "CARGO_TARGET_TMPDIR"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

/// A variable of this process's environment.
#[expect(clippy::disallowed_methods, reason = "KUBEBUILDER_ASSETS and CARGO_TARGET_DIR are conventions of others")]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
