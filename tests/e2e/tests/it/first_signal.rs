//! SIGTERM to a manager that has just begun.

use std::{
    fs::{self, File},
    path::Path,
    process::{ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use skysail_test_e2e::{
    wait::eventually,
    workspace::{Process, command, skysail},
};
use tempfile::TempDir;

/// No server listens there, so that the manager waits for its API server.
const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
";
/// Managers that are started: the moment at which each is stopped is another one, and a busy
/// machine may stop one late.
const STARTS: usize = 20;
/// The first thread and that which receives signals.
const FIRST_THREADS: usize = 2;
/// Seconds until a process has begun, has stopped and has ended.
const SECONDS: u64 = 60;

/// What `/proc` says about a process.
struct Seen {
    /// Whether the process has a handler for SIGTERM.
    catches: bool,
    threads: usize,
    stopped: bool,
}

fn seen(process: &Process) -> Result<Seen> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.0.id()))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("the process is gone")?;
        Ok::<_, anyhow::Error>(line.trim_start_matches(':').trim().to_owned())
    };
    let caught = u64::from_str_radix(&field("SigCgt")?, 16)?;
    let catches = caught & (1 << (Signal::TERM.as_raw() - 1)) != 0;
    Ok(Seen { catches, threads: field("Threads")?.parse()?, stopped: field("State")?.starts_with('T') })
}

fn send(process: &Process, signal: Signal) -> Result<()> {
    let id = i32::try_from(process.0.id()).ok().and_then(Pid::from_raw).context("the process has no ID")?;
    Ok(kill_process(id, signal)?)
}

/// A manager whose API server does not answer.
fn start(folder: &Path) -> Result<Process> {
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG)?;
    let log = File::create(folder.join("log"))?;
    let mut command = command(skysail()?);
    command.args(["run", "--provider-resources", "--bind-address=127.0.0.1", "--secure-port=0"]);
    command.arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Process(command.spawn().context("cannot start the manager")?))
}

/// Stops the process as soon as it catches SIGTERM or has more threads than its first ones;
/// returns what it has done by then.
async fn stopped_early(process: &Process) -> Result<Seen> {
    tokio::task::block_in_place(|| until_begun(process))?;
    send(process, Signal::STOP)?;
    let look = || seen(process).and_then(|now| if now.stopped { Ok(now) } else { anyhow::bail!("it still runs") });
    eventually("the process stops", SECONDS, || std::future::ready(look())).await
}

/// Without a pause, because each one would miss the moment.
fn until_begun(process: &Process) -> Result<()> {
    let begun = tokio::time::Instant::now();
    loop {
        let Seen { catches, threads, .. } = seen(process)?;
        if catches || threads > FIRST_THREADS {
            return Ok(());
        }
        ensure!(begun.elapsed().as_secs() < SECONDS, "the process has not begun within {SECONDS} s");
    }
}

async fn ended(process: &mut Process) -> Result<ExitStatus> {
    let mut look = || process.0.try_wait().map_err(anyhow::Error::from)?.context("it still runs");
    eventually("the manager ends", SECONDS, || std::future::ready(look())).await
}

/// A signal before the manager listens would end it as signals do by default, and a kubelet would
/// report a failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_manager_listens_to_sigterm_before_anything_else_and_ends_cleanly() -> Result<()> {
    let folder = TempDir::new()?;
    let mut threads_least = usize::MAX;
    for _ in 0..STARTS {
        let mut manager = start(folder.path())?;
        let Seen { catches, threads, .. } = stopped_early(&manager).await?;
        ensure!(catches, "the manager has {threads} threads and does not listen to SIGTERM");
        threads_least = threads_least.min(threads);
        send(&manager, Signal::TERM)?;
        send(&manager, Signal::CONT)?;
        let status = ended(&mut manager).await?;
        ensure!(
            status.success(),
            "the manager ended with {status}: {}",
            fs::read_to_string(folder.path().join("log"))?
        );
    }
    ensure!(threads_least <= FIRST_THREADS, "each manager had {threads_least} threads or more when it first listened");
    Ok(())
}
