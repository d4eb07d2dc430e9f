//! An API server that does not answer for a while, or not on connections that were open. The
//! controllers work again within a minute after the API server can be reached, and repeat no
//! creation in the cloud.
//!
//! The subject of these tests is a time. `runtime/controllers/src/deadlines.rs` asserts the minute
//! when it is compiled; these tests measure it in processes that talk to a real API server. Each
//! test gives the controllers the same work in three turns: before the silence, at its end, and
//! after it. The second turn may take a minute and [`BUSY`] times the longer one of the others, of
//! which it needs one for the work itself: on a busy machine the processes also wait for CPU.
//!
//! Where only open connections are swallowed, the manager is a leader and has to keep its Lease. A
//! leader ends after 10 s without any way to the API server, so the manager has no Lease where all
//! connections are silent.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use skysail_test_e2e::{
    front::Front,
    manager::{Manager, get},
    objects::{address_in, create_service, initialized, nodes, register_node, services, set_ready},
    wait::eventually,
    workspace::component,
};
use tokio::time::Instant;

use crate::simulated::Site;

/// The API server chooses the node port.
const ALLOTTED: u16 = 0;
/// One machine more than turns.
const MACHINES: [&str; 4] = ["node-0", "node-1", "node-2", "node-3"];
/// From a way to the API server until every controller works.
const WORKS_AGAIN: Duration = Duration::from_secs(60);
/// How often the time of the work without a silence is added to [`WORKS_AGAIN`]: see the module.
const BUSY: u32 = 3;
/// At most so much is added. Without deadlines an idle manager worked again after 287 s, which must
/// fail on the slowest machine too.
const BUSY_AT_MOST: Duration = Duration::from_secs(180);
/// For any work, on a busy machine.
const PATIENCE: u64 = 300;
/// How long the API server is silent: longer than any deadline of a request.
const SILENCE: Duration = Duration::from_secs(45);
const WITHOUT_A_LEASE: [&str; 1] = ["--leader-elect=false"];
/// A renewal on a swallowed connection takes half of the renew deadline to fail. By default 5 s are
/// left for the next one, and on a busy machine a leader may need longer.
const WITH_A_LEASE: [&str; 2] = ["--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s"];

impl Site {
    async fn manager(&self, flags: &[&str], kubeconfig: &Path) -> Result<Manager> {
        let (component, file) = (component("simcloud")?, self.cloud.provider_file());
        Manager::start_with(flags, kubeconfig, &component, &file, &[self.cloud.token()]).await
    }

    /// A manager that has done the first turn of work, and the proxy before the API server.
    async fn busy_manager(&self, flags: &[&str], services: usize) -> Result<(Manager, Front, Calm)> {
        let (front, kubeconfig) = self.server.behind_a_front("front").await?;
        let manager = self.manager(flags, &kubeconfig).await?;
        let calm = self.first_turn(services).await?;
        Ok((manager, front, calm))
    }

    /// Measures the first turn of work, with a manager and a way to the API server.
    async fn first_turn(&self, services: usize) -> Result<Calm> {
        let node = node(0);
        register_node(&self.client, &node).await?;
        // A manager that has just started does not count.
        eventually("the first node is initialised", PATIENCE, || initialized(&self.client, &node)).await?;
        Ok(Calm { services, took: self.turn(1, services).await? })
    }

    /// How long one turn of work takes.
    async fn turn(&self, turn: usize, services: usize) -> Result<Duration> {
        let began = Instant::now();
        self.work(turn, services).await?.until_done(self, began).await
    }

    /// Gives each controller something to do.
    async fn work(&self, turn: usize, services: usize) -> Result<Work> {
        let work = Work { turn, services };
        self.create_services(&work).await?;
        self.change_nodes(&work).await?;
        Ok(work)
    }

    async fn create_services(&self, work: &Work) -> Result<()> {
        for number in 0..work.services {
            create_service(&self.client, &format!("{}{number}", work.prefix()), 8080, ALLOTTED).await?;
        }
        Ok(())
    }

    /// Registers a node, and deletes the machine of the node before it.
    async fn change_nodes(&self, work: &Work) -> Result<()> {
        let gone = work.gone();
        register_node(&self.client, &work.node()).await?;
        self.cloud.delete(&gone).await?;
        set_ready(&self.client, &gone, "Unknown").await
    }

