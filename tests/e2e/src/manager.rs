//! The manager as operators run it: a process with a kubeconfig and a provider file.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skysail_test_support::ports;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{api_server::tail, leaks, wait::eventually, workspace::skysail};

/// Seconds until it is ready: it compiles the component, without optimisation in a test, and a busy
/// machine gives it a tenth of a core.
const READY_SECONDS: u64 = 300;

/// Seconds to end after SIGTERM: the grace period is 10 s, and a busy machine needs more.
const END_SECONDS: u64 = 120;

/// Longest wait for one answer, of the manager or of a machine behind a load balancer.
const ANSWER: Duration = Duration::from_secs(30);

/// A running manager with the folder of its provider file. Dropping this value kills the manager,
/// and fails if a value of a credential is where it must not be ([`leaks`]).
#[derive(Debug)]
pub struct Manager {
    folder: TempDir,
    command: Command,
    process: Child,
    metrics: String,
    kubeconfig: PathBuf,
    /// The files of the folder that the test wrote, before the manager started.
    written: Vec<PathBuf>,
}

impl Manager {
    /// Starts `skysail run` in the network namespace of this thread and waits until it is ready.
    ///
    /// `component` is copied to `provider.wasm` beside the provider file; `files` are written
    /// beside it, each with a name and a text.
    ///
    /// # Errors
    /// The manager does not build, does not start or is not ready in time; the error has the end of
    /// its log.
    pub async fn start(
        kubeconfig: &Path,
        component: &Path,
        provider_file: &str,
        files: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start_with(&["--leader-elect=false"], kubeconfig, component, provider_file, files).await
    }

