//! Upstream's set "generic".

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// What is the process's own.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct GenericArgs {
    /// Kubeconfig of the cluster. Without it: the one that $KUBECONFIG or ~/.kube/config names, else the pod's own account.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
}
