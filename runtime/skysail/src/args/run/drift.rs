//! Drift repair; upstream has none.

use std::time::Duration;

use clap::Args;
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration_or_zero;

/// Drift repair.
#[derive(Debug, Args)]
#[command(next_help_heading = "Drift repair")]
pub(crate) struct DriftArgs {
    /// Each load balancer is ensured once in this time though nothing changed, at a moment of its
    /// own, so that one that was changed or deleted in the cloud comes back. It costs the requests
    /// of one ensure for each Service and period. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_or_zero)]
    pub(crate) drift_repair_period: Duration,
    /// Most of these that begin in a minute, for each provider, from 1 to 6000. Where the period
    /// asks for more, it takes longer.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=6000))]
    pub(crate) drift_repairs_per_minute: u32,
}

impl DriftArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.drift_repair_period = self.drift_repair_period;
        settings.drift_repairs_per_minute = self.drift_repairs_per_minute;
    }
}
