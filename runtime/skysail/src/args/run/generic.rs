//! Upstream's set "generic".

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueHint};
use http::Uri;
use skysail_controllers::ControllerSettings;

use super::{
    controllers::ControllersArgs,
    feature_gates::{Feature, FeatureGates},
};
use crate::args::values::{boolean, parse_duration_or_zero};

/// What is the process's own.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct GenericArgs {
    #[command(flatten)]
    pub(crate) controllers: ControllersArgs,
    /// Pause between the starts of two controllers: nodes, Services, node lifecycle, routes.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_or_zero)]
    pub(crate) controller_start_interval: Duration,
    #[command(flatten)]
    pub(crate) feature_gates: FeatureGates,
    /// Kubeconfig of the cluster. Without it: the one that $KUBECONFIG or ~/.kube/config names,
    /// else the pod's own account.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address of the API server, in place of the kubeconfig's, with its scheme. Without a
    /// --kubeconfig no credentials go with it.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) master: Option<Uri>,
    /// Requests a second to the API server, of each controller; below 0 there is no limit, and 0
    /// means 5. Upstream's 20 is older than the API server's own fairness.
    #[arg(long, value_name = "QPS", default_value = "200", allow_negative_numbers = true, value_parser = qps)]
    pub(crate) kube_api_qps: f32,
    /// Requests at once beyond --kube-api-qps; 0 means 10.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(crate) kube_api_burst: u16,
    /// Each controller is an account of its own in kube-system, with a token of an hour:
    /// service-controller, node-controller, route-controller. What is missing is created.
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
