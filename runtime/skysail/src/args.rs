//! The command line as clap types. The module `commands` implements the commands; the flags of
//! `skysail run` are in `args/run`.

#[cfg(feature = "dev")]
mod author;
mod crd;
#[cfg(feature = "dev")]
mod dev;
mod explain;
mod functions;
mod orphans;
mod plan;
mod registry;
mod replay;
mod retained;
mod run;
mod status;
mod support_bundle;
mod symbolize;
mod test;
mod values;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, ValueHint};

use crate::exit;

#[cfg(feature = "dev")]
pub(crate) use author::{ComponentizeArgs, GoOverlayArgs, Language, NewArgs};
pub(crate) use crd::CrdArgs;
#[cfg(feature = "dev")]
pub(crate) use dev::DevArgs;
pub(crate) use explain::{DocumentFormat, ExplainArgs, ExplainObject, ExplainServiceArgs, ObjectPath};
pub(crate) use functions::function_names;
pub(crate) use orphans::OrphansArgs;
pub(crate) use plan::PlanArgs;
pub(crate) use registry::{CertificateArgs, PullArgs, PushArgs, RegistryArgs};
pub(crate) use replay::{RecordArgs, ReplayArgs};
pub(crate) use retained::{RecordsArgs, RetainedArgs};
pub(crate) use run::{Feature, GenericArgs, LoggingFormat, ProviderArgs, RecordingArgs, RunArgs};
pub(crate) use status::{ManagerArgs, StatusArgs, StatusFormat};
pub(crate) use support_bundle::SupportBundleArgs;
pub(crate) use symbolize::{SymbolizeArgs, SymbolsArgs};
pub(crate) use test::{ReadRequest, TestArgs};
pub(crate) use values::{object_name, parse_duration, parse_duration_or_zero};

#[cfg(feature = "dev")]
const DEV_EXAMPLES: &str = "
  skysail dev                                   try Skysail on this machine
  skysail dev --demo                            run a checked demonstration
  skysail new my-cloud --language go            begin a provider";
#[cfg(not(feature = "dev"))]
const DEV_EXAMPLES: &str = "";

const EXAMPLES: &str = "
  skysail run --provider-file providers.yaml    manage your cluster
  skysail plan --provider-file providers.yaml   see what it would change
  skysail status                                show the state of each provider
  skysail explain LinkFailed                    explain a name of a message
  skysail explain service default/web --server URL    explain why it waits
  skysail inspect provider.wasm                 list imports and exports
  skysail call provider.wasm identity.describe  call one function
  skysail test provider.wasm --recordings recordings    repeat recorded calls
  skysail replay recordings --component next.wasm
  skysail push provider.wasm ghcr.io/org/provider:v1
  skysail crd | kubectl apply -f -              install the CRD of Provider
  source <(skysail completions bash)            enable tab completion";

const NOTATION: &str = "DURATION is written as in Go: 250ms, 5s, 1m30s, 1.5h.";

/// The first argument that makes this process the compile jail of its parent. It is internal: no
/// help text and no completion offers it.
pub(crate) const COMPILE: &str = "__compile";
/// The first argument that starts the manager.
pub(crate) const RUN: &str = "run";

