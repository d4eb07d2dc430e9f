//! The binary `skysail`, the only crate that depends on all others.
//!
//! This file only turns a command's result into an exit code. `args` has the command line and
//! `commands` the implementation of each command.

mod args;
mod cluster;
mod commands;
mod component_file;
mod custom_resource;
mod exit;
mod kubectl_plugin;
mod last_calls;
mod leader_migration;
mod leadership;
mod output;
mod output_file;
mod pages;
mod provider_file;
mod providers;
mod signals;
mod telemetry;
mod text_file;
mod webhooks;

use std::process::ExitCode;

use crate::kubectl_plugin::CalledAs;

fn main() -> ExitCode {
    // The compile jail restricts the process before it opens anything: no code may run before this.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == args::COMPILE) {
        return skysail_host::jail::child_main();
    }
    skysail_host::allocator::hold_little_free_memory();
    // Before the flags are read: a signal ends a process that does not listen for it.
    let control = commands::control(std::env::args_os().nth(1).as_deref());
    let mut words = std::env::args_os();
    exit::code_of(match CalledAs::of(words.next()) {
        CalledAs::Completion => kubectl_plugin::print_candidates(words),
        called_as => commands::run(kubectl_plugin::parse(called_as).command, control),
    })
}
