//! SIGKILL at 200 random moments, while Services and nodes are created and deleted: afterwards
//! nothing is lost and nothing exists twice.
//!
//! The manager is a process, the API server is real, and the cloud is slow: the cloud executes
//! requests that were in flight when their manager was killed. `SKYSAIL_SEED` repeats the actions
//! of users and the lifetimes of managers, but not the exact timing.

mod verdict;
mod workload;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use skysail_dev::cloud::{Knobs, SimCloud};
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    random::{self, up_to},
    wait::eventually,
    workspace::component,
};
use tokio::{
    sync::watch,
    task::{JoinSet, block_in_place},
    time::Instant,
};

use self::{
    verdict::{Births, verdict},
    workload::Workload,
};
use crate::{ALONE, simulated::Simulated};

/// Clusters in parallel, each with its own API server, cloud, users and manager.
const CLUSTERS: u32 = 4;
const KILLS: u32 = 200;

/// `--leader-elect=false`: a new process would wait until the Lease of the killed process expires;
/// other tests cover hand-overs. `--cluster-cidr`: the route controller has work, too.
/// `--node-deletion-max-percent=100`: users delete most machines while no manager runs, and the
/// breaker would hold back the deletion of the nodes.
const FLAGS: [&str; 3] = ["--leader-elect=false", "--cluster-cidr=10.244.0.0/16", "--node-deletion-max-percent=100"];

/// Longest delay of a request before the cloud handles it, in milliseconds.
const LATENCY_MAX: u64 = 150;

/// Percentage of the kills between the start of a manager and its first request to the cloud; the
/// others come up to [`WORK_MAX`] after that request.
const STARTING_PERCENT: u64 = 40;
const WORK_MAX: Duration = Duration::from_secs(2);

/// Pause between two looks at the cloud's requests.
const LOOK: Duration = Duration::from_millis(2);

/// Longest wait for a manager's first request to the cloud, and for the final state.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_killed_at_200_random_moments_loses_nothing_and_makes_nothing_twice() -> Result<()> {
    let _alone = ALONE.lock().await;
    ApiServer::prepare()?;
    let component = component("simcloud")?;
    let seed = random::seed()?;
    eprintln!("{}={seed}", random::SEED);
    let mut random = Rng::with_seed(seed);
    let mut clusters = JoinSet::new();
    for _ in 0..CLUSTERS {
        clusters.spawn(one_cluster(component.clone(), random.fork()));
    }
    let mut statistics = KillStatistics::default();
    while let Some(ended) = clusters.join_next().await {
        statistics.add(&ended??);
    }
    eprintln!("{statistics:?}");
    statistics.check()
}

async fn one_cluster(component: PathBuf, mut random: Rng) -> Result<KillStatistics> {
    let (simulated, server) = (Simulated::start(&[]).await?, block_in_place(ApiServer::start)?);
    let (cloud, client) = (simulated.cloud.clone(), server.client().await?);
    let births = Births::of(&cloud);
    let workload = Workload::new(client.clone(), cloud.clone(), random.fork());
    let file = simulated.provider_file();
    let start = || Manager::spawn(&FLAGS, &server.kubeconfig(), &component, &file, &[simulated.token()]);
    let manager = block_in_place(start)?;
    let mut killer = Killer { cloud: cloud.clone(), manager, random, births, start_up: Duration::ZERO };

    let (stop, stopped) = watch::channel(false);
    let lives = async {
        let statistics = killer.run().await.map_err(|error| error.context(killer.manager.log_tail()))?;
        stop.send_replace(true);
        Ok(statistics)
    };
    let (workload, statistics) = tokio::try_join!(workload.run(stopped), lives)?;
    eventually("cluster and cloud are in the wanted state", PATIENCE.as_secs(), || verdict(&client, &cloud, &workload))
        .await
        .map_err(|error| error.context(killer.manager.log_tail()))?;
    killer.births.none_twice(&workload)?;
    // The cluster may be in the wanted state before the last manager listens to signals.
    killer.manager.wait_until_ready().await.map_err(|error| error.context(killer.manager.log_tail()))?;
    let status = killer.manager.end().await?;
    ensure!(status.success(), "the last manager ended with {status}");
    Ok(statistics)
}

