//! Simulates users, kubelets and the owner of the machines, and records the wanted state.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, ResourceExt as _},
    core::Status,
};
use serde_json::json;
use skysail_dev::cloud::{NewInstance, SimCloud};
use skysail_test_e2e::{
    objects::{UNINITIALIZED, has_taint, nodes, register_node, services, set_pod_cidr, set_ready},
    random::up_to,
};
use tokio::{sync::watch, time::Duration};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Largest number of Services and of nodes at the same time.
const SERVICES_MAX: usize = 8;
const NODES_MAX: usize = 8;
/// Smallest number of nodes, so that load balancers have backends.
const NODES_MIN: usize = 2;
/// The API server's range of node ports.
const NODE_PORTS: std::ops::Range<u16> = 30_000..32_768;
/// Longest pause between two actions.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// A Service that is wanted.
pub(super) struct WantedService {
    pub(super) uid: String,
    /// Port and node port.
    pub(super) ports: Vec<(u16, u16)>,
    /// Whether it is of type `LoadBalancer`.
    pub(super) balanced: bool,
}

/// A node whose machine exists.
pub(super) struct WantedNode {
    pub(super) instance: String,
    pub(super) pod_cidr: String,
    /// Whether load balancers exclude the node.
    pub(super) excluded: bool,
}

/// Changes the cluster and the machines, and records the wanted state.
pub(super) struct Workload {
    client: Client,
    cloud: SimCloud,
    random: Rng,
    /// The last number that was used; each number is used once.
    numbers: u16,
    /// Nodes that were added so far.
    nodes_added: u16,
    pub(super) services: BTreeMap<String, WantedService>,
    pub(super) nodes: BTreeMap<String, WantedNode>,
    /// How often a load balancer became wanted for a Service, by UID, including deleted Services.
    pub(super) wishes: BTreeMap<String, u32>,
}

impl Workload {
    pub(super) fn new(client: Client, cloud: SimCloud, random: Rng) -> Self {
        let (services, nodes, wishes) = Default::default();
        Self { client, cloud, random, numbers: 0, nodes_added: 0, services, nodes, wishes }
    }

    /// Acts until it is stopped; each action is completed.
    pub(super) async fn run(mut self, stopped: watch::Receiver<bool>) -> Result<Self> {
        while self.nodes.len() < NODES_MIN {
            self.add_node().await?;
        }
        while !*stopped.borrow() {
            self.act().await?;
            self.wait_a_moment().await;
        }
        Ok(self)
    }

    async fn act(&mut self) -> Result<()> {
        match self.random.u64(0..100) {
            0..22 => self.create_service().await.context("creating a Service"),
            22..47 => self.change_ports().await.context("changing ports"),
            47..52 => self.label_service().await.context("labelling a Service"),
            52..60 => self.change_type().await.context("changing a Service's type"),
            60..75 => self.delete_service().await.context("deleting a Service"),
            75..85 => self.add_node().await.context("adding a node"),
            85..92 => self.exclude_node().await.context("excluding a node"),
            _ => self.delete_machine().await.context("deleting a machine"),
        }
    }

    async fn wait_a_moment(&mut self) {
        tokio::time::sleep(up_to(&mut self.random, PAUSE_MAX)).await;
    }

