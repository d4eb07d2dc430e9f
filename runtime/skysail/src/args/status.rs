//! The flags of `skysail status`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use http::Uri;

use super::QuietLogArgs;

const HELP: &str = "\
This command reads the objects of kind Provider; the leader writes the state of
each provider into the object's status. A manager with --provider-file writes no
objects: ask that manager with --server. There each replica reports its own
state.

The numbers count the calls of the serving release since it was loaded with its
current settings; /metrics counts the calls of all releases. Durations include
the wait for the cloud and are rounded up to milliseconds. P99 and FUEL P99 are
at most a sixteenth too high. FAILED does not count the answers \"not found\" and
\"ask again\". OF LIMIT is the largest fuel use of one call, in percent of the
limit for one call.

Examples:
  skysail status
  skysail status sim --output wide
  watch skysail status sim
  kubectl -n skysail-system port-forward deploy/skysail 10258 &
  kubectl -n default create token operator >token
  skysail status --server https://127.0.0.1:10258 --token-file token \\
    --insecure-skip-tls-verify

Required permissions: list providers.skysail.dev; with --server, get the path
/providers. deploy/docs/providers.md shows how to create such an account.
The exit code is 0 even if a provider is not ready. To wait for a provider, use
`kubectl wait --for=condition=Ready provider/sim`; to wait for the end of a
rollout, `kubectl wait --for=condition=Progressing=false --timeout=3h
provider/sim`.";

/// `skysail status`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct StatusArgs {
    /// Names of the providers to show. Default: all providers.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Kubeconfig of the cluster. Default: $KUBECONFIG, then ~/.kube/config, then the service
    /// account of the pod.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "server")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: StatusFormat,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// The connection to a manager. The names of the flags are kubectl's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection to a manager")]
pub(crate) struct ManagerArgs {
    /// URL of the HTTPS port of a manager, which this command then asks: `https://HOST:10258`.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<Uri>,
    /// File with the bearer token to send.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the client certificate.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["server", "client_key"])]
    pub(crate) client_certificate: Option<PathBuf>,
    /// PEM file with the key of --client-certificate.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["server", "client_certificate"])]
    pub(crate) client_key: Option<PathBuf>,
    /// PEM file with the CA certificates that the manager's certificate is checked against.
    /// Default: the CA certificates of the system.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Host name in the manager's certificate, if it differs from the host of --server.
    #[arg(long, value_name = "NAME", requires = "server")]
    pub(crate) tls_server_name: Option<String>,
    /// Do not verify the manager's certificate. Any server that answers gets the token. Use this
    /// through a port-forward to a manager whose self-signed certificate is in memory.
    #[arg(long, requires = "server", conflicts_with = "certificate_authority")]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// How the page is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// Human-readable text.
    Text,
    /// The same, with the results of the calls and the message of each condition.
    Wide,
    /// One JSON document: a list of Providers.
    Json,
    /// One YAML document: a list of Providers.
    Yaml,
}
