//! The health check of a leader that should have ended.
//!
//! A leader that cannot renew its lease ends by itself. If it hangs instead, the kubelet has to
//! restart it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::clock::Clock;

/// Name of the check in `/healthz`, as upstream's.
pub const LEADER_ELECTION_CHECK: &str = "leaderElection";

/// As upstream: the tolerance after the lease expired.
const TOLERANCE: Duration = Duration::from_secs(20);

/// Whether the leader of one lease still renews it. Cloning shares it.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    lease: String,
    lease_duration: Duration,
    clock: Arc<dyn Clock>,
    /// Milliseconds of the clock at the last renewal, plus one; 0 while standing by.
    renewed: AtomicU64,
}

impl Health {
    pub(crate) fn new(lease: &str, lease_duration: Duration, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { lease: lease.to_owned(), lease_duration, clock, renewed: AtomicU64::new(0) }))
    }

    /// Fails if this process leads and has not renewed its lease for the lease duration and 20 s
    /// more.
    ///
    /// # Errors
    /// Upstream's text.
    pub fn check(&self) -> Result<(), String> {
        let Inner { lease, lease_duration, clock, renewed } = &*self.0;
        let Some(renewed) = renewed.load(Ordering::Acquire).checked_sub(1).map(Duration::from_millis) else {
            return Ok(());
        };
        if clock.elapsed().saturating_sub(renewed) > *lease_duration + TOLERANCE {
            return Err(format!("failed election to renew leadership on lease {lease}"));
        }
        Ok(())
    }

    pub(crate) fn renewed(&self) {
        let now = u64::try_from(self.0.clock.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.0.renewed.store(now.saturating_add(1), Ordering::Release);
    }

    pub(crate) fn stands_by(&self) {
        self.0.renewed.store(0, Ordering::Release);
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("lease", &self.0.lease).field("check", &self.check()).finish_non_exhaustive()
    }
}
