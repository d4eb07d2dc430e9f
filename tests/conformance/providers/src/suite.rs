//! What every provider has to do. Each function starts a world of its own and fails with a
//! sentence.

mod accounts;
pub mod balancers;
pub mod deletions;
pub mod faults;
pub mod inventory;
pub mod judged;
pub mod machines;
pub mod routes;

use anyhow::{Result, ensure};

/// Fails with the lines that differ.
///
/// # Errors
/// The two lists differ.
pub fn same(what: &str, actual: &[String], expected: &[String]) -> Result<()> {
    let only = |these: &[String], those: &[String]| {
        let lines = these.iter().filter(|line| !those.contains(line)).map(|line| format!("\n    {line}"));
        lines.collect::<String>()
    };
    ensure!(
        actual == expected,
        "{what}:\n  {} objects instead of {}; unexpected:{}\n  missing:{}",
        actual.len(),
        expected.len(),
        only(actual, expected),
        only(expected, actual)
    );
    Ok(())
}
