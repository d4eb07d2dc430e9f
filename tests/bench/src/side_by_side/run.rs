//! One run: starts a manager on a prepared cluster and measures it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    contestant::{Contestant, Programs},
    counters::difference,
    figures::{Figures, seconds},
    process::Process,
    world::{LOOK_EVERY, Size, World},
};

/// Longer than either manager waits for further node changes before it updates load balancers.
const QUIET: Duration = Duration::from_secs(5);

/// The measured times and the CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) nodes: Duration,
    pub(super) services: Duration,
    pub(super) backends: Duration,
    pub(super) cpu: Duration,
}

/// The counters before a task.
pub(super) struct Before {
    cpu: Duration,
    api: BTreeMap<String, u64>,
    provider: BTreeMap<String, u64>,
    cloud: BTreeMap<String, u64>,
}

/// Starts this contestant on a cluster whose nodes and Services wait for it.
///
/// # Errors
/// Something does not start, or the manager does not finish within `limit`; the error contains the
/// end of its log.
pub async fn measure(programs: &Programs, contestant: Contestant, size: Size, task: &Task) -> Result<Figures> {
    let world = World::new(size, task.latency).await?;
    let before = Before { cpu: Duration::ZERO, provider: BTreeMap::new(), ..Before::now(&world, None).await? };
    let begun = Instant::now();
    let mut process = world.start(programs, contestant)?;
    let marks = done(&world, &mut process, begun, task).await?;
    let figures = before.finish(&world, &process, begun, (marks, task.idle)).await?;
    world.check_cloud()?;
    Ok(figures)
}

/// The settings of a task.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Latency of each request to the cloud.
    pub latency: Duration,
    /// How long the manager is watched after its last request to the cloud.
    pub idle: Duration,
    /// The timeout of the task.
    pub limit: Duration,
}

/// Waits until the manager has served the whole cluster.
pub(super) async fn done(world: &World, process: &mut Process, begun: Instant, task: &Task) -> Result<Marks> {
    let mut marks = Marks::default();
    let work = async {
        let (nodes, services, backends) = tokio::join!(
            world.until_nodes_initialised(0..world.size.nodes, world.size.nodes),
            world.until_services_have_addresses(),
            world.until_backends(world.size.nodes),
        );
        marks = Marks {
            nodes: nodes? - begun,
            services: services? - begun,
            backends: backends - begun,
            cpu: process.cpu()?,
        };
        anyhow::Ok(())
    };
    let ended = timeout(task.limit, work).await;
    process.still_runs().with_context(|| world.log_tail())?;
    ended.with_context(|| format!("not done after {:?}; the manager said:\n{}", task.limit, world.log_tail()))??;
    Ok(marks)
}

impl Before {
    /// The current counters; a running process has metrics of its own.
    pub(super) async fn now(world: &World, process: Option<&Process>) -> Result<Self> {
        let (cpu, provider) = match process {
            Some(process) => (process.cpu()?, world.manager_counters().await?.provider_calls()),
            None => (Duration::ZERO, BTreeMap::new()),
        };
        Ok(Self { cpu, provider, api: world.api_counters().await?.api_requests(), cloud: world.cloud.request_counts() })
    }

    /// The figures, after the manager was watched for some time beyond its last request to the
    /// cloud.
    pub(super) async fn finish(
        self,
        world: &World,
        process: &Process,
        begun: Instant,
        (marks, idle): (Marks, Duration),
    ) -> Result<Figures> {
        let quiet = until_quiet(world, process).await?;
        let memory = process.memory()?;
        sleep_until(quiet.at + idle).await;
        let (memory_idle, cpu_idle) = (process.memory()?, process.cpu()? - quiet.cpu);
        let provider = world.manager_counters().await?.provider_calls();
        let api = world.api_counters().await?.api_requests();
        let cloud = world.cloud.request_counts();
        Ok(Figures {
            nodes_s: seconds(marks.nodes),
            services_s: seconds(marks.services),
            backends_s: seconds(marks.backends),
            quiet_s: seconds(quiet.at - begun),
            cpu_s: seconds(marks.cpu.saturating_sub(self.cpu)),
            cpu_quiet_s: seconds(quiet.cpu.saturating_sub(self.cpu)),
            cpu_idle_s: seconds(cpu_idle),
            resident_mib: memory.resident,
            resident_idle_mib: memory_idle.resident,
            peak_mib: memory_idle.peak,
            provider_calls: difference(&self.provider, &provider),
            cloud_requests: difference(&self.cloud, &cloud),
            api_requests: difference(&self.api, &api),
        })
    }
}

/// The time of the last request to the cloud, and the manager's CPU time until then.
struct Quiet {
    at: Instant,
    cpu: Duration,
}

/// Waits until the manager has sent no request to the cloud for some time.
async fn until_quiet(world: &World, process: &Process) -> Result<Quiet> {
    let mut quiet = Quiet { at: Instant::now(), cpu: process.cpu()? };
    let mut seen = world.cloud.request_counts();
    while quiet.at.elapsed() < QUIET {
        sleep(LOOK_EVERY).await;
        let now = world.cloud.request_counts();
        if now != seen {
            (seen, quiet) = (now, Quiet { at: Instant::now(), cpu: process.cpu()? });
        }
    }
    Ok(quiet)
}
