//! The compile jail's child, as the real executable has it behind a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    skysail_host::jail::child_main()
}
