//! The flags of `skysail run`, grouped as upstream's named flag sets: one file for each group.
//!
//! A new flag goes into the file of its group; a new group is a file, a `mod` and a field here. A
//! group that sets something for the controllers does that in its `apply_to`.

mod authentication;
mod controllers;
mod drift;
mod feature_gates;
mod generic;
mod kube_cloud_shared;
mod leader_election;
mod logging;
mod node_controller;
mod node_lifecycle_controller;
mod orphans;
mod providers;
mod recordings;
mod refused;
mod route_controller;
mod secure_serving;
mod service_controller;
mod traces;
mod webhook_serving;

use clap::Args;
use skysail_controllers::ControllerSettings;

pub(crate) use feature_gates::Feature;
pub(crate) use generic::GenericArgs;
pub(crate) use logging::LoggingFormat;
pub(crate) use providers::ProviderArgs;
pub(crate) use recordings::RecordingArgs;

/// `skysail run`. The names are those of upstream's cloud-controller-manager, and so are the
/// defaults but for four (`deploy/docs/flags.md`).
#[derive(Debug, Args)]
#[command(after_help = super::NOTATION, args_override_self = true)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) providers: providers::ProviderArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) drift: drift::DriftArgs,
    #[command(flatten)]
    pub(crate) orphans: orphans::OrphanArgs,
    #[command(flatten)]
    pub(crate) recordings: RecordingArgs,
    #[command(flatten)]
    pub(crate) leader_election: leader_election::LeaderElectionArgs,
    #[command(flatten)]
    pub(crate) leader_migration: leader_election::LeaderMigrationArgs,
    #[command(flatten)]
    pub(crate) secure_serving: secure_serving::SecureServingArgs,
    #[command(flatten)]
    pub(crate) authentication: authentication::AuthenticationArgs,
    #[command(flatten)]
    pub(crate) authorization: authentication::AuthorizationArgs,
    #[command(flatten)]
    pub(crate) webhooks: webhook_serving::WebhookServingArgs,
    #[command(flatten)]
    pub(crate) log: logging::LogArgs,
    #[command(flatten)]
    pub(crate) traces: traces::TracesArgs,
    #[command(flatten)]
    refused: refused::RefusedArgs,
}

/// The flags that `skysail run` and `skysail plan` have in common: those of the controllers and of
/// the clients of the cluster.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) generic: GenericArgs,
    #[command(flatten)]
    kube_cloud_shared: kube_cloud_shared::KubeCloudSharedArgs,
    #[command(flatten)]
    service_controller: service_controller::ServiceControllerArgs,
    #[command(flatten)]
    node_controller: node_controller::NodeControllerArgs,
    #[command(flatten)]
    node_lifecycle_controller: node_lifecycle_controller::NodeLifecycleControllerArgs,
    #[command(flatten)]
    route_controller: route_controller::RouteControllerArgs,
}

impl CommonArgs {
    /// The settings of the controllers by these flags; the others have their defaults.
    pub(crate) fn settings(&self) -> ControllerSettings {
        let mut settings = ControllerSettings::default();
        self.generic.apply_to(&mut settings);
        self.kube_cloud_shared.apply_to(&mut settings);
        self.service_controller.apply_to(&mut settings);
        self.node_controller.apply_to(&mut settings);
        self.node_lifecycle_controller.apply_to(&mut settings);
        self.route_controller.apply_to(&mut settings);
        settings
    }
}

impl RunArgs {
    /// The settings of the controllers that the flags ask for.
    pub(crate) fn settings(&self) -> ControllerSettings {
        let mut settings = self.common.settings();
        self.drift.apply_to(&mut settings);
        self.orphans.apply_to(&mut settings);
        settings.namespace.clone_from(&self.leader_election.leader_elect_resource_namespace);
        settings
    }
}

#[cfg(test)]
mod tests;
