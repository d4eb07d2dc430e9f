//! Who of several replicas leads: leader election by a Lease, as client-go does it, and a fence
//! around everything that only a leader may do.
//!
//! # Flow
//! An [`Elector`] waits for the lease ([`Elector::acquire`]) and becomes a [`Leader`], which renews
//! it in the background. What a leader does carries its [`Leader::fence`]: [`fenced`] makes a
//! client whose writes ask it, and every provider call has one. [`Leader::lost`] says when the
//! process has to end; [`Leader::release`] gives the lease back, so that the next one need not wait
//! until it runs out. A replica that stands by watches the lease: it knows to the millisecond when
//! the last renewal that it has seen runs out, and tries then.
//!
//! # Guarantees
//! - At most one fence of a lease is open, as long as no two machines' clocks differ in speed by
//!   more than the lease duration does from the renew deadline (15 s and 10 s: by half). What time
//!   it is on them does not matter: nobody counts from a time that another one has written.
//! - Nothing is sent past a closed fence, whatever froze the process and for however long.
//! - Nothing is written after the release but the release.
//!
//! # What it must not do
//! Know controllers or WebAssembly. Read files, flags or the environment.

mod clock;
mod config;
mod elector;
mod event;
mod fenced;
mod health;
mod jitter;
mod leader;
mod lease;
mod metrics;
mod sightings;

pub use clock::{Clock, SystemClock};
pub use config::{ElectionConfig, Timing, TimingError};
pub use elector::{Elector, ElectorOptions};
pub use fenced::fenced;
pub use health::{Health, LEADER_ELECTION_CHECK};
pub use leader::{Leader, Lost};
pub use metrics::ElectionMetrics;