    /// Creates a Service with one of a few names, so that the name may belong to a Service that is
    /// being deleted.
    async fn create_service(&mut self) -> Result<()> {
        let name = format!("s{}", self.random.usize(0..SERVICES_MAX));
        if self.services.contains_key(&name) {
            return Ok(());
        }
        let ports = self.ports();
        let spec = json!({"type": "LoadBalancer", "ports": entries(&ports)});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        let made = match services(&self.client).create(&PostParams::default(), &serde_json::from_value(service)?).await
        {
            Ok(service) => Some(service),
            // Another Service of this name is being deleted. Or the client has sent the request
            // again, because its first answer was that the API server timed out: the Service or
            // its node ports may exist already. No other Service has these node ports.
            Err(kube::Error::Api(status)) if status.is_already_exists() || is_allocated(&status) => {
                services(&self.client)
                    .get_opt(&name)
                    .await?
                    .filter(|found| node_ports(found).eq(ports.iter().map(|port| port.1)))
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(service) = made {
            let uid = service.uid().context("a Service without UID")?;
            self.wishes.insert(uid.clone(), 1);
            self.services.insert(name, WantedService { uid, ports, balanced: true });
        }
        Ok(())
    }

    /// Other ports, the same ports with other node ports, or one port more or less.
    async fn change_ports(&mut self) -> Result<()> {
        let Some(name) = self.a_service() else { return Ok(()) };
        let mut ports = self.services.get(&name).map(|service| service.ports.clone()).unwrap_or_default();
        match self.random.u64(0..4) {
            0 => ports = self.ports(),
            1 => {
                for (_, node_port) in &mut ports {
                    *node_port = self.node_port();
                }
            }
            2 if ports.len() > 1 => drop(ports.pop()),
            _ => ports.push((self.port(), self.node_port())),
        }
        match self.patch_service(&name, &json!({"spec": {"ports": entries(&ports)}})).await {
            Ok(()) => drop(self.services.entry(name).and_modify(|service| service.ports = ports)),
            // The API server's retry found the port of its own first attempt, which had lost
            // against a write of the manager: the Service is unchanged.
            Err(kube::Error::Api(status)) if is_allocated(&status) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A change that does not concern the cloud.
    async fn label_service(&mut self) -> Result<()> {
        let Some(name) = self.a_service() else { return Ok(()) };
        let value = self.number().to_string();
        self.patch_service(&name, &json!({"metadata": {"labels": {"changed": value}}})).await?;
        Ok(())
    }

    /// Changes the type from `LoadBalancer` to `NodePort`, or back.
    async fn change_type(&mut self) -> Result<()> {
        let Some(name) = self.a_service() else { return Ok(()) };
        let Some(service) = self.services.get_mut(&name) else { return Ok(()) };
        service.balanced = !service.balanced;
        let (balanced, ports) = (service.balanced, entries(&service.ports));
        *self.wishes.entry(service.uid.clone()).or_default() += u32::from(balanced);
        let spec = match balanced {
            true => json!({"type": "LoadBalancer", "ports": ports}),
            false => json!({"type": "NodePort", "ports": ports}),
        };
        self.patch_service(&name, &json!({"spec": spec})).await?;
        Ok(())
    }

    /// Deletes a Service in the version that was read. Without a version the API server may delete
    /// a Service that has just got a finalizer, because it checks finalizers before it deletes
    /// (kubernetes/kubernetes#77988). A running manager notices that; a manager that is killed in
    /// this moment leaves a load balancer that only the orphan scan finds.
    async fn delete_service(&mut self) -> Result<()> {
        let Some(name) = self.a_service() else { return Ok(()) };
        loop {
            let read = services(&self.client).get(&name).await?.metadata;
            let preconditions = Preconditions { resource_version: read.resource_version, uid: read.uid };
            let params = DeleteParams::default().preconditions(preconditions);
            match services(&self.client).delete(&name, &params).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.services.remove(&name);
        Ok(())
    }

    /// A machine, and its kubelet.
    async fn add_node(&mut self) -> Result<()> {
        if self.nodes.len() >= NODES_MAX {
            return Ok(());
        }
        let (number, pod_cidr) = (self.number(), self.pod_cidr()?);
        let name = format!("n{number}");
        let (public, zone) = (number.is_multiple_of(2), self.random.choice(["zone-a", "zone-b"]).map(str::to_owned));
        let machine = NewInstance { name: name.clone(), zone, instance_type: None, public, tags: BTreeMap::new() };
        let instance = self.cloud.create_instance(machine)?.id;
        register_node(&self.client, &name).await?;
        set_pod_cidr(&self.client, &name, &pod_cidr).await?;
        self.nodes.insert(name, WantedNode { instance, pod_cidr, excluded: false });
        Ok(())
    }

    /// Excludes a node from load balancers, or includes it again.
    async fn exclude_node(&mut self) -> Result<()> {
        let Some(name) = self.random.choice(&self.nodes).map(|(name, _)| name.clone()) else { return Ok(()) };
        let Some(node) = self.nodes.get_mut(&name) else { return Ok(()) };
        node.excluded = !node.excluded;
        let value = node.excluded.then_some("true");
        let patch = json!({"metadata": {"labels": {EXCLUDE: value}}});
        nodes(&self.client).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes the machine of an initialised node. A node that was never initialised would stay for
    /// five minutes, because clouds list new machines late.
    async fn delete_machine(&mut self) -> Result<()> {
        if self.nodes.len() <= NODES_MIN {
            return Ok(());
        }
        let Some(name) = self.random.choice(&self.nodes).map(|(name, _)| name.clone()) else { return Ok(()) };
        if has_taint(&nodes(&self.client).get(&name).await?, UNINITIALIZED) {
            return Ok(());
        }
        let Some(node) = self.nodes.remove(&name) else { return Ok(()) };
        self.cloud.delete_instance(&node.instance).await?;
        set_ready(&self.client, &name, "Unknown").await
    }

    async fn patch_service(&self, name: &str, patch: &serde_json::Value) -> Result<(), kube::Error> {
        services(&self.client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn a_service(&mut self) -> Option<String> {
        self.random.choice(&self.services).map(|(name, _)| name.clone())
    }

    /// One to three ports.
    fn ports(&mut self) -> Vec<(u16, u16)> {
        (0..=self.random.u64(0..3)).map(|_| (self.port(), self.node_port())).collect()
    }

    /// A port that was not used before.
    fn port(&mut self) -> u16 {
        10_000 + self.number()
    }

    /// A node port that was not used recently.
    fn node_port(&mut self) -> u16 {
        let range = NODE_PORTS.end - NODE_PORTS.start;
        NODE_PORTS.start + self.number() % range
    }

    /// A `/28` of `10.244.0.0/16` that was not used before: two nodes with the same network would
    /// share one route.
    fn pod_cidr(&mut self) -> Result<String> {
        let number = self.nodes_added;
        ensure!(number < 4_096, "all networks for pods are used");
        self.nodes_added += 1;
        Ok(format!("10.244.{}.{}/28", number / 16, number % 16 * 16))
    }

    fn number(&mut self) -> u16 {
        self.numbers += 1;
        self.numbers
    }
}

/// Whether the API server refused a node port because the port is already allocated.
fn is_allocated(status: &Status) -> bool {
    status.message.contains("port is already allocated")
}

fn node_ports(service: &Service) -> impl Iterator<Item = u16> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.filter_map(|port| u16::try_from(port.node_port?).ok())
}

/// The ports as a Service has them.
fn entries(ports: &[(u16, u16)]) -> serde_json::Value {
    ports
        .iter()
        .map(|(port, node_port)| json!({"name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP"}))
        .collect()
}
