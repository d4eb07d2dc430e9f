//! Load balancers that no Service wants; upstream has nothing of the kind.

use std::time::Duration;

use clap::{Args, ValueEnum};
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration_or_zero;

/// What becomes of orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrphanPolicy {
    /// An Event on the Namespace kube-system, a log line and a metric; `skysail orphans` lists and
    /// deletes them.
    Report,
    /// They are deleted too. Only where no other cluster of the same --cluster-name uses the same
    /// account: its load balancers would go.
    Delete,
}

/// Load balancers that no Service wants.
#[derive(Debug, Args)]
#[command(next_help_heading = "Orphans")]
pub(crate) struct OrphanArgs {
    /// Pause between two looks for load balancers of this cluster that no Service wants, of
    /// providers that can list them. One that is seen three times in a row is an orphan. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration_or_zero)]
    pub(crate) orphan_scan_period: Duration,
    /// What becomes of them.
    #[arg(long, value_name = "POLICY", default_value = "report")]
    pub(crate) orphan_policy: OrphanPolicy,
}

impl OrphanArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.orphan_scan_period = self.orphan_scan_period;
        settings.delete_orphans = self.orphan_policy == OrphanPolicy::Delete;
    }
}
