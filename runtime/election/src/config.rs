//! The lease and the durations of an election. Validated once: a [`Timing`] is always valid.

use std::time::Duration;

/// As client-go: jitter delays a retry by up to this factor of its period.
pub(crate) const JITTER_FACTOR: f64 = 1.2;

/// A shorter request timeout would fail on a busy API server.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// A lease and the identity of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Identity of this process, unique among all processes, past and future.
    pub identity: String,
    /// Durations of the election.
    pub timing: Timing,
}

/// The three durations of an election. Default: those of upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Durations that would allow two leaders, or let a leader lose its lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Another replica could become leader before this one has stopped.
    #[error(
        "--leader-elect-lease-duration={lease:?} must be greater than --leader-elect-renew-deadline={renew:?}: another replica may become leader \
         after the first, and this replica stops after the second"
    )]
    LeaseDuration {
        /// As given.
        lease: Duration,
        /// As given.
        renew: Duration,
    },
    /// One failed renewal would lose the lease.
    #[error(
        "--leader-elect-renew-deadline={renew:?} must be greater than --leader-elect-retry-period={retry:?} times 1.2: otherwise one failed \
         renewal loses the lease"
    )]
    RenewDeadline {
        /// As given.
        renew: Duration,
        /// As given.
        retry: Duration,
    },
    /// The retry period is zero.
    #[error("--leader-elect-retry-period must be greater than zero")]
    RetryPeriod,
    /// The Lease stores whole seconds.
    #[error(
        "--leader-elect-lease-duration={0:?} must be whole seconds, up to 2147483647: a Lease stores whole seconds, and the next leader would begin early"
    )]
    WholeSeconds(Duration),
}

impl Timing {
    /// Validates upstream's rules, and that the Lease can store the duration.
    ///
    /// # Errors
    /// The first violated rule, with the names of the flags.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        if lease_duration.subsec_nanos() != 0 || i32::try_from(lease_duration.as_secs()).is_err() {
            return Err(TimingError::WholeSeconds(lease_duration));
        }
        if lease_duration <= renew_deadline {
            return Err(TimingError::LeaseDuration { lease: lease_duration, renew: renew_deadline });
        }
        if renew_deadline <= retry_period.mul_f64(JITTER_FACTOR) {
            return Err(TimingError::RenewDeadline { renew: renew_deadline, retry: retry_period });
        }
        if retry_period.is_zero() {
            return Err(TimingError::RetryPeriod);
        }
        Ok(Self { lease_duration, renew_deadline, retry_period })
    }

    /// How long other candidates wait after the last renewal that they saw.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// How long a leader may act after its last renewal.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Pause between two tries.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// How long one request about the lease may take: half the renew deadline, so that there is
    /// time for another one.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(REQUEST_TIMEOUT_MIN)
    }

    /// The lease duration as stored in the Lease.
    pub(crate) fn lease_seconds(&self) -> i32 {
        // `new` guarantees that it fits.
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease_duration: seconds(15), renew_deadline: seconds(10), retry_period: seconds(2) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timing, TimingError};

    fn timing(lease: u64, renew: u64, retry: u64) -> Result<Timing, TimingError> {
        let ms = Duration::from_millis;
        Timing::new(ms(lease), ms(renew), ms(retry))
    }

    #[test]
    fn the_defaults_are_upstreams_and_pass_their_own_rules() {
        assert_eq!(timing(15_000, 10_000, 2_000), Ok(Timing::default()));
        assert_eq!(Timing::default().request_timeout(), Duration::from_secs(5));
        assert_eq!(timing(3_000, 1_500, 200).unwrap().request_timeout(), Duration::from_secs(1), "not below a second");
    }

    #[test]
    fn each_rule_names_the_flags_that_break_it() {
        let refused = |lease, renew, retry| timing(lease, renew, retry).unwrap_err().to_string();
        let text = refused(10_000, 10_000, 2_000);
        assert!(
            text.starts_with(
                "--leader-elect-lease-duration=10s must be greater than --leader-elect-renew-deadline=10s: "
            ),
            "{text}"
        );
        let text = refused(15_000, 12_000, 10_000);
        assert!(
            text.starts_with(
                "--leader-elect-renew-deadline=12s must be greater than --leader-elect-retry-period=10s times 1.2"
            ),
            "{text}"
        );
        assert!(timing(15_000, 12_001, 10_000).is_ok());
        assert_eq!(refused(15_000, 10_000, 0), "--leader-elect-retry-period must be greater than zero");
        assert!(refused(1_500, 1_000, 100).starts_with("--leader-elect-lease-duration=1.5s must be whole seconds"));
    }
}
