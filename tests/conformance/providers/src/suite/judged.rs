//! The component compared with the vendor's Go provider, before one cloud.

pub mod balancers;
pub mod machines;
pub mod routes;
pub mod sandboxed;

use crate::cloud::{Difference, Judged};

/// What may differ in the case of this name.
fn differences<C: Judged>(case: &str) -> impl Iterator<Item = &'static Difference> {
    C::differences().iter().filter(move |one| one.cases.is_empty() || one.cases.contains(&case))
}

/// The lines that have to be equal.
fn without<C: Judged>(case: &str, lines: &[String]) -> Vec<String> {
    let differs = |text: &str| differences::<C>(case).any(|one| one.lines.iter().any(|part| text.contains(part)));
    lines.iter().filter(|line| !differs(line)).cloned().collect()
}
