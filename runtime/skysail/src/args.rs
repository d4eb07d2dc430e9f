//! The command line: clap types. What they mean is in `commands`; the flags of `skysail run` are in
//! `args/run`.

mod orphans;
mod registry;
mod run;
mod status;
mod values;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, ValueHint};

use crate::exit;

pub(crate) use orphans::OrphansArgs;
pub(crate) use registry::{CertificateArgs, PullArgs, PushArgs, RegistryArgs};
pub(crate) use run::{Feature, GenericArgs, LoggingFormat, ProviderArgs, RunArgs};
pub(crate) use status::{ManagerArgs, StatusArgs, StatusFormat};
pub(crate) use values::{object_name, parse_duration, parse_duration_or_zero};

const EXAMPLES: &str = "\
Examples:
  skysail dev                                   cluster, cloud and manager, here
  skysail dev --demo                            the same as a checked story
  skysail run --provider-file providers.yaml    the manager, for your cluster
  skysail status                                what became of each provider
  skysail inspect provider.wasm                 what it imports and exports
  skysail call provider.wasm identity.describe  one function by hand
  skysail push provider.wasm ghcr.io/org/provider:v1
  skysail crd | kubectl apply -f -              the resource Provider
  source <(skysail completions bash)            tab completion";

const NOTATION: &str = "DURATION is written as in Go: 250ms, 5s, 1m30s, 1.5h.";

/// The argument that makes this program the compile jail of another one. It is no command: nobody
/// is meant to type it or to be offered it.
pub(crate) const COMPILE: &str = "__compile";

/// One Kubernetes cloud-controller-manager for every cloud.
///
/// The cloud provider is a WebAssembly component. It runs in a sandbox, can be replaced while the
/// cluster runs, and reaches nothing but the HTTP origins that you allow.
#[derive(Debug, Parser)]
#[command(name = "skysail", version, propagate_version = true, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", exit::HELP), max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the manager against a cluster.
    Run(Box<RunArgs>),
    /// Run a cluster, a cloud and the manager in this terminal, without any of them.
    Dev(DevArgs),
    /// Tell what a component imports, exports, needs and weighs; nothing of it is run.
    Inspect(InspectArgs),
    /// Call one function of a component, in the sandbox, and print its answer and what it cost.
    Call(CallArgs),
    /// Tell what became of each provider: what serves, what does not and why, and what its calls
    /// cost.
    Status(StatusArgs),
    /// List the load balancers in the cloud that no Service wants, and delete those that you name.
    Orphans(OrphansArgs),
    /// Put a component into an OCI registry.
    Push(PushArgs),
    /// Fetch a component from an OCI registry.
    Pull(PullArgs),
    /// Print the definition of the resource `Provider`, for `kubectl apply -f -`.
    Crd,
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
}

/// `skysail dev`.
#[derive(Debug, ClapArgs)]
#[command(after_help = NOTATION)]
pub(crate) struct DevArgs {
    /// The component to serve; reloaded whenever it is saved. Without it: the bundled provider of
    /// the simulated cloud.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider: Option<PathBuf>,
    /// Cloud-config of the provider. Without it: the simulated cloud's endpoint.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cloud_config: Option<PathBuf>,
    /// Provider file to serve in place of a generated one: component, cloud-config, egress,
    /// credentials and limits. Edits take effect.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["provider", "cloud_config"])]
    pub(crate) provider_file: Option<PathBuf>,
    /// Tell a story in which each step is real and checked; exit 1 if one does not hold.
    #[arg(long)]
    pub(crate) demo: bool,
    /// Machines in the simulated cloud, each a node of the cluster: from 1 to 200.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(crate) nodes: u16,
    /// Where the Kubernetes API is served, as plain HTTP. Loopback addresses only; port 0 takes a
    /// free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) api_address: SocketAddr,
    /// Latency of the simulated cloud.
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = parse_duration)]
    pub(crate) cloud_latency: Duration,
    /// Folder with the components that `make guests` built. Without it: `components` beside the
    /// program or one folder up.
    #[arg(long, value_name = "DIR", env = "SKYSAIL_COMPONENTS", value_hint = ValueHint::DirPath)]
    pub(crate) components: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// Logging where the command itself tells what happens: quiet.
#[derive(Debug, ClapArgs)]
pub(crate) struct QuietLogArgs {
    /// Level, or directives by module, of log lines: `info`, `warn,skysail_host=debug`.
    // What libraries log of a request that fails, the command says itself.
    #[arg(
        long,
        default_value = "error,kube_client=off,rustls_platform_verifier=off",
        value_name = "FILTER",
        env = "SKYSAIL_LOG"
    )]
    pub(crate) log: String,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

/// `skysail inspect`.
#[derive(Debug, ClapArgs)]
pub(crate) struct InspectArgs {
    /// The component.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Also compile it, under the manager's default limits, and tell what that cost.
    #[arg(long)]
    pub(crate) compile: bool,
    /// How the result is printed.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
}

/// `skysail call`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = crate::commands::CALL_HELP)]
pub(crate) struct CallArgs {
    /// The component.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// `<interface>.<function>`, for example `load-balancers.ensure`.
    #[arg(value_name = "FUNCTION", value_parser = crate::commands::FunctionName, hide_possible_values = true)]
    pub(crate) function: String,
    /// The arguments as a JSON object; `-` reads it from standard input.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) json: String,
    /// Provider file whose limits, egress, credentials and cloud-config the call gets. Without it:
    /// defaults, and no way out.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Which provider of the provider file. Needed where it has several.
    #[arg(long, value_name = "NAME", requires = "provider_file")]
    pub(crate) provider: Option<String>,
    /// Cloud-config of the call, in place of the provider file's.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cloud_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// `skysail completions`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Args;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_is_written_in_columns_fits_the_narrowest_terminal() {
        let mut command = Args::command().term_width(80);
        command.build();
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
                let text = text.to_string();
                let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
                assert!(long.is_empty(), "{}: {long:?}", command.get_name());
            }
        }
    }
}
