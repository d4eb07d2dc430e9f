//! When to try again, and when to repair again: by [`Code`] and number of failures or repairs.

use std::{hash::Hash, time::Duration};

use skysail_provider::Code;
use tokio::time::Instant;

use crate::{error::Error, queue::WorkQueue};

/// Upstream's limiter: 5 s, doubled by each failure.
const BASE: Duration = Duration::from_secs(5);
/// Upstream's cap.
const CAP: Duration = Duration::from_mins(5);
/// A refused credential or a used-up quota seldom heals within seconds, and asking costs quota.
const SLOW_BASE: Duration = Duration::from_mins(1);
/// What only a person can mend is looked at again this often; a change of the object or the release
/// comes first.
const SLOW_RESYNC: Duration = Duration::from_mins(30);
/// For a retry-after without a time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// A shorter retry-after is taken as this. Upstream adds the key again after whatever duration the
/// provider gave, zero included, and leaves the failure count alone: its providers are trusted
/// code. Ours may be wrong by a unit (`after-ms: 1` for a second), and would then call its cloud
/// hundreds of times a second. Nothing that a cloud makes is waited for in less: `Retry-After` of
/// HTTP counts whole seconds.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// A longer retry-after is taken as this: the contract says so.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// A conflict means that a newer object is on its way through the watch: a moment is enough, unless
/// the watch stalls.
const CONFLICT_BASE: Duration = Duration::from_millis(250);
/// Longest wait after a conflict: this long after a watch goes on, what it held up goes on too.
const CONFLICT_CAP: Duration = Duration::from_secs(30);
/// Between the first repair and the second; doubled by each further one, up to [`CAP`].
const REPAIR_BASE: Duration = Duration::from_secs(1);
/// A repair this long after the one before is a first one again. Longer than [`CAP`]: else the
/// longest wait would end the count.
const REPAIR_FORGOTTEN: Duration = Duration::from_mins(10);
/// So many repairs, within some 15 s at least, are no accident: somebody else undoes them.
const REPAIRS_CONTESTED: u32 = 5;

const _: () = assert!(BASE.as_secs() < SLOW_BASE.as_secs() && SLOW_BASE.as_secs() < CAP.as_secs());
const _: () = assert!(CAP.as_secs() < REPAIR_FORGOTTEN.as_secs());

/// How a failure is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// Not earlier than this.
    pub(crate) after: Duration,
    /// Whether the failure count goes up. A retry-after leaves it alone, as upstream, and conflicts
    /// have a count of their own.
    pub(crate) counts: bool,
    /// Whether a change around the object (its nodes) is a reason to try before: the provider did
    /// not fail, it said what has to be otherwise.
    pub(crate) until_change: bool,
}

/// Counts a failure of this key, and says how it is retried.
pub(crate) fn retry_counted<K: Clone + Eq + Hash>(queue: &WorkQueue<K>, key: &K, error: &Error) -> Retry {
    let failures = match error.is_conflict() {
        true => queue.conflicted(key),
        false => queue.failed(key, retry(error, 0).counts, error.code() == Code::Denied),
    };
    retry(error, failures)
}

/// How to retry after this error; `failures` counts the earlier ones in a row, or conflicts after a
/// conflict.
pub(crate) fn retry(error: &Error, failures: u32) -> Retry {
    if error.is_conflict() {
        let after = doubled(CONFLICT_BASE, failures).min(CONFLICT_CAP);
        return Retry { after, counts: false, until_change: false };
    }
    let until_change = matches!(error.code(), Code::Invalid | Code::Unsupported);
    match error.code() {
        Code::RetryAfter => {
            let after = error.retry_after().unwrap_or(RETRY_AFTER).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
            Retry { after, counts: false, until_change }
        }
        Code::Denied | Code::Exhausted => Retry { after: doubled(SLOW_BASE, failures), counts: true, until_change },
        Code::Invalid | Code::Unsupported => Retry { after: SLOW_RESYNC, counts: true, until_change },
        // Not before the process has long ended.
        Code::NotLeading => Retry { after: SLOW_RESYNC, counts: false, until_change },
        Code::NotFound
        | Code::ImplementedElsewhere
        | Code::Unavailable
        | Code::Internal
        | Code::Trapped
        | Code::LimitExceeded
        | Code::DeadlineExceeded
        | Code::NotServing => Retry { after: doubled(BASE, failures), counts: true, until_change },
    }
}

fn doubled(base: Duration, failures: u32) -> Duration {
    // 2^16 times any base is far beyond the cap: the shift cannot overflow.
    base.saturating_mul(1 << failures.min(16)).min(CAP)
}

