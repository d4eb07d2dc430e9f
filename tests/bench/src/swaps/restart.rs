//! Kills a manager, starts it again while its registry is unavailable, and measures the time from
//! the start of the process to the first request of its provider.
//!
//! The manager is `skysail run` with `--state-dir`, the API server a real one. The API server is
//! available, because a manager exits without it.

use std::{
    collections::HashMap,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use skysail_dev::cloud::{SimCloud, SimOptions, SimServer};
use skysail_sources::{Artifact, Reference};
use skysail_test_e2e::registry::Registry;
use skysail_test_support::{apiserver::ApiServer, ports, simcloud};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{
    figures::{Restart, Spread},
    place::reach,
    releases::Releases,
};

/// Period between two checks: short compared with the measured times.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The time after which a manager without progress has failed.
const PATIENCE: Duration = Duration::from_secs(300);
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Kills and starts a manager `rounds` times; `say` receives the progress.
///
/// # Errors
/// Something does not start, or the manager makes no progress; the error contains the end of its
/// log.
pub async fn restart(component: &str, rounds: u32, say: impl Fn(&str)) -> Result<Restart> {
    let mut world = World::new(component).await?;
    // The record is written last: when it exists, the release is on disk.
    let mut manager = world.start(KUBECONFIG)?;
    world.round(0, &mut manager).await.context("the first start")?;
    let record = world.folder.path().join("state/providers/sim.json");
    until(async || Ok(record.is_file())).await.context("the release was not written to disk")?;
    manager.kill()?;
    world.registry.stop()?;
    let (mut requests, mut nodes) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let mut manager = world.start(KUBECONFIG)?;
        let (request, node) = world.round(round, &mut manager).await.with_context(|| format!("round {round}"))?;
        requests.push(request);
        nodes.push(node);
        manager.kill()?;
        say(&format!("restart: {round} of {rounds}"));
    }
    let mut alone = Vec::new();
    for round in 1..=rounds {
        let mut manager = world.start(UNREACHABLE)?;
        alone.push(world.serving(&mut manager).await.with_context(|| format!("alone, round {round}"))?);
        manager.kill()?;
    }
    Ok(Restart {
        component: component.to_owned(),
        rounds,
        first_request_ms: Spread::of(&requests),
        first_node_ms: Spread::of(&nodes),
        alone_ms: Spread::of(&alone),
    })
}

struct World {
    cloud: SimCloud,
    registry: Registry,
    nodes: Api<Node>,
    folder: TempDir,
    // The servers run until these are dropped.
    _api: ApiServer,
    _cloud: SimServer,
}

/// A manager; dropping it kills the process.
struct Manager {
    process: Child,
    begun: Instant,
}

impl World {
    async fn new(component: &str) -> Result<Self> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let cloud = SimCloud::new(SimOptions::isolated());
        let server = cloud.serve(loopback).await.context("serving the cloud")?;
        let api = tokio::task::spawn_blocking(ApiServer::start).await.context("starting the API server")??;
        let registry = Registry::open().await?;
        let reference: Reference = format!("{}/org/provider:stable", registry.host()).parse()?;
        let component = Releases::of(&[component.to_owned()])?.number(0).bytes;
        let artifact = Artifact {
            component,
            title: "provider.wasm".to_owned(),
            config: Bytes::from_static(b"{}"),
            annotations: HashMap::new(),
        };
        reach(registry.host().parse()?)?.push(&reference, artifact).await.context("pushing the component")?;
        let folder = TempDir::new().context("a folder for the manager")?;
        let source =
            format!("source: {{oci: {{reference: \"{}\", plainHTTP: [\"{}\"]}}}}", reference.whole(), registry.host());
        let providers = simcloud::provider_file(&server.url);
        ensure!(providers.contains(FILE), "the provider file of the tests has another source");
        for (name, text) in [
            (KUBECONFIG, api.kubeconfig_yaml()),
            (UNREACHABLE, api.kubeconfig_yaml().replace(&api.url(), "https://127.0.0.1:1")),
            ("token", server.token.clone()),
            ("providers.yaml", providers.replace(FILE, &source)),
        ] {
            fs::write(folder.path().join(name), text).with_context(|| format!("writing {name}"))?;
        }
        let kubeconfig = Kubeconfig::read_from(folder.path().join(KUBECONFIG))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let nodes = Api::all(Client::try_from(config)?);
        Ok(Self { cloud, registry, nodes, folder, _api: api, _cloud: server })
    }

    fn start(&self, kubeconfig: &str) -> Result<Manager> {
        let port = ports::free()?;
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let log = File::create(path("log")).context("creating the manager's log")?;
        let mut command = Command::new(crate::skysail()?);
        command
            .args(["run", "--leader-elect=false", "--bind-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--kubeconfig={}", path(kubeconfig)))
            .arg(format!("--provider-file={}", path("providers.yaml")))
            .arg(format!("--state-dir={}", path("state")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the manager's log")?)
            .stderr(log);
        let begun = Instant::now();
        Ok(Manager { process: command.spawn().context("starting the manager")?, begun })
    }

    /// Registers a new node before each start, and measures the time until the provider sends a
    /// request to the cloud and until the node is initialised.
    async fn round(&self, round: u32, manager: &mut Manager) -> Result<(Duration, Duration)> {
        let before = self.cloud.requests_count();
        let name = format!("node-{round:05}");
        self.register(&name).await?;
        let request = self.until(manager, async || Ok(self.cloud.requests_count() > before)).await?;
        let node = self
            .until(manager, async || {
                let node = self.nodes.get(&name).await.context("reading the node")?;
                let spec = node.spec.unwrap_or_default();
                Ok(spec.provider_id.is_some() && spec.taints.iter().flatten().all(|taint| taint.key != UNINITIALIZED))
            })
            .await?;
        Ok((request, node))
    }

    /// The time until the log says that the release from the disk serves; the API server is
    /// unavailable, so there is no other sign.
    async fn serving(&self, manager: &mut Manager) -> Result<Duration> {
        let log = self.folder.path().join("log");
        self.until(manager, async || Ok(fs::read_to_string(&log).context("reading the log")?.contains(SERVES))).await
    }

    /// Creates a machine, and its node as a kubelet registers it.
    async fn register(&self, name: &str) -> Result<()> {
        self.cloud.add_instance(name, "zone-a")?;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        self.nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await.context("creating the node")?;
        Ok(())
    }

    async fn until(&self, manager: &mut Manager, look: impl AsyncFn() -> Result<bool>) -> Result<Duration> {
        let done = until(look).await;
        if let Some(status) = manager.process.try_wait().context("waiting for the manager")? {
            bail!("the manager ended with {status}:\n{}", log_tail(self.folder.path()));
        }
        done.with_context(|| log_tail(self.folder.path()))?;
        Ok(manager.begun.elapsed())
    }
}

/// The kubeconfig of the API server, and one with an address that no process listens on.
const KUBECONFIG: &str = "kubeconfig";
const UNREACHABLE: &str = "kubeconfig-unreachable";
/// The log line of a release that serves.
const SERVES: &str = "release active";

/// The source in the provider file of the tests.
const FILE: &str = "source: {file: provider.wasm}";

async fn until(look: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if look().await? {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
    bail!("the condition did not become true within {PATIENCE:?}")
}

fn log_tail(folder: &Path) -> String {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}

impl Manager {
    /// Sends SIGKILL, so that the manager cannot clean up.
    fn kill(&mut self) -> Result<()> {
        self.process.kill().context("killing the manager")?;
        self.process.wait().context("waiting for the manager")?;
        Ok(())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Ignore the error of a process that has already ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
