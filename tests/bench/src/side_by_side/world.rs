//! The surroundings of one run: a real API server, a simulated cloud in this process, and a cluster
//! that waits for its manager.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures::{TryStreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api, Client, Config, Resource, ResourceExt as _,
    api::DeleteParams,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skysail_dev::cloud::{Instance, Knobs, SimCloud, SimOptions, SimServer};
use skysail_test_support::{apiserver::ApiServer, ports};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{
    cluster::{self, NAMESPACE, UNINITIALIZED, machine, node_name},
    contestant::{Contestant, Programs, Surroundings},
    counters::{Counters, scrape},
    process::Process,
};

/// Period between two checks of the cloud's load balancers: short compared with the measured times,
/// long compared with the time of a check.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// More load balancers than there are node ports, less the first and the last address of a block.
const ELASTIC_IPS_MAX: u32 = BLOCK - 2;
/// Loopback addresses of one world, and the number of blocks between `FIRST_BLOCK` and `MACHINES`.
const BLOCK: u32 = 8_192;
const BLOCKS: u32 = 128;
const FIRST_BLOCK: Ipv4Addr = Ipv4Addr::new(127, 96, 0, 0);
const MACHINES: Ipv4Addr = Ipv4Addr::new(127, 112, 0, 0);

/// The size of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size {
    /// Nodes, uninitialised when the manager starts.
    pub nodes: usize,
    /// Services of type `LoadBalancer`, each with one port.
    pub services: usize,
}

/// See the module.
pub(super) struct World {
    pub(super) client: Client,
    pub(super) cloud: SimCloud,
    pub(super) size: Size,
    /// The machines of the first nodes.
    pub(super) machines: Vec<Instance>,
    port: u16,
    kubeconfig: PathBuf,
    folder: TempDir,
    server: SimServer,
    // The cloud serves until this is dropped.
    _api: ApiServer,
}

/// A block of loopback addresses for one world, so that the listeners of concurrent tests do not
/// collide.
fn own_block() -> Ipv4Addr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = process::id().wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
    Ipv4Addr::from_bits(FIRST_BLOCK.to_bits() + number * BLOCK)
}

