//! The flags for recordings of calls; upstream does not record.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

/// The recording of calls: of all, or of those that fail.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recordings", group = ArgGroup::new("recorded").args(["record", "record_failures"]))]
pub(crate) struct RecordingArgs {
    /// Folder for a recording of each call, for `skysail replay` and `skysail test`: the first
    /// 10,000 calls after the start. Not for production, where `--record-failures` keeps the disk
    /// small. The values of credentials are never in a recording; the cloud-config and the rest of
    /// each response are.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) record: Option<PathBuf>,
    /// Folder for recordings of the last failed calls of each provider, for `skysail replay`: at
    /// most 20 files and 64 MiB for each provider, in a folder with its name. They have what those
    /// of `--record` have. Without one of the two flags no call is recorded.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) record_failures: Option<PathBuf>,
    /// What is left out of recordings; may be repeated. A rule that begins with `/` is a JSON
    /// pointer into the arguments, the answer and each body, in which `*` stands for every entry:
    /// `/servers/*/adminPass`. Any other rule is a regular expression for texts.
    #[arg(long, value_name = "RULE", requires = "recorded")]
    pub(crate) redact: Vec<String>,
}
