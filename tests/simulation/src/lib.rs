//! A deterministic simulation: one seed decides a bad day of a cluster, its clouds and its
//! managers, and what is true afterwards is checked.
//!
//! # What is real
//! The controllers and the leader election as `skysail run` puts them together, several replicas of
//! them, over the in-memory Kubernetes API. The clouds and their provider are a model: requests
//! with latency, some of which fail before or after they took effect.
//!
//! # What repeats
//! Everything: the clock is tokio's, paused; there is one thread; chance comes from the seed, also
//! that of the hash maps ([`entropy`]). So one seed is one story, told line by line. A process runs
//! one seed only: libraries count runtimes in statics.
//!
//! # Flow
//! A [`Plan`] is drawn from the seed; [`run`] lets people and machines do things (`operations`)
//! while the weather is bad (`weather`, `cloud`) and a [`Referee`] watches; then faults stop, and
//! the state has to become the wanted one (`end_state`) and stay so.
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
mod end_state;
pub mod entropy;
mod link;
mod operations;
mod operator;
mod plan;
mod provider;
mod referee;
mod replica;
mod rival;
mod simulation;
mod story;
mod weather;

pub use plan::Plan;
pub use referee::Referee;
pub use simulation::{Outcome, run};
pub use story::Story;
