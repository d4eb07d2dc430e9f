//! Environments for the tests from end to end: a real kube-apiserver, a real Incus, a real
//! registry, the manager as a process.
//!
//! Nothing here is faked, and nothing is skipped: an environment that cannot be set up is an error
//! that says what is missing. What a test starts ends with it. Only `tests/it` and the benchmark of
//! swaps use this crate; `make check` runs none of it.

pub mod api_server;
pub mod front;
pub mod incus;
pub mod manager;
pub mod objects;
pub mod random;
pub mod registry;
pub mod tools;
pub mod traffic;
pub mod wait;
pub mod workspace;
