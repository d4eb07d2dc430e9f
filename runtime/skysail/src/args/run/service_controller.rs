//! Upstream's flag set "service controller".

use clap::Args;
use skysail_controllers::ControllerSettings;

/// The service controller.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service controller flags")]
pub(crate) struct ServiceControllerArgs {
    /// Services of one provider that are reconciled in parallel, from 1 to 1024.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrent_service_syncs: u16,
}

impl ServiceControllerArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.concurrent_service_syncs = self.concurrent_service_syncs.into();
    }
}
