//! Upstream's sets "leader election" and "leader migration".

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueHint};
use skysail_election::{Timing, TimingError};

use crate::args::values::{boolean, object_name, parse_duration};

/// Which of several replicas acts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election flags")]
pub(crate) struct LeaderElectionArgs {
    /// Act only while this process holds the lease. With `false` run one replica, and end the old
    /// one before the new one starts.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) leader_elect: bool,
    /// How long others wait after the last renewal that they saw, before they take the lease; whole
    /// seconds. After a crash nobody acts for this long.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long a leader that cannot renew goes on. Less than the lease duration: what lies between
    /// must be longer than clocks drift apart in it.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// Pause between two tries to take or to renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) leader_elect_retry_period: Duration,
    /// What is held: a Lease. Kubernetes has no other lock any more.
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"])]
    pub(crate) leader_elect_resource_lock: String,
    /// Name of the Lease. The default is upstream's: a Go cloud-controller-manager and this one
    /// never act at the same time.
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager", value_parser = object_name)]
    pub(crate) leader_elect_resource_name: String,
    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", value_parser = object_name)]
    pub(crate) leader_elect_resource_namespace: String,
}

impl LeaderElectionArgs {
    /// The three durations.
    ///
    /// # Errors
    /// They do not fit together.
    pub(crate) fn timing(&self) -> Result<Timing, TimingError> {
        Timing::new(self.leader_elect_lease_duration, self.leader_elect_renew_deadline, self.leader_elect_retry_period)
    }
}

/// Moving controllers from one manager to another while the cluster runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader migration flags")]
pub(crate) struct LeaderMigrationArgs {
    /// Run the controllers that are being moved between managers under a lease of their own.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) enable_leader_migration: bool,
    /// A file of kind `LeaderMigrationConfiguration`: that lease's name, and which controllers run
    /// where. Without it: upstream's, which leaves them to any manager.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) leader_migration_config: Option<PathBuf>,
}
