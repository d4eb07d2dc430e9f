//! The manager's HTTPS endpoints, and a host for admission webhooks.
//!
//! # How it hangs together
//! `options` is what an operator said → `tls` makes of it what is spoken on a port → `server`
//! accepts connections within `limits` → `guard` asks `authentication` who asks and `authorization`
//! whether they may → `endpoints` answers, among others from `health`. `webhook` is a port of its
//! own without `guard`, as upstream's. `metrics` counts what no controller does: the process, its
//! build, its requests to the API server.
//!
//! # What it must not do
//! Know controllers, providers or WebAssembly: it serves the closures and values that it is given.
//! Tell an unauthenticated client why a check failed. Keep or log a token.

mod authentication;
mod authorization;
mod cache;
mod endpoints;
mod error;
mod guard;
mod health;
mod limits;
pub mod metrics;
pub mod options;
mod server;
#[cfg(test)]
mod testing;
mod tls;
pub mod webhook;

pub use endpoints::{Endpoints, SetVerbosity};
pub use error::ServingError;
pub use guard::{Guard, Reviewers};
pub use health::{HealthCheck, HealthChecks, HealthMetrics};
pub use server::SecureServer;

/// An error with its causes, on one line.
fn chain(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