/// Kills a manager and starts it again.
struct Killer {
    cloud: SimCloud,
    manager: Manager,
    random: Rng,
    births: Births,
    /// Last measured time from the start of a manager to its first request to the cloud.
    start_up: Duration,
}

/// Numbers of kills by moment.
#[derive(Debug, Default)]
struct KillStatistics {
    kills: u32,
    /// Before the manager's first request to the cloud.
    starting: u32,
    /// While the cloud worked on a request of the manager.
    calling: u32,
    /// While the cloud worked on a request that changes something.
    writing: u32,
}

impl KillStatistics {
    fn add(&mut self, other: &Self) {
        let Self { kills, starting, calling, writing } = other;
        self.kills += kills;
        self.starting += starting;
        self.calling += calling;
        self.writing += writing;
    }

    /// Checks that enough kills came at each kind of moment.
    fn check(&self) -> Result<()> {
        let Self { kills, starting, calling, writing } = self;
        ensure!(*kills == KILLS, "{kills} kills, not {KILLS}");
        ensure!(starting * 10 >= KILLS, "only {starting} kills while a manager started");
        ensure!(calling * 10 >= KILLS, "only {calling} kills in the middle of a call to the cloud");
        ensure!(writing * 50 >= KILLS, "only {writing} kills in the middle of a change of the cloud");
        Ok(())
    }
}

impl Killer {
    /// Kills managers; the manager that is started after the last kill runs on.
    async fn run(&mut self) -> Result<KillStatistics> {
        let began = Instant::now();
        let cloud = &self.cloud;
        let asked = || async {
            ensure!(cloud.requests_count() > 0, "no request");
            Ok(())
        };
        eventually("the first manager asks the cloud", PATIENCE.as_secs(), asked).await?;
        self.start_up = began.elapsed();
        // This kill is not at a random moment and does not count.
        self.manager.kill()?;
        self.manager.start_again()?;
        let mut statistics = KillStatistics::default();
        while statistics.kills < KILLS / CLUSTERS {
            self.life(&mut statistics).await.with_context(|| format!("before kill {}", statistics.kills + 1))?;
        }
        Ok(statistics)
    }

    /// Lets the manager run for a random time, kills it and starts the next one.
    async fn life(&mut self, statistics: &mut KillStatistics) -> Result<()> {
        let latency_ms = self.random.u64(0..LATENCY_MAX);
        self.cloud.set_knobs(Knobs { latency_ms, ..Knobs::default() })?;
        let before = self.cloud.requests_count();
        let start_up = self.wait_for_the_moment(before).await?;
        let mut calls = self.cloud.requests_under_way();
        self.manager.kill()?;
        calls.retain(|request| request.number > before);
        statistics.kills += 1;
        statistics.starting += u32::from(start_up.is_none());
        statistics.calling += u32::from(!calls.is_empty());
        statistics.writing += u32::from(calls.iter().any(|request| request.method != "GET"));
        self.start_up = start_up.unwrap_or(self.start_up);
        self.manager.start_again()
    }

    /// Waits for a random moment, uniform in its phase. Returns how long the start took, if the
    /// start ended before that moment.
    async fn wait_for_the_moment(&mut self, before: u64) -> Result<Option<Duration>> {
        let began = Instant::now();
        let starting = self.random.u64(0..100) < STARTING_PERCENT;
        let time = up_to(&mut self.random, if starting { self.start_up } else { WORK_MAX });
        let (mut end, mut asked) = (starting.then(|| began + time), None);
        while end.is_none_or(|end| Instant::now() < end) {
            if asked.is_none() && self.cloud.requests_count() > before {
                asked = Some(began.elapsed());
                end = end.or_else(|| Some(Instant::now() + time));
            }
            ensure!(began.elapsed() < PATIENCE, "the manager asks the cloud for nothing");
            self.births.look()?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(asked)
    }
}
