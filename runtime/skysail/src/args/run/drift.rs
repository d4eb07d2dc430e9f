//! The flags of drift repair, which upstream does not have.

use std::time::Duration;

use clap::Args;
use skysail_controllers::ControllerSettings;

use crate::args::values::parse_duration_or_zero;

/// Drift repair.
#[derive(Debug, Args)]
#[command(next_help_heading = "Drift repair")]
pub(crate) struct DriftArgs {
    /// Period of drift repair. In each period the provider ensures the load balancer of every
    /// Service once, spread over the period, although the Service did not change; this restores
    /// load balancers that were changed or deleted in the cloud. The cost is one ensure for each
    /// Service and period. 0s disables drift repair.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_or_zero)]
    pub(crate) drift_repair_period: Duration,
    /// Largest number of drift repairs that start in a minute, for each provider, from 1 to 6000.
    /// If --drift-repair-period needs more, the period becomes longer.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=6000))]
    pub(crate) drift_repairs_per_minute: u32,
}

impl DriftArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.drift_repair_period = self.drift_repair_period;
        settings.drift_repairs_per_minute = self.drift_repairs_per_minute;
    }
}
