//! The flags of `skysail retained`, and the one that says where the records of retained load
//! balancers are.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{OutputFormat, QuietLogArgs, object_name};

/// The default namespace, as upstream's for the Lease.
pub(crate) const NAMESPACE: &str = "kube-system";

const HELP: &str = "\
A load balancer is retained if its Service was deleted, or changed its type,
with the deletion policy Retain: the annotation skysail.dev/deletion-policy of
the Service, or spec.deletionPolicy of the Provider. The manager records it in
the ConfigMap skysail-retained-load-balancers, and this command reads only that.

A Service in the same namespace, of the same provider, takes it with the
annotation skysail.dev/adopt-load-balancer=UID. STATE is then \"in use\". To
delete a retained load balancer: skysail orphans --delete NAME, or let a Service
with the deletion policy Delete take it, and delete that Service.

Examples:
  skysail retained
  skysail retained --output json

Required permissions: get the ConfigMap skysail-retained-load-balancers in the
namespace of the manager's Lease.";

/// `skysail retained`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct RetainedArgs {
    /// Kubeconfig of the cluster. Default: $KUBECONFIG, then ~/.kube/config, then the service
    /// account of the pod.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) records: RecordsArgs,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// Where the records of retained load balancers are.
#[derive(Debug, Args)]
pub(crate) struct RecordsArgs {
    /// Namespace of the manager's Lease, where the records of retained load balancers are: the same
    /// value as of `skysail run`.
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = object_name)]
    pub(crate) leader_elect_resource_namespace: String,
}
