//! Environments for the tests from end to end: a real kube-apiserver, a real Incus, a real
//! registry, the manager as a process.
//!
//! Nothing here is faked, and no test is skipped: if an environment cannot be set up, the test
//! fails and the error names what is missing. Everything that a test starts ends with the test.
//! Only `tests/it` and the benchmark of swaps use this crate; `make check` does not run it.

pub mod api_server;
pub mod front;
pub mod helm;
pub mod incus;
pub mod leaks;
pub mod manager;
pub mod objects;
pub mod random;
pub mod registry;
pub mod timeline;
pub mod tools;
pub mod traffic;
pub mod wait;
pub mod workspace;
