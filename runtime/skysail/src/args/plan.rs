//! The flags of `skysail plan`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{NOTATION, OutputFormat, QuietLogArgs, RecordsArgs, run::CommonArgs};

const HELP: &str = "\
The command asks the providers about each Service, node and route of the
cluster, as a manager that has just started does, and writes nothing: the host
sends the reads, and shows each request that may change the cloud, with the
fields that it would change, instead of sending it. Writes to the Kubernetes API
are shown and not sent in the same way. So the command can run while a manager
serves the cluster, also one of another project.

Reads are the requests that the egress rule lists (egress.rules[].reads), for an
API that reads by POST. Without that list they are GET, HEAD and OPTIONS.

Use the command before a new component, a new cloud-config or a change from
another manager. Give the provider file and the flags that the manager will
have, above all --cluster-name. A provider usually stops at the first request
that is not sent, so the plan shows no further requests for the same object.

Exit code: 0 without changes, 5 with changes, 1 if an object failed, so that the
plan is incomplete.

Examples:
  skysail plan --provider-file providers.yaml
  skysail plan --provider-file providers.yaml --output json > plan.json
  skysail plan --provider sim --cluster-name production

Required permissions: get and list nodes and services in all namespaces; get the
ConfigMap skysail-retained-load-balancers in the namespace of the manager's
Lease. Without --provider-file also: list and watch providers.skysail.dev, and
get the Secrets and ConfigMaps that the Providers name.";

/// `skysail plan`.
#[derive(Debug, Args)]
#[command(after_help = NOTATION, after_long_help = format!("{HELP}\n\n{NOTATION}"))]
pub(crate) struct PlanArgs {
    /// Provider file, as for `skysail run`. Default: the objects of kind Provider in the cluster,
    /// with the Secrets that they name.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Name of one provider: only this provider is asked, about all that is its own. Default: all
    /// providers.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    #[command(flatten)]
    pub(crate) records: RecordsArgs,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
