//! An API server that does not answer for a while, or not on connections that were open. The
//! manager works again within a minute after the API server can be reached, and repeats no creation
//! in the cloud.
//!
//! The subject of these tests is a time. `runtime/controllers/src/deadlines.rs` asserts the minute
//! when it is compiled. These tests allow two minutes, because on a busy machine the processes also
//! wait for CPU.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use skysail_test_e2e::{
    api_server::ApiServer,
    front::Front,
    manager::{Manager, get},
    objects::{address_in, address_of, create_service, initialized, nodes, register_node, services, set_ready},
    wait::eventually,
    workspace::component,
};

use crate::simulated::Simulated;

/// The API server chooses the node port.
const ALLOTTED: u16 = 0;
const NODES: [&str; 3] = ["a", "b", "c"];
/// The guaranteed minute, and a second minute for a busy machine.
const WORKS_AGAIN_SECONDS: u64 = 120;
/// How long the API server is silent: longer than any deadline of a request.
const SILENCE: Duration = Duration::from_secs(45);
const ALONE: [&str; 1] = ["--leader-elect=false"];

/// A manager whose way to the API server leads through a proxy.
struct World {
    cloud: Simulated,
    server: ApiServer,
    client: Client,
}

impl World {
    async fn start() -> Result<Self> {
        let (cloud, server) = (Simulated::start(&NODES).await?, ApiServer::start()?);
        let client = server.client().await?;
        Ok(Self { cloud, server, client })
    }

    async fn manager(&self, flags: &[&str], kubeconfig: &Path) -> Result<Manager> {
        let (component, file) = (component("simcloud")?, self.cloud.provider_file());
        Manager::start_with(flags, kubeconfig, &component, &file, &[self.cloud.token()]).await
    }

    /// A manager that has initialised two nodes and serves a Service, and the proxy before the API
    /// server.
    async fn busy_manager(&self) -> Result<(Manager, Front)> {
        let (front, kubeconfig) = self.server.behind_a_front("front").await?;
        let manager = self.manager(&ALONE, &kubeconfig).await?;
        self.each_controller_works("before", "a").await?;
        self.node("b").await?;
        Ok((manager, front))
    }

    async fn node(&self, name: &str) -> Result<()> {
        register_node(&self.client, name).await?;
        let initialised = || initialized(&self.client, name);
        eventually("the node is initialised", WORKS_AGAIN_SECONDS, initialised).await.map(drop)
    }

    /// The node controller and the service controller, with new objects.
    async fn each_controller_works(&self, service: &str, node: &str) -> Result<()> {
        create_service(&self.client, service, 8080, ALLOTTED).await?;
        self.node(node).await?;
        let served = || address_of(&self.client, service);
        eventually("the Service gets an address", WORKS_AGAIN_SECONDS, served).await.map(drop)
    }

    /// The node lifecycle controller.
    async fn the_node_of_a_deleted_machine_goes(&self, name: &str) -> Result<()> {
        self.cloud.delete(name).await?;
        set_ready(&self.client, name, "Unknown").await?;
        let gone = || async {
            ensure!(nodes(&self.client).get_opt(name).await?.is_none(), "the node is still there");
            anyhow::Ok(())
        };
        eventually("the node of the deleted machine goes", WORKS_AGAIN_SECONDS, gone).await
    }

    /// The cloud has one address for each of so many Services, and never made another one.
    fn nothing_was_made_twice(&self, services: usize) -> Result<()> {
        let created = self.cloud.cloud.requests().into_iter();
        let created = created
            .filter(|request| request.method == "POST" && request.path == "/v1/elastic-ips" && request.status < 300)
            .count();
        let there = self.cloud.cloud.snapshot().elastic_ips.len();
        ensure!((created, there) == (services, services), "{created} addresses made, {there} there: not {services}");
        Ok(())
    }
}

/// The outage itself is a time: it has to be longer than any deadline of a request.
async fn until_the_silence_is_over() {
    tokio::time::sleep(SILENCE).await;
}

async fn is_well(manager: &mut Manager) -> Result<()> {
    manager.still_runs()?;
    get(&format!("{}/livez", manager.address())).await.map(drop)
}

