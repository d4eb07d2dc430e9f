//! An API server that does not answer for a while, or not on connections that were open. The
//! manager works again within a minute after the API server can be reached, and repeats no creation
//! in the cloud.
//!
//! The subject of these tests is a time. `runtime/controllers/src/deadlines.rs` asserts the minute
//! when it is compiled. Beside the minute, these tests allow a multiple of the time that the same
//! work took in the same run before the silence: on a busy machine the processes also wait for CPU.

use std::{fmt::Display, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use skysail_test_e2e::{
    front::Front,
    manager::{Manager, get},
    objects::{address_in, address_of, create_service, initialized, nodes, register_node, services, set_ready},
    wait::eventually,
    workspace::component,
};

use tokio::time::Instant;

use crate::simulated::Site;

/// The API server chooses the node port.
const ALLOTTED: u16 = 0;
const NODES: [&str; 3] = ["a", "b", "c"];
/// From a way to the API server until every controller works.
const WORKS_AGAIN: Duration = Duration::from_secs(60);
/// How often the calm time is added to [`WORKS_AGAIN`]: see the module.
const BUSY: u32 = 20;
/// At most so much is added. Without deadlines an idle manager worked again after 287 s, which must
/// fail on the slowest machine too.
const BUSY_AT_MOST: Duration = Duration::from_secs(180);
/// For work that no silence delays, on a busy machine.
const CALM_SECONDS: u64 = 300;
/// How long the API server is silent: longer than any deadline of a request.
const SILENCE: Duration = Duration::from_secs(45);
const ALONE: [&str; 1] = ["--leader-elect=false"];

impl Site {
    async fn manager(&self, flags: &[&str], kubeconfig: &Path) -> Result<Manager> {
        let (component, file) = (component("simcloud")?, self.cloud.provider_file());
        Manager::start_with(flags, kubeconfig, &component, &file, &[self.cloud.token()]).await
    }

    /// A manager that serves the Service `before`, and the proxy before the API server.
    async fn busy_manager(&self) -> Result<(Manager, Front, Calm)> {
        let (front, kubeconfig) = self.server.behind_a_front("front").await?;
        let manager = self.manager(&ALONE, &kubeconfig).await?;
        let calm = self.calm().await?;
        Ok((manager, front, calm))
    }

    /// Measures the work of all controllers, with a manager and a way to the API server.
    async fn calm(&self) -> Result<Calm> {
        let began = Instant::now();
        let work = self.work("before", "b", "a").await?;
        work.is_done(self, Duration::from_secs(CALM_SECONDS)).await?;
        Ok(Calm(began.elapsed()))
    }

    /// Gives each controller something to do: a new Service, a new node, and a node whose machine
    /// is deleted.
    async fn work(&self, service: &'static str, node: &'static str, gone: &'static str) -> Result<Work> {
        if initialized(&self.client, gone).await.is_err() {
            self.node(gone).await?;
        }
        create_service(&self.client, service, 8080, ALLOTTED).await?;
        register_node(&self.client, node).await?;
        self.cloud.delete(gone).await?;
        set_ready(&self.client, gone, "Unknown").await?;
        Ok(Work { service, node, gone })
    }

    /// A node that a manager initialises.
    async fn node(&self, name: &str) -> Result<()> {
        register_node(&self.client, name).await?;
        eventually("the node is initialised", CALM_SECONDS, || initialized(&self.client, name)).await.map(drop)
    }

    /// The cloud has one load balancer for each of so many Services, and no request ever made
    /// another one, changed one or deleted one.
    fn nothing_was_made_twice(&self, services: usize) -> Result<()> {
        let requests = self.cloud.cloud.requests();
        let of = |method: &str, path: &str| {
            let of = requests.iter().filter(|request| request.method == method && request.path.starts_with(path));
            of.filter(|request| request.status < 300).count()
        };
        let made = [of("POST", "/v1/elastic-ips"), of("POST", "/v1/virtual-servers")];
        let there = self.cloud.cloud.snapshot();
        let there = [there.elastic_ips.len(), there.virtual_servers.len()];
        ensure!(made == [services; 2] && there == made, "{made:?} made, {there:?} there: not {services}");
        ensure!(of("PATCH", "/") + of("DELETE", "/") == 0, "load balancers were changed or deleted: {requests:?}");
        Ok(())
    }
}

/// How long the work of all controllers takes without a silence.
struct Calm(Duration);

impl Calm {
    /// From now on, until all work is done.
    fn and_a_minute(&self) -> Duration {
        WORKS_AGAIN + (self.0 * BUSY).min(BUSY_AT_MOST)
    }
}

/// Objects that wait for the service controller, the node controller and the node lifecycle
/// controller.
struct Work {
    service: &'static str,
    node: &'static str,
    gone: &'static str,
}

impl Work {
    async fn is_done(&self, site: &Site, within: Duration) -> Result<()> {
        let done = || async {
            address_of(&site.client, self.service).await?;
            initialized(&site.client, self.node).await?;
            let gone = nodes(&site.client).get_opt(self.gone).await?.is_none();
            ensure!(gone, "the node {} of a deleted machine is still there", self.gone);
            anyhow::Ok(())
        };
        within_time("each controller works", within, done).await
    }
}

#[expect(clippy::print_stdout, reason = "the subject of these tests is a time")]
async fn within_time<W: Display, F: Future<Output = Result<(), W>>>(
    what: &str,
    within: Duration,
    look: impl FnMut() -> F,
) -> Result<()> {
    let began = Instant::now();
    eventually(what, within.as_secs(), look).await?;
    println!("{what}: after {:?} of {within:?}", began.elapsed());
    Ok(())
}

/// Each Service's load balancer was ensured once: an answer that the API server did not hear of is
/// written again, and not asked for again.
async fn each_is_ensured_once(manager: &Manager, services: usize) -> Result<()> {
    let metrics = manager.metrics().await?;
    let calls = metrics.lines().filter(|line| {
        line.starts_with("skysail_provider_calls_total") && line.contains("function=\"load-balancers.ensure\"")
    });
    let calls: usize = calls.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
    ensure!(calls == services, "{calls} calls of load-balancers.ensure for {services} Services");
    Ok(())
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
    let site = Site::start(&NODES).await?;
    let (mut manager, front, calm) = site.busy_manager().await?;
    front.swallow_open_connections();
    let work = site.work("after", "c", "b").await?;
    work.is_done(&site, calm.and_a_minute()).await.map_err(|error| error.context(manager.log_tail()))?;
    site.nothing_was_made_twice(2)?;
    each_is_ensured_once(&manager, 2).await?;
    is_well(&mut manager).await
}

#[tokio::test]
async fn connections_swallowed_while_60_services_are_made_delay_them_by_a_minute_at_most() -> Result<()> {
    const SERVICES: usize = 60;
    let site = Site::start(&NODES).await?;
    let (mut manager, front, calm) = site.busy_manager().await?;
    for number in 0..SERVICES {
        create_service(&site.client, &format!("web-{number}"), 8080, ALLOTTED).await?;
    }
    let served = || async {
        let all = services(&site.client).list(&kube::api::ListParams::default()).await?.items;
        let served = all.iter().filter(|service| address_in(service).is_some()).count();
        anyhow::Ok(served)
    };
    let some = || async {
        ensure!(served().await? > 5, "too few");
        anyhow::Ok(())
    };
    eventually("some Services are served", CALM_SECONDS, some).await?;
    front.swallow_open_connections();
    let work = site.work("after", "c", "b").await?;
    let all = || async {
        let served = served().await?;
        ensure!(served == SERVICES + 2, "{served} of {SERVICES} are served");
        anyhow::Ok(())
    };
    within_time("all Services are served", calm.and_a_minute(), all).await?;
    work.is_done(&site, calm.and_a_minute()).await?;
    site.nothing_was_made_twice(SERVICES + 2)?;
    each_is_ensured_once(&manager, SERVICES + 2).await?;
    is_well(&mut manager).await
}

#[tokio::test]
async fn a_replica_whose_connections_were_swallowed_while_it_stood_by_leads_and_works() -> Result<()> {
    let site = Site::start(&NODES).await?;
    let mut first = site.manager(&[], &site.server.kubeconfig()).await?;
    let calm = site.calm().await?;
    let (front, kubeconfig) = site.server.behind_a_front("second").await?;
    let mut second = site.manager(&[], &kubeconfig).await?;
    let leases: Api<Lease> = Api::namespaced(site.client.clone(), "kube-system");
    let leader = || async {
        let holder = leases.get("cloud-controller-manager").await?.spec.and_then(|spec| spec.holder_identity);
        holder.context("no replica leads")
    };
    let before = leader().await?;
    front.swallow_open_connections();
    first.kill()?;
    let handed_over = || async {
        ensure!(leader().await? != before, "the first one still leads");
        anyhow::Ok(())
    };
    within_time("the second one leads", calm.and_a_minute(), handed_over).await?;
    let work = site.work("after", "c", "b").await?;
    work.is_done(&site, calm.and_a_minute()).await.map_err(|error| error.context(second.log_tail()))?;
    site.nothing_was_made_twice(2)?;
    is_well(&mut second).await
}

#[tokio::test]
async fn a_frozen_api_server_delays_the_controllers_by_a_minute_at_most() -> Result<()> {
    let site = Site::start(&NODES).await?;
    let (mut manager, _front, calm) = site.busy_manager().await?;
    site.server.freeze(true)?;
    until_the_silence_is_over().await;
    is_well(&mut manager).await?;
    site.server.freeze(false)?;
    let work = site.work("after", "c", "b").await?;
    work.is_done(&site, calm.and_a_minute()).await?;
    site.nothing_was_made_twice(2)?;
    each_is_ensured_once(&manager, 2).await?;
    is_well(&mut manager).await
}

#[tokio::test]
async fn a_black_hole_in_the_place_of_the_api_server_delays_the_controllers_by_a_minute_at_most() -> Result<()> {
    let site = Site::start(&NODES).await?;
    let (mut manager, front, calm) = site.busy_manager().await?;
    front.swallow_all_connections();
    let work = site.work("meanwhile", "c", "b").await?;
    until_the_silence_is_over().await;
    is_well(&mut manager).await?;
    front.swallow_open_connections();
    work.is_done(&site, calm.and_a_minute()).await?;
    site.nothing_was_made_twice(2)?;
    each_is_ensured_once(&manager, 2).await?;
    is_well(&mut manager).await
}
