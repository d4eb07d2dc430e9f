//! Compares cluster and cloud with the state that the workload wants.

use std::{collections::BTreeMap, fmt::Debug};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Client,
    api::{ListParams, ResourceExt as _},
};
use skysail_dev::cloud::{Change, Instance, SimCloud, Snapshot, model::ElasticIp};
use skysail_test_e2e::objects::{UNINITIALIZED, address_in, addresses, has_network, has_taint, label, nodes, services};
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use super::workload::Workload;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The provider's tag with the UID of the Service that a record is for.
const UID_TAG: &str = "skysail-service-uid";

/// Checks the state; the error names the first difference.
pub(super) async fn verdict(client: &Client, cloud: &SimCloud, wanted: &Workload) -> Result<()> {
    let nodes = nodes(client).list(&ListParams::default()).await?.items;
    let mut services = services(client).list(&ListParams::default()).await?.items;
    // The API server creates this Service itself.
    services.retain(|service| service.name_any() != "kubernetes");
    let cloud = cloud.snapshot();
    judge_nodes(&nodes, &cloud, wanted).context("nodes")?;
    judge_services(&services, wanted).context("Services")?;
    judge_load_balancers(&services, &cloud, wanted).context("load balancers")?;
    judge_routes(&cloud, wanted).context("routes")?;
    ensure!(cloud.volumes.is_empty() && cloud.ssh_keys.is_empty(), "there are unexpected disks or keys");
    Ok(())
}

/// Each machine has a complete node, and there is no other node.
fn judge_nodes(nodes: &[Node], cloud: &Snapshot, wanted: &Workload) -> Result<()> {
    same_list(nodes.iter().map(Node::name_any).collect(), wanted.nodes.keys().cloned().collect())?;
    for node in nodes {
        let name = node.name_any();
        let machine = cloud.instances.iter().find(|machine| machine.name == name).context("no machine")?;
        judge_node(node, machine).context(name)?;
    }
    Ok(())
}

fn judge_node(node: &Node, machine: &Instance) -> Result<()> {
    ensure!(!has_taint(node, UNINITIALIZED), "it is not initialised");
    ensure!(has_network(node), "it has no network");
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    same(&provider_id, &Some(format!("simcloud://{}", machine.id)))?;
    let mut expected = vec![format!("Hostname {}", machine.name), format!("InternalIP {}", machine.private_address)];
    expected.extend(machine.public_address.map(|address| format!("ExternalIP {address}")));
    same(&addresses(node), &expected)?;
    same(&label(node, "topology.kubernetes.io/zone"), &machine.zone.as_str())?;
    same(&label(node, "topology.kubernetes.io/region"), &"region-1")?;
    same(&label(node, "node.kubernetes.io/instance-type"), &machine.instance_type.as_str())
}

/// Exactly the wanted Services exist, and exactly those of type `LoadBalancer` have the finalizer.
fn judge_services(services: &[Service], wanted: &Workload) -> Result<()> {
    let view = |service: &Service| (service.name_any(), service.finalizers().join(","), address_in(service).is_some());
    let expected = wanted.services.iter().map(|(name, wanted)| {
        let finalizers = if wanted.balanced { FINALIZER } else { "" };
        (name.clone(), finalizers.to_owned(), wanted.balanced)
    });
    same_list(services.iter().map(view).collect(), expected.collect())
}

/// A load balancer: the UID of its Service, its address, and the backends of each port.
type LoadBalancer = (String, Option<String>, BTreeMap<u16, Vec<String>>);

