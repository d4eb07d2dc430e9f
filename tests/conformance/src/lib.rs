//! What the conformance tests stand in: a cluster in memory, clouds in memory, and the controllers
//! between them under a paused clock.
//!
//! The tests themselves are in `tests/it`. Those of pure functions stand beside the functions, in
//! `runtime/controllers`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    reason = "it is for tests only, and a panic is how a test fails"
)]

pub mod routes;
pub mod world;
