//! Real mounts, as kubelet makes them for a volume: in a mount namespace of the process that reads
//! the component. They need root, as Incus does.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use skysail_test_e2e::workspace::{component, skysail};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

/// Longest wait: a component compiles in seconds, on a busy machine in many seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Part of the warning about a file that will never change.
const NEVER_UPDATED: &str = "which Kubernetes never updates";

#[tokio::test]
async fn a_file_mounted_by_sub_path_is_served_with_a_warning_that_it_never_changes() -> Result<()> {
    let folder = folder()?;
    fs::write(folder.path().join("mount/provider.wasm"), "")?;
    let mount = "mount --bind volume/provider.wasm mount/provider.wasm";
    let whole = folder.path().join("mount/provider.wasm");
    let said = until_it_serves(&folder, mount, &whole).await?;
    ensure!(said.iter().any(|line| line.contains(NEVER_UPDATED)), "{said:#?}");
    Ok(())
}

/// As a volume of type `image` or a whole ConfigMap: a mounted folder that only kubelet writes.
#[tokio::test]
async fn a_component_in_an_image_volume_is_served_without_a_warning() -> Result<()> {
    let folder = folder()?;
    let mount = "mount --bind volume mount && mount -o remount,bind,ro mount && ! touch mount/x 2>/dev/null";
    let said = until_it_serves(&folder, mount, Path::new("mount/provider.wasm")).await?;
    ensure!(!said.iter().any(|line| line.contains(NEVER_UPDATED)), "{said:#?}");
    Ok(())
}

/// `volume` with a component, and `mount`, which is empty.
fn folder() -> Result<TempDir> {
    let folder = TempDir::new()?;
    for name in ["volume", "mount", "temporary"] {
        fs::create_dir(folder.path().join(name))?;
    }
    fs::copy(component("simcloud")?, folder.path().join("volume/provider.wasm"))?;
    Ok(folder)
}

/// Mounts, starts `skysail dev` with the component at this path, and returns its output up to the
/// line about the serving release.
async fn until_it_serves(folder: &TempDir, mount: &str, path: &Path) -> Result<Vec<String>> {
    let program: PathBuf = skysail()?;
    let script = format!("{mount} && exec \"$@\" 2>&1");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", &script, "sh"]).arg(program);
    command.args(["dev", "--nodes=1", "--log=warn", "--provider"]).arg(path).kill_on_drop(true);
    command.current_dir(folder.path()).env("TMPDIR", folder.path().join("temporary"));
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start unshare")?;
    let mut lines = BufReader::new(process.stdout.take().context("it has no output")?).lines();
    let mut said = Vec::new();
    loop {
        let line =
            timeout(PATIENCE, lines.next_line()).await.with_context(|| format!("it does not serve: {said:#?}"))??;
        let line = line.with_context(|| format!("it ended, which needs root or has another reason: {said:#?}"))?;
        let serves = line.contains(" serves (");
        said.push(line);
        if serves {
            return Ok(said);
        }
    }
}
