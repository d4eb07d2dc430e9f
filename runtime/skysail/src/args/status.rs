//! The flags of `skysail status`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use http::Uri;

use super::QuietLogArgs;

const HELP: &str = "\
Reads the objects of kind Provider, in which the manager that leads writes what
became of each. A manager with --provider-file has no objects: ask it itself,
on its HTTPS port. Each replica answers for itself there.

The calls are those of the release that serves, since it was loaded with its
settings; of all releases together /metrics tells. Times are from question to
answer, rounded up to milliseconds; P99 and FUEL P99 are a sixteenth too high at
most. FAILED leaves out what is an answer, as \"not found\" and \"ask again\".
OF LIMIT is what the dearest call used of the fuel that one may use.

Examples:
  skysail status
  skysail status sim --output wide
  watch skysail status sim
  kubectl -n skysail-system port-forward deploy/skysail 10258 &
  kubectl -n default create token operator >token
  skysail status --server https://127.0.0.1:10258 --token-file token \\
    --insecure-skip-tls-verify

Rights: list providers.skysail.dev; with --server, get the path /providers:
deploy/docs/providers.md makes the account and its right.
The exit code is 0 whether the providers are ready or not: `kubectl wait
--for=condition=Ready provider/sim` waits for one, and `kubectl wait
--for=condition=Progressing=false --timeout=3h provider/sim` for the end of a
roll-out.";

/// `skysail status`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct StatusArgs {
    /// Only these providers. Without a name: all of them.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Kubeconfig of the cluster. Without it: the one that $KUBECONFIG or ~/.kube/config names,
    /// else the pod's own account.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "server")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: StatusFormat,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// A manager that is asked itself. The names of the flags are kubectl's.
#[derive(Debug, Args)]
#[command(next_help_heading = "A manager's own answer")]
pub(crate) struct ManagerArgs {
    /// HTTPS port of a manager: `https://HOST:10258`. It is asked in place of the cluster.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<Uri>,
    /// Bearer token of who asks.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM certificate of who asks.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["server", "client_key"])]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["server", "client_certificate"])]
    pub(crate) client_key: Option<PathBuf>,
    /// PEM certificates that the manager's is signed by. Without it: the system's.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Name that the manager's certificate is for, where it is not that of --server.
    #[arg(long, value_name = "NAME", requires = "server")]
    pub(crate) tls_server_name: Option<String>,
    /// Trust any server that answers, and send it the token: for a manager whose certificate is
    /// made in memory, through a port-forward.
    #[arg(long, requires = "server", conflicts_with = "certificate_authority")]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// How the page is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// For people.
    Text,
    /// The same, with how the calls ended and what each condition says.
    Wide,
    /// One JSON document: a list of Providers.
    Json,
    /// The same as YAML.
    Yaml,
}
