//! Kubernetes objects as kubelets and users create them.

use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use anyhow::{Context as _, Result, ensure};

/// The taint of a node that is not initialised.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint of a node whose machine is off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Registers a node as a kubelet with `--cloud-provider=external` does: tainted, without provider
/// ID, ready.
///
/// # Errors
/// The API server refuses.
pub async fn register_node(client: &Client, name: &str) -> Result<()> {
    register_node_at(client, name, &json!({}), &[]).await
}

/// The same, of a kubelet that was given a `--node-ip`: with these annotations, and these internal
/// addresses after its host name.
///
/// # Errors
/// The API server refuses.
pub async fn register_node_at(client: &Client, name: &str, annotations: &Value, ips: &[&str]) -> Result<()> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
    });
    nodes(client).create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let mut addresses = vec![json!({"type": "Hostname", "address": name})];
    addresses.extend(ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})));
    let status = json!({"status": {
        "addresses": addresses,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }});
    nodes(client).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Sets the condition Ready, as the kube-controller-manager does for a silent kubelet.
///
/// # Errors
/// The API server refuses.
pub async fn set_ready(client: &Client, name: &str, status: &str) -> Result<()> {
    let condition =
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown"}]}});
    nodes(client).patch_status(name, &PatchParams::default(), &Patch::Strategic(condition)).await?;
    Ok(())
}

/// Sets the pod CIDR, as the kube-controller-manager does.
///
/// # Errors
/// The API server refuses.
pub async fn set_pod_cidr(client: &Client, name: &str, cidr: &str) -> Result<()> {
    let patch = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
    nodes(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Creates the Service `default/NAME` of type `LoadBalancer`: one TCP port, one node port.
///
/// # Errors
/// The API server refuses.
pub async fn create_service(client: &Client, name: &str, port: u16, node_port: u16) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port, "nodePort": node_port, "protocol": "TCP"}]},
    });
    services(client).create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

/// Changes the one port of a Service.
///
/// # Errors
/// The API server refuses.
pub async fn set_port(client: &Client, name: &str, port: u16, node_port: u16) -> Result<()> {
    let patch = json!({"spec": {"ports": [{"port": port, "nodePort": node_port, "protocol": "TCP"}]}});
    services(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Starts the deletion of a Service.
///
/// # Errors
/// The API server refuses.
pub async fn delete_service(client: &Client, name: &str) -> Result<()> {
    services(client).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Checks that a Service does not exist any more.
///
/// # Errors
/// The Service exists.
pub async fn service_gone(client: &Client, name: &str) -> Result<()> {
    ensure!(services(client).get_opt(name).await?.is_none(), "the Service waits for its finalizer");
    Ok(())
}

/// The IP address in the status of a Service.
///
/// # Errors
/// There is none.
pub async fn address_of(client: &Client, name: &str) -> Result<String> {
    address_in(&services(client).get(name).await?).context("the Service has no address")
}

/// The same, for a Service that was read already.
#[must_use]
pub fn address_in(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.iter().flatten().find_map(|ingress| ingress.ip.clone())
}

/// The node, if it is initialised: it has a provider ID and an internal address, and not the taint.
///
/// # Errors
/// The node does not exist or is not initialised.
pub async fn initialized(client: &Client, name: &str) -> Result<Node> {
    let node = nodes(client).get(name).await?;
    ensure!(!has_taint(&node, UNINITIALIZED), "{name} is not initialised");
    ensure!(internal_ip(&node).is_some(), "{name} has no internal address");
    ensure!(node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some()), "{name} has no provider ID");
    Ok(node)
}

/// Whether the node carries a taint.
#[must_use]
pub fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten().any(|taint| taint.key == key)
}

/// Whether the node has a route, by its condition.
#[must_use]
pub fn has_network(node: &Node) -> bool {
    let mut conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == "False")
}

/// The node's internal address.
#[must_use]
pub fn internal_ip(node: &Node) -> Option<&str> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP").map(|address| address.address.as_str())
}

/// All addresses of the node in order, each as `TYPE ADDRESS`.
#[must_use]
pub fn addresses(node: &Node) -> Vec<String> {
    let list = node.status.iter().filter_map(|status| status.addresses.as_ref()).flatten();
    list.map(|address| format!("{} {}", address.type_, address.address)).collect()
}

/// One label of the node; empty where it is absent.
#[must_use]
pub fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    node.labels().get(key).map_or("", String::as_str)
}

/// All nodes.
#[must_use]
pub fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

/// The Services of the namespace `default`.
#[must_use]
pub fn services(client: &Client) -> Api<Service> {
    Api::namespaced(client.clone(), "default")
}
