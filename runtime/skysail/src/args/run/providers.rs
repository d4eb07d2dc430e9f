//! The flags that say where the provider definitions come from; upstream compiles one provider in.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

/// Where the provider definitions come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Providers")]
#[group(skip)]
#[command(group = ArgGroup::new("providers").required(true).args(["provider_file", "provider_resources"]))]
pub(crate) struct ProviderArgs {
    /// YAML file with documents of kind Provider. The file is watched. If a change makes it
    /// invalid, the whole file is refused and the last valid version stays in force.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_file: Option<PathBuf>,
    /// Use the objects of kind Provider in the cluster, which `skysail crd` defines. The objects
    /// are watched. An invalid object is refused without effect on the others, and its last valid
    /// settings stay in force. `kubectl get providers` shows the state of each provider.
    #[arg(long)]
    pub(crate) provider_resources: bool,
    /// Folder that keeps the last release of each provider that passed probation, so that a
    /// restarted manager can serve while the source is unreachable, and the list of releases that
    /// were rolled back. It is created if it is missing. Each manager needs its own folder. Without
    /// this flag nothing is kept.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Largest size of --state-dir, in MiB: one half for components, the other half for their
    /// compiled machine code.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) state_dir_max: u64,
}
