//! Leader election between two managers on a real API server, when the leader is stopped, killed or
//! frozen.
//!
//! The subject of the first two tests is a time. Beside what the protocol takes, they allow a
//! multiple of the slowest read of the Lease during the same hand-over ([`BUSY`]): on a busy
//! machine each request of a manager waits for CPU as the test's requests do.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;
use skysail_dev::cloud::Knobs;
use skysail_test_e2e::{
    front::Front,
    manager::Manager,
    objects::{address_of, create_service, initialized, register_node},
    wait::eventually,
    workspace::component,
};
use skysail_test_support::simcloud;
use tokio::time::Instant;

use crate::{ALONE, simulated::Site};

const NODE_PORT: u16 = 30_080;
const NODES: [&str; 2] = ["a", "b"];
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// The defaults with a shorter retry period: a leader on a busy machine must not lose its Lease
/// before the test takes it away, and a hand-over must not depend on when a replica tries.
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=1s"];
/// So long that within a test no Lease expires and no replica tries to acquire one a second time.
const LONG: [&str; 3] =
    ["--leader-elect-lease-duration=600s", "--leader-elect-renew-deadline=400s", "--leader-elect-retry-period=200s"];
/// Pause between two reads of the Lease: far below the times that are measured.
const LOOK: Duration = Duration::from_millis(10);
/// How often the slowest read of the Lease is added to a time: see the module.
const BUSY: u32 = 20;
/// Longest hand-over that a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A hand-over as the Lease shows it.
struct HandOver {
    /// From the given time until another manager is the leader.
    gap: Duration,
    /// From the last renewal of the leader before to the acquisition.
    since_renewal: Duration,
    slowest_read: Duration,
}

impl HandOver {
    /// The time with what a busy machine adds.
    fn allowing(&self, time: Duration) -> Duration {
        time + self.slowest_read * BUSY
    }
}

/// One of the managers, with its own account and its own proxy to the cloud, so that each request
/// can be attributed.
struct Replica {
    manager: Manager,
    front: Front,
    user: String,
}

impl Site {
    async fn with_nodes() -> Result<Self> {
        let site = Self::start(&NODES).await?;
        for name in NODES {
            register_node(&site.client, name).await?;
        }
        Ok(site)
    }

    async fn replica(&self, name: &str, flags: &[&str]) -> Result<Replica> {
        let account = format!("--serviceaccount=kube-system:{name}");
        self.server.kubectl(&["-n", "kube-system", "create", "serviceaccount", name])?;
        self.server.kubectl(&["create", "clusterrolebinding", name, "--clusterrole=cluster-admin", &account])?;
        let token = self.server.kubectl(&["-n", "kube-system", "create", "token", name])?;
        let kubeconfig: PathBuf = self.server.write_kubeconfig(name, token.trim())?;
        let front = Front::start(self.cloud.address()?).await?;
        let file = simcloud::provider_file(&front.url);
        let component = component("simcloud")?;
        let manager = Manager::start_with(flags, &kubeconfig, &component, &file, &[self.cloud.token()]).await?;
        Ok(Replica { manager, front, user: format!("system:serviceaccount:kube-system:{name}") })
    }

