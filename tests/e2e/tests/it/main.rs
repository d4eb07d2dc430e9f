//! The tests from end to end. Each sets up its environment, and fails where it cannot.

mod manifests;
mod real_incus;
mod simulated;
