//! The arguments of `skysail dev`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueHint};

use super::{NOTATION, QuietLogArgs, RecordArgs, SymbolsArgs, parse_duration};

/// `skysail dev`.
#[derive(Debug, ClapArgs)]
#[command(after_help = NOTATION)]
pub(crate) struct DevArgs {
    /// Component to serve; it is loaded again each time the file changes. Default: the bundled
    /// provider of the simulated cloud.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider: Option<PathBuf>,
    /// Cloud-config of the provider; changes of the file take effect. Default: the endpoint of the
    /// simulated cloud.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cloud_config: Option<PathBuf>,
    /// Provider file to serve in place of a generated one: component, cloud-config, egress,
    /// credentials and limits. Changes of the file take effect.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["provider", "cloud_config"])]
    pub(crate) provider_file: Option<PathBuf>,
    /// Command that builds the component. `sh -c` runs it in the current folder at the start, and
    /// again each time that a file of the folder changes, except hidden files, components and their
    /// symbols, files in folders with the names `__pycache__`, `build`, `dist`, `node_modules`,
    /// `out`, `recordings` or `target`, and files behind symbolic links to folders.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["demo", "no_manager", "cloud_only"])]
    pub(crate) build: Option<String>,
    /// Run a demonstration in steps and check the result of each step; exit 1 if a check fails.
    #[arg(long)]
    pub(crate) demo: bool,
    /// Run the simulated cluster and the simulated cloud without a manager, and print how to start
    /// one.
    #[arg(long, conflicts_with_all = ["demo", "provider_file", "record"])]
    pub(crate) no_manager: bool,
    /// Run the simulated cloud alone, for a manager of another cluster, and print its address, its
    /// token and a Provider. The cloud and its load balancers have loopback addresses, so the
    /// manager has to run on this machine.
    #[arg(long, conflicts_with_all = ["demo", "provider_file", "no_manager", "api_address", "record"])]
    pub(crate) cloud_only: bool,
    /// Machines in the simulated cloud, from 1 to 200. Each machine is a node of the cluster.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(crate) nodes: u16,
    /// Address on which the Kubernetes API is served, as plain HTTP. It has to be a loopback
    /// address; port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) api_address: SocketAddr,
    /// Latency of the simulated cloud.
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = parse_duration)]
    pub(crate) cloud_latency: Duration,
    /// Folder with the components that `make guests` built. Default: the folder `components` beside
    /// the program or one level above it.
    #[arg(long, value_name = "DIR", env = "SKYSAIL_COMPONENTS", value_hint = ValueHint::DirPath)]
    pub(crate) components: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) recording: RecordArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}
