//! The rules of the house that a machine can check, as ordinary tests: what a reviewer would
//! otherwise have to remember.
//!
//! Everything here only reads: the files of the repository, `cargo tree`, the contract's WIT. It
//! builds nothing, runs nothing of ours and needs no environment. A rule is an entry of
//! `rule::RULES`; `fixtures/<rule>.txt` holds the violations that it must find. `evolution`
//! compares two versions of the contract by the rules of `wit/README.md`.

#[cfg(test)]
mod evolution;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod rule;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod source;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree;
