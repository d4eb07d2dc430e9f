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

/// A component compiles in seconds, on a busy machine in many.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is said of a file that will never change.
const NEVER_UPDATED: &str = "Kubernetes never updates such a file";

#[tokio::test]
async fn a_file_mounted_by_sub_path_is_served_and_said_to_stay_as_it_is() -> Result<()> {
    let folder = folder()?;
    fs::write(folder.path().join("mount/provider.wasm"), "")?;
    let mount = "mount --bind volume/provider.wasm mount/provider.wasm";
    let whole = folder.path().join("mount/provider.wasm");
    let said = until_it_serves(&folder, mount, &whole).await?;
    ensure!(said.iter().any(|line| line.contains(NEVER_UPDATED)), "{said:#?}");
    Ok(())
}

/// A volume of type `image`, and a whole ConfigMap: a folder of its own that only kubelet writes.
#[tokio::test]
async fn a_component_in_an_image_volume_is_served_without_a_word_about_it() -> Result<()> {
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

/// Mounts, starts `skysail dev` there with the component at this path, and gives all that it says
/// until it serves.
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
