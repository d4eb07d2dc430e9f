//! The binary `skysail`: the only crate that knows everybody.
//!
//! This file turns an outcome into an exit code and nothing else. Read `args` for the command line
//! and `commands` for what each command does.

mod args;
mod cluster;
mod commands;
mod component_file;
mod custom_resource;
mod exit;
mod leader_migration;
mod leadership;
mod output;
mod provider_file;
mod providers;
mod signals;
mod telemetry;
mod text_file;
mod webhooks;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // The jail closes everything before anything is open: nothing may come before it.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == args::COMPILE) {
        return skysail_host::jail::child_main();
    }
    skysail_host::allocator::give_back_large_buffers();
    exit::code_of(commands::run(args::Args::parse().command))
}
