//! Upstream's end-to-end cases of LoadBalancer Services, on a real API server, with real TCP
//! through the simulated cloud.
//!
//! The environment is started once; each step is one case and cleans up.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use skysail_dev::cloud::Knobs;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::{Manager, get},
    objects::{address_of, create_service, delete_service, initialized, register_node, service_gone, services},
    traffic::wait_for_answers,
    wait::eventually,
    workspace::component,
};

use crate::simulated::Simulated;

const NODES: [&str; 3] = ["a", "b", "c"];
/// Both are served by every machine.
const NODE_PORT: u16 = 30_080;
const OTHER_NODE_PORT: u16 = 30_081;
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

#[tokio::test]
async fn load_balancers_behave_as_upstreams_users_expect() -> Result<()> {
    let cloud = Simulated::start(&NODES).await?;
    for machine in cloud.cloud.snapshot().instances {
        cloud.cloud.serve_backend(&machine.id, OTHER_NODE_PORT).await?;
    }
    let server = ApiServer::start()?;
    let manager =
        Manager::start(&server.kubeconfig(), &component("simcloud")?, &cloud.provider_file(), &[cloud.token()]).await?;
    let world = World { cloud, client: server.client().await?, manager };
    if let Err(error) = world.story().await {
        return Err(error.context(world.manager.log_tail()));
    }
    let status = world.manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

struct World {
    cloud: Simulated,
    client: Client,
    manager: Manager,
}

impl World {
    async fn story(&self) -> Result<()> {
        for name in NODES {
            register_node(&self.client, name).await?;
        }
        for name in NODES {
            eventually("the node is initialised", 60, || initialized(&self.client, name)).await?;
        }
        self.e2_type_and_ports_of_a_tcp_service_change().await.context("E2")?;
        self.e4_source_ranges_are_enforced_changed_and_cleared().await.context("E4")?;
        self.e5_session_affinity_is_switched_on_and_off().await.context("E5")?;
        self.e6_the_finalizer_comes_and_goes_with_the_load_balancer().await.context("E6")?;
        self.e7_a_service_without_node_ports_gets_them_later().await.context("E7")?;
        Ok(())
    }

    async fn e2_type_and_ports_of_a_tcp_service_change(&self) -> Result<()> {
        let object = json!({
            "metadata": { "name": "e2" },
            "spec": { "type": "ClusterIP", "ports": [{ "port": 8080, "protocol": "TCP" }] },
        });
        services(&self.client).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        self.set("e2", json!({ "type": "NodePort", "ports": ports(8080, NODE_PORT) })).await?;
        self.set("e2", json!({ "type": "LoadBalancer" })).await?;
        let address = self.address("e2").await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        self.set("e2", json!({ "ports": ports(8080, OTHER_NODE_PORT) })).await?;
        self.backends_have_port(OTHER_NODE_PORT).await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        self.set("e2", json!({ "ports": ports(9090, OTHER_NODE_PORT) })).await?;
        wait_for_answers(&address, 9090, &NODES).await?;
        ensure!(self.address("e2").await? == address, "a changed port must not change the address");
        ensure!(get(&format!("http://{address}:8080/")).await.is_err(), "the old port still answers");
        self.set("e2", json!({ "type": "ClusterIP", "ports": [{ "port": 9090, "nodePort": null }] })).await?;
        self.is_cleaned_up("e2").await?;
        self.delete("e2").await
    }

    async fn e4_source_ranges_are_enforced_changed_and_cleared(&self) -> Result<()> {
        create_service(&self.client, "e4", 8080, NODE_PORT).await?;
        let address = self.address("e4").await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        self.set("e4", json!({ "loadBalancerSourceRanges": ["192.0.2.0/24"] })).await?;
        let refused = || async {
            let answer = get(&format!("http://{address}:8080/")).await;
            ensure!(answer.is_err(), "a client outside of the ranges is answered by {answer:?}");
            Ok(())
        };
        eventually("clients outside of the ranges are refused", 120, refused).await?;
        self.set("e4", json!({ "loadBalancerSourceRanges": ["192.0.2.0/24", "127.0.0.0/8"] })).await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        self.set("e4", json!({ "loadBalancerSourceRanges": ["192.0.2.0/24"] })).await?;
        eventually("they are refused again", 120, refused).await?;
        self.set("e4", json!({ "loadBalancerSourceRanges": null })).await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        self.delete("e4").await
    }

    async fn e5_session_affinity_is_switched_on_and_off(&self) -> Result<()> {
        create_service(&self.client, "e5", 8080, NODE_PORT).await?;
        let address = self.address("e5").await?;
        for policy in ["Cluster", "Local"] {
            self.set("e5", json!({ "externalTrafficPolicy": policy, "sessionAffinity": "ClientIP" })).await?;
            let sticks = || async {
                let own = get(&format!("http://{address}:8080/")).await?;
                for _ in 0..30 {
                    let other = get(&format!("http://{address}:8080/")).await?;
                    ensure!(other == own, "{own:?} and {other:?} answered one client");
                }
                anyhow::Ok(())
            };
            eventually("one client keeps its machine", 120, sticks).await.with_context(|| policy.to_owned())?;
            self.set("e5", json!({ "sessionAffinity": "None" })).await?;
            wait_for_answers(&address, 8080, &NODES).await.with_context(|| policy.to_owned())?;
        }
        self.delete("e5").await
    }

    async fn e6_the_finalizer_comes_and_goes_with_the_load_balancer(&self) -> Result<()> {
        create_service(&self.client, "e6", 8080, NODE_PORT).await?;
        self.address("e6").await?;
        ensure!(self.has_finalizer("e6").await?, "a Service with a load balancer has no finalizer");
        self.set("e6", json!({ "type": "ClusterIP", "ports": [{ "port": 8080, "nodePort": null }] })).await?;
        self.is_cleaned_up("e6").await?;
        self.set("e6", json!({ "type": "LoadBalancer", "ports": ports(8080, NODE_PORT) })).await?;
        self.address("e6").await?;
        ensure!(self.has_finalizer("e6").await?, "the finalizer did not come back");
        // While the cloud is down, the object has to stay: it is the only record of what to delete.
        self.cloud.cloud.set_knobs(Knobs { error_rate: 1.0, ..Knobs::default() })?;
        delete_service(&self.client, "e6").await?;
        let tried = || async {
            let failed = self.reasons("e6").await?.iter().any(|reason| reason == "SyncLoadBalancerFailed");
            ensure!(failed, "there is no Event SyncLoadBalancerFailed");
            anyhow::Ok(())
        };
        eventually("the deletion is tried", 120, tried).await?;
        ensure!(self.has_finalizer("e6").await?, "the finalizer went before the load balancer");
        self.cloud.cloud.set_knobs(Knobs::default())?;
        self.is_gone("e6").await
    }

    async fn e7_a_service_without_node_ports_gets_them_later(&self) -> Result<()> {
        let object = json!({
            "metadata": { "name": "e7" },
            "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 8080 }] },
        });
        services(&self.client).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        // This cloud reaches pods only through node ports, and reports that in an Event.
        let reported = || async {
            let messages = self.messages("e7").await?;
            ensure!(messages.iter().any(|text| text.contains("has no node port")), "the Events say {messages:?}");
            anyhow::Ok(())
        };
        eventually("the Event names the missing node port", 120, reported).await?;
        self.set("e7", json!({ "allocateLoadBalancerNodePorts": true, "ports": ports(8080, NODE_PORT) })).await?;
        let address = self.address("e7").await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        self.delete("e7").await
    }

    async fn set(&self, name: &str, spec: Value) -> Result<()> {
        let patch = json!({ "spec": spec });
        services(&self.client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn address(&self, name: &str) -> Result<String> {
        eventually("the Service gets an address", 60, || address_of(&self.client, name)).await
    }

    async fn backends_have_port(&self, port: u16) -> Result<()> {
        let look = || async {
            let servers = self.cloud.cloud.snapshot().virtual_servers;
            let mut backends = servers.iter().flat_map(|server| &server.real_servers);
            ensure!(backends.all(|backend| backend.port == port), "a backend has another port than {port}");
            anyhow::Ok(())
        };
        eventually("the cloud has the node port", 120, look).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        delete_service(&self.client, name).await?;
        self.is_gone(name).await
    }

    async fn is_gone(&self, name: &str) -> Result<()> {
        eventually("the Service goes", 60, || service_gone(&self.client, name)).await?;
        ensure!(self.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
        Ok(())
    }

    /// Waits until neither the Service nor the cloud has a trace of a load balancer.
    async fn is_cleaned_up(&self, name: &str) -> Result<()> {
        let clean = || async {
            let service = services(&self.client).get(name).await?;
            ensure!(!finalizers(&service).any(|finalizer| finalizer == FINALIZER), "the finalizer is still there");
            ensure!(address_of(&self.client, name).await.is_err(), "the status still has an address");
            ensure!(self.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
            anyhow::Ok(())
        };
        eventually("the load balancer goes", 60, clean).await
    }

    async fn has_finalizer(&self, name: &str) -> Result<bool> {
        let service = services(&self.client).get(name).await?;
        Ok(finalizers(&service).any(|finalizer| finalizer == FINALIZER))
    }

    async fn events(&self, name: &str) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        Ok(api.list(&about).await?.items)
    }

    async fn reasons(&self, name: &str) -> Result<Vec<String>> {
        Ok(self.events(name).await?.into_iter().filter_map(|event| event.reason).collect())
    }

    async fn messages(&self, name: &str) -> Result<Vec<String>> {
        Ok(self.events(name).await?.into_iter().filter_map(|event| event.message).collect())
    }
}

fn ports(port: u16, node_port: u16) -> Value {
    json!([{ "port": port, "nodePort": node_port, "protocol": "TCP" }])
}

fn finalizers(service: &Service) -> impl Iterator<Item = &String> {
    service.finalizers().iter()
}