/// The rate of a write that somebody else may undo each time: the first repair comes at once, and
/// each further one waits longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repairs {
    count: u32,
    last: Option<Instant>,
}

impl Repairs {
    /// How long the next repair has to wait.
    pub(crate) fn wait(self, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = doubled(REPAIR_BASE, self.count.saturating_sub(1));
        (last + pause).saturating_duration_since(now)
    }

    /// A repair begins. True where it is the one that shows that somebody else undoes them.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > REPAIR_FORGOTTEN) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
        self.count == REPAIRS_CONTESTED
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use kube::core::Status;
    use skysail_provider::{Code, Error as ProviderError};
    use tokio::time::Instant;

    use super::{REPAIR_FORGOTTEN, Repairs, Retry, retry};
    use crate::error::Error;

    fn error(source: ProviderError) -> Error {
        Error::Provider { step: "try", source }
    }

    /// S19.2 and S19.3 of the catalogue: what counts, and how long each code waits.
    #[test]
    fn each_code_waits_in_its_own_way() {
        let mut lines = String::new();
        for code in Code::ALL {
            let after: Vec<u64> =
                [0, 1, 2, 6, 99].map(|n| retry(&error(ProviderError::new(code, "")), n).after.as_secs()).into();
            let Retry { counts, until_change, .. } = retry(&error(ProviderError::new(code, "")), 0);
            let change = if until_change { " or a change" } else { "" };
            lines += &format!("{:<20} {after:?}{change} counts={counts}\n", code.category());
        }
        expect![[r#"
            NotFound             [5, 10, 20, 300, 300] counts=true
            ImplementedElsewhere [5, 10, 20, 300, 300] counts=true
            Unsupported          [1800, 1800, 1800, 1800, 1800] or a change counts=true
            Invalid              [1800, 1800, 1800, 1800, 1800] or a change counts=true
            Denied               [60, 120, 240, 300, 300] counts=true
            Exhausted            [60, 120, 240, 300, 300] counts=true
            RetryAfter           [10, 10, 10, 10, 10] counts=false
            Unavailable          [5, 10, 20, 300, 300] counts=true
            Internal             [5, 10, 20, 300, 300] counts=true
            Trapped              [5, 10, 20, 300, 300] counts=true
            LimitExceeded        [5, 10, 20, 300, 300] counts=true
            DeadlineExceeded     [5, 10, 20, 300, 300] counts=true
            NotServing           [5, 10, 20, 300, 300] counts=true
            NotLeading           [1800, 1800, 1800, 1800, 1800] counts=false
        "#]]
        .assert_eq(&lines);
    }

    /// Row B5 of the review: a watch that stalls for minutes must not cost four tries a second.
    #[test]
    fn conflicts_are_counted_and_wait_longer_each_time() {
        let conflict = || kube::Error::Api(Status::failure("modified", "Conflict").with_code(409).boxed());
        let waits = [0, 1, 2, 6, 7, 99].map(|n| retry(&Error::api("write")(conflict()), n).after.as_millis());
        assert_eq!(waits, [250, 500, 1_000, 16_000, 30_000, 30_000]);
    }

    /// Row B4 of the review.
    #[test]
    fn each_repair_waits_longer_than_the_one_before_until_it_is_forgotten() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        let (mut now, mut waits, mut contested) = (start, Vec::new(), Vec::new());
        for n in 1..=12 {
            let wait = repairs.wait(now);
            waits.push(wait.as_secs());
            now += wait;
            if repairs.begin(now) {
                contested.push(n);
            }
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(contested, [5], "said once");
        now += REPAIR_FORGOTTEN + Duration::from_secs(1);
        assert!(!repairs.begin(now));
        assert_eq!(repairs.wait(now), Duration::from_secs(1));
    }

    /// S19.3.
    #[test]
    fn a_retry_after_is_honoured_from_a_second_to_an_hour() {
        let after = |wanted| retry(&error(ProviderError::retry_after(wanted, "")), 3).after;
        for (wanted, waited) in [
            // Without a time.
            (Duration::ZERO, Duration::from_secs(10)),
            (Duration::from_millis(1), Duration::from_secs(1)),
            (Duration::from_millis(1500), Duration::from_millis(1500)),
            (Duration::from_secs(42), Duration::from_secs(42)),
            (Duration::from_hours(24), Duration::from_hours(1)),
        ] {
            assert_eq!(after(wanted), waited, "{wanted:?}");
        }
    }
}
