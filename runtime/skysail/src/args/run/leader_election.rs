//! Upstream's flag sets "leader election" and "leader migration".

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueHint};
use skysail_election::{Timing, TimingError};

use crate::args::{
    retained::NAMESPACE,
    values::{boolean, object_name, parse_duration},
};

/// How replicas elect the leader.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election flags")]
pub(crate) struct LeaderElectionArgs {
    /// Act only while this process holds the Lease. With `false`, run one replica only, and stop
    /// the old process before a new one starts.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) leader_elect: bool,
    /// How long the other replicas wait after the last renewal that they observed before they take
    /// the Lease, in whole seconds. After a crash of the leader, no replica acts for this long.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long a leader that cannot renew the Lease continues to act. It has to be shorter than
    /// the lease duration, by more than the clocks of two replicas can drift apart in that time.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// Pause between two attempts to acquire or to renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) leader_elect_retry_period: Duration,
    /// Kind of the lock. Kubernetes supports only Leases now.
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"])]
    pub(crate) leader_elect_resource_lock: String,
    /// Name of the Lease. The default is upstream's, so that a cloud-controller-manager in Go and
    /// Skysail never act at the same time.
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager", value_parser = object_name)]
    pub(crate) leader_elect_resource_name: String,
    /// Namespace of the Lease, and of the ConfigMap with the load balancers that outlive their
    /// Service.
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = object_name)]
    pub(crate) leader_elect_resource_namespace: String,
}

impl LeaderElectionArgs {
    /// The three durations.
    ///
    /// # Errors
    /// The durations contradict each other.
    pub(crate) fn timing(&self) -> Result<Timing, TimingError> {
        Timing::new(self.leader_elect_lease_duration, self.leader_elect_renew_deadline, self.leader_elect_retry_period)
    }
}

/// Moving controllers from one manager to another while the cluster runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader migration flags")]
pub(crate) struct LeaderMigrationArgs {
    /// Run the controllers that migrate between managers under a separate Lease.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) enable_leader_migration: bool,
    /// File of kind `LeaderMigrationConfiguration` with the name of that Lease and the manager of
    /// each controller. Default: upstream's configuration, which lets any manager run them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) leader_migration_config: Option<PathBuf>,
}
