//! Upstream's flag set "generic".

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueHint};
use http::Uri;
use skysail_controllers::ControllerSettings;

use super::{
    controllers::ControllersArgs,
    feature_gates::{Feature, FeatureGates},
};
use crate::args::values::{boolean, parse_duration_or_zero};

/// Flags of the process as a whole.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct GenericArgs {
    #[command(flatten)]
    pub(crate) controllers: ControllersArgs,
    /// Pause between the starts of two controllers. They start in this order: nodes, Services, node
    /// lifecycle, routes.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_or_zero)]
    pub(crate) controller_start_interval: Duration,
    #[command(flatten)]
    pub(crate) feature_gates: FeatureGates,
    /// Kubeconfig of the cluster. Default: $KUBECONFIG, then ~/.kube/config, then the service
    /// account of the pod.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// URL of the API server, with the scheme; it replaces the address in the kubeconfig. Without
    /// --kubeconfig requests carry no credentials.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) master: Option<Uri>,
    /// Requests per second to the API server, for each controller; 0 means 5, a negative value
    /// means no limit. Upstream's default of 20 is older than API Priority and Fairness.
    #[arg(long, value_name = "QPS", default_value = "200", allow_negative_numbers = true, value_parser = qps)]
    pub(crate) kube_api_qps: f32,
    /// Size of a burst of requests beyond --kube-api-qps; 0 means 10.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(crate) kube_api_burst: u16,
    /// Give each controller its own ServiceAccount in kube-system, with a token that is valid for
    /// an hour: service-controller, node-controller, route-controller. A missing ServiceAccount is
    /// created.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean())]
    pub(crate) use_service_account_credentials: bool,
}

impl GenericArgs {
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings) {
        settings.controllers = self.controllers.enabled();
        settings.watch_based_routes =
            self.feature_gates.enabled(Feature::CloudControllerManagerWatchBasedRoutesReconciliation);
        settings.controller_start_interval = self.controller_start_interval;
    }
}

fn qps(text: &str) -> Result<f32, String> {
    let qps: Result<f32, _> = text.parse();
    qps.ok().filter(|qps| qps.is_finite()).ok_or_else(|| format!("{text:?} is not a number of requests a second"))
}
