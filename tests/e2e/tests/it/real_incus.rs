//! A cluster on a real Incus: containers are the nodes, OVN balances, the provider is swapped in
//! between, and nothing is left.

use std::path::Path;

use anyhow::{Result, ensure};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    incus::{ENDPOINT, Incus},
    manager::Manager,
    objects::{
        SHUTDOWN, address_of, create_service, delete_service, has_taint, initialized, internal_ip, label, nodes,
        register_node, service_gone, services, set_ready,
    },
    traffic::{swap, wait_for_answers},
    wait::eventually,
    workspace::{component, skysail},
};

const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];

/// The node port that the containers' web servers answer on.
const NODE_PORT: u16 = 30_080;

#[test]
fn a_service_is_reached_through_incus_while_machines_and_releases_change() -> Result<()> {
    // Inside Incus's network namespace nothing can be fetched any more.
    let wasm = component("incus")?;
    skysail()?;
    ApiServer::prepare()?;
    let incus = Incus::start()?;
    for name in NODES {
        incus.launch(name)?;
    }
    let credentials = incus.credentials()?;
    incus.inside(|| async {
        let server = ApiServer::start()?;
        let manager = Manager::start(&server.kubeconfig(), &wasm, &provider_file(&credentials), &[]).await?;
        let mut world = World { incus: &incus, client: server.client().await?, manager };
        if let Err(error) = world.story().await {
            return Err(error.context(world.manager.log_tail()));
        }
        let status = world.manager.end().await?;
        ensure!(status.success(), "the manager ended with {status}");
        Ok(())
    })
}

fn provider_file(credentials: &Path) -> String {
    let credentials = credentials.display();
    format!(
        "apiVersion: skysail.dev/v1alpha1\n\
         kind: Provider\n\
         metadata: {{name: incus}}\n\
         spec:\n\
         \x20 default: true\n\
         \x20 source: {{file: provider.wasm}}\n\
         \x20 config: |\n\
         \x20   endpoint = {ENDPOINT}\n\
         \x20   network = ovnnet\n\
         \x20   region = this-machine\n\
         \x20   health-check = true\n\
         \x20 egress:\n\
         \x20   rules:\n\
         \x20   - origins: [\"{ENDPOINT}\"]\n\
         \x20     methods: [GET, POST, PUT, DELETE]\n\
         \x20     pathPrefixes: [/1.0]\n\
         \x20   allowCidrs: [127.0.0.1/32]\n\
         \x20   caBundle: {{file: {credentials}/ca.crt}}\n\
         \x20 credentials:\n\
         \x20   incus:\n\
         \x20     origins: [\"{ENDPOINT}\"]\n\
         \x20     clientCertificate:\n\
         \x20       certificate: {{file: {credentials}/tls.crt}}\n\
         \x20       key: {{file: {credentials}/tls.key}}\n"
    )
}

struct World<'a> {
    incus: &'a Incus,
    client: Client,
    manager: Manager,
}

