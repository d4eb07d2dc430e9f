//! The two clocks of an election: one for decisions, one for the times in the Lease.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The source of time of an election.
pub trait Clock: Send + Sync + 'static {
    /// Time since any fixed moment, for all decisions. Never goes back; continues while the process
    /// is frozen or the machine is suspended.
    fn elapsed(&self) -> Duration;

    /// The wall-clock time; no decision depends on it.
    fn now(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// `CLOCK_BOOTTIME`. `CLOCK_MONOTONIC`, which tokio's timers use, stops while the machine is
    /// suspended.
    fn elapsed(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
