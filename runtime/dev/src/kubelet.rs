//! Simulated kubelets: one Node for each machine of a cloud.
//!
//! Does what a kubelet with `--cloud-provider=external` does at its start (registers the node with
//! the taint `node.cloudprovider.kubernetes.io/uninitialized`, reports Ready) and what the
//! kube-controller-manager does when a kubelet falls silent (Ready becomes Unknown). It never
//! deletes a Node: the manager under test does.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

use crate::api::{clock::Clock, object};

/// Field manager of the simulated kubelets, the same as the kubelet's.
const FIELD_MANAGER: &str = "kubelet";

/// A machine as its kubelet sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the machine and of its Node.
    pub name: String,
    /// Whether the kubelet runs; false for a machine that is off or deleted.
    pub running: bool,
}

/// Registers machines as Nodes and keeps their condition Ready until the sender of the machines is
/// dropped.
///
/// The kubelet of a machine that leaves the list no longer runs. `epoch` is the present time of the
/// clock, as in [`crate::api::ApiOptions::epoch`].
///
/// # Errors
/// The API refused a write. Conflicts with the manager cannot happen, because only the status is
/// patched.
pub async fn run(client: Client, mut machines: watch::Receiver<Vec<Machine>>, epoch: Timestamp) -> kube::Result<()> {
    let kubelets = Kubelets { nodes: Api::all(client), clock: Clock::starting_at(epoch) };
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    loop {
        let wanted: BTreeMap<String, bool> =
            machines.borrow_and_update().iter().map(|machine| (machine.name.clone(), machine.running)).collect();
        for (name, running) in &wanted {
            match known.insert(name.clone(), *running) {
                None => kubelets.register(name, *running).await?,
                Some(before) if before != *running => kubelets.report(name, *running).await?,
                Some(_) => {}
            }
        }
        let silent: Vec<String> = known.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in silent {
            known.remove(&name);
            kubelets.report(&name, false).await?;
        }
        if machines.changed().await.is_err() {
            return Ok(());
        }
    }
}

struct Kubelets {
    nodes: Api<Node>,
    clock: Clock,
}

impl Kubelets {
    async fn register(&self, name: &str, running: bool) -> kube::Result<()> {
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
                "conditions": [self.ready(running)],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "osImage": "Skysail dev",
                    "kernelVersion": "0.0.0-dev", "containerRuntimeVersion": "dev://0", "kubeletVersion": "v1.36.0",
                    "kubeProxyVersion": "", "bootID": "", "machineID": name, "systemUUID": name,
                },
            },
        }))
        .map_err(kube::Error::SerdeError)?;
        match self
            .nodes
            .create(&PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }, &node)
            .await
        {
            // A restarted kubelet finds its Node.
            Err(kube::Error::Api(status)) if status.code == 409 => self.report(name, running).await,
            other => other.map(drop),
        }
    }

    async fn report(&self, name: &str, running: bool) -> kube::Result<()> {
        let patch = Patch::Strategic(json!({"status": {"conditions": [self.ready(running)]}}));
        match self
            .nodes
            .patch_status(
                name,
                &PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() },
                &patch,
            )
            .await
        {
            // The manager has deleted the Node, and a stopped kubelet does not register again.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    /// The condition with the present time, because it is only reported when it changes.
    fn ready(&self, running: bool) -> serde_json::Value {
        let now = self.clock.stamp();
        let mut condition = if running {
            json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"})
        } else {
            json!({
                "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
            })
        };
        object::set(&mut condition, "/lastHeartbeatTime", now.clone());
        object::set(&mut condition, "/lastTransitionTime", now);
        condition
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{Node, NodeCondition},
        jiff::Timestamp,
    };
    use kube::{Api, runtime::wait::await_condition};
    use tokio::{sync::watch, task::JoinSet};

    use super::{Machine, run};
    use crate::api::{ApiOptions, ApiServer};

    /// The last heartbeat of this status, and the time of its last change.
    async fn times(nodes: &Api<Node>, status: &str) -> (Timestamp, Timestamp) {
        let condition = |node: &Node| -> Option<NodeCondition> {
            let conditions = node.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().find(|condition| condition.status == status).cloned()
        };
        let found = await_condition(nodes.clone(), "node-1", |node: Option<&Node>| node.and_then(condition).is_some());
        let condition = condition(&found.await.unwrap().unwrap()).unwrap();
        (condition.last_heartbeat_time.unwrap().0, condition.last_transition_time.unwrap().0)
    }

    #[tokio::test]
    async fn a_condition_has_the_time_of_its_last_change() {
        let options = ApiOptions::default();
        let api = ApiServer::new(&options);
        let machine = |running| vec![Machine { name: "node-1".to_owned(), running }];
        let (sender, machines) = watch::channel(machine(true));
        let mut kubelets = JoinSet::new();
        kubelets.spawn(run(api.client(), machines, options.epoch));
        let nodes: Api<Node> = Api::all(api.client());
        let (heard, changed) = times(&nodes, "True").await;
        assert!(heard == changed && heard >= options.epoch, "{heard} {changed}");
        sender.send(machine(false)).unwrap();
        let (heard_later, changed_later) = times(&nodes, "Unknown").await;
        assert!(heard_later == changed_later && changed_later >= changed, "{heard_later} {changed_later}");
    }
}
