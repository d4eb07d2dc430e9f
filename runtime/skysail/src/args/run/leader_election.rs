//! Upstream's set "leader election".

use clap::{ArgAction, Args};

use crate::args::values::boolean;

/// Which of several replicas acts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election flags")]
pub(crate) struct LeaderElectionArgs {
    /// Only `false` is possible in this version: run one replica.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) leader_elect: bool,
}