    /// The same, with these flags; a manager that is not the leader is ready, too.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(
        election: &[&str],
        kubeconfig: &Path,
        component: &Path,
        provider_file: &str,
        files: &[(&str, &str)],
    ) -> Result<Self> {
        let mut manager = Self::spawn(election, kubeconfig, component, provider_file, files)?;
        if let Err(error) = manager.wait_until_ready().await {
            return Err(error.context(manager.log_tail()));
        }
        Ok(manager)
    }

    /// The same, with these flags, without a wait.
    ///
    /// # Errors
    /// It does not build or start.
    pub fn spawn(
        flags: &[&str],
        kubeconfig: &Path,
        component: &Path,
        provider_file: &str,
        files: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = TempDir::new()?;
        fs::copy(component, folder.path().join("provider.wasm"))
            .with_context(|| format!("no component {}", component.display()))?;
        for (name, text) in files.iter().chain(&[("providers.yaml", provider_file)]) {
            fs::write(folder.path().join(name), text)?;
        }
        let providers = format!("--provider-file={}", folder.path().join("providers.yaml").display());
        Self::spawn_as(&skysail()?, folder, &[&[&*providers], flags].concat(), kubeconfig)
    }

    /// The same with the `Provider`s of the cluster in place of a provider file.
    ///
    /// # Errors
    /// It does not build or start.
    pub fn spawn_with_resources(flags: &[&str], kubeconfig: &Path) -> Result<Self> {
        Self::spawn_program(&skysail()?, &[&["--provider-resources"], flags].concat(), kubeconfig)
    }

    /// The same with another program, which gets the arguments of `skysail`.
    ///
    /// # Errors
    /// The program does not start.
    pub fn spawn_program(program: &Path, flags: &[&str], kubeconfig: &Path) -> Result<Self> {
        Self::spawn_as(program, TempDir::new()?, flags, kubeconfig)
    }

    fn spawn_as(program: &Path, folder: TempDir, flags: &[&str], kubeconfig: &Path) -> Result<Self> {
        let port = ports::free()?;
        let written: Vec<_> = fs::read_dir(folder.path())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        let mut command = command(program, folder.path(), kubeconfig, port)?;
        let process = command.args(flags).spawn().context("cannot start the manager")?;
        let (metrics, kubeconfig) = (format!("https://127.0.0.1:{port}"), kubeconfig.to_owned());
        Ok(Self { folder, command, process, metrics, kubeconfig, written })
    }

    /// Kills the manager with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// The manager had ended before; the error has its exit status and the end of its log.
    pub fn kill(&mut self) -> Result<()> {
        self.still_runs()?;
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Starts the manager again in the same folder, as a kubelet does, without a wait. The log is
    /// continued.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self) -> Result<()> {
        self.process = self.command.spawn().context("cannot start the manager again")?;
        Ok(())
    }

    /// Everything it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The digest of the release that serves.
    ///
    /// # Errors
    /// No release has served so far.
    pub fn release(&self) -> Result<String> {
        let lines = self.lines(|fields| fields["message"] == "release active");
        lines.last().map(digest).context("no release serves")
    }

    /// The digests of the releases that made the calls of this function, for example
    /// `load-balancers.ensure`, in order.
    #[must_use]
    pub fn calls(&self, function: &str) -> Vec<String> {
        self.lines(|fields| fields["provider.operation"] == function).iter().map(digest).collect()
    }

    /// The log lines that the filter takes; their fields are on the top level.
    #[must_use]
    pub fn lines(&self, filter: impl Fn(&Value) -> bool) -> Vec<Value> {
        let log = self.log();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(filter).collect()
    }

    /// The end of its log, for messages.
    #[must_use]
    pub fn log_tail(&self) -> String {
        format!("end of the manager's log:\n{}", tail(&self.log()))
    }

    /// Where its HTTPS port is: `https://…`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.metrics
    }

    /// `/metrics`.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics(&self) -> Result<String> {
        get(&format!("{}/metrics", self.metrics)).await
    }

    /// Status and body of `/readyz?verbose`.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        let answer = client()?.get(format!("{}/readyz?verbose", self.metrics)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// The status of a GET with this bearer token.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn ask(&self, path: &str, token: &str) -> Result<u16> {
        let request = client()?.get(format!("{}/{path}", self.metrics)).bearer_auth(token);
        Ok(request.send().await?.status().as_u16())
    }

    /// Offers another release of the same provider: the component with one custom section more, and
    /// so with another digest. Written beside the old one and renamed over it, as editors do.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn offer_another_release(&self) -> Result<()> {
        let component = self.component();
        let mut bytes = fs::read(&component)?;
        // Section 0, eight bytes: the length of its name, the name, two bytes of content.
        bytes.extend_from_slice(&[0, 8, 5]);
        bytes.extend_from_slice(b"again");
        bytes.extend_from_slice(&[0, 1]);
        let new = component.with_extension("new");
        fs::write(&new, bytes)?;
        fs::rename(new, component)?;
        Ok(())
    }

    /// The component's file.
    #[must_use]
    pub fn component(&self) -> PathBuf {
        self.folder.path().join("provider.wasm")
    }

    /// Checks that the manager still runs.
    ///
    /// # Errors
    /// The manager has ended; the error has its exit status and the end of its log.
    pub fn still_runs(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the manager ended with {status}; {}", self.log_tail()),
        }
    }

    /// Stops the manager with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// The manager does not end in time.
    pub async fn end(mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended().await
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).context("it has no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let process = &mut self.process;
        let mut look = move || process.try_wait().map_err(anyhow::Error::from)?.context("it still runs");
        eventually("the manager ends", END_SECONDS, || std::future::ready(look())).await
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// It ends, or is not ready in time.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let ready = format!("{}/readyz", self.metrics);
        let end = Instant::now() + Duration::from_secs(READY_SECONDS);
        while Instant::now() < end {
            self.still_runs()?;
            if get(&ready).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        bail!("the manager is not ready within {READY_SECONDS} s")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        drop(self.process.kill());
        drop(self.process.wait());
        // A second panic would end the process without a message.
        if !std::thread::panicking() {
            let mut found = leaks::in_files(self.folder.path(), &self.written);
            found.extend(leaks::in_objects(&self.kubeconfig));
            assert!(found.is_empty(), "values of credentials are in {found:?}");
        }
    }
}

/// `skysail run` with the flags of all tests; the provider file and the log are in the folder.
fn command(program: &Path, folder: &Path, kubeconfig: &Path, port: u16) -> Result<Command> {
    let log = File::create(folder.join("log"))?;
    let mut command = Command::new(program);
    command
        .args([
            "run",
            "--cluster-name=e2e",
            "--node-monitor-period=1s",
            "--log=info,skysail_host=debug",
            "--logging-format=json",
        ])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--authentication-kubeconfig={}", kubeconfig.display()))
        .arg(format!("--authorization-kubeconfig={}", kubeconfig.display()))
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={port}"))
        .arg("--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}

fn digest(fields: &Value) -> String {
    fields["component.digest"].as_str().unwrap_or_default().to_owned()
}

/// Body of an HTTP or HTTPS answer, over a connection of its own.
///
/// # Errors
/// No answer, or a status that is not a success.
pub async fn get(url: &str) -> Result<String> {
    Ok(client()?.get(url).send().await?.error_for_status()?.text().await?)
}

/// A client that accepts any certificate, because the servers under test have self-signed ones.
pub(crate) fn client() -> Result<reqwest::Client> {
    // reqwest needs a default provider; it may be installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(ANSWER);
    Ok(client.tls_danger_accept_invalid_certs(true).build()?)
}
