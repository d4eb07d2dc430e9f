//! Upstream's flags of the route controller, which are in its shared flag set.

use std::time::Duration;

use clap::{ArgAction, Args};
use skysail_controllers::{ControllerSettings, parse_cluster_cidr};

use crate::args::values::{boolean, parse_duration};

/// The route controller.
#[derive(Debug, Args)]
#[command(next_help_heading = "Route controller flags")]
pub(crate) struct RouteControllerArgs {
    /// CIDR of the pods' addresses, or two CIDRs of different IP families, separated by a comma.
    /// Without this flag no node gets a route.
    #[arg(long, value_name = "CIDRS", default_value = "", value_parser = cidrs)]
    cluster_cidr: String,
    /// Whether nodes get routes in the cloud, if their provider supports routes.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean())]
    configure_cloud_routes: bool,
    /// Period of the route controller, from the start of one pass to the start of the next.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    route_reconciliation_period: Duration,
}

impl RouteControllerArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        // The parser has validated the text: only an empty text yields no CIDR.
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
