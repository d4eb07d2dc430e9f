//! The commands, one file each. This file only dispatches.

mod call;
mod changes;
mod completions;
#[cfg(feature = "dev")]
mod componentize;
mod crd;
#[cfg(feature = "dev")]
mod dev;
mod explain;
mod inspect;
mod manager_port;
#[cfg(feature = "dev")]
mod new;
mod orphans;
mod plan;
mod pull;
mod push;
mod recordings;
mod registry;
mod replay;
mod retained;
mod run;
mod served;
mod status;
mod support_bundle;
mod symbolize;
mod test;

use std::ffi::OsStr;

use self::run::Control;
use crate::args::{Command, RUN};

/// Listens for the signals that stop the manager, if the first word of the command line starts the
/// manager.
pub(crate) fn control(first: Option<&OsStr>) -> Option<anyhow::Result<Control>> {
    first.is_some_and(|word| word == RUN).then(Control::start)
}

/// Runs the chosen command to its end.
///
/// # Errors
/// The command failed; `exit` turns the error into an exit code.
pub(crate) fn run(command: Command, control: Option<anyhow::Result<Control>>) -> anyhow::Result<()> {
    // The process installs rustls's crypto provider only here, so the installation cannot fail.
    drop(rustls::crypto::ring::default_provider().install_default());
    match command {
        Command::Run(args) => run::run(*args, control.unwrap_or_else(Control::start)?),
        #[cfg(feature = "dev")]
        Command::Dev(args) => dev::run(args),
        #[cfg(feature = "dev")]
        Command::New(args) => new::run(&args),
        #[cfg(feature = "dev")]
        Command::Componentize(args) => componentize::run(&args),
        #[cfg(feature = "dev")]
        Command::GoOverlay(args) => skysail_componentize::go_overlay(&args.folder),
        Command::Inspect(args) => inspect::run(&args),
        Command::Call(args) => call::run(args),
        Command::Test(args) => test::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Symbolize(args) => symbolize::run(&args),
        Command::Status(args) => status::run(&args),
        Command::SupportBundle(args) => support_bundle::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Plan(args) => plan::run(*args),
        Command::Orphans(args) => orphans::run(args),
        Command::Retained(args) => retained::run(&args),
        Command::Push(args) => push::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Crd(args) => crd::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
