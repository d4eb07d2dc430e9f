//! Upstream's flags of the route controller; it has them in its shared set.

use std::time::Duration;

use clap::{ArgAction, Args};
use skysail_controllers::{ControllerSettings, parse_cluster_cidr};

use crate::args::values::{boolean, parse_duration};

/// The route controller.
#[derive(Debug, Args)]
#[command(next_help_heading = "Route controller flags")]
pub(crate) struct RouteControllerArgs {
    /// Where pods get their addresses from: one CIDR, or two of different families with a comma
    /// between them. Without it no node gets a route.
    #[arg(long, value_name = "CIDRS", default_value = "", value_parser = cidrs)]
    cluster_cidr: String,
    /// Whether nodes get routes in the cloud, where their provider has routes.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean())]
    configure_cloud_routes: bool,
    /// Period of the route controller: from the begin of one pass to that of the next.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    route_reconciliation_period: Duration,
}

impl RouteControllerArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        // It was judged while it was parsed; what is left is that nothing was said.
        settings.cluster_cidrs = parse_cluster_cidr(&self.cluster_cidr).unwrap_or_default();
        settings.configure_cloud_routes = self.configure_cloud_routes;
        settings.route_reconciliation_period = self.route_reconciliation_period;
    }
}

fn cidrs(text: &str) -> Result<String, String> {
    if !text.is_empty() {
        parse_cluster_cidr(text).map_err(|error| error.to_string())?;
    }
    Ok(text.to_owned())
}
