//! The image of `make image`: what is in it, and that its manager works as a container runtime runs
//! it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    tools::installed,
    workspace::{root, run, skysail},
};
use tempfile::TempDir;

use crate::{
    manifests::{create_what_the_provider_names, provider},
    simulated::Simulated,
};

/// The image of the program under test.
struct Image {
    folder: TempDir,
    digest: String,
}

impl Image {
    fn pack() -> Result<Self> {
        let folder = TempDir::new()?;
        let program = skysail()?.display().to_string();
        let layout = folder.path().join("image").display().to_string();
        let digest = run(root().join(".ci/image"), &[&program, &layout])?;
        Ok(Self { folder, digest })
    }

    /// A blob that is JSON.
    fn blob(&self, digest: &Value) -> Result<Value> {
        let digest = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("no digest")?;
        let path = self.folder.path().join("image/blobs/sha256").join(digest);
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    fn config(&self) -> Result<Value> {
        let manifest = self.blob(&Value::from(self.digest.clone()))?;
        self.blob(manifest.pointer("/config/digest").context("no config")?)
    }

    /// The files of the image, below a folder of the test.
    fn unpack(&self) -> Result<PathBuf> {
        let (image, bundle) = (self.folder.path().join("image"), self.folder.path().join("bundle"));
        let version = run(skysail()?, &["--version"])?;
        let tag = version.split(' ').next_back().context("no version")?;
        let (image, to) = (format!("{}:{tag}", image.display()), bundle.display().to_string());
        run(installed("bin/umoci")?, &["unpack", "--image", &image, &to])?;
        Ok(bundle.join("rootfs"))
    }
}

#[test]
fn two_images_of_a_program_have_the_same_digest_and_hold_that_program_and_nothing_to_start_beside_it() -> Result<()> {
    let (image, again) = (Image::pack()?, Image::pack()?);
    ensure!(image.digest.starts_with("sha256:") && image.digest == again.digest, "{} {}", image.digest, again.digest);
    let config = image.config()?;
    ensure!(config["config"]["User"] == "65532:65532", "{config:#}");
    ensure!(config["config"]["Entrypoint"] == serde_json::json!(["skysail"]), "{config:#}");
    let rootfs = image.unpack()?;
    let mut programs = Vec::new();
    let mut writable = Vec::new();
    collect(&rootfs, &mut |path, mode| {
        let name = path.strip_prefix(&rootfs).unwrap_or(path).display().to_string();
        if mode & 0o111 != 0 && !name.starts_with("lib") {
            programs.push(name.clone());
        }
        if mode & 0o022 != 0 {
            writable.push(name);
        }
    })?;
    ensure!(programs == ["usr/local/bin/skysail"], "{programs:?}");
    ensure!(writable.is_empty(), "others may write {writable:?}");
    let certificates = fs::read_to_string(rootfs.join("etc/ssl/certs/ca-certificates.crt"))?;
    ensure!(certificates.matches("BEGIN CERTIFICATE").count() > 100, "the image has no CA certificates");
    Ok(())
}

/// Calls `see` for each file below the folder, with its mode.
fn collect(folder: &Path, see: &mut impl FnMut(&Path, u32)) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), see)?;
        } else if kind.is_file() {
            see(&entry.path(), entry.metadata()?.permissions().mode());
        }
    }
    Ok(())
}

/// As a container runtime runs it: in a root of its own that is mounted read-only, with /proc and
/// /dev, as a user without capabilities. A ready manager has compiled the component in its jail.
#[tokio::test]
async fn the_manager_of_the_image_serves_a_provider() -> Result<()> {
    let image = Image::pack()?;
    let (rootfs, server) = (image.unpack()?, ApiServer::start()?);
    let cloud = Simulated::start(&["a"]).await?;
    let deploy = root().join("deploy/manifests");
    for file in ["namespace.yaml", "crd.yaml"] {
        server.kubectl(&["apply", "--server-side", "-f", &deploy.join(file).display().to_string()])?;
    }
    server.wait_for_definition("providers.skysail.dev").await?;
    let folder = image.folder.path();
    create_what_the_provider_names(&server, &cloud, folder)?;
    let object = folder.join("provider.json");
    fs::write(&object, provider(&format!("http://{}", cloud.address()?)).to_string())?;
    server.kubectl(&["apply", "-f", &object.display().to_string()])?;

    let kubeconfig = server.kubeconfig();
    let runtime = container_runtime(&rootfs, &kubeconfig)?;
    let flags = ["--leader-elect=false", "--state-dir=/var/lib/skysail"];
    let mut manager = Manager::spawn_program(&runtime, &[&["--provider-resources"], &flags[..]].concat(), &kubeconfig)?;
    manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
    let log = manager.log();
    ensure!(!log.contains("compile jail: without"), "a mechanism of the jail is missing: {log}");
    Ok(())
}

/// A script that runs the image's program with its arguments.
fn container_runtime(rootfs: &Path, kubeconfig: &Path) -> Result<PathBuf> {
    for folder in ["proc", "dev", "var/lib/skysail"] {
        fs::create_dir_all(rootfs.join(folder))?;
    }
    fs::copy(kubeconfig, rootfs.join("kubeconfig"))?;
    fs::set_permissions(rootfs.join("kubeconfig"), fs::Permissions::from_mode(0o644))?;
    let script = rootfs.with_file_name("run");
    let (rootfs, kubeconfig) = (rootfs.display(), kubeconfig.display());
    let text = format!(
        r#"#!/bin/bash
set -euo pipefail
root={rootfs}
exec unshare --mount --pid --fork --kill-child=KILL -- bash -euc '
  root=$0
  mount --bind "$root" "$root"
  mount -o remount,bind,ro "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o uid=65532,gid=65532,mode=700 tmpfs "$root/var/lib/skysail"
  # The shell stays: the kernel forgets the signal of --kill-child where a process changes its user. With
  # the shell, the first process of the namespace, the manager ends too.
  setpriv --no-new-privs chroot --userspec=65532:65532 "$root" /usr/local/bin/skysail "$@"
  exit $?
' "$root" "${{@/"{kubeconfig}"//kubeconfig}}"
"#
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
