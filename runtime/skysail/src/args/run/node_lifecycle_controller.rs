//! The flags of the node lifecycle controller: upstream's of 1.37, and the limits of node deletion.

use std::time::Duration;

use clap::Args;
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration;

/// The node lifecycle controller. Its period is `--node-monitor-period`, which is in upstream's
/// shared set.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node lifecycle controller flags")]
pub(crate) struct NodeLifecycleControllerArgs {
    /// Nodes of one provider that are written or deleted in parallel, from 1 to 1024. One call asks
    /// the provider about all its nodes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrent_node_lifecycle_syncs: u16,
    /// Number of consecutive passes that must find a machine missing before its node is deleted,
    /// from 1 to 1000. Upstream deletes a node after one pass.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) node_deletion_confirmations: u32,
    /// Largest share of a provider's nodes that may be deleted within --node-deletion-window, in
    /// percent of the highest number of its nodes in that window, from 1 to 100. One node may
    /// always be deleted. Beyond this share deletions stop, and an Event and a metric report it.
    /// 100 disables the limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 34, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) node_deletion_max_percent: u8,
    /// How long a deletion counts for --node-deletion-max-percent. A node that the limit kept is
    /// deleted when its machine has been missing for this long and the limit permits a deletion.
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
