//! A real kube-apiserver with its etcd on loopback, started for tests and killed after them.
//!
//! `KUBEBUILDER_ASSETS` names a folder with the binaries `kube-apiserver` and `etcd`, as everywhere
//! in the ecosystem. Where it is not set, `apiserver/build.sh` builds one Go program that is both,
//! once for each release, into a cache folder. Where neither works, starting fails and says what is
//! missing; nothing is skipped.

mod binaries;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use self::binaries::Binaries;
use crate::ports;

/// How long the API server may take to be ready: 3 s on an idle machine, a minute on one that
/// compiles beside it, and more where four of them start at once.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause between two readiness checks.
const READY_POLL: Duration = Duration::from_millis(100);
/// The token of the administrator; the server listens on loopback only.
const TOKEN: &str = "skysail-tests";

/// The audit policy: log every request after its answer, without its body.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n";

/// Runs a program until it ends or until our end of its standard input closes: also when the test
/// process is killed.
const SUPERVISOR: &str = r#"exec 3<&0; "$@" </dev/null & p=$!; (cat <&3 >/dev/null; kill -9 $p) 2>/dev/null & wait $p"#;

/// A running API server. Dropping this value kills it.
#[derive(Debug)]
pub struct ApiServer {
    folder: TempDir,
    port: u16,
    processes: Vec<Child>,
}

impl ApiServer {
    /// Prepares the binaries. The first time on a machine they may be built, which takes minutes
    /// and the network.
    ///
    /// # Errors
    /// The binaries are missing and cannot be built; the error names what is missing.
    pub fn prepare() -> anyhow::Result<()> {
        Binaries::find().map(drop)
    }

