//! Resident memory of this process.

use std::fs;

use anyhow::{Context as _, Result};

use crate::mebibytes;

/// `VmRSS`, in MiB.
pub(super) fn resident_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    mebibytes(&status, "VmRSS:")
}
