//! `skysail run` as a process, with one provider (simcloud), against the in-memory Kubernetes API
//! and the simulated cloud of this process: the time from its start until the first node is
//! initialised, and its memory afterwards.
//!
//! A cold start includes reading the cluster's version, the compile jail, `describe`,
//! `check-config`, the first list of nodes, and the requests to the cloud (whose latency is set to
//! nothing). No compiled code is kept between two starts.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a bench that cannot be set up has nothing else to do")]
#![expect(clippy::print_stdout, reason = "criterion measures time only; the memory is a line beside its own")]

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use skysail_dev::{
    api::{ApiOptions, ApiServer, Serving},
    cloud::{SimCloud, SimOptions, SimServer},
};
use skysail_test_support::{ports, simcloud};
use tempfile::TempDir;
use tokio::{runtime::Runtime, time::Instant};

const NODE: &str = "node-1";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Period between two samples of the manager's memory.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks until the memory is taken as it is.
const LOOKS_MAX: usize = 30;

struct World {
    folder: TempDir,
    nodes: Api<Node>,
    // The servers run until these are dropped.
    _api: Serving,
    _cloud: SimServer,
}

impl World {
    async fn start() -> Self {
        let cloud = SimCloud::new(SimOptions::isolated());
        cloud.add_instance(NODE, "zone-a").unwrap();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let cloud = cloud.serve(loopback).await.unwrap();
        let server = ApiServer::new(&ApiOptions::default());
        let api = server.serve(loopback).await.unwrap();
        let folder = TempDir::new().unwrap();
        fs::copy(skysail_test_bench::component_file("simcloud").unwrap(), folder.path().join("provider.wasm"))
            .expect("make bench builds the component");
        for (name, text) in [
            ("kubeconfig", ApiServer::kubeconfig_yaml(&api.url())),
            ("token", cloud.token.clone()),
            ("providers.yaml", simcloud::provider_file(&cloud.url)),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder, nodes: Api::all(server.client()), _api: api, _cloud: cloud }
    }

    /// Registers a node as a kubelet does, and deletes the node of the previous round.
    async fn register_node(&self) {
        if let Some(node) = self.nodes.get_opt(NODE).await.unwrap() {
            self.nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
            await_condition(self.nodes.clone(), NODE, is_deleted(&node.metadata.uid.unwrap())).await.unwrap();
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        self.nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    fn spawn(&self, program: &Path) -> Manager {
        let port = ports::free().unwrap();
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let child = Command::new(program)
            .args(["run", "--log=warn"])
            .arg(format!("--kubeconfig={}", path("kubeconfig")))
            .arg(format!("--provider-file={}", path("providers.yaml")))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={port}"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Manager(child)
    }

    async fn first_reconcile(&self) {
        let initialized = |node: Option<&Node>| {
            node.and_then(|node| node.spec.as_ref()).is_some_and(|spec| {
                spec.provider_id.is_some() && !spec.taints.iter().flatten().any(|taint| taint.key == UNINITIALIZED)
            })
        };
        let waiting = await_condition(self.nodes.clone(), NODE, initialized);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("no node is initialised").unwrap();
    }
}

struct Manager(Child);

impl Manager {
    /// Waits until the memory does not change any more: the first work is done, and the allocator
    /// has returned free memory.
    async fn wait_until_settled(&self) -> (f64, f64) {
        let mut last = self.resident();
        for _ in 0..LOOKS_MAX {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.resident();
            if now == last {
                break;
            }
            last = now;
        }
        last
    }

    /// `VmRSS` now and `VmHWM`, its highest value so far, in MiB.
    fn resident(&self) -> (f64, f64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        ["VmRSS:", "VmHWM:"].map(|key| skysail_test_bench::mebibytes(&status, key).unwrap()).into()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        // SIGTERM, as in a cluster; another test checks whether it ends in time.
        let _ended_already = kill_process(pid, Signal::TERM);
        drop(self.0.wait());
    }
}

fn start(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(World::start());
    let program = skysail_test_bench::skysail().unwrap();
    let mut group = criterion.benchmark_group("skysail run");
    group.sample_size(10);
    group.bench_function("start to first reconcile", |bencher| {
        bencher.iter_custom(|iterations| {
            let mut total = Duration::ZERO;
            for _ in 0..iterations {
                runtime.block_on(async {
                    world.register_node().await;
                    let start = Instant::now();
                    let _manager = world.spawn(&program);
                    world.first_reconcile().await;
                    total += start.elapsed();
                });
            }
            total
        });
    });
    group.finish();
    runtime.block_on(async {
        world.register_node().await;
        let manager = world.spawn(&program);
        world.first_reconcile().await;
        let (first, _) = manager.resident();
        let (settled, highest) = manager.wait_until_settled().await;
        // Print the figures for people, as criterion does.
        println!(
            "skysail run, one provider: resident {first:.1} MiB after the first reconcile, {settled:.1} MiB at rest, {highest:.1} MiB at most"
        );
    });
}

criterion_group!(benches, start);
criterion_main!(benches);
