//! Tests of `skysail dev` as a process: a changed component, and the end by a signal.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::program::{SKYSAIL, built};

/// Longest wait: a component compiles in seconds, on a busy machine in many seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `skysail dev`. Dropping this value kills the process and deletes its temporary files.
struct Dev {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    _temporary: TempDir,
}

impl Dev {
    fn start(provider: &Path) -> Self {
        Self::start_with(provider, &[])
    }

    fn start_with(provider: &Path, args: &[&OsStr]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(SKYSAIL);
        command.args(["dev", "--nodes", "1", "--provider"]).arg(provider).args(args).kill_on_drop(true);
        command.env("TMPDIR", temporary.path());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, _temporary: temporary }
    }

    /// Reads up to the first line for which `look` returns a value.
    async fn until<T>(&mut self, mut look: impl FnMut(&str) -> Option<T>) -> T {
        let read = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if let Some(found) = look(&line) {
                    return found;
                }
            }
            panic!("the process ended");
        };
        timeout(PATIENCE, read).await.expect("the expected line should be printed in time")
    }
}

/// The provider file that a line of the introduction names.
fn provider_file(line: &str) -> Option<PathBuf> {
    let (file, _) = line.trim().strip_prefix("files ")?.split_once(" (")?;
    Some(PathBuf::from(file.trim()))
}

/// The name of the release in a line that reports a serving release.
fn serving(line: &str) -> Option<String> {
    assert!(!line.contains("refused"), "{line}");
    let (before, _) = line.split_once(" serves (")?;
    before.rsplit(' ').nth(1).map(str::to_owned)
}

#[tokio::test]
async fn a_component_with_another_name_and_fewer_interfaces_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, beside) = (folder.path().join("provider.wasm"), folder.path().join("next"));
    fs::copy(built("simcloud"), &file).unwrap();
    let mut dev = Dev::start(&file);
    assert_eq!(dev.until(serving).await, "simcloud");
    fs::copy(built("probe-fuel"), &beside).unwrap();
    fs::rename(&beside, &file).unwrap();
    assert_eq!(dev.until(serving).await, "fuel");
}

#[tokio::test]
async fn a_cloud_config_is_the_providers_and_an_edit_of_the_provider_file_has_its_effect() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cloud.conf");
    fs::write(&config, "[LoadBalancer]\npool = nonsense\n").unwrap();
    let mut dev = Dev::start_with(&built("dummy"), &["--cloud-config".as_ref(), config.as_ref()]);
    let file = dev.until(provider_file).await;
    let refused = dev.until(|line| line.contains("refused").then(|| line.to_owned())).await;
    assert!(refused.contains("LoadBalancer.pool"), "{refused}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("pool = nonsense"), "{text}");
    fs::write(&file, text.replace("pool = nonsense", "pool = 10.0.0.0/24")).unwrap();
    assert_eq!(dev.until(|line| if line.contains("refused") { None } else { serving(line) }).await, "dummy");
}

#[tokio::test]
async fn after_every_terminating_signal_the_temporary_files_are_deleted() {
    for signal in ["INT", "TERM", "HUP"] {
        let mut dev = Dev::start(&built("simcloud"));
        let file = dev.until(provider_file).await;
        let folder = file.parent().unwrap();
        assert!(folder.join("token").is_file());
        let pid = dev.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().await.unwrap().success());
        let status = timeout(PATIENCE, dev.process.wait()).await.expect("the process should end").unwrap();
        assert_eq!((status.code(), folder.exists()), (Some(0), false), "SIG{signal}");
    }
}
