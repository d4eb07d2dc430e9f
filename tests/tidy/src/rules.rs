//! The rules, by subject.

pub(crate) mod code;
pub(crate) mod conformance;
pub(crate) mod crates;
pub(crate) mod cycles;
pub(crate) mod files;
pub(crate) mod observability;
pub(crate) mod prose;
pub(crate) mod repository;
pub(crate) mod tests;

/// Files that a package manager writes.
fn is_lock_file(file: &crate::tree::File) -> bool {
    matches!(file.name(), "Cargo.lock" | "go.sum" | "package-lock.json")
}
