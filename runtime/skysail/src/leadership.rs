//! Which controllers this process may run, and for how long: the Leases and their fences.
//!
//! There is one Lease for all controllers, or two while some controllers migrate between managers
//! ([`crate::leader_migration`]), or none with `--leader-elect=false`. The controllers of a Lease
//! are a [`LeaseControllers`] with its own manager. The loss of any Lease ends the process.

use std::{fs, sync::Arc};

use anyhow::{Context as _, bail};
use skysail_controllers::{EnabledControllers, Ledger};
use skysail_election::{ElectionConfig, ElectionMetrics, Elector, ElectorOptions, Health, Leader, Lost, SystemClock};
use skysail_provider::Fence;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{args::RunArgs, exit::TASK_PANICKED, leader_migration::LeaderMigrationConfiguration};

/// The controllers of one Lease.
pub(crate) struct LeaseControllers {
    pub(crate) controllers: EnabledControllers,
    /// `Some` after this process has acquired the Lease.
    pub(crate) fence: watch::Receiver<Option<Fence>>,
    /// The ledger of these controllers; it outlives their managers.
    pub(crate) ledger: Ledger,
    /// None without a Lease.
    pub(crate) other_leader: Option<OtherLeader>,
}

/// The process that this one waits for.
#[derive(Clone)]
pub(crate) struct OtherLeader {
    /// `namespace/name` of the Lease.
    pub(crate) lease: String,
    /// The identity of the holder; empty before it is known.
    pub(crate) identity: watch::Receiver<String>,
}

impl LeaseControllers {
    pub(crate) fn new(
        controllers: EnabledControllers,
        fence: watch::Receiver<Option<Fence>>,
        other_leader: Option<OtherLeader>,
    ) -> Self {
        Self { controllers, fence, ledger: Ledger::default(), other_leader }
    }
}

/// The Leases and shares that the flags ask for.
pub(crate) struct Leadership {
    /// At least one.
    pub(crate) shares: Vec<LeaseControllers>,
    pub(crate) elections: Elections,
    /// The health of each Lease.
    pub(crate) health: Vec<Health>,
}

/// The Leases, in the order in which this process acquires them, one after the other.
pub(crate) struct Elections(Vec<(Elector, watch::Sender<Option<Fence>>)>);

/// The Leases and shares of these flags.
///
/// # Errors
/// Flags contradict each other, or the migration file is invalid.
pub(crate) fn of(
    args: &RunArgs,
    client: &kube::Client,
    enabled: EnabledControllers,
    metrics: ElectionMetrics,
) -> anyhow::Result<Leadership> {
    let migration = migration(args)?;
    if !args.leader_election.leader_elect {
        // The receiver keeps the value after the sender is dropped.
        let (_, fence) = watch::channel(Some(Fence::default()));
        let shares = vec![LeaseControllers::new(enabled, fence, None)];
        return Ok(Leadership { shares, elections: Elections(Vec::new()), health: Vec::new() });
    }
    let election = &args.leader_election;
    let timing = election.timing()?;
    let identity = identity()?;
    let elector = |lease: &str| {
        let config = ElectionConfig {
            namespace: election.leader_elect_resource_namespace.clone(),
            lease: lease.to_owned(),
            identity: identity.clone(),
            timing,
        };
        let (client, metrics) = (client.clone(), metrics.clone());
        let elector = Elector::new(ElectorOptions { client, config, clock: Arc::new(SystemClock), metrics });
        (elector, watch::Sender::new(None))
    };
    let controllers = |lease: &str, enabled, (elector, fence): &(Elector, watch::Sender<Option<Fence>>)| {
        let lease = format!("{}/{lease}", election.leader_elect_resource_namespace);
        let other_leader = OtherLeader { lease, identity: elector.other_leader() };
        LeaseControllers::new(enabled, fence.subscribe(), Some(other_leader))
    };
    let (main, migrated) = match &migration {
        Some(migration) => migration.split(enabled),
        None => (enabled, enabled),
    };
    let main_lease = &election.leader_elect_resource_name;
    let main_elector = elector(main_lease);
    let mut shares = vec![controllers(main_lease, main, &main_elector)];
    let mut electors = vec![main_elector];
    if let Some(migration) = migration {
        let elector = elector(&migration.leader_name);
        shares.push(controllers(&migration.leader_name, migrated, &elector));
        electors.push(elector);
    }
    let health = electors.iter().map(|(elector, _)| elector.health()).collect();
    Ok(Leadership { shares, elections: Elections(electors), health })
}

fn migration(args: &RunArgs) -> anyhow::Result<Option<LeaderMigrationConfiguration>> {
    let migration = &args.leader_migration;
    match (migration.enable_leader_migration, &migration.leader_migration_config) {
        (false, None) => Ok(None),
        (false, Some(_)) => {
            bail!("--leader-migration-config has no effect without --enable-leader-migration; set both or neither")
        }
        (true, _) if !args.leader_election.leader_elect => {
            bail!("--enable-leader-migration needs a Lease; set --leader-elect, or leave it out")
        }
        (true, None) => Ok(Some(LeaderMigrationConfiguration::default())),
        (true, Some(path)) => LeaderMigrationConfiguration::load(path).map(Some),
    }
}

/// The identity `<hostname>_<uuid>`, as upstream: it differs between two processes on one host and
/// after a restart.
fn identity() -> anyhow::Result<String> {
    let kernel = |what: &str| -> anyhow::Result<String> {
        let path = format!("/proc/sys/kernel/{what}");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot make an identity: cannot read {path}"))?;
        Ok(text.trim().to_owned())
    };
    Ok(format!("{}_{}", kernel("hostname")?, kernel("random/uuid")?))
}

impl Elections {
    /// Acquires the Leases, renews them until `give_back` and then releases them. By then the
    /// process must have stopped writing.
    ///
    /// # Errors
    /// A Lease is lost: the process has to end.
    pub(crate) async fn run(self, give_back: CancellationToken) -> anyhow::Result<()> {
        let mut leading = JoinSet::new();
        for (elector, fence) in self.0 {
            let acquired = tokio::select! {
                acquired = elector.acquire(&give_back) => acquired,
                Some(ended) = leading.join_next() => { ended_of(ended)?; None }
            };
            let Some(leader) = acquired else { break };
            fence.send_replace(Some(leader.fence().clone()));
            leading.spawn(keep(leader, give_back.clone()));
        }
        while let Some(ended) = leading.join_next().await {
            ended_of(ended)?;
        }
        give_back.cancelled().await;
        Ok(())
    }
}

async fn keep(mut leader: Leader, give_back: CancellationToken) -> Result<(), Lost> {
    match give_back.run_until_cancelled(leader.lost()).await {
        Some(lost) => Err(lost),
        None => leader.release().await,
    }
}

fn ended_of(ended: Result<Result<(), Lost>, JoinError>) -> anyhow::Result<()> {
    Ok(ended.context(TASK_PANICKED)??)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_identity_names_the_host_and_differs_each_time() {
        let (first, second) = (super::identity().unwrap(), super::identity().unwrap());
        let (host, uuid) = first.rsplit_once('_').unwrap();
        assert_ne!(first, second);
        assert!(!host.is_empty() && second.starts_with(&format!("{host}_")), "{first}");
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{first}");
    }
}
