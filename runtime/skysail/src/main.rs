//! The binary `skysail`: the only crate that knows everybody.
//!
//! This file turns an outcome into an exit code and nothing else. Read `args` for the command line and `commands` for what each
//! command does.

mod admin;
mod args;
mod commands;
mod component_file;
mod exit;
mod provider_file;
mod providers;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match args::Args::parse().command {
        // The jail closes everything before anything is open: nothing may come before it.
        args::Command::Compile => skysail_host::jail::child_main(),
        command => exit::code_of(commands::run(command)),
    }
}
