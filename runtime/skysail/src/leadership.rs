//! Which controllers this process may run, and while it may: the leases, and the fences that come
//! with them.
//!
//! One lease for all controllers, or two while some are moved between managers
//! ([`crate::leader_migration`]); none with `--leader-elect=false`. The controllers of each lease
//! are a [`Share`], which a manager of its own runs: losing either lease ends the process.

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

use crate::{args::RunArgs, leader_migration::LeaderMigrationConfiguration};

/// The controllers of one lease.
pub(crate) struct Share {
    pub(crate) controllers: EnabledControllers,
    /// There once the lease is ours.
    pub(crate) fence: watch::Receiver<Option<Fence>>,
    /// Of these controllers: it outlives their managers.
    pub(crate) ledger: Ledger,
}

impl Share {
    fn new(controllers: EnabledControllers, fence: watch::Receiver<Option<Fence>>) -> Self {
        Self { controllers, fence, ledger: Ledger::default() }
    }
}

/// What the flags ask for.
pub(crate) struct Leadership {
    /// At least one.
    pub(crate) shares: Vec<Share>,
    pub(crate) elections: Elections,
    /// Of each lease.
    pub(crate) health: Vec<Health>,
}

/// The leases, in the order in which they are taken: the next one when the one before is ours.
pub(crate) struct Elections(Vec<(Elector, watch::Sender<Option<Fence>>)>);

/// The leases and shares of these flags.
///
/// # Errors
/// Flags that do not fit together, or a wrong migration file.
pub(crate) fn of(
    args: &RunArgs,
    client: &kube::Client,
    enabled: EnabledControllers,
    metrics: ElectionMetrics,
) -> anyhow::Result<Leadership> {
    let migration = migration(args)?;
    if !args.leader_election.leader_elect {
        // The receiver keeps what was sent, also without its sender.
        let (_, fence) = watch::channel(Some(Fence::default()));
        let shares = vec![Share::new(enabled, fence)];
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
    let (main, migrated) = match &migration {
        Some(migration) => migration.split(enabled),
        None => (enabled, enabled),
    };
    let main_elector = elector(&election.leader_elect_resource_name);
    let mut shares = vec![Share::new(main, main_elector.1.subscribe())];
    let mut electors = vec![main_elector];
    if let Some(migration) = migration {
        let elector = elector(&migration.leader_name);
        shares.push(Share::new(migrated, elector.1.subscribe()));
        electors.push(elector);
    }
    let health = electors.iter().map(|(elector, _)| elector.health()).collect();
    Ok(Leadership { shares, elections: Elections(electors), health })
}

fn migration(args: &RunArgs) -> anyhow::Result<Option<LeaderMigrationConfiguration>> {
    let migration = &args.leader_migration;
    match (migration.enable_leader_migration, &migration.leader_migration_config) {
        (false, None) => Ok(None),
        (false, Some(_)) => bail!("--leader-migration-config does nothing without --enable-leader-migration"),
        (true, _) if !args.leader_election.leader_elect => {
            bail!("--enable-leader-migration needs --leader-elect: without it there is no lease to migrate to")
        }
        (true, None) => Ok(Some(LeaderMigrationConfiguration::default())),
        (true, Some(path)) => LeaderMigrationConfiguration::load(path).map(Some),
    }
}

/// `<hostname>_<uuid>`, as upstream: two processes of one host differ, and one that starts again is
/// another one.
fn identity() -> anyhow::Result<String> {
    let kernel = |what: &str| -> anyhow::Result<String> {
        let path = format!("/proc/sys/kernel/{what}");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot make an identity: no {path}"))?;
        Ok(text.trim().to_owned())
    };
    Ok(format!("{}_{}", kernel("hostname")?, kernel("random/uuid")?))
}

impl Elections {
    /// Takes the leases and keeps them until `give_back`, then releases them. Nothing may be
    /// written any more by then.
    ///
    /// # Errors
    /// A lease is lost: the process has to end.
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
    Ok(ended.context("a task panicked")??)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_identity_names_the_host_and_is_another_one_each_time() {
        let (first, second) = (super::identity().unwrap(), super::identity().unwrap());
        let (host, uuid) = first.rsplit_once('_').unwrap();
        assert_ne!(first, second);
        assert!(!host.is_empty() && second.starts_with(&format!("{host}_")), "{first}");
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{first}");
    }
}
