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
/// Interval for errors that only a person can fix. A change of the object or of the release
/// triggers a retry earlier.
pub const SLOW_RESYNC: Duration = Duration::from_mins(30);
/// The delay for a retry-after error without a time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The shortest delay for a retry-after error. Upstream requeues the key after whatever duration
/// the provider gave, zero included, and leaves the failure count alone, because upstream's
/// providers are trusted code. A guest may confuse the unit (`after-ms: 1` for one second) and
/// would then call its cloud hundreds of times a second. HTTP's `Retry-After` counts whole seconds,
/// so no cloud needs a shorter delay.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// The longest delay for a retry-after error; the contract defines it.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// First wait after a conflict; the watch usually delivers the newer object sooner.
const CONFLICT_BASE: Duration = Duration::from_millis(250);
/// Longest wait after a conflict or an outage of the Kubernetes API: after the watch or the API
/// server recovers, a key waits no longer than this. Such a retry calls no provider before the API
/// answers.
pub(crate) const API_CAP: Duration = Duration::from_secs(10);
/// Wait between the first repair and the second; each further repair doubles it, up to [`CAP`].
const REPAIR_BASE: Duration = Duration::from_secs(1);
/// A repair this long after the previous one counts as a first repair. Longer than [`CAP`]:
/// otherwise the longest wait would reset the count.
const REPAIR_FORGOTTEN: Duration = Duration::from_mins(10);
/// After this many repairs another writer is undoing them. With the delays between them, the
/// repairs take at least 15 s together, so a single repair is not reported as a conflict.
const REPAIRS_UNTIL_CONFLICT: u32 = 5;

const _: () = assert!(BASE.as_secs() < SLOW_BASE.as_secs() && SLOW_BASE.as_secs() < CAP.as_secs());
const _: () = assert!(CAP.as_secs() < REPAIR_FORGOTTEN.as_secs());

/// How a failure is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The shortest delay before the next try.
    pub(crate) after: Duration,
    /// Whether the failure count goes up. As upstream, a retry-after error leaves it alone;
    /// conflicts and outages of the Kubernetes API have their own count.
    pub(crate) counts: bool,
    /// Whether a change of the object's nodes triggers an earlier try: the provider did not fail,
    /// it rejected the present input.
    pub(crate) until_change: bool,
}

/// Counts a failure of this key and returns how to retry it.
pub(crate) fn retry_counted<K: Clone + Eq + Hash>(queue: &WorkQueue<K>, key: &K, error: &Error) -> Retry {
    let failures = match error.is_conflict() || error.is_api_outage() {
        true => queue.failed_at_api(key),
        false => queue.failed(key, retry(error, 0).counts, error.code() == Code::Denied),
    };
    retry(error, failures)
}

/// How to retry after this error. `failures` is the number of earlier failures in a row; after a
/// conflict or an outage of the Kubernetes API, of earlier conflicts and outages.
pub(crate) fn retry(error: &Error, failures: u32) -> Retry {
    if error.is_conflict() {
        let after = doubled(CONFLICT_BASE, failures).min(API_CAP);
        return Retry { after, counts: false, until_change: false };
    }
    if error.is_api_outage() {
        return Retry { after: doubled(BASE, failures).min(API_CAP), counts: false, until_change: false };
    }
    let until_change = matches!(error.code(), Code::Invalid | Code::Unsupported);
    match error.code() {
        Code::RetryAfter => {
            let after = error.retry_after().unwrap_or(RETRY_AFTER).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
            Retry { after, counts: false, until_change }
        }
        Code::Denied | Code::Exhausted => Retry { after: doubled(SLOW_BASE, failures), counts: true, until_change },
        Code::Invalid | Code::Unsupported => Retry { after: SLOW_RESYNC, counts: true, until_change },
        // This process lost the lease and ends long before this delay.
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

/// Limits the rate of a write that another writer may undo each time: the first repair is
/// immediate, each further repair waits longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repairs {
    /// Repairs that began.
    count: u32,
    /// Those whose write succeeded.
    written: u32,
    last: Option<Instant>,
}

impl Repairs {
    /// How long the next repair has to wait.
    pub(crate) fn wait(self, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = doubled(REPAIR_BASE, self.count.saturating_sub(1));
        (last + pause).saturating_duration_since(now)
    }

    /// Whether the last repair is so long ago that the next one begins a new count.
    pub(crate) fn are_forgotten(self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) > REPAIR_FORGOTTEN)
    }

    /// Whether another writer seems to undo the repairs, or the API server to refuse them.
    pub(crate) const fn are_undone(self) -> bool {
        self.count >= REPAIRS_UNTIL_CONFLICT
    }

    /// Records the start of a repair.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.are_forgotten(now) {
            (self.count, self.written) = (0, 0);
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    /// Records that the write of the repair that began succeeded. Returns true for the write that
    /// shows that another writer undoes them.
    pub(crate) const fn written(&mut self) -> bool {
        self.written = self.written.saturating_add(1);
        self.written == REPAIRS_UNTIL_CONFLICT
    }

    /// Records a repair whose write has succeeded: [`Self::begin`] and [`Self::written`].
    pub(crate) fn record(&mut self, now: Instant) -> bool {
        self.begin(now);
        self.written()
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

    fn api_answer(code: u16) -> Error {
        Error::api("write")(kube::Error::Api(Status::failure("no", "Reason").with_code(code).boxed()))
    }

    /// S19.2 and S19.3 of tests/conformance/README.md: what counts, and how long each code waits.
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

    /// A watch that stalls for minutes must not cost four tries a second.
    #[test]
    fn conflicts_are_counted_and_wait_longer_each_time() {
        let waits = [0, 1, 2, 5, 6, 99].map(|n| retry(&api_answer(409), n).after.as_millis());
        assert_eq!(waits, [250, 500, 1_000, 8_000, 10_000, 10_000]);
    }

    /// Queues work again within a minute after the API server recovered.
    #[test]
    fn an_api_server_that_does_not_answer_is_asked_again_within_ten_seconds_however_often_it_failed() {
        let waits = |error: &Error| [0, 1, 2, 99].map(|n| retry(error, n).after.as_secs());
        let unanswered = Error::api("write")(kube::Error::Service("the API server did not answer".into()));
        for error in [unanswered, api_answer(429), api_answer(500), api_answer(503), api_answer(504)] {
            assert_eq!(waits(&error), [5, 10, 10, 10], "{error:?}");
        }
        // The API server answered, and only a person can fix these.
        for error in [api_answer(403), api_answer(422)] {
            assert_eq!(waits(&error), [5, 10, 20, 300], "{error:?}");
        }
    }

    #[test]
    fn each_repair_waits_longer_than_the_one_before_until_it_is_forgotten() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        let (mut now, mut waits, mut reported) = (start, Vec::new(), Vec::new());
        for n in 1..=12 {
            let wait = repairs.wait(now);
            waits.push(wait.as_secs());
            now += wait;
            // The second one is refused.
            repairs.begin(now);
            if n != 2 && repairs.written() {
                reported.push(n);
            }
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(reported, [6], "once");
        now += REPAIR_FORGOTTEN + Duration::from_secs(1);
        assert!(!repairs.record(now));
        assert_eq!(repairs.wait(now), Duration::from_secs(1));
    }

    /// S19.3.
    #[test]
    fn a_retry_after_is_honoured_from_a_second_to_an_hour() {
        let after = |wanted| retry(&error(ProviderError::retry_after(wanted, "")), 3).after;
        for (wanted, waited) in [
            // A retry-after without a time.
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
