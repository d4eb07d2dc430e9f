//! Leader election of replicas by a Lease, as client-go does it, and a fence around everything that
//! only a leader may do.
//!
//! # Flow
//! An [`Elector`] waits for the lease ([`Elector::acquire`]) and becomes a [`Leader`], which renews
//! the lease in the background. The leader's actions check its [`Leader::fence`]: [`fenced`]
//! creates a client whose writes check it, and every provider call has it. [`Leader::lost`] returns
//! when the process has to end; [`Leader::release`] releases the lease, so that the next leader
//! need not wait until it expires. A standby replica watches the lease, so it knows when the last
//! renewal that it saw expires, and tries then.
//!
//! # Guarantees
//! - At most one fence of a lease is open, as long as the clock rates of any two machines differ by
//!   less than the ratio of lease duration to renew deadline (15 s to 10 s: 1.5). The wall-clock
//!   time of the machines does not matter: no replica counts from a time that another one has
//!   written. A Lease that somebody deletes counts as held until it would have expired; only a
//!   replica that starts after the deletion takes it at once, beside a leader that learns of it by
//!   its next renewal.
//! - Nothing is sent after the fence closed, however long the process was frozen.
//! - After the fence closed, the release is the only write.
//!
//! # Rules
//! This crate does not depend on controllers or WebAssembly, and reads no files, flags or
//! environment variables.

mod clock;
mod config;
mod elector;
mod event;
mod fenced;
mod health;
mod jitter;
mod leader;
mod lease;
mod lease_watch;
mod metrics;

pub use clock::{Clock, SystemClock};
pub use config::{ElectionConfig, Timing, TimingError};
pub use elector::{Elector, ElectorOptions};
pub use fenced::fenced;
pub use health::{Health, LEADER_ELECTION_CHECK};
pub use leader::{Leader, Lost};
pub use metrics::ElectionMetrics;
