//! Where the providers come from; upstream has them compiled in.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Where the providers come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Providers")]
pub(crate) struct ProviderArgs {
    /// Providers: YAML documents of kind Provider. Watched; a wrong file is refused whole and the last good one stays in force.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: PathBuf,
    /// Folder in which the last release of each provider that bore out is kept, so that a restart serves while its source is away, and which
    /// releases were taken back. Made where it is not there; one manager each. Without it nothing is kept.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// The most that --state-dir may hold, in MiB: one half for components, the other for their machine code.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) state_dir_max: u64,
}
