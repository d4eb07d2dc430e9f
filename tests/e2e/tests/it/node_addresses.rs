//! The addresses of a kubelet that was given a `--node-ip`, in the status that a real API server
//! keeps: it merges some lists by their keys, and this one has two entries of one type.

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::json;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{addresses, initialized, register_node_at},
    wait::eventually,
    workspace::component,
};

/// The addresses of each machine in the cloud: more than a kubelet has in `--node-ip`. This
/// provider takes them from the kubelet's first report.
const MACHINE: [&str; 4] = ["10.0.0.1", "192.168.0.1", "2001:db8::1", "2001:db8::2"];

/// Name of the node, and the kubelet's `--node-ip`.
const NODES: [(&str, &str); 4] = [
    ("v4", "192.168.0.1"),
    ("v6", "2001:db8::2"),
    ("v6-v4", "2001:db8::2,192.168.0.1"),
    ("v4-v6", "192.168.0.1,2001:db8::2"),
];

const PROVIDER_FILE: &str = "apiVersion: skysail.dev/v1alpha1\n\
    kind: Provider\n\
    metadata: {name: dummy}\n\
    spec:\n\
    \x20 default: true\n\
    \x20 source: {file: provider.wasm}\n";

#[tokio::test]
async fn i2_a_node_has_exactly_the_ips_that_its_kubelet_was_given_in_their_order() -> Result<()> {
    let server = ApiServer::start()?;
    let client = server.client().await?;
    for (name, ips) in NODES {
        let annotations = json!({ "alpha.kubernetes.io/provided-node-ip": ips });
        register_node_at(&client, name, &annotations, &MACHINE).await?;
    }
    let manager = Manager::start(&server.kubeconfig(), &component("dummy")?, PROVIDER_FILE, &[]).await?;
    for (name, ips) in NODES {
        let result = has_exactly(&client, name, ips).await;
        result.map_err(|error| error.context(manager.log_tail()))?;
    }
    let status = manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

async fn has_exactly(client: &Client, name: &str, ips: &str) -> Result<()> {
    let node = eventually("the node is initialised", 60, || initialized(client, name)).await?;
    let mut expected: Vec<String> = ips.split(',').map(|ip| format!("InternalIP {ip}")).collect();
    expected.push(format!("Hostname {name}"));
    ensure!(addresses(&node) == expected, "{name} has {:?}, not {expected:?}", addresses(&node));
    Ok(())
}
