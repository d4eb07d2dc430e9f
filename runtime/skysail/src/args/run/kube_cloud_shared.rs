//! Upstream's flag set "cloud provider", which all controllers share.

use std::time::Duration;

use clap::Args;
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration;

/// Flags of all controllers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster flags")]
pub(crate) struct KubeCloudSharedArgs {
    /// Name of the cluster. The provider uses the name to tell the load balancers of two clusters
    /// in one cloud account apart.
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub(crate) cluster_name: String,
    /// Period of the node lifecycle controller, which looks up nodes that are not Ready in the
    /// cloud.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub(crate) node_monitor_period: Duration,
}

impl KubeCloudSharedArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.cluster_name.clone_from(&self.cluster_name);
        settings.node_monitor_period = self.node_monitor_period;
    }
}
