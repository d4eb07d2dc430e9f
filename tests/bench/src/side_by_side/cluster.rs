//! The objects of a cluster before the manager starts: nodes as kubelets register them, and
//! Services.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use skysail_dev::cloud::{Instance, NewInstance};

use super::world::Size;

pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(super) const NAMESPACE: &str = "default";
/// Objects created at the same time.
const MAKERS: usize = 32;
/// Images in the status of a node: they make up most of its size.
const IMAGES: usize = 10;

/// The name of a node and of its machine.
pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// A machine with a public address; the zones alternate.
pub(super) fn machine(number: usize) -> NewInstance {
    let zone = ["zone-a", "zone-b", "zone-c"].get(number % 3).map(|zone| (*zone).to_owned());
    NewInstance { name: node_name(number), zone, instance_type: None, public: true, tags: [].into() }
}

pub(super) async fn create_services(client: &Client, size: Size) -> Result<()> {
    let services = Api::<Service>::namespaced(client.clone(), NAMESPACE);
    let params = PostParams::default();
    stream::iter(0..size.services)
        .map(|number| {
            let (services, params) = (&services, &params);
            async move {
                let service = serde_json::from_value(service(number)).context("a Service")?;
                services.create(params, &service).await.with_context(|| format!("creating Service {number}"))?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(MAKERS)
        .try_collect()
        .await
}

pub(super) async fn create_nodes(client: &Client, machines: &[Instance]) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let params = PostParams::default();
    stream::iter(machines)
        .map(|machine| {
            let (nodes, params) = (&nodes, &params);
            async move {
                let node = serde_json::from_value(node(machine)).context("a node")?;
                nodes.create(params, &node).await.with_context(|| format!("creating node {}", machine.name))?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(MAKERS)
        .try_collect()
        .await
}

/// As a kubelet with `--cloud-provider=external` and `--node-ip` registers it: the cloud adds the
/// public address.
///
/// Without `--node-ip` a manager in Go would often miss the address of the node that it initialises
/// last: it writes addresses after the provider ID, and a changed address triggers no update of
/// load balancers.
fn node(machine: &Instance) -> Value {
    let (name, id, address) = (&machine.name, format!("{:>032}", machine.id), machine.private_address);
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("kubelet: {reason}"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let image = |image: usize| {
        json!({"names": [format!("registry.example/team/image-{image}@sha256:{image:064x}"), format!("registry.example/team/image-{image}:v1.{image}")],
            "sizeBytes": 50_000_000 + image})
    };
    let resources = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "node.example/pool": "workers"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "alpha.kubernetes.io/provided-node-ip": address},
        },
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [condition("MemoryPressure", "False", "KubeletHasSufficientMemory"), condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"), condition("Ready", "True", "KubeletReady")],
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"machineID": id, "systemUUID": id, "bootID": id,
                "kernelVersion": "6.1.0", "osImage": "Debian GNU/Linux 12 (bookworm)", "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
            "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
        },
    })
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("service-{number:05}"), "labels": {"app": format!("app-{number}")}},
        "spec": {"type": "LoadBalancer", "selector": {"app": format!("app-{number}")},
            // Above 1023: the simulated cloud really listens there, and needs no privilege for it.
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "targetPort": 80}]},
    })
}
