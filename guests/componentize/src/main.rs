//! `skysail-componentize IN.wasm OUT.wasm`: `guests/build.sh` calls it. A toolchain that makes
//! components itself (`wasm32-wasip2`) does not need it.

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use skysail_componentize::{component, go_bindings};

/// Turns the core module of a provider into a component.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The core module: of wit-bindgen for Rust, or of a Go program that uses the Go SDK.
    #[arg(required = true)]
    input: Option<PathBuf>,
    /// The component.
    #[arg(required = true)]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the bindings of the Go SDK; afterwards run gofmt on the folder.
    GoBindings {
        /// guest-sdk/go/internal/wit
        folder: PathBuf,
    },
}

fn main() -> Result<()> {
    let Args { command, input, output } = Args::parse();
    if let Some(Command::GoBindings { folder }) = command {
        for (path, text) in go_bindings()? {
            write(&folder.join(path), text.as_bytes())?;
        }
    }
    if let (Some(input), Some(output)) = (input, output) {
        let module = fs::read(&input).with_context(|| format!("cannot read {}", input.display()))?;
        let made = component(&module).with_context(|| format!("cannot make a component of {}", input.display()))?;
        write(&output, &made)?;
    }
    Ok(())
}

/// By rename: a reader of the file never sees a part of it.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let partial = file.with_added_extension("partial");
    fs::write(&partial, bytes).with_context(|| format!("cannot write {}", partial.display()))?;
    fs::rename(&partial, file).with_context(|| format!("cannot write {}", file.display()))
}
