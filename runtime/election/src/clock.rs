//! The two clocks of an election: one that measures, one that is written into the Lease for people.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// What an election takes the time from.
pub trait Clock: Send + Sync + 'static {
    /// Time since any fixed moment. Never goes back, and goes on while the process is frozen and
    /// while the machine sleeps: all decisions are made by it.
    fn elapsed(&self) -> Duration;

    /// The time of day; nothing is decided by it.
    fn now(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// `CLOCK_BOOTTIME`: `CLOCK_MONOTONIC`, which tokio's timers use, stands still while the
    /// machine sleeps.
    fn elapsed(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
