//! The reference for the figures: only one compilation of the same component on one thread, in a
//! separate process.
//!
//! It does not run in this process, because the compiler's leftovers in the allocator would count
//! as memory of the swaps.

use std::{io::Read as _, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use skysail_host::{CompiledComponent, Limits, engine_config};
use tokio::{io::AsyncWriteExt as _, process::Command, time::Instant};
use wasmtime::Engine;

/// The first argument of a process that compiles once.
pub const REFERENCE: &str = "__reference";

/// Compiles the component on standard input and prints the time in microseconds and the bytes of
/// machine code.
///
/// # Errors
/// The input is not a component.
#[expect(clippy::print_stdout, reason = "the process that started this one reads it")]
pub fn reference_main() -> Result<()> {
    let mut component = Vec::new();
    std::io::stdin().read_to_end(&mut component).context("reading the component")?;
    let mut config = engine_config(Limits::default().stack_bytes);
    let engine = Engine::new(config.parallel_compilation(false))
        .map_err(|error| anyhow!("an engine for comparison: {error:#}"))?;
    let begun = Instant::now();
    let code = CompiledComponent::in_process(&engine, &component)?;
    println!("{} {}", begun.elapsed().as_micros(), code.size());
    Ok(())
}

/// The time of one compilation, and the bytes of machine code; `program` calls [`reference_main`].
pub(super) async fn compile_once(program: &Path, component: &[u8]) -> Result<(Duration, usize)> {
    let mut child = Command::new(program)
        .arg(REFERENCE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut stdin = child.stdin.take().context("a pipe to the child is missing")?;
    stdin.write_all(component).await.context("sending the component")?;
    drop(stdin);
    let output = child.wait_with_output().await.context("waiting for the compilation")?;
    ensure!(output.status.success(), "the compilation for comparison ended with {}", output.status);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (micros, bytes) = said.trim().split_once(' ').with_context(|| format!("it printed {said:?}"))?;
    Ok((Duration::from_micros(micros.parse()?), bytes.parse()?))
}
