//! Simulated kubelets: one Node for each machine of a cloud.
//!
//! Does what a kubelet with `--cloud-provider=external` does at its start (registers the node with the taint
//! `node.cloudprovider.kubernetes.io/uninitialized`, reports Ready) and what the kube-controller-manager does when a kubelet falls silent
//! (Ready becomes Unknown). It never deletes a Node: that is the work of the manager under test.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

/// Field manager of the simulated kubelets, as kubelet's own.
const FIELD_MANAGER: &str = "kubelet";

/// A machine as its kubelet sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the machine and of its Node.
    pub name: String,
    /// Whether the kubelet runs: a machine that is off, or gone, falls silent.
    pub running: bool,
}

/// Registers machines as Nodes and keeps their condition Ready, until the sender of the machines is dropped.
///
/// A machine that leaves the list counts as silent.
///
/// # Errors
/// The API refused a write; conflicts with the manager cannot happen, because only the status is patched.
pub async fn run(client: Client, mut machines: watch::Receiver<Vec<Machine>>) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    loop {
        let wanted: BTreeMap<String, bool> =
            machines.borrow_and_update().iter().map(|machine| (machine.name.clone(), machine.running)).collect();
        for (name, running) in &wanted {
            match known.insert(name.clone(), *running) {
                None => register(&nodes, name, *running).await?,
                Some(before) if before != *running => report(&nodes, name, *running).await?,
                Some(_) => {}
            }
        }
        let silent: Vec<String> = known.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in silent {
            known.remove(&name);
            report(&nodes, &name, false).await?;
        }
        if machines.changed().await.is_err() {
            return Ok(());
        }
    }
}

async fn register(nodes: &Api<Node>, name: &str, running: bool) -> kube::Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {
            "taints": [{
                "key": "node.cloudprovider.kubernetes.io/uninitialized",
                "value": "true",
                "effect": "NoSchedule",
            }],
        },
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": [ready(running)],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Skysail dev",
                "kernelVersion": "0.0.0-dev", "containerRuntimeVersion": "dev://0", "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "", "bootID": "", "machineID": name, "systemUUID": name,
            },
        },
    }))
    .map_err(kube::Error::SerdeError)?;
    match nodes
        .create(&PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }, &node)
        .await
    {
        // A kubelet that starts again finds its Node.
        Err(kube::Error::Api(status)) if status.code == 409 => report(nodes, name, running).await,
        other => other.map(drop),
    }
}

async fn report(nodes: &Api<Node>, name: &str, running: bool) -> kube::Result<()> {
    let patch = Patch::Strategic(json!({"status": {"conditions": [ready(running)]}}));
    match nodes
        .patch_status(
            name,
            &PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() },
            &patch,
        )
        .await
    {
        // The manager was quicker: the Node is gone, and a silent kubelet does not register again.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn ready(running: bool) -> serde_json::Value {
    if running {
        json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"})
    } else {
        json!({
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        })
    }
}
