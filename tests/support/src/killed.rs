//! A writer that SIGKILL ends at a random moment: the test binary itself, started again for one
//! test.

use std::{
    env,
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Starts the test `test` of this test binary as the writer, with `folder` in the environment
/// variable `variable`, and kills the writer at a moment that `random` decides.
///
/// # Errors
/// The writer cannot be started, or ends before it is killed.
pub fn start_and_kill(test: &str, variable: &str, folder: &Path, random: &mut fastrand::Rng) -> Result<()> {
    let mut writer = Command::new(env::current_exe()?)
        .args(["--exact", test])
        .env(variable, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // On a busy machine the start of a process and a write take any time, so that the moment of a
    // kill counts from what the process has done.
    let signs = writer.stderr.as_mut().map(|signs| signs.read_exact(&mut vec![0; random.usize(1..=2)]));
    signs.context("the writer has no standard error")?.context("the writer must run until it is killed")?;
    thread::park_timeout(Duration::from_micros(random.u64(0..25_000)));
    writer.kill()?;
    writer.wait()?;
    Ok(())
}

/// Tells the process that kills the writer that it has begun, or has finished a write.
///
/// # Errors
/// That process has ended.
pub fn give_sign() -> io::Result<()> {
    io::stderr().write_all(b".")
}
