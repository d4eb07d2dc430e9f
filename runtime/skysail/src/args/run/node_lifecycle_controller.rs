//! The lifecycle controller: upstream's set of 1.37, and when a node is deleted.

use std::time::Duration;

use clap::Args;
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration;

/// The lifecycle controller. Its period is `--node-monitor-period`, which is in upstream's shared
/// set.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node lifecycle controller flags")]
pub(crate) struct NodeLifecycleControllerArgs {
    /// Nodes of one provider that a pass writes or deletes at once, from 1 to 1024. The cloud is
    /// asked about all of them in one call.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrent_node_lifecycle_syncs: u16,
    /// Consecutive passes that have to find a machine missing before its node is deleted, from 1
    /// to 1000. 1 is what upstream does.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) node_deletion_confirmations: u32,
    /// By how much of its highest number the nodes of one provider may fall within
    /// --node-deletion-window by our deletions, from 1 to 100; always by one node. Beyond it
    /// deletions stop, and an Event and a metric say so. 100 never stops.
    #[arg(long, value_name = "PERCENT", default_value_t = 34, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) node_deletion_max_percent: u8,
    /// How long a deleted node counts for --node-deletion-max-percent. A node that was kept so goes
    /// when it was missing for this long and enough others count no more.
    #[arg(long, value_name = "DURATION", default_value = "6h", value_parser = parse_duration)]
    pub(crate) node_deletion_window: Duration,
}

impl NodeLifecycleControllerArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.concurrent_node_lifecycle_syncs = self.concurrent_node_lifecycle_syncs.into();
        settings.node_deletion_confirmations = self.node_deletion_confirmations;
        settings.node_deletion_percent_max = self.node_deletion_max_percent;
        settings.node_deletion_window = self.node_deletion_window;
    }
}
