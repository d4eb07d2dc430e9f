//! The commands: one file each. This file only chooses.

mod call;
mod completions;
mod crd;
mod dev;
mod inspect;
mod orphans;
mod pull;
mod push;
mod registry;
mod run;
mod status;

use crate::args::Command;

pub(crate) use call::{FunctionName, HELP as CALL_HELP};

/// Runs the chosen command to its end.
///
/// # Errors
/// Why it did not succeed; `exit` turns it into an exit code.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    // Of two installations only the first counts, and this is the only one of the process.
    drop(rustls::crypto::ring::default_provider().install_default());
    match command {
        Command::Run(args) => run::run(*args),
        Command::Dev(args) => dev::run(args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Call(args) => call::run(args),
        Command::Status(args) => status::run(&args),
        Command::Orphans(args) => orphans::run(args),
        Command::Push(args) => push::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Crd => crd::run(),
        Command::Completions(args) => completions::run(&args),
    }
}
