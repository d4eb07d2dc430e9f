//! `skysail completions`: a completion script on standard output.

use clap::CommandFactory as _;

use crate::args::{Args, CompletionsArgs};

/// Prints the script.
///
/// # Errors
/// None today; the signature is that of every command.
#[expect(clippy::unnecessary_wraps, reason = "every command has this signature")]
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    clap_complete::generate(args.shell, &mut Args::command(), "skysail", &mut std::io::stdout());
    Ok(())
}