impl World {
    pub(super) async fn new(size: Size, latency: Duration) -> Result<Self> {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let cloud = SimCloud::new(SimOptions {
            elastic_ips: own_block(),
            elastic_ips_max: ELASTIC_IPS_MAX,
            machines: MACHINES,
            knobs: Knobs { latency_ms, ..Knobs::default() },
            ..SimOptions::default()
        });
        let machines = machines(&cloud, 0..size.nodes)?;
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = cloud.serve(loopback).await.context("serving the cloud")?;
        let api = tokio::task::spawn_blocking(ApiServer::start).await.context("starting the API server")??;
        let folder = TempDir::new().context("a folder for the manager")?;
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, api.kubeconfig_yaml()).context("writing the kubeconfig")?;
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let port = ports::free()?;
        cluster::create_nodes(&client, &machines).await?;
        cluster::create_services(&client, size).await?;
        Ok(Self { client, cloud, size, machines, port, kubeconfig, folder, server, _api: api })
    }

    pub(super) fn start(&self, programs: &Programs, contestant: Contestant) -> Result<Process> {
        let surroundings = Surroundings {
            kubeconfig: &self.kubeconfig,
            cloud_url: &self.server.url,
            cloud_token: &self.server.token,
            folder: self.folder.path(),
            port: self.port,
        };
        programs.start(contestant, &surroundings)
    }

    /// The end of the manager's log.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }

    /// The API server's metrics.
    pub(super) async fn api_counters(&self) -> Result<Counters> {
        scrape(&self.client).await.context("metrics of the API server")
    }

    /// The manager's metrics.
    pub(super) async fn manager_counters(&self) -> Result<Counters> {
        let url = format!("https://127.0.0.1:{}", self.port).parse().context("the manager's address")?;
        let mut config = Config::new(url);
        config.accept_invalid_certs = true;
        scrape(&Client::try_from(config)?).await.context("metrics of the manager")
    }

    /// Creates the machines and nodes with these numbers.
    pub(super) async fn add_nodes(&self, numbers: Range<usize>) -> Result<()> {
        cluster::create_nodes(&self.client, &machines(&self.cloud, numbers)?).await
    }

    /// Deletes machines and their nodes.
    pub(super) async fn remove_nodes(&self, machines: &[Instance]) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        for machine in machines {
            self.cloud.delete_instance(&machine.id).await.context("deleting a machine")?;
            nodes.delete(&machine.name, &DeleteParams::default()).await.context("deleting a node")?;
        }
        Ok(())
    }

    /// Waits until `count` of the nodes with these numbers are initialised.
    pub(super) async fn until_nodes_initialised(&self, numbers: Range<usize>, count: usize) -> Result<Instant> {
        let names: BTreeSet<String> = numbers.map(node_name).collect();
        let initialised = |node: &Node| {
            if !names.contains(&node.name_any()) {
                return false;
            }
            let spec = node.spec.as_ref();
            let tainted = spec
                .and_then(|spec| spec.taints.as_ref())
                .is_some_and(|taints| taints.iter().any(|taint| taint.key == UNINITIALIZED));
            let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
            !tainted
                && spec.is_some_and(|spec| spec.provider_id.is_some())
                && addresses.is_some_and(|addresses| addresses.iter().any(|address| address.type_ == "ExternalIP"))
        };
        until_true_of(Api::<Node>::all(self.client.clone()), count, initialised).await
    }

    /// Waits until every Service has an address.
    pub(super) async fn until_services_have_addresses(&self) -> Result<Instant> {
        let has_address = |service: &Service| {
            let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
            ingress.is_some_and(|ingress| !ingress.is_empty())
        };
        let services = Api::<Service>::namespaced(self.client.clone(), NAMESPACE);
        until_true_of(services, self.size.services, has_address).await
    }

    /// Waits until every Service has a load balancer with exactly `count` backends.
    pub(super) async fn until_backends(&self, count: usize) -> Instant {
        self.until(|cloud| {
            let all = cloud.backend_counts();
            all.len() == self.size.services && all.iter().all(|(_, backends)| *backends == count)
        })
        .await
    }

    /// Waits until [`Self::check_cloud`] succeeds.
    pub(super) async fn until_exact(&self) -> Instant {
        self.until(|_| self.check_cloud().is_ok()).await
    }

    pub(super) async fn until(&self, holds: impl Fn(&SimCloud) -> bool) -> Instant {
        while !holds(&self.cloud) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Instant::now()
    }

    /// # Errors
    /// The load balancers do not match the Services, or the backends of one are not exactly the
    /// existing machines.
    pub(super) fn check_cloud(&self) -> Result<()> {
        // Check this first, because a snapshot of a large cloud is expensive.
        let machines_count = self.cloud.instance_count();
        ensure!(
            self.cloud.backend_counts().iter().all(|(_, backends)| *backends == machines_count),
            "the number of backends of a load balancer differs from the number of machines in the cluster"
        );
        let snapshot = self.cloud.snapshot();
        let machines: BTreeSet<Ipv4Addr> = snapshot.instances.iter().map(|machine| machine.private_address).collect();
        let count = snapshot.virtual_servers.len();
        ensure!(count == self.size.services, "{count} load balancers for {} Services", self.size.services);
        ensure!(
            snapshot.elastic_ips.len() == count,
            "{} elastic IPs for {count} load balancers",
            snapshot.elastic_ips.len()
        );
        for server in &snapshot.virtual_servers {
            let backends: BTreeSet<Ipv4Addr> = server.real_servers.iter().map(|backend| backend.address).collect();
            ensure!(
                backends == machines,
                "the backends of load balancer {} are not the machines of the cluster",
                server.name
            );
        }
        Ok(())
    }
}

fn machines(cloud: &SimCloud, numbers: Range<usize>) -> Result<Vec<Instance>> {
    numbers.map(|number| cloud.create_instance(machine(number)).context("making a machine")).collect()
}

/// Watches the objects of a kind until `holds` has been true for `count` of them.
async fn until_true_of<K>(api: Api<K>, count: usize, holds: impl Fn(&K) -> bool) -> Result<Instant>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut good = BTreeSet::new();
    let objects = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(objects);
    while good.len() < count {
        let object = objects.try_next().await.context("watching")?.context("the watch ended")?;
        if holds(&object) {
            good.insert(object.name_any());
        }
    }
    Ok(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::{ELASTIC_IPS_MAX, MACHINES, own_block};

    #[test]
    fn concurrent_worlds_have_different_addresses() {
        let (one, two) = (own_block().to_bits(), own_block().to_bits());
        assert!(one.abs_diff(two) > ELASTIC_IPS_MAX, "{one:x} {two:x}");
        assert!(one.max(two) + ELASTIC_IPS_MAX < MACHINES.to_bits(), "{one:x} {two:x}");
    }
}
