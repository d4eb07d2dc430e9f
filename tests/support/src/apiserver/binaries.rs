//! Where the binaries come from: the environment, the cache, or a build of the release that
//! `SKYSAIL_TEST_KUBERNETES` selects.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::cache::{self, variable};

/// The environment variable that selects one of [`RELEASES`] by its minor version, such as `1.34`.
const SELECTED: &str = "SKYSAIL_TEST_KUBERNETES";
/// The Kubernetes releases whose API server can be built, one for each minor version, a line each.
/// `.ci/test` reads the same file.
const RELEASES: &str = include_str!("../../apiserver/releases");
/// The minor version where none is selected.
const DEFAULT: &str = "1.36";

#[derive(Debug)]
pub(super) enum Binaries {
    /// Two programs from `KUBEBUILDER_ASSETS`.
    Assets { apiserver: PathBuf, etcd: PathBuf },
    /// Our program that is both.
    One(PathBuf),
}

impl Binaries {
    pub(super) fn find() -> anyhow::Result<Self> {
        let selected = variable(SELECTED);
        if let Some(folder) = variable("KUBEBUILDER_ASSETS") {
            if selected.is_some() {
                bail!("KUBEBUILDER_ASSETS and {SELECTED} are both set, and each selects an API server; unset one");
            }
            let (apiserver, etcd) = (folder.join("kube-apiserver"), folder.join("etcd"));
            for binary in [&apiserver, &etcd] {
                if !binary.is_file() {
                    bail!("KUBEBUILDER_ASSETS is {}, but there is no {}", folder.display(), binary.display());
                }
            }
            return Ok(Self::Assets { apiserver, etcd });
        }
        let selected = selected.map_or(DEFAULT.into(), |minor| minor.display().to_string());
        let release = release_of(&selected)?;
        let built = cache::folder()?.join(format!("apiserver-{release}"));
        if !built.is_file() {
            build(&built, release)?;
        }
        Ok(Self::One(built))
    }
}

/// The release of a minor version.
fn release_of(minor: &str) -> anyhow::Result<&'static str> {
    let releases = RELEASES.lines().filter_map(|release| Some((release.rsplit_once('.')?.0, release)));
    let selected = releases.clone().find(|(known, _)| *known == minor).map(|(_, release)| release);
    selected.with_context(|| {
        let known: Vec<&str> = releases.map(|(known, _)| known).collect();
        format!("{SELECTED}: there is no API server of Kubernetes {minor}; select one of {}", known.join(", "))
    })
}

/// Builds under a lock, so that test binaries that start together build once.
fn build(out: &Path, release: &str) -> anyhow::Result<()> {
    let lock = std::fs::File::create(out.with_added_extension("lock")).context("creating the lock of the build")?;
    lock.lock().context("waiting for another build of the API server")?;
    if out.is_file() {
        return Ok(());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("apiserver/build.sh");
    let status = Command::new("sh")
        .arg(&script)
        .arg(out)
        .arg(release)
        .env("PATH", path_with_go())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("running {}", script.display()))?;
    if !status.success() {
        bail!(
            "a real API server is missing: KUBEBUILDER_ASSETS is not set, and {} failed with {status} (it needs Go \
             1.26 and a Go module proxy; its output is above)",
            script.display()
        );
    }
    Ok(())
}

/// Go's own installer puts it where no shell looks by default.
fn path_with_go() -> std::ffi::OsString {
    let mut path = variable("PATH").unwrap_or_default().into_os_string();
    path.push(":/usr/local/go/bin:/usr/lib/go/bin");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_version_selects_its_release() -> anyhow::Result<()> {
        for release in RELEASES.lines() {
            let (minor, _) = release.rsplit_once('.').context("a release has three numbers")?;
            assert_eq!(release_of(minor)?, release);
        }
        assert!(release_of(DEFAULT).is_ok());
        Ok(())
    }

    #[test]
    fn an_unknown_version_is_an_error_that_lists_the_known_ones() {
        // 1.3 is the beginning of each of them, and a release is no minor version.
        for unknown in ["1.3", "1.28", "1.36.3", "v1.36", "1.36\n", ""] {
            let error = release_of(unknown).expect_err(unknown).to_string();
            assert!(
                error.starts_with(&format!("SKYSAIL_TEST_KUBERNETES: there is no API server of Kubernetes {unknown};")),
                "{error}"
            );
            assert!(error.ends_with("select one of 1.33, 1.34, 1.35, 1.36, 1.37"), "{error}");
        }
    }
}