    async fn lease(&self) -> Result<Lease> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-system");
        Ok(leases.get("cloud-controller-manager").await?)
    }

    /// The identity of the manager that holds the Lease; each process has its own.
    pub(crate) async fn leader(&self) -> Result<String> {
        let holder = self.lease().await?.spec.and_then(|spec| spec.holder_identity);
        holder.filter(|holder| !holder.is_empty()).context("no manager holds the Lease")
    }

    /// Waits until another manager than `last` is the leader.
    async fn until_handed_over(&self, last: &str, since: Instant) -> Result<HandOver> {
        let (mut renewed, mut slowest_read) = (None, Duration::ZERO);
        loop {
            let asked = Instant::now();
            let spec = self.lease().await?.spec.context("the Lease is empty")?;
            slowest_read = slowest_read.max(asked.elapsed());
            match spec.holder_identity.as_deref() {
                Some(holder) if holder == last => renewed = spec.renew_time,
                // The leader released the Lease.
                Some("") | None => {}
                Some(_) => {
                    let acquired = spec.acquire_time.context("the Lease was never acquired")?;
                    let renewed = renewed.context("the leader was never seen")?;
                    let since_renewal = Duration::try_from(acquired.0.duration_since(renewed.0))?;
                    return Ok(HandOver { gap: since.elapsed(), since_renewal, slowest_read });
                }
            }
            ensure!(since.elapsed() < PATIENCE, "no other manager acquires the Lease");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Starts two replicas, of which the first is the leader.
async fn two(site: &Site, flags: &[&str]) -> Result<(Replica, Replica, String)> {
    let first = site.replica("first", flags).await?;
    let leader = eventually("the first replica is the leader", 120, || site.leader()).await?;
    let second = site.replica("second", flags).await?;
    ensure!(site.leader().await? == leader, "the first replica is no longer the leader");
    for name in NODES {
        eventually("the node is initialised", 60, || initialized(&site.client, name)).await?;
    }
    ensure!(
        site.server.writes_of(&second.user)?.is_empty(),
        "the replica that is not the leader wrote {:?}",
        site.server.writes_of(&second.user)?
    );
    Ok((first, second, leader))
}

/// The other replica sees the release on its watch: it would try again after minutes only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_a_leader_that_is_stopped_hands_over_within_a_second() -> Result<()> {
    let _alone = ALONE.lock().await;
    let site = Site::with_nodes().await?;
    let (mut first, second, leader) = two(&site, &LONG).await?;
    ensure!(site.leader().await? == leader, "the leader has changed");
    let stopped = Instant::now();
    first.manager.signal(Signal::TERM)?;
    let hand_over = site.until_handed_over(&leader, stopped).await?;
    let (gap, allowed) = (hand_over.gap, hand_over.allowing(Duration::from_secs(1)));
    eprintln!("hand-over after SIGTERM: {} ms of {} ms", gap.as_millis(), allowed.as_millis());
    ensure!(gap <= allowed, "{gap:?} of {allowed:?}; {}", first.manager.log_tail());
    ensure!(first.manager.ended().await?.success(), "{}", first.manager.log_tail());
    let writes = site.server.writes_of(&first.user)?;
    let last = writes.last().map(String::as_str).unwrap_or_default();
    ensure!(last.starts_with("update ") && last.contains("/leases/"), "the last write is not the release: {writes:?}");
    create_service(&site.client, "web", 80, NODE_PORT).await?;
    eventually("the second one serves", 60, || address_of(&site.client, "web"))
        .await
        .map_err(|error| error.context(second.manager.log_tail()))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_a_leader_that_is_killed_is_followed_within_the_lease_duration() -> Result<()> {
    let _alone = ALONE.lock().await;
    let site = Site::with_nodes().await?;
    let (first, second, leader) = two(&site, &SHORT).await?;
    let killed = Instant::now();
    first.manager.signal(Signal::KILL)?;
    let hand_over = site.until_handed_over(&leader, killed).await?;
    let (since_renewal, allowed) = (hand_over.since_renewal, hand_over.allowing(LEASE_DURATION + RETRY_PERIOD / 2));
    eprintln!(
        "hand-over: {} ms after SIGKILL, {} ms after the last renewal of {} ms",
        hand_over.gap.as_millis(),
        since_renewal.as_millis(),
        allowed.as_millis()
    );
    // Both times are of this machine. An earlier hand-over would be wrong, because the killed
    // leader might only be slow.
    ensure!(since_renewal >= LEASE_DURATION, "{since_renewal:?}; {}", second.manager.log_tail());
    // A replica that only tried once in each retry period would be late by up to two of them.
    ensure!(since_renewal <= allowed, "{since_renewal:?} of {allowed:?}; {}", second.manager.log_tail());
    Ok(())
}

/// A call that outlives the grace period may still change the cloud: after a release of the Lease
/// the next leader would act at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_a_leader_whose_calls_are_cut_off_leaves_its_lease_to_run_out() -> Result<()> {
    let site = Site::with_nodes().await?;
    let mut replica = site.replica("first", &SHORT).await?;
    let leader = eventually("the replica is the leader", 120, || site.leader()).await?;
    for name in NODES {
        eventually("the node is initialised", 60, || initialized(&site.client, name)).await?;
    }
    site.cloud.cloud.set_knobs(Knobs { latency_ms: 60_000, ..Knobs::default() })?;
    let before = replica.front.sent();
    create_service(&site.client, "web", 80, NODE_PORT).await?;
    let begun = || async {
        ensure!(replica.front.sent() > before, "no request yet");
        Ok(())
    };
    eventually("the manager calls ensure", 60, begun).await?;
    replica.manager.signal(Signal::TERM)?;
    let status = replica.manager.ended().await?;
    ensure!(status.code() == Some(1), "{status}; {}", replica.manager.log_tail());
    ensure!(replica.manager.log().contains("so the Lease is not released"), "{}", replica.manager.log_tail());
    ensure!(site.leader().await? == leader, "the manager released its Lease");
    Ok(())
}

/// The leader is frozen during an ensure and wakes up after another replica has done the work: it
/// must not send any further request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_a_leader_that_was_frozen_writes_nothing_when_it_wakes() -> Result<()> {
    let site = Site::with_nodes().await?;
    let (mut first, second, leader) = two(&site, &SHORT).await?;
    site.cloud.cloud.set_knobs(Knobs { latency_ms: 500, ..Knobs::default() })?;
    let before = first.front.sent();
    create_service(&site.client, "web", 80, NODE_PORT).await?;
    let begun = || async {
        ensure!(first.front.sent() > before, "no request yet");
        Ok(())
    };
    eventually("the first one is in the middle of an ensure", 60, begun).await?;
    first.manager.signal(Signal::STOP)?;
    site.until_handed_over(&leader, Instant::now()).await?;
    site.cloud.cloud.set_knobs(Knobs::default())?;
    eventually("the second one serves", 60, || address_of(&site.client, "web"))
        .await
        .map_err(|error| error.context(second.manager.log_tail()))?;

    let (bytes, writes) = (first.front.sent(), site.server.writes_of(&first.user)?);
    first.manager.signal(Signal::CONT)?;
    let status = first.manager.ended().await?;
    ensure!(status.code() == Some(1), "{status}; {}", first.manager.log_tail());
    let log = first.manager.log();
    ensure!(log.contains("leader election lost"), "{}", first.manager.log_tail());
    ensure!(first.front.sent() == bytes, "{} bytes more to the cloud", first.front.sent() - bytes);
    let after = site.server.writes_of(&first.user)?;
    ensure!(after == writes, "more writes: {:?}", after.get(writes.len()..));
    ensure!(site.cloud.cloud.snapshot().virtual_servers.len() == 1, "there is not exactly one load balancer");
    Ok(())
}
