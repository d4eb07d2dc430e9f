//! Where the providers come from; upstream has them compiled in.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

/// Where the providers come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Providers")]
#[group(skip)]
#[command(group = ArgGroup::new("providers").required(true).args(["provider_file", "provider_resources"]))]
pub(crate) struct ProviderArgs {
    /// Providers: YAML documents of kind Provider. Watched; a wrong file is refused whole and the
    /// last good one stays in force.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Providers: the objects of kind Provider in the cluster, which `skysail crd` defines.
    /// Watched; a wrong one is refused by itself, and its last good settings stay in force. Their
    /// status says what became of them: `kubectl get providers`.
    #[arg(long)]
    pub(crate) provider_resources: bool,
    /// Folder in which the last release of each provider that passed probation is kept, so that a
    /// restart serves while its source is away, and which releases were taken back. Made where it
    /// is not there; one manager each. Without it nothing is kept.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// The most that --state-dir may hold, in MiB: one half for components, the other for their
    /// machine code.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) state_dir_max: u64,
}
