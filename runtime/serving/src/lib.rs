//! The manager's HTTPS endpoints, and a host for admission webhooks.
//!
//! # Structure
//! `options` has the operator's flags → `tls` builds the TLS configuration of a port → `server`
//! accepts connections within `limits` → `guard` calls `authentication` and `authorization` for
//! each request → `endpoints` answers, for example from `health`. `webhook` is a separate port
//! without `guard`, as upstream. `metrics` has the metrics of the process, its build and its
//! requests to the API server.
//!
//! # What this crate must not do
//! It must not know controllers, providers or WebAssembly: it serves closures and values that it is
//! given. It must not tell an unauthenticated client why a check failed. It must not keep or log a
//! token.

mod authentication;
mod authorization;
mod cache;
mod endpoints;
mod error;
mod guard;
mod health;
mod limits;
mod line_rate;
pub mod metrics;
pub mod options;
mod peer_address;
mod review;
mod server;
#[cfg(test)]
mod testing;
mod tls;
mod waiting_places;
pub mod webhook;

pub use endpoints::{Endpoints, NoDocument, ObjectDocument, SetVerbosity};
pub use error::ServingError;
pub use guard::{Guard, Reviewers};
pub use health::{HealthCheck, HealthChecks, HealthMetrics};
pub use server::SecureServer;
