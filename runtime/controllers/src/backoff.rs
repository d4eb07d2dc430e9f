//! When to try again: by [`Code`] and number of failures. Pure.

use std::time::Duration;

use skysail_provider::Code;

use crate::error::Error;

/// Upstream's limiter: 5 s, doubled by each failure.
const BASE: Duration = Duration::from_secs(5);
/// Upstream's cap.
const CAP: Duration = Duration::from_mins(5);
/// A refused credential or a used-up quota seldom heals within seconds, and asking costs quota.
const SLOW_BASE: Duration = Duration::from_mins(1);
/// What only a person can mend is looked at again this often; a change of the object or the release comes first.
const SLOW_RESYNC: Duration = Duration::from_mins(30);
/// For a retry-after without a time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// A shorter retry-after is taken as this. Upstream adds the key again after whatever duration the provider gave, zero included, and leaves the
/// failure count alone: its providers are trusted code. Ours may be wrong by a unit (`after-ms: 1` for a second), and would then call its cloud
/// hundreds of times a second. Nothing that a cloud makes is waited for in less: `Retry-After` of HTTP counts whole seconds.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// A longer retry-after is taken as this: the contract says so.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// A conflict means that a newer object is on its way through the watch: a moment is enough.
const CONFLICT: Duration = Duration::from_millis(250);

const _: () = assert!(BASE.as_secs() < SLOW_BASE.as_secs() && SLOW_BASE.as_secs() < CAP.as_secs());

/// How a failure is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// Not earlier than this.
    pub(crate) after: Duration,
    /// Whether the failure count goes up. A retry-after and a conflict leave it alone, as upstream.
    pub(crate) counts: bool,
    /// Whether a change around the object (its nodes) is a reason to try before: the provider did not fail, it said what has to be otherwise.
    pub(crate) until_change: bool,
}

/// How to retry after this error; `failures` counts the earlier ones in a row.
pub(crate) fn retry(error: &Error, failures: u32) -> Retry {
    if error.is_conflict() {
        return Retry { after: CONFLICT, counts: false, until_change: false };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use skysail_provider::{Code, Error as ProviderError};

    use super::{Retry, retry};
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
