//! Where the binaries come from: the environment, the cache, or a build.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::cache::{self, variable};

/// The Kubernetes release whose API server is built.
const KUBERNETES_VERSION: &str = "1.36.3";
/// The etcd release inside it: the one that Kubernetes release requires.
const ETCD_VERSION: &str = "3.6.8";

#[derive(Debug)]
pub(super) enum Binaries {
    /// Two programs from `KUBEBUILDER_ASSETS`.
    Assets { apiserver: PathBuf, etcd: PathBuf },
    /// Our program that is both.
    One(PathBuf),
}

impl Binaries {
    pub(super) fn find() -> anyhow::Result<Self> {
        if let Some(folder) = variable("KUBEBUILDER_ASSETS") {
            let (apiserver, etcd) = (folder.join("kube-apiserver"), folder.join("etcd"));
            for binary in [&apiserver, &etcd] {
                if !binary.is_file() {
                    bail!("KUBEBUILDER_ASSETS is {}, but there is no {}", folder.display(), binary.display());
                }
            }
            return Ok(Self::Assets { apiserver, etcd });
        }
        let built = cache::folder()?.join(format!("apiserver-{KUBERNETES_VERSION}-{ETCD_VERSION}"));
        if !built.is_file() {
            build(&built)?;
        }
        Ok(Self::One(built))
    }
}

/// Builds under a lock, so that test binaries that start together build once.
fn build(out: &Path) -> anyhow::Result<()> {
    let lock = std::fs::File::create(out.with_extension("lock")).context("creating the lock of the build")?;
    lock.lock().context("waiting for another build of the API server")?;
    if out.is_file() {
        return Ok(());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("apiserver/build.sh");
    let status = Command::new("sh")
        .arg(&script)
        .arg(out)
        .args([KUBERNETES_VERSION, ETCD_VERSION])
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
