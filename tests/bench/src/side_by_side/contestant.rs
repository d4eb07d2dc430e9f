//! The managers that are compared, and how they are built and started.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use skysail_test_support::simcloud;

use super::process::Process;
use crate::{component_file, skysail, target_folder};

/// Flags for large clusters: users of managers in Go set them, and Skysail gets the same
/// concurrency and request rate.
const TUNED: [&str; 4] =
    ["--concurrent-service-syncs=10", "--concurrent-node-syncs=10", "--kube-api-qps=1000", "--kube-api-burst=1000"];
/// The same rate for requests to the cloud, which the manager in Go does not limit.
const TUNED_LIMITS: &str = "  limits: {httpRequestsPerSecond: 1000}\n";
/// A second provider for another cloud, without objects, so that the figures are those of a manager
/// with two providers.
const SECOND_PROVIDER: &str = "---\napiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {name: second}\nspec:\n  source: {file: second.wasm}\n  \
     nodeSelector: {matchLabels: {cloud: second}}\n  loadBalancerClasses: [second.example/lb]\n  config: |\n    endpoint = https://127.0.0.1:1\n";

/// A manager with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// Upstream's defaults.
    GoDefaults,
    /// Concurrency 10, 1,000 API requests a second.
    GoTuned,
    /// Skysail's defaults.
    SkysailDefaults,
    /// The same concurrency and request rates as the tuned Go.
    SkysailTuned,
}

/// The programs that are compared.
#[derive(Debug)]
pub struct Programs {
    go: PathBuf,
    skysail: PathBuf,
}

/// The API server and the cloud of a manager.
pub(super) struct Surroundings<'a> {
    pub(super) kubeconfig: &'a Path,
    pub(super) cloud_url: &'a str,
    pub(super) cloud_token: &'a str,
    /// The folder for the manager's files.
    pub(super) folder: &'a Path,
    /// The port of its metrics.
    pub(super) port: u16,
}

impl Contestant {
    /// Every contestant, in the order of the table.
    pub const ALL: [Self; 4] = [Self::GoDefaults, Self::GoTuned, Self::SkysailDefaults, Self::SkysailTuned];

    /// Whether it is Skysail.
    #[must_use]
    pub const fn is_skysail(self) -> bool {
        matches!(self, Self::SkysailDefaults | Self::SkysailTuned)
    }

    const fn is_tuned(self) -> bool {
        matches!(self, Self::GoTuned | Self::SkysailTuned)
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GoDefaults => "Go, defaults",
            Self::GoTuned => "Go, tuned",
            Self::SkysailDefaults => "Skysail, defaults",
            Self::SkysailTuned => "Skysail, tuned",
        })
    }
}

impl Programs {
    /// Builds the Go peer, which takes minutes the first time and then a second, and finds Skysail
    /// in Cargo's target folder.
    ///
    /// # Errors
    /// Go, the module proxy or Skysail is missing; the error names the remedy.
    pub fn prepare() -> Result<Self> {
        let go = target_folder()?.join("bench").join("go-ccm");
        let folder = go.parent().context("no folder for the Go peer")?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        // Only one build at a time: a second build would compile everything again and replace a
        // program that already runs.
        let lock = folder.join("go-ccm.lock");
        let lock = File::create(&lock).and_then(|file| file.lock().map(|()| file));
        let _lock = lock.context("waiting for another build of the Go peer")?;
        let status = Command::new("go")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("peer"))
            .args(["build", "-buildvcs=false", "-trimpath", "-o"])
            .arg(&go)
            .stdin(Stdio::null())
            .status()
            .context("there is no Go; install Go 1.26 (.ci/setup test does)")?;
        ensure!(
            status.success(),
            "go build of tests/bench/peer failed with {status}; it needs Go 1.26 and a Go module proxy"
        );
        Ok(Self { go, skysail: skysail()? })
    }

    pub(super) fn start(&self, contestant: Contestant, surroundings: &Surroundings<'_>) -> Result<Process> {
        let (program, arguments) = if contestant.is_skysail() {
            (&self.skysail, skysail_arguments(contestant, surroundings)?)
        } else {
            (&self.go, go_arguments(surroundings)?)
        };
        let tuning: &[&str] = if contestant.is_tuned() { &TUNED } else { &[] };
        let log = File::create(surroundings.folder.join("log")).context("creating the manager's log")?;
        let child = Command::new(program)
            .args(arguments)
            .args(tuning)
            .arg(format!("--kubeconfig={}", surroundings.kubeconfig.display()))
            .arg(format!("--authentication-kubeconfig={}", surroundings.kubeconfig.display()))
            .arg(format!("--authorization-kubeconfig={}", surroundings.kubeconfig.display()))
            .arg("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics")
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", surroundings.port))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the manager's log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Process::new(child))
    }
}

fn go_arguments(surroundings: &Surroundings<'_>) -> Result<Vec<String>> {
    let config = surroundings.folder.join("cloud.yaml");
    let text = format!("endpoint: {}\ntoken: {}\n", surroundings.cloud_url, surroundings.cloud_token);
    fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
    Ok(vec!["--cloud-provider=simcloud".to_owned(), format!("--cloud-config={}", config.display())])
}

fn skysail_arguments(contestant: Contestant, surroundings: &Surroundings<'_>) -> Result<Vec<String>> {
    let file = |name: &str| surroundings.folder.join(name);
    for (name, component) in [("provider.wasm", "simcloud"), ("second.wasm", "incus")] {
        let component = component_file(component)?;
        fs::copy(&component, file(name))
            .with_context(|| format!("no {}; make guests builds it", component.display()))?;
    }
    let limits = if contestant.is_tuned() { TUNED_LIMITS } else { "" };
    let providers = format!("{}{limits}{SECOND_PROVIDER}", simcloud::provider_file(surroundings.cloud_url));
    for (name, text) in [("providers.yaml", providers.as_str()), ("token", surroundings.cloud_token)] {
        fs::write(file(name), text).with_context(|| format!("writing {name}"))?;
    }
    Ok(vec!["run".to_owned(), format!("--provider-file={}", file("providers.yaml").display())])
}
