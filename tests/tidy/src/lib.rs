//! The style rules that a machine can check, as ordinary tests.
//!
//! The crate only reads: the files of the repository, `cargo tree`, the contract's WIT. It builds
//! nothing, runs no code of the repository and needs no environment. A rule is an entry of
//! `rule::RULES`; `fixtures/<rule>.txt` holds the violations that the rule must find. `evolution`
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