#[tokio::test]
async fn connections_swallowed_while_idle_are_left_within_a_minute() -> Result<()> {
    let world = World::start().await?;
    let (mut manager, front) = world.busy_manager().await?;
    front.swallow_open_connections();
    world.each_controller_works("after", "c").await.map_err(|error| error.context(manager.last_words()))?;
    world.the_node_of_a_deleted_machine_goes("b").await?;
    world.nothing_was_made_twice(2)?;
    is_well(&mut manager).await
}

#[tokio::test]
async fn connections_swallowed_while_60_services_are_made_delay_them_by_a_minute_at_most() -> Result<()> {
    const SERVICES: usize = 60;
    let world = World::start().await?;
    let (mut manager, front) = world.busy_manager().await?;
    for number in 0..SERVICES {
        create_service(&world.client, &format!("web-{number}"), 8080, ALLOTTED).await?;
    }
    let served = || async {
        let all = services(&world.client).list(&kube::api::ListParams::default()).await?.items;
        let served = all.iter().filter(|service| address_in(service).is_some()).count();
        anyhow::Ok(served)
    };
    let some = || async {
        ensure!(served().await? > 5, "too few");
        anyhow::Ok(())
    };
    eventually("some Services are served", 60, some).await?;
    front.swallow_open_connections();
    let all = || async {
        let served = served().await?;
        ensure!(served == SERVICES + 1, "{served} of {SERVICES} are served");
        Ok(())
    };
    eventually("all Services are served", WORKS_AGAIN_SECONDS, all).await?;
    world.nothing_was_made_twice(SERVICES + 1)?;
    world.node("c").await?;
    is_well(&mut manager).await
}

#[tokio::test]
async fn a_replica_whose_connections_were_swallowed_while_it_stood_by_leads_and_works() -> Result<()> {
    let world = World::start().await?;
    let mut first = world.manager(&[], &world.server.kubeconfig()).await?;
    world.each_controller_works("before", "a").await?;
    let (front, kubeconfig) = world.server.behind_a_front("second").await?;
    let mut second = world.manager(&[], &kubeconfig).await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-system");
    let leader = || async {
        let holder = leases.get("cloud-controller-manager").await?.spec.and_then(|spec| spec.holder_identity);
        holder.context("nobody leads")
    };
    let before = leader().await?;
    front.swallow_open_connections();
    first.kill()?;
    let handed_over = || async {
        ensure!(leader().await? != before, "the first one still leads");
        anyhow::Ok(())
    };
    eventually("the second one leads", WORKS_AGAIN_SECONDS, handed_over).await?;
    world.each_controller_works("after", "b").await.map_err(|error| error.context(second.last_words()))?;
    world.the_node_of_a_deleted_machine_goes("a").await?;
    world.nothing_was_made_twice(2)?;
    is_well(&mut second).await
}

#[tokio::test]
async fn a_frozen_api_server_delays_the_controllers_by_a_minute_at_most() -> Result<()> {
    let world = World::start().await?;
    let (mut manager, _front) = world.busy_manager().await?;
    world.server.freeze(true)?;
    until_the_silence_is_over().await;
    is_well(&mut manager).await?;
    world.server.freeze(false)?;
    world.each_controller_works("after", "c").await?;
    world.the_node_of_a_deleted_machine_goes("b").await?;
    world.nothing_was_made_twice(2)?;
    is_well(&mut manager).await
}

#[tokio::test]
async fn a_black_hole_in_the_place_of_the_api_server_delays_the_controllers_by_a_minute_at_most() -> Result<()> {
    let world = World::start().await?;
    let (mut manager, front) = world.busy_manager().await?;
    front.swallow_all_connections();
    create_service(&world.client, "meanwhile", 8080, ALLOTTED).await?;
    until_the_silence_is_over().await;
    is_well(&mut manager).await?;
    front.swallow_open_connections();
    world.each_controller_works("after", "c").await?;
    eventually("the Service gets an address", WORKS_AGAIN_SECONDS, || address_of(&world.client, "meanwhile")).await?;
    world.the_node_of_a_deleted_machine_goes("b").await?;
    world.nothing_was_made_twice(3)?;
    is_well(&mut manager).await
}
