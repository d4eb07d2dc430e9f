//! The flags of `skysail symbolize`, and those of the commands that call a component of a file.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const HELP: &str = "\
A component has no names of functions: they would add a quarter to it. Its
build writes them into a sidecar, NAME.symbols beside NAME.wasm, and a release
of Skysail has those of its providers. Where a call of a manager traps, its log,
its Events and `skysail status` have the numbers of the functions:

  the guest trapped: a text; in functions 812 ← 97 of component 3fa9c21b77aa

This command copies a text from standard input to standard output, with the
names in place of the numbers:

  the guest trapped: a text; in machines::find ← machines::describe

Exit code: 0; 1 if the text also has backtraces of components whose symbols are
not given.

Examples:
  skysail status | skysail symbolize --symbols provider.symbols
  kubectl -n skysail-system logs deployment/skysail |
    skysail symbolize --symbols aws.symbols --symbols incus.symbols";

/// `skysail symbolize`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct SymbolizeArgs {
    /// The names of a component, as its build wrote them. Give the flag once for each component.
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) symbols: Vec<PathBuf>,
}

/// The names of the functions of a component that the command calls.
#[derive(Debug, Args)]
pub(crate) struct SymbolsArgs {
    /// The names of the component's functions, for the error of a call that traps. Default: the
    /// file beside the component that has its name and the extension `.symbols`, where there is
    /// one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) symbols: Option<PathBuf>,
}
