//! The child of the compile jail, as the hidden subcommand of the real executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    skysail_host::jail::child_main()
}