    /// The second turn was done `took` after there was a way to the API server: checks this time
    /// against the first turn and a third one, and then the manager and the cloud.
    async fn works_again(&self, manager: &mut Manager, took: Duration, before: Calm) -> Result<()> {
        let after = self.turn(3, before.services).await?;
        is_in_time(took, [before.took, after])?;
        self.nothing_was_made_twice(3 * before.services)?;
        is_well(manager).await
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

/// A turn of work without a silence.
struct Calm {
    /// How many Services each turn makes.
    services: usize,
    took: Duration,
}

/// Objects that wait for the service controller, the node controller and the node lifecycle
/// controller: new Services, a new node, and the node of the turn before, whose machine is deleted.
struct Work {
    /// From 1 on.
    turn: usize,
    services: usize,
}

impl Work {
    fn prefix(&self) -> String {
        format!("turn-{}-", self.turn)
    }

    fn node(&self) -> String {
        node(self.turn)
    }

    fn gone(&self) -> String {
        node(self.turn - 1)
    }

    async fn served(&self, site: &Site) -> Result<usize> {
        let all = services(&site.client).list(&ListParams::default()).await?.items;
        let own = all.iter().filter(|service| service.name_any().starts_with(&self.prefix()));
        Ok(own.filter(|service| address_in(service).is_some()).count())
    }

    async fn is_done(&self, site: &Site) -> Result<()> {
        let (served, gone) = (self.served(site).await?, self.gone());
        ensure!(served == self.services, "{served} of {} Services are served", self.services);
        initialized(&site.client, &self.node()).await?;
        let is_gone = nodes(&site.client).get_opt(&gone).await?.is_none();
        ensure!(is_gone, "the node {gone} of a deleted machine is still there");
        Ok(())
    }

    /// Waits until it is done; the time since `began`.
    async fn until_done(&self, site: &Site, began: Instant) -> Result<Duration> {
        eventually("each controller works", PATIENCE, || self.is_done(site)).await?;
        Ok(began.elapsed())
    }
}

fn node(turn: usize) -> String {
    format!("node-{turn}")
}

/// Checks how long after a way to the API server something was done, against the times of turns
/// without a silence: see the module.
#[expect(clippy::print_stdout, reason = "the subject of these tests is a time")]
fn is_in_time(took: Duration, calm: [Duration; 2]) -> Result<()> {
    let longer = calm.into_iter().max().unwrap_or_default();
    let most = WORKS_AGAIN + (longer * BUSY).min(BUSY_AT_MOST);
    println!("done after {took:?} of {most:?}; without a silence after {calm:?}");
    ensure!(took <= most, "done after {took:?}, more than {most:?}; without a silence after {calm:?}");
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
async fn connections_swallowed_while_idle_delay_a_leader_by_a_minute_at_most_and_cost_it_no_lease() -> Result<()> {
    let site = Site::start(&MACHINES).await?;
    let (mut manager, front, calm) = site.busy_manager(&WITH_A_LEASE, 1).await?;
    let leader = site.leader().await?;
    front.swallow_open_connections();
    let began = Instant::now();
    let work = site.work(2, 1).await?;
    let took = work.until_done(&site, began).await.map_err(|error| error.context(manager.log_tail()))?;
    site.works_again(&mut manager, took, calm).await?;
    ensure!(site.leader().await? == leader, "another process leads");
    each_is_ensured_once(&manager, 3).await
}

#[tokio::test]
async fn connections_swallowed_while_60_services_are_made_delay_them_by_a_minute_at_most() -> Result<()> {
    const SERVICES: usize = 60;
    let site = Site::start(&MACHINES).await?;
    let (mut manager, front, calm) = site.busy_manager(&WITH_A_LEASE, SERVICES).await?;
    let leader = site.leader().await?;
    let work = Work { turn: 2, services: SERVICES };
    site.create_services(&work).await?;
    let some = || async {
        ensure!(work.served(&site).await? > 5, "too few");
        anyhow::Ok(())
    };
    eventually("some Services are served", PATIENCE, some).await?;
    front.swallow_open_connections();
    let began = Instant::now();
    site.change_nodes(&work).await?;
    let took = work.until_done(&site, began).await.map_err(|error| error.context(manager.log_tail()))?;
    site.works_again(&mut manager, took, calm).await?;
    ensure!(site.leader().await? == leader, "another process leads");
    each_is_ensured_once(&manager, 3 * SERVICES).await
}

/// The time until the replica leads is measured by itself: before that no work can be done.
#[tokio::test]
async fn a_replica_whose_connections_were_swallowed_while_it_stood_by_leads_and_works() -> Result<()> {
    let site = Site::start(&MACHINES).await?;
    let mut first = site.manager(&[], &site.server.kubeconfig()).await?;
    let calm = site.first_turn(1).await?;
    let (front, kubeconfig) = site.server.behind_a_front("second").await?;
    let mut second = site.manager(&[], &kubeconfig).await?;
    let before = site.leader().await?;
    front.swallow_open_connections();
    first.kill()?;
    let killed = Instant::now();
    let handed_over = || async {
        ensure!(site.leader().await? != before, "the first one still leads");
        anyhow::Ok(())
    };
    eventually("the second one leads", PATIENCE, handed_over).await?;
    let leads = Instant::now();
    is_in_time(leads - killed, [calm.took; 2])?;
    let work = site.work(2, 1).await?;
    let took = work.until_done(&site, leads).await.map_err(|error| error.context(second.log_tail()))?;
    site.works_again(&mut second, took, calm).await
}

#[tokio::test]
async fn a_frozen_api_server_delays_the_controllers_by_a_minute_at_most() -> Result<()> {
    let site = Site::start(&MACHINES).await?;
    let (mut manager, _front, calm) = site.busy_manager(&WITHOUT_A_LEASE, 1).await?;
    site.server.freeze(true)?;
    until_the_silence_is_over().await;
    is_well(&mut manager).await?;
    site.server.freeze(false)?;
    let began = Instant::now();
    let took = site.work(2, 1).await?.until_done(&site, began).await?;
    site.works_again(&mut manager, took, calm).await?;
    each_is_ensured_once(&manager, 3).await
}

#[tokio::test]
async fn a_black_hole_in_the_place_of_the_api_server_delays_the_controllers_by_a_minute_at_most() -> Result<()> {
    let site = Site::start(&MACHINES).await?;
    let (mut manager, front, calm) = site.busy_manager(&WITHOUT_A_LEASE, 1).await?;
    front.swallow_all_connections();
    let work = site.work(2, 1).await?;
    until_the_silence_is_over().await;
    is_well(&mut manager).await?;
    front.swallow_open_connections();
    let took = work.until_done(&site, Instant::now()).await?;
    site.works_again(&mut manager, took, calm).await?;
    each_is_ensured_once(&manager, 3).await
}
