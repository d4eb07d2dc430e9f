//! A deterministic simulation of one day with faults in a cluster, its clouds and its managers. One
//! seed decides the day, and invariants are checked during the day and at its end.
//!
//! The names: a *story* is the log of a day, *weather* the faults of the Kubernetes API, the
//! *referee* checks invariants, *people* are the users who change objects, and *calm* is the time
//! after the last fault.
//!
//! # What is real
//! The controllers and the leader election as `skysail run` composes them, in several replicas, on
//! the in-memory Kubernetes API, with their deadlines and rate limits. In each replica, the task of
//! `skysail-slot` decides which release of each provider serves, with its trials, drains and
//! routing. The clouds, the releases, their loads and their sources are a model: requests have a
//! latency, and some fail before or after they took effect.
//!
//! # What repeats
//! Everything repeats: the clock is tokio's paused clock, there is one thread, and all randomness
//! comes from the seed, that of hash maps included ([`entropy`]). So one seed always has the same
//! story. A process runs only one seed, because libraries count runtimes in statics.
//!
//! # Flow
//! A [`Plan`] is drawn from the seed. [`run`] lets people and machines act (`operations`) while
//! requests fail (`weather`, `cloud`) and a [`Referee`] checks invariants. Then the faults stop,
//! and the state has to become the desired one (`end_state`) and stay so.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it is for tests only, and a panic is how a test fails"
)]

mod budget;
mod chance;
mod client;
mod clock;
mod cloud;
mod deletions;
mod end_state;
pub mod entropy;
mod feeder;
mod folder;
mod link;
mod operations;
mod operator;
mod other_controller;
mod plan;
mod provider;
mod referee;
mod release;
mod replica;
mod rival;
mod simulation;
mod slot;
mod slot_provider;
mod story;
mod trials;
mod vendor;
mod weather;

use mimalloc::MiMalloc;

pub use plan::Plan;
pub use referee::Referee;
pub use simulation::{Outcome, run};
pub use story::Story;

/// A day makes and drops millions of small JSON values: with the C library's allocator it takes 1.8
/// times the CPU time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
