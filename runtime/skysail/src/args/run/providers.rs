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
}
