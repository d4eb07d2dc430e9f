//! The flags for load balancers that no Service needs; upstream does not look for them.

use std::time::Duration;

use clap::{Args, ValueEnum};
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration_or_zero;

/// What the manager does with orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrphanPolicy {
    /// Report orphans by an Event on the Namespace kube-system, a log line and a metric; `skysail
    /// orphans` lists and deletes them.
    Report,
    /// Report and delete orphans. Use this only if no other cluster with the same --cluster-name
    /// uses the same cloud account: the load balancers of that cluster would be deleted.
    Delete,
}

/// Load balancers that no Service needs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Orphans")]
pub(crate) struct OrphanArgs {
    /// Pause between two scans for orphans: load balancers of this cluster that no Service needs.
    /// Only providers that can list load balancers are scanned. A load balancer is an orphan after
    /// three scans in a row. 0s disables the scans.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration_or_zero)]
    pub(crate) orphan_scan_period: Duration,
    /// What the manager does with orphans.
    #[arg(long, value_name = "POLICY", default_value = "report")]
    pub(crate) orphan_policy: OrphanPolicy,
}

impl OrphanArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.orphan_scan_period = self.orphan_scan_period;
        settings.delete_orphans = self.orphan_policy == OrphanPolicy::Delete;
    }
}
