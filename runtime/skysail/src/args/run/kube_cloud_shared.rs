//! Upstream's set "cloud provider" that all controllers share.

use std::time::Duration;

use clap::Args;
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration;

/// What all controllers share.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster flags")]
pub(crate) struct KubeCloudSharedArgs {
    /// Name of the cluster, handed to the provider: load balancers of two clusters in one account
    /// are kept apart by it.
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub(crate) cluster_name: String,
    /// Period of the node lifecycle controller: how often nodes that are not Ready are looked up in
    /// the cloud.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub(crate) node_monitor_period: Duration,
}

impl KubeCloudSharedArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.cluster_name.clone_from(&self.cluster_name);
        settings.node_monitor_period = self.node_monitor_period;
    }
}
