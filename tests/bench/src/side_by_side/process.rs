//! A manager as a process, and its CPU time and memory from `/proc`.

use std::{fs, process::Child, time::Duration};

use anyhow::{Context as _, Result, bail};
use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, Signal, kill_process},
};
use serde::{Deserialize, Serialize};

use crate::mebibytes;

/// A manager. Dropping it sends SIGTERM and waits until the process has ended.
#[derive(Debug)]
pub(super) struct Process(Child);

/// Memory of a process, in MiB.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The current value.
    pub(super) resident: f64,
    /// The peak so far.
    pub(super) peak: f64,
}

impl Process {
    pub(super) const fn new(child: Child) -> Self {
        Self(child)
    }

    /// CPU time so far, user and system, including ended children (Skysail compiles in a child).
    pub(super) fn cpu(&self) -> Result<Duration> {
        let text = self.read("stat")?;
        // The name of the program, in parentheses, may contain any character.
        let (_, fields) = text.rsplit_once(')').context("/proc/PID/stat has no name")?;
        // utime, stime, cutime and cstime are fields 14 to 17, and the rest begins with field 3.
        let ticks: Result<Vec<u64>, _> = fields.split_whitespace().skip(11).take(4).map(str::parse).collect();
        let ticks: u64 = ticks.context("/proc/PID/stat has other fields")?.iter().sum();
        Ok(Duration::from_millis(ticks * 1_000 / clock_ticks_per_second()))
    }

    pub(super) fn memory(&self) -> Result<Memory> {
        let text = self.read("status")?;
        Ok(Memory { resident: mebibytes(&text, "VmRSS:")?, peak: mebibytes(&text, "VmHWM:")? })
    }

    /// # Errors
    /// The process has ended.
    pub(super) fn still_runs(&mut self) -> Result<()> {
        match self.0.try_wait().context("waiting for the manager")? {
            None => Ok(()),
            Some(status) => bail!("the manager ended with {status}"),
        }
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0.id());
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = self.0.id().try_into().ok().and_then(Pid::from_raw) {
            let _ended_already = kill_process(pid, Signal::TERM);
        }
        drop(self.0.wait());
    }
}
