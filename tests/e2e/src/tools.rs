//! Other tools that push and pull components: `wkg`, and the Python package `oras`. `.ci/setup
//! test` installs both, in pinned versions.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    registry::Registry,
    workspace::{root, run, skysail, target},
};

/// The media type of a component in the CNCF layout, an argument of oras; `wkg` sets it itself.
const TYPE: &str = "application/wasm";

/// A tool of another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The program of the crate `wkg`.
    Wkg,
    /// The Python package `oras`.
    Oras,
}

impl Tool {
    /// Pushes a component under a tag of `org/provider`, with the registry's certificate and
    /// password.
    ///
    /// # Errors
    /// The tool is not installed, or fails.
    pub fn push(self, registry: &Registry, component: &Path, tag: &str) -> Result<()> {
        let (reference, component) = (reference(registry, tag), component.display().to_string());
        match self {
            Self::Wkg => wkg(registry, &["push", &reference, &component]),
            Self::Oras => oras(registry, &["push", &reference, &format!("{component}:{TYPE}")]),
        }
    }

    /// Pulls `org/provider` by tag and returns the file.
    ///
    /// # Errors
    /// The tool is not installed, fails, or does not create exactly one file.
    pub fn pull(self, registry: &Registry, tag: &str) -> Result<PathBuf> {
        let (reference, folder) = (reference(registry, tag), registry.path(&format!("pulled-{tag}")));
        fs::create_dir(&folder)?;
        match self {
            Self::Wkg => {
                let file = folder.join("provider.wasm").display().to_string();
                wkg(registry, &["pull", &reference, "--output", &file])?;
            }
            Self::Oras => oras(registry, &["pull", &reference, &folder.display().to_string()])?,
        }
        let files: Vec<PathBuf> = fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
        ensure!(files.len() == 1, "{self:?} created {files:?} from {reference}");
        files.into_iter().next().context("no file")
    }
}

fn reference(registry: &Registry, tag: &str) -> String {
    format!("{}/org/provider:{tag}", registry.host())
}

fn wkg(registry: &Registry, arguments: &[&str]) -> Result<()> {
    let program = installed("bin/wkg")?;
    fs::write(registry.path("config.json"), registry.docker_config())?;
    let settings = [
        ("SSL_CERT_FILE", registry.path("ca.pem")),
        ("DOCKER_CONFIG", registry.path("config.json").with_file_name("")),
    ];
    let settings = settings.map(|(name, path)| format!("{name}={}", path.display()));
    let settings = settings.each_ref().map(String::as_str);
    run("env", &[&settings[..], &[&program, "oci"], arguments].concat()).map(drop)
}

fn oras(registry: &Registry, arguments: &[&str]) -> Result<()> {
    let python = installed("oras/bin/python")?;
    fs::write(registry.path("config.json"), registry.docker_config())?;
    let files = [root().join("tests/e2e/oras/drive.py"), registry.path("config.json"), registry.path("ca.pem")];
    let [script, config, ca] = files.map(|path| path.display().to_string());
    run(python, &[&[&*script], arguments, &[&config, &ca]].concat()).map(drop)
}

/// A program or a file below `target/tools`.
///
/// # Errors
/// `.ci/setup test` has not installed it.
pub fn installed(path: &str) -> Result<String> {
    let program = target().join("tools").join(path);
    ensure!(program.exists(), "{} is missing; install the pinned version with .ci/setup test", program.display());
    Ok(program.display().to_string())
}

/// Makes the folder `bin` in a reader's folder, with the manager and these programs of `.ci/setup
/// test`, for the `PATH` of the commands of a page.
///
/// # Errors
/// A program is missing, or the folder is there.
pub fn link_programs(folder: &Path, names: &[&str]) -> Result<()> {
    let bin = folder.join("bin");
    fs::create_dir(&bin)?;
    symlink(skysail()?.canonicalize()?, bin.join("skysail"))?;
    for name in names {
        symlink(Path::new(&installed(&format!("bin/{name}"))?).canonicalize()?, bin.join(name))?;
    }
    Ok(())
}
