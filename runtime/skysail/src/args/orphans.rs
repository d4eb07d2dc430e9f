//! The flags of `skysail orphans`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{OutputFormat, QuietLogArgs};

const HELP: &str = "\
A load balancer is an orphan when the cloud has it for this cluster and no
Service may want it: none of type LoadBalancer and none that our finalizer
holds, by namespace, name and UID, and by the name that the provider gives.
Only a provider whose component exports load-balancer-inventory can tell.

A cloud knows a cluster by its name alone. Give the --cluster-name that the
manager has: with another name nothing is found. The Event about an orphan shows
the command with the manager's name. Delete nothing where another cluster of
that name uses the same account: what its Services want looks like an orphan
from here.

SINCE is when the manager first told of it, from its Event on the Namespace
kube-system; \"-\" where it did not or the Event is gone.

Examples:
  skysail orphans
  skysail orphans --provider-file providers.yaml
  skysail orphans --provider-file providers.yaml --output json
  skysail orphans --cluster-name production --delete lb-1 lb-2

Rights: list services in all namespaces; list events in `default` for SINCE.
Without a provider file also: list and watch providers.skysail.dev, and get the
Secrets and ConfigMaps that they name.";

/// `skysail orphans`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct OrphansArgs {
    /// Provider file, as for `skysail run`. Without it: the objects of kind Provider in the
    /// cluster, with the Secrets that they name.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Kubeconfig of the cluster. Without it: the one that $KUBECONFIG or ~/.kube/config names,
    /// else the pod's own account.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Name of the cluster: the one that `skysail run` has.
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub(crate) cluster_name: String,
    /// Only this provider.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Delete these, by name. All of them have to be orphans, or nothing is deleted.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) delete: Vec<String>,
    /// How the result is printed.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}