impl World<'_> {
    async fn story(&mut self) -> Result<()> {
        self.nodes_are_initialised().await?;
        let address = self.a_service_reaches_every_container().await?;
        self.e3_type_and_ports_of_a_udp_service_change().await?;
        self.the_provider_is_swapped(&address).await?;
        self.a_stopped_instance_is_tainted_and_left_out(&address).await?;
        self.e1_a_deleted_instance_takes_its_node_along(&address).await?;
        self.everything_is_cleaned_up().await
    }

    async fn nodes_are_initialised(&mut self) -> Result<()> {
        for name in NODES {
            register_node(&self.client, name).await?;
        }
        for name in NODES {
            let node = eventually("the node is initialised", 60, || initialized(&self.client, name)).await?;
            let instance = self.incus.query(&format!("/1.0/instances/{name}"))?;
            let uuid = instance.pointer("/config/volatile.uuid").and_then(|uuid| uuid.as_str()).unwrap_or_default();
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
            ensure!(id == format!("incus://default/{uuid}"), "{name} has the provider ID {id}");
            ensure!(
                internal_ip(&node).is_some_and(|ip| ip.starts_with("10.88.0.")),
                "{name}: {:?}",
                internal_ip(&node)
            );
            ensure!(
                label(&node, "node.kubernetes.io/instance-type") == "container",
                "{name}: {:?}",
                node.metadata.labels
            );
            ensure!(
                label(&node, "topology.kubernetes.io/region") == "this-machine",
                "{name}: {:?}",
                node.metadata.labels
            );
        }
        Ok(())
    }

    async fn a_service_reaches_every_container(&mut self) -> Result<String> {
        create_service(&self.client, "web", 8080, NODE_PORT).await?;
        let address = eventually("the Service gets an address", 60, || address_of(&self.client, "web")).await?;
        ensure!(address.starts_with("198.51.100.20"), "{address} is not one that the uplink routes");
        wait_for_answers(&address, 8080, &NODES).await?;
        Ok(address)
    }

    /// The containers' servers speak TCP: for UDP the test checks the configuration in Incus.
    async fn e3_type_and_ports_of_a_udp_service_change(&self) -> Result<()> {
        let object = json!({
            "metadata": { "name": "dns" },
            "spec": { "type": "ClusterIP", "ports": [{ "port": 53, "protocol": "UDP" }] },
        });
        services(&self.client).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let udp = |port: u16, node_port: u16| json!([{ "port": port, "nodePort": node_port, "protocol": "UDP" }]);
        self.set("dns", json!({ "type": "NodePort", "ports": udp(53, 30_053) })).await?;
        self.set("dns", json!({ "type": "LoadBalancer" })).await?;
        let address = eventually("the Service gets an address", 60, || address_of(&self.client, "dns")).await?;
        self.incus_listens(&address, "53", "30053").await?;
        self.set("dns", json!({ "ports": udp(53, 30_054) })).await?;
        self.incus_listens(&address, "53", "30054").await?;
        self.set("dns", json!({ "ports": udp(5353, 30_054) })).await?;
        self.incus_listens(&address, "5353", "30054").await?;
        ensure!(address_of(&self.client, "dns").await? == address, "a changed port must not change the address");
        self.set(
            "dns",
            json!({ "type": "ClusterIP", "ports": [{ "port": 5353, "protocol": "UDP", "nodePort": null }] }),
        )
        .await?;
        let gone = || async {
            let left = self.incus.query("/1.0/networks/ovnnet/load-balancers")?;
            let left = left.as_array().map_or(0, Vec::len);
            ensure!(left == 1, "{left} load balancers in Incus; the one of `web` has to be left");
            ensure!(address_of(&self.client, "dns").await.is_err(), "the status still has an address");
            anyhow::Ok(())
        };
        eventually("the UDP load balancer goes", 60, gone).await?;
        delete_service(&self.client, "dns").await
    }

    async fn set(&self, name: &str, spec: Value) -> Result<()> {
        let patch = json!({ "spec": spec });
        services(&self.client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Incus has exactly this UDP port on the address, and every container behind it.
    async fn incus_listens(&self, address: &str, port: &str, node_port: &str) -> Result<()> {
        let look = || async {
            let balancer = self.incus.query(&format!("/1.0/networks/ovnnet/load-balancers/{address}"))?;
            let is = |entry: &Value, key: &str, value: &str| entry.get(key).and_then(Value::as_str) == Some(value);
            let list = |key: &str| balancer.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
            let (ports, backends) = (list("ports"), list("backends"));
            ensure!(
                ports.len() == 1
                    && ports.iter().all(|entry| is(entry, "protocol", "udp") && is(entry, "listen_port", port)),
                "the ports are {ports:?}"
            );
            ensure!(
                backends.len() == NODES.len() && backends.iter().all(|entry| is(entry, "target_port", node_port)),
                "the backends are {backends:?}"
            );
            anyhow::Ok(())
        };
        eventually("Incus listens", 60, look).await
    }

    async fn the_provider_is_swapped(&mut self, address: &str) -> Result<()> {
        swap(&mut self.manager, &self.client, address, NODE_PORT, &NODES).await?;
        ensure!(address_of(&self.client, "web").await? == address, "a changed port must not change the address");
        Ok(())
    }

    async fn a_stopped_instance_is_tainted_and_left_out(&mut self, address: &str) -> Result<()> {
        self.incus.incus(&["stop", "--force", "node-1"])?;
        set_ready(&self.client, "node-1", "Unknown").await?;
        let tainted = || async {
            let node = nodes(&self.client).get("node-1").await?;
            ensure!(has_taint(&node, SHUTDOWN), "node-1 has the taints {:?}", node.spec.and_then(|spec| spec.taints));
            Ok(())
        };
        eventually("the stopped node is tainted", 60, tainted).await?;
        wait_for_answers(address, 9090, &["node-0", "node-2"]).await
    }

    /// E1 of upstream's cases.
    async fn e1_a_deleted_instance_takes_its_node_along(&mut self, address: &str) -> Result<()> {
        self.incus.incus(&["delete", "--force", "node-2"])?;
        set_ready(&self.client, "node-2", "Unknown").await?;
        let gone = || async {
            ensure!(nodes(&self.client).get_opt("node-2").await?.is_none(), "node-2 is still there");
            anyhow::Ok(())
        };
        eventually("the node of the deleted instance goes", 60, gone).await?;
        ensure!(nodes(&self.client).get_opt("node-1").await?.is_some(), "a stopped machine's node stays");
        wait_for_answers(address, 9090, &["node-0"]).await
    }

    async fn everything_is_cleaned_up(&mut self) -> Result<()> {
        delete_service(&self.client, "web").await?;
        eventually("the Service goes", 60, || service_gone(&self.client, "web")).await?;
        let left = self.incus.query("/1.0/networks/ovnnet/load-balancers")?;
        ensure!(left == json!([]), "left in Incus: {left}");
        self.manager.still_runs()
    }
}
