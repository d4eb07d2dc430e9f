//! `skysail completions`: a completion script on standard output.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Generator as _;

use crate::{
    args::{Args, CompletionsArgs},
    output,
};

/// Prints the script.
///
/// # Errors
/// The script cannot be written.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut command = Args::command().bin_name("skysail");
    command.build();
    let mut script = Vec::new();
    args.shell.try_generate(&command, &mut script).context("cannot write the completion script")?;
    output::print(&script)
}
