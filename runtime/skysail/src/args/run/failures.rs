//! The flags for recordings of failed calls; upstream does not record.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The recording of failed calls.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recordings")]
pub(crate) struct FailureArgs {
    /// Folder for recordings of the last failed calls of each provider, for `skysail replay`: at
    /// most 20 files and 64 MiB for each provider, in a folder with its name. The values of
    /// credentials are never in a recording; the cloud-config and the rest of each response are.
    /// Without this flag no call is recorded.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) record_failures: Option<PathBuf>,
    /// What is left out of these recordings; may be repeated. A rule that begins with `/` is a JSON
    /// pointer into the arguments, the answer and each body, in which `*` stands for every entry:
    /// `/servers/*/adminPass`. Any other rule is a regular expression for texts.
    #[arg(long, value_name = "RULE", requires = "record_failures")]
    pub(crate) redact: Vec<String>,
}
