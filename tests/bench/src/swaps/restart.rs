//! A manager that is killed while its registry is away, and started again: from the start of the
//! process to the first thing that its provider does.
//!
//! The manager is `skysail run` with `--state-dir`, the API server a real one. That one is there:
//! without it there is nothing to do for a manager, and it says so and ends.

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

/// Between two looks: short against what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Until a manager that does nothing has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Kills and starts a manager so often; `say` hears how far it is.
///
/// # Errors
/// Something does not start, or the manager does nothing: with the end of its log.
pub async fn restart(component: &str, rounds: u32, say: impl Fn(&str)) -> Result<Restart> {
    let mut world = World::new(component).await?;
    // What serves is on disk when its record is: written last.
    let mut manager = world.start(KUBECONFIG)?;
    world.round(0, &mut manager).await.context("the first start")?;
    let record = world.folder.path().join("state/providers/sim.json");
    until(async || Ok(record.is_file())).await.context("the release is not kept on disk")?;
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
        let mut manager = world.start(OF_NOBODY)?;
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
    // They serve for as long as they are held.
    _api: ApiServer,
    _cloud: SimServer,
}

/// A manager; it ends when this is dropped.
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
            (OF_NOBODY, api.kubeconfig_yaml().replace(&api.url(), "https://127.0.0.1:1")),
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

    /// A node of its own for each start, which is there before the manager can look: how long until
    /// its provider asks the cloud, and until the node is initialised.
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

    /// How long until the log says that what is kept serves: nobody can be asked for anything else.
    async fn serving(&self, manager: &mut Manager) -> Result<Duration> {
        let log = self.folder.path().join("log");
        self.until(manager, async || Ok(fs::read_to_string(&log).context("reading the log")?.contains(SERVES))).await
    }

    /// A machine, and its node as a kubelet registers it.
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
        if let Some(status) = manager.process.try_wait().context("looking after the manager")? {
            bail!("the manager ended with {status}:\n{}", last_words(self.folder.path()));
        }
        done.with_context(|| last_words(self.folder.path()))?;
        Ok(manager.begun.elapsed())
    }
}

/// The API server's, and one that leads to nobody.
const KUBECONFIG: &str = "kubeconfig";
const OF_NOBODY: &str = "kubeconfig-of-nobody";
/// What the log says of a release that serves.
const SERVES: &str = "release active";

/// What stands in the provider file that the tests have.
const FILE: &str = "source: {file: provider.wasm}";

async fn until(look: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if look().await? {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
    bail!("not within {PATIENCE:?}")
}

fn last_words(folder: &Path) -> String {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}

impl Manager {
    /// By SIGKILL: nothing can be put in order.
    fn kill(&mut self) -> Result<()> {
        self.process.kill().context("killing the manager")?;
        self.process.wait().context("waiting for the manager")?;
        Ok(())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It has ended already, or shall.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
