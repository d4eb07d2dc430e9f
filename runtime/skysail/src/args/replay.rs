//! The flags of `skysail replay`, and those of the commands that record calls.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{OutputFormat, QuietLogArgs, SymbolsArgs};

const HELP: &str = "\
The component gets the arguments, the cloud-config, the limits, the times, the
random bytes, the cache and the responses of the recorded call. No request
leaves the process: a request has the response of the recorded request with the
same method, URL and body, and one that the recording lacks ends the call with
an error that names it. So a recording of a failure in production becomes a test
of the next release.

The command prints, for each recording, how the requests, the answer and the
cost differ. Requests are compared without their order, because a component may
send several at once. The cost is compared for information: another build of a
component nearly always has another cost. Nor is the place compared at which a
call trapped.

Exit code: 0 if all requests and answers are equal, 5 if one differs, 2 if a
recording cannot be replayed, 3 if the component is refused.

Examples:
  skysail call provider.wasm instances.describe --json - --record recordings \\
    --provider-file providers.yaml < nodes.json
  skysail replay recordings --component next.wasm
  skysail replay recordings --component next.wasm --output json";

/// `skysail replay`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ReplayArgs {
    /// Recordings, or folders with recordings.
    #[arg(value_name = "FOLDER|FILE", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) recordings: Vec<PathBuf>,
    /// File of the component that takes the calls.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) component: PathBuf,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// The recording of calls.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Folder for recordings: each call becomes a file with its arguments, its requests and their
    /// responses, and all else that the component received, for `skysail replay`. The values of
    /// credentials are never in a recording; the cloud-config and the rest of each response are.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) record: Option<PathBuf>,
    /// What is left out of recordings; give the flag once for each rule. A rule that begins with
    /// `/` is a JSON pointer into the arguments, the answer and each body, in which `*` stands for
    /// every entry: `/servers/*/adminPass`. Any other rule is a regular expression for texts.
    #[arg(long, value_name = "RULE", requires = "record")]
    pub(crate) redact: Vec<String>,
}
