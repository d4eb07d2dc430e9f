//! Exchanges that a vendor's published description of its API does not allow: a request of the
//! provider, or an answer of the cloud that plays the vendor's.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};

/// The differences of all tests of this process.
static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes an exchange that `description` does not allow.
pub(crate) fn differs(description: &str, difference: &str) {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).push(format!("\n  {description}: {difference}"));
}

/// Fails if an exchange of this process differed.
///
/// # Errors
/// The exchanges.
pub fn none() -> Result<()> {
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(found.is_empty(), "exchanges that the vendor's description does not allow:{}", found.concat());
    Ok(())
}
