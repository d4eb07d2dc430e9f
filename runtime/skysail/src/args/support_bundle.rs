//! The flags of `skysail support-bundle`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{ManagerArgs, QuietLogArgs, object_name};

const HELP: &str = "\
The archive has plain files, which any editor and kubectl show:
  contents.txt         what was read, and what could not be read, and why
  version.json         version of the API server
  providers.yaml       Providers with their status
  nodes.yaml           Nodes
  services.yaml        Services that have or had a load balancer
  events.yaml          Events about Providers, Nodes, Services, Namespaces and
                       Leases, and those in the manager's namespace
  leases.yaml          Leases in kube-system and in the manager's namespace
  deployments.yaml     the manager's Deployments
  pods.yaml            the manager's pods
  logs/                the last lines of each container's log, and of the log
                       before the last restart
  health/              /livez and /readyz of each pod; a pod that listens on
                       its loopback address alone cannot be asked
  manager/             with --server: /livez, /readyz, /providers, /configz and
                       /metrics of that manager, and of a leader what skysail
                       explain service says about each Service whose load
                       balancer is not settled, at most 100

Secrets and ConfigMaps are not read. The word REDACTED stands in place of the
cloud-configs of the Providers, of values of environment variables, and of
text that looks like a secret: a private key, a token, a password after its
name or in a URL. Names of objects, addresses and provider IDs remain. No
program finds every secret: read the files before you send them.

Examples:
  skysail support-bundle
  skysail support-bundle --namespace kube-system --file bundle.tar.gz
  tar xzf bundle.tar.gz

Required permissions: list of the objects above, and get of pods/log and
pods/proxy in the manager's namespace; with --server get of the manager's
paths, also of '/services/*'. What the account may not read is left out, and
contents.txt says so.";

/// `skysail support-bundle`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct SupportBundleArgs {
    /// Kubeconfig of the cluster. Default: $KUBECONFIG, then ~/.kube/config, then the service
    /// account of the pod.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Namespace of the manager.
    #[arg(long, short, value_name = "NAME", default_value = "skysail-system", value_parser = object_name)]
    pub(crate) namespace: String,
    /// Label selector of the manager's pods and Deployments.
    #[arg(long, value_name = "SELECTOR", default_value = "app.kubernetes.io/name=skysail")]
    pub(crate) selector: String,
    /// Archive to write. Default: skysail-support-TIME.tar.gz in the current folder.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Keep the cloud-configs of the Providers. Text that looks like a secret is replaced in them.
    #[arg(long)]
    pub(crate) with_config: bool,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}