/// Exactly the wanted load balancers exist, each with the address in the Service's status, the
/// Service's ports, and all machines as backends.
fn judge_load_balancers(services: &[Service], cloud: &Snapshot, wanted: &Workload) -> Result<()> {
    let mut machines: Vec<_> = cloud.instances.iter().filter(|machine| is_backend(machine, wanted)).collect();
    machines.sort_by_key(|machine| machine.private_address);
    let backends =
        |port: u16| machines.iter().map(|machine| format!("{}:{port}", machine.private_address)).collect::<Vec<_>>();
    let expected = services.iter().filter_map(|service| {
        let wanted = wanted.services.get(&service.name_any()).filter(|wanted| wanted.balanced)?;
        let ports = wanted.ports.iter().map(|(port, node_port)| (*port, backends(*node_port))).collect();
        Some((wanted.uid.clone(), address_in(service), ports))
    });
    let there: Vec<LoadBalancer> = cloud.elastic_ips.iter().map(|ip| load_balancer(ip, cloud)).collect();
    let ports_there: usize = there.iter().map(|(_, _, ports)| ports.len()).sum();
    same_list(there, expected.collect())?;
    same(&cloud.virtual_servers.len(), &ports_there)
}

fn is_backend(machine: &Instance, wanted: &Workload) -> bool {
    wanted.nodes.get(&machine.name).is_some_and(|node| !node.excluded)
}

fn load_balancer(ip: &ElasticIp, cloud: &Snapshot) -> LoadBalancer {
    let servers = cloud.virtual_servers.iter().filter(|server| server.elastic_ip == ip.id);
    let ports = servers.map(|server| {
        let backends = server.real_servers.iter().map(|backend| format!("{}:{}", backend.address, backend.port));
        (server.port, backends.collect())
    });
    (uid_of(&ip.tags), Some(ip.address.to_string()), ports.collect())
}

fn uid_of(tags: &BTreeMap<String, String>) -> String {
    tags.get(UID_TAG).cloned().unwrap_or_default()
}

/// There is exactly one route for each node's pods, to its machine.
fn judge_routes(cloud: &Snapshot, wanted: &Workload) -> Result<()> {
    let there = cloud.routes.iter().map(|route| (route.destination_cidr.clone(), route.instance.clone()));
    let expected = wanted.nodes.values().map(|node| (node.pod_cidr.clone(), node.instance.clone()));
    same_list(there.collect(), expected.collect())
}

/// Compares two lists in any order; the error names only the differences.
fn same_list<T: Ord + Debug>(mut there: Vec<T>, mut expected: Vec<T>) -> Result<()> {
    there.sort();
    expected.sort();
    if there == expected {
        return Ok(());
    }
    let count = |list: &[T], item: &T| list.iter().filter(|other| *other == item).count();
    let beyond = |list: &[T], other: &[T]| {
        let items = list.iter().filter(|item| count(list, item) > count(other, item));
        items.map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
    };
    bail!("too much: [{}]; missing: [{}]", beyond(&there, &expected), beyond(&expected, &there))
}

fn same<T: PartialEq + Debug>(there: &T, expected: &T) -> Result<()> {
    ensure!(there == expected, "there is {there:?}, expected is {expected:?}");
    Ok(())
}

/// Counts how often an address was created for each Service, because the final state does not show
/// an address that was created, lost and created again.
pub(super) struct Births {
    changes: Receiver<Change>,
    /// By the Service's UID.
    counts: BTreeMap<String, u32>,
}

impl Births {
    pub(super) fn of(cloud: &SimCloud) -> Self {
        Self { changes: cloud.changes(), counts: BTreeMap::new() }
    }

    /// Counts the addresses since the last look. The cloud keeps 1,024 changes for it.
    pub(super) fn look(&mut self) -> Result<()> {
        loop {
            match self.changes.try_recv() {
                Ok(change) if (change.verb, change.kind) == ("created", "elastic-ip") => {
                    *self.counts.entry(uid_of(&change.tags)).or_default() += 1;
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => return Ok(()),
                Err(error) => bail!("changes of the cloud: {error}"),
            }
        }
    }

    /// Checks that no Service got more addresses than it wanted.
    pub(super) fn none_twice(&mut self, wanted: &Workload) -> Result<()> {
        self.look()?;
        for (uid, count) in &self.counts {
            let wishes = wanted.wishes.get(uid).copied().unwrap_or_default();
            ensure!(*count <= wishes, "Service {uid} wanted a load balancer {wishes} times, and {count} were made");
        }
        Ok(())
    }
}
