//! Resident memory of this process.

use std::fs;

use anyhow::{Context as _, Result};

/// `VmRSS`, in MiB.
pub(super) fn resident_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc/self/status has no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS in kB")?;
    Ok(kib / 1024.0)
}
