//! Upstream's flag set "node controller".

use std::time::Duration;

use clap::{ArgAction, Args};
use skysail_controllers::ControllerSettings;

use crate::args::values::{boolean, parse_duration};

/// The node controller.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node controller flags")]
pub(crate) struct NodeControllerArgs {
    /// Period after which the addresses of all nodes are updated from the cloud.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) node_status_update_frequency: Duration,
    /// Nodes of one provider that are written in parallel after the provider described them, from 1
    /// to 1024.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrent_node_syncs: u16,
    /// Nodes of one provider whose addresses are written in parallel in the periodic update, up to
    /// 1024; 0 takes the value of --concurrent-node-syncs.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) concurrent_node_status_updates: u16,
    /// Let the periodic update also overwrite the node labels for type, zone and region and the
    /// provider's other labels if they differ, even if somebody else wrote them. Use this in clouds
    /// where machines are resized or moved. By default, as upstream, the labels are set once, when
    /// a node is initialised.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean())]
    pub(crate) refresh_node_labels: bool,
}

impl NodeControllerArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.node_status_update_frequency = self.node_status_update_frequency;
        settings.concurrent_node_syncs = self.concurrent_node_syncs.into();
        settings.concurrent_node_status_updates = self.concurrent_node_status_updates.into();
        settings.refresh_node_labels = self.refresh_node_labels;
    }
}