/// One Kubernetes cloud-controller-manager for every cloud.
///
/// The cloud provider is a WebAssembly component. It runs in a sandbox, can be replaced while the
/// cluster runs, and can send requests only to the HTTP origins that you allow.
#[derive(Debug, Parser)]
#[command(name = "skysail", version, propagate_version = true, after_help = format!("Examples:{DEV_EXAMPLES}{EXAMPLES}"), after_long_help = format!("Examples:{DEV_EXAMPLES}{EXAMPLES}\n\n{}", exit::HELP), max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the manager against a cluster.
    #[command(name = RUN)]
    Run(Box<RunArgs>),
    /// Run a simulated cluster, a simulated cloud and the manager in this terminal.
    #[cfg(feature = "dev")]
    Dev(DevArgs),
    /// Write the files of a new provider, which builds and runs without a cloud.
    #[cfg(feature = "dev")]
    New(NewArgs),
    /// Turn what a toolchain has made of a provider into a component.
    #[cfg(feature = "dev")]
    Componentize(ComponentizeArgs),
    /// Write an overlay for `go build`, by which a vendor's code sends requests through the host.
    ///
    /// Run it in the folder of the program, whose go.mod says which Go builds the program.
    /// `skysail new --go-provider` writes a Makefile that does.
    #[cfg(feature = "dev")]
    GoOverlay(GoOverlayArgs),
    /// Show the imports, exports and size of a component, without running its code.
    Inspect(InspectArgs),
    /// Call one function of a component in the sandbox and print its result and its cost.
    Call(CallArgs),
    /// Test a component against its cloud, or with recorded calls.
    Test(Box<TestArgs>),
    /// Give recorded calls to a component, and show how its requests, answers and costs differ.
    Replay(ReplayArgs),
    /// Put the names of functions into the backtraces of a log, by the symbols of the component.
    Symbolize(SymbolizeArgs),
    /// Show for each provider which release serves, what is wrong, and what its calls cost.
    Status(StatusArgs),
    /// Collect the state of the manager and its logs in an archive, without secrets.
    SupportBundle(SupportBundleArgs),
    /// Show what the manager would change in the cloud and in the cluster, and write nothing.
    Plan(Box<PlanArgs>),
    /// List the load balancers in the cloud that no Service needs, and delete those that you name.
    Orphans(OrphansArgs),
    /// List the load balancers that stay in the cloud although their Service is gone.
    Retained(RetainedArgs),
    /// Explain a name of a message, a metric, a limit or a flag, or the state of a Service.
    Explain(ExplainArgs),
    /// Push a component to an OCI registry.
    Push(PushArgs),
    /// Pull a component from an OCI registry.
    Pull(PullArgs),
    /// Print the CustomResourceDefinition of `Provider`, or apply it to the cluster.
    Crd(CrdArgs),
    /// Print a completion script for a shell.
    ///
    /// As a plugin of kubectl, `kubectl skysail`, the binary needs no script: links with the names
    /// `kubectl-skysail` and `kubectl_complete-skysail` to it have to be on the PATH.
    Completions(CompletionsArgs),
}

/// Logging of commands that print their own results: only errors by default.
#[derive(Debug, ClapArgs)]
pub(crate) struct QuietLogArgs {
    /// Log level, or levels by module: `info`, `warn,skysail_host=debug`.
    #[arg(long, default_value = "error", value_name = "FILTER", env = "SKYSAIL_LOG")]
    pub(crate) log: String,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable text.
    Text,
    /// One JSON document.
    Json,
}

/// `skysail inspect`.
#[derive(Debug, ClapArgs)]
pub(crate) struct InspectArgs {
    /// File of the component.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Also compile the component under the manager's default limits, and print the CPU time and
    /// the memory that compiling took.
    #[arg(long)]
    pub(crate) compile: bool,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
}

/// `skysail call`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = functions::HELP)]
pub(crate) struct CallArgs {
    /// File of the component.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Function to call: `<interface>.<function>`, for example `load-balancers.ensure`.
    #[arg(value_name = "FUNCTION", value_parser = functions::FunctionName, hide_possible_values = true)]
    pub(crate) function: String,
    /// The arguments as a JSON object; `-` reads it from standard input.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) json: String,
    #[command(flatten)]
    pub(crate) provider_of_call: ProviderOfCallArgs,
    /// Call the function this many times, one after the other and without a pause, with the
    /// provider's cache kept; `RetryAfter` is not waited for. The outcomes, percentiles of the cost
    /// and limits that are larger than this cost go to standard error, the result of the last call
    /// to standard output. 1 to 10,000.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
    /// Write the fuel of the component's functions to this file: as a flame graph where its name
    /// ends with `.svg`, and as one line for each stack of functions where it ends with `.folded`.
    /// With --repeat the file has the sum of all calls. Each call takes several times as long, and
    /// its limit of CPU time stays.
    #[cfg(feature = "dev")]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) recording: RecordArgs,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// The settings of a provider whose component the command line names.
#[derive(Debug, ClapArgs)]
pub(crate) struct ProviderOfCallArgs {
    /// Provider file with the limits, egress, credentials and cloud-config of the call. Without
    /// this flag the call has the default limits and can send no request.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Name of the provider in the provider file. Required if the file has several providers.
    #[arg(long, value_name = "NAME", requires = "provider_file")]
    pub(crate) provider: Option<String>,
    /// Cloud-config of the call; it replaces the cloud-config in the provider file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cloud_config: Option<PathBuf>,
}

/// `skysail completions`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// Shell that runs the script.
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
    fn the_help_after_the_flags_fits_into_80_columns() {
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