    /// Starts one on free ports and waits until it is ready. The first start on a machine may build
    /// it: minutes.
    ///
    /// # Errors
    /// Where no binaries can be had, naming what is missing, and where it does not become ready,
    /// with the end of its log.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// The same with these flags of kube-apiserver.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(more: &[&str]) -> anyhow::Result<Self> {
        let binaries = Binaries::find()?;
        let folder = tempfile::tempdir().context("making a folder for the API server")?;
        let (port, etcd, peer) = (ports::free()?, ports::free()?, ports::free()?);
        write_inputs(folder.path())?;
        let mut server = Self { folder, port, processes: Vec::new() };
        let mut flags = server.flags(etcd);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        match &binaries {
            Binaries::Assets { apiserver, etcd: etcd_binary } => {
                let data = server.folder.path().join("etcd");
                let client = format!("http://127.0.0.1:{etcd}");
                let mut command = Command::new(etcd_binary);
                command.arg("--data-dir").arg(data).arg("--unsafe-no-fsync");
                command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                command.arg("--listen-peer-urls").arg(format!("http://127.0.0.1:{peer}"));
                server.spawn(command, "etcd.log")?;
                let mut command = Command::new(apiserver);
                command.args(&flags);
                server.spawn(command, "apiserver.log")?;
            }
            Binaries::One(program) => {
                let mut command = Command::new(program);
                command.arg(etcd.to_string()).arg(peer.to_string()).arg(server.folder.path().join("etcd"));
                command.arg("--").args(&flags);
                server.spawn(command, "apiserver.log")?;
            }
        }
        server.wait_until_ready()?;
        Ok(server)
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The bearer token of an administrator.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// A kubeconfig of an administrator. The server's certificate is its own and not verified.
    pub fn kubeconfig_yaml(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: real\n  cluster:\n    server: {}\n    \
             insecure-skip-tls-verify: true\nusers:\n- name: admin\n  user:\n    token: {TOKEN}\ncontexts:\n- name: real\n  \
             context:\n    cluster: real\n    user: admin\ncurrent-context: real\n",
            self.url()
        )
    }

    /// Who asked for what and was answered how: a JSON object a line.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn audit_log(&self) -> anyhow::Result<String> {
        let path = self.folder.path().join("audit.log");
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// The process ids, for tests that measure.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Child::id).collect()
    }

    /// Stops what was started by SIGSTOP, or lets it go on.
    ///
    /// # Errors
    /// A process is gone.
    pub fn freeze(&self, frozen: bool) -> anyhow::Result<()> {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        for supervisor in self.pids() {
            let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
            for child in children.split_whitespace() {
                let name = std::fs::read_to_string(format!("/proc/{child}/comm"))?;
                // The other child is the shell that ends it when the tests are killed.
                if name.trim() != "sh" {
                    let status = Command::new("kill").args([signal, child]).status().context("running kill")?;
                    anyhow::ensure!(status.success(), "kill {signal} {child} ended with {status}");
                }
            }
        }
        Ok(())
    }

    fn flags(&self, etcd: u16) -> Vec<String> {
        let folder = self.folder.path().display();
        vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            "--bind-address=127.0.0.1".into(),
            // No client uses this address (TEST-NET-1); without it the server looks for a default
            // route, which a network namespace may not have.
            "--advertise-address=192.0.2.1".into(),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={folder}/certs"),
            "--service-cluster-ip-range=10.96.0.0/12".into(),
            "--service-node-port-range=30000-32767".into(),
            "--endpoint-reconciler-type=none".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={folder}/sa.key"),
            format!("--service-account-signing-key-file={folder}/sa.key"),
            format!("--token-auth-file={folder}/tokens.csv"),
            "--authorization-mode=RBAC".into(),
            format!("--audit-policy-file={folder}/audit.yaml"),
            format!("--audit-log-path={folder}/audit.log"),
            // No controller manager runs that would create default accounts or take the not-ready
            // taint away.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
        ]
    }

    fn spawn(&mut self, command: Command, log: &str) -> anyhow::Result<()> {
        let path = self.folder.path().join(log);
        let out = std::fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        let err = out.try_clone().context("sharing the log")?;
        let mut supervised = Command::new("sh");
        supervised.args(["-c", SUPERVISOR, "sh"]).arg(command.get_program()).args(command.get_args());
        supervised.stdin(Stdio::piped()).stdout(out).stderr(err);
        let program = command.get_program().display();
        let child = supervised.spawn().with_context(|| format!("starting {program}"))?;
        self.processes.push(child);
        Ok(())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let attempts = READY_TIMEOUT.as_millis() / READY_POLL.as_millis();
        for _ in 0..attempts {
            if self.is_ready() {
                return Ok(());
            }
            for child in &mut self.processes {
                if let Some(status) = child.try_wait().context("looking after the API server")? {
                    bail!("the API server ended with {status} before it was ready:\n{}", self.log_end());
                }
            }
            pause();
        }
        bail!("the API server was not ready after {READY_TIMEOUT:?}:\n{}", self.log_end())
    }

    fn is_ready(&self) -> bool {
        let kubeconfig = self.folder.path().join("kubeconfig");
        if std::fs::write(&kubeconfig, self.kubeconfig_yaml()).is_err() {
            return false;
        }
        let asked = Command::new("curl")
            .args(["--silent", "--insecure", "--fail", "--max-time", "10", "--noproxy", "*"])
            .arg("--header")
            .arg(format!("Authorization: Bearer {TOKEN}"))
            .arg(format!("{}/readyz", self.url()))
            .output();
        asked.is_ok_and(|output| output.status.success() && output.stdout == b"ok")
    }

    fn log_end(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("apiserver.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for child in &mut self.processes {
            drop(child.stdin.take());
            // An error means that the process has ended already.
            drop(child.wait());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a process outside of tokio's clock is waited for")]
fn pause() {
    std::thread::sleep(READY_POLL);
}

fn write_inputs(folder: &Path) -> anyhow::Result<()> {
    std::fs::write(folder.join("tokens.csv"), format!("{TOKEN},admin,1,\"system:masters\"\n")).context("tokens")?;
    std::fs::write(folder.join("audit.yaml"), AUDIT_POLICY).context("the audit policy")?;
    let made = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(folder.join("sa.key"))
        .arg("2048")
        .output()
        .context("openssl is missing; install the package openssl")?;
    if !made.status.success() {
        bail!("openssl could not make a key: {}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(())
}
