//! The flags of `skysail orphans`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{OutputFormat, QuietLogArgs, RecordsArgs};

const HELP: &str = "\
A load balancer is an orphan if it exists in the cloud for this cluster and no
Service needs it. A Service needs a load balancer while the Service has type
LoadBalancer or the finalizer service.kubernetes.io/load-balancer-cleanup. The
Service is found by namespace, name and UID if the cloud stores them, otherwise
by the name that the provider gives to the load balancer. Several Services may
share a load balancer: then each share is an entry of its own, and --delete
deletes the shares of deleted Services only. Only providers whose component
exports load-balancer-inventory can list load balancers.

A cloud tells clusters apart only by their name. Give the same --cluster-name as
the manager has; with another name nothing is found. The Event about an orphan
shows the command with the right name. If another cluster with the same name
uses the same cloud account, delete nothing: the load balancers of that cluster
look like orphans here.

A load balancer that is retained (RETAINED: yes) is no orphan: the manager does
not delete it. --delete removes its record and deletes it.

SINCE is the time at which the manager first reported the orphan, from the Event
on the Namespace kube-system; \"-\" if there is no such Event.

Examples:
  skysail orphans
  skysail orphans --provider-file providers.yaml
  skysail orphans --provider-file providers.yaml --output json
  skysail orphans --cluster-name production --delete lb-1 lb-2

Required permissions: list services in all namespaces; list events in the
namespace `default` for SINCE; get the ConfigMap skysail-retained-load-balancers
in the namespace of the manager's Lease, and patch it for --delete of a retained
load balancer. Without --provider-file also: list and watch
providers.skysail.dev, and get the Secrets and ConfigMaps that the Providers
name.";

/// `skysail orphans`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct OrphansArgs {
    /// Provider file, as for `skysail run`. Default: the objects of kind Provider in the cluster,
    /// with the Secrets that they name.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Kubeconfig of the cluster. Default: $KUBECONFIG, then ~/.kube/config, then the service
    /// account of the pod.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Name of the cluster: the same value as --cluster-name of `skysail run`.
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub(crate) cluster_name: String,
    /// Name of one provider to look at. Default: all providers.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    #[command(flatten)]
    pub(crate) records: RecordsArgs,
    /// Names of load balancers to delete. If one of them is not an orphan, nothing is deleted.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) delete: Vec<String>,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}
