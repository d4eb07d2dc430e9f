//! The environment of the conformance tests: a cluster in memory, clouds in memory, and the
//! controllers between them under a paused clock.
//!
//! The tests are in `tests/it`. Tests of pure functions are next to the functions, in
//! `runtime/controllers`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    reason = "it is for tests only, and a panic is how a test fails"
)]

pub mod log;
pub mod routes;
pub mod world;
