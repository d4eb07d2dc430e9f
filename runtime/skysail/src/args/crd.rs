//! The flags of `skysail crd`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const HELP: &str = "\
Examples:
  skysail crd | kubectl apply --server-side -f -
  skysail crd --apply

With --apply the definition of a newer Skysail is never replaced: its objects
would lose the fields that only the newer version has.

Required permissions with --apply: get and patch
customresourcedefinitions.apiextensions.k8s.io with the name
providers.skysail.dev; also create where the cluster has no definition yet.";

/// `skysail crd`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct CrdArgs {
    /// Apply the definition to the cluster, and wait until the API server serves it.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Kubeconfig of the cluster, for --apply. Default: $KUBECONFIG, then ~/.kube/config, then the
    /// service account of the pod.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "apply")]
    pub(crate) kubeconfig: Option<PathBuf>,
}
