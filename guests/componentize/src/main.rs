//! `skysail-componentize IN.wasm OUT.wasm`: `guests/build.sh` calls it. A toolchain that makes
//! components itself (`wasm32-wasip2`) does not need it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use skysail_componentize::{component, go_bindings, go_overlay, js_types};

/// Turns what a toolchain has made of a provider into a component.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The core module of wit-bindgen for Rust or of a Go program that uses the Go SDK, or the
    /// component of skysail-componentize-js or skysail-componentize-py.
    #[arg(required = true)]
    input: Option<PathBuf>,
    /// The component. The names of its functions go into a sidecar beside it, OUTPUT with the
    /// extension .symbols.
    #[arg(required = true)]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the bindings of the Go SDK.
    GoBindings {
        /// guest-sdk/go/internal/wit
        folder: PathBuf,
    },
    /// Writes overlay.json for `go build -overlay`, by which every http.Transport of a program
    /// sends through Skysail's host: for vendors' Go code, with guest-sdk/go/cloudprovider. Run
    /// it in the folder of the program, whose go.mod says which Go builds the program.
    GoOverlay {
        /// A new folder.
        folder: PathBuf,
    },
    /// Writes the contract's types for the JavaScript SDK.
    JsTypes {
        /// guest-sdk/js/src/contract.ts
        file: PathBuf,
    },
}

fn main() -> Result<()> {
    let Args { command, input, output } = Args::parse();
    match command {
        Some(Command::GoBindings { folder }) => {
            for (path, text) in go_bindings()? {
                let file = folder.join(path);
                write(&file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
        Some(Command::GoOverlay { folder }) => go_overlay(&folder)?,
        Some(Command::JsTypes { file }) => {
            write(&file, js_types()?.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        None => {}
    }
    if let (Some(input), Some(output)) = (input, output) {
        let module = fs::read(&input).with_context(|| format!("cannot read {}", input.display()))?;
        let made = component(&module).with_context(|| format!("cannot make a component of {}", input.display()))?;
        made.write(&output, write).with_context(|| format!("cannot write {}", output.display()))?;
    }
    Ok(())
}

/// By rename: a reader of the file never sees a part of it.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = file.with_added_extension("partial");
    fs::write(&partial, bytes)?;
    fs::rename(&partial, file)
}
