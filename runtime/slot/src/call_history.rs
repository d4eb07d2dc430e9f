//! Counts of how the calls of one release ended. A trial (`trial`) decides by these counts
//! whether the release may stay.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skysail_provider::{Code, text::one_line};
use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

use crate::Fault;

/// The length of the longest account of a broken call, in bytes.
const ACCOUNT_BYTES_MAX: usize = 300;

/// The resolution of the history.
const BUCKET: Duration = Duration::from_secs(15);

/// Buckets of the history: an hour of a busy release, in some 10 KiB.
const BUCKETS_MAX: usize = 240;

/// Calls by how they ended.
///
/// A call counts only where its end is evidence about the release: a call that was cancelled or
/// fenced, or that failed by a fault of the machine, the cloud or the operator, does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The calls that count, failed ones included.
    pub ended: u64,
    /// The ended calls that failed by a fault of the release.
    pub failed: u64,
    /// The failed calls that ended by a trap or a limit.
    pub broken: u64,
}

impl Counts {
    /// The calls after the earlier ones.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            ended: self.ended.saturating_sub(earlier.ended),
            failed: self.failed.saturating_sub(earlier.failed),
            broken: self.broken.saturating_sub(earlier.broken),
        }
    }
}

/// A call that ended by a trap or a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// [`Code::Trapped`] or [`Code::LimitExceeded`].
    pub code: Code,
    /// Function and message, one line.
    pub account: String,
}

/// See the module.
#[derive(Debug, Default)]
pub struct CallHistory {
    seen: Mutex<History>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct History {
    counts: Counts,
    /// The last broken call.
    broken: Option<Broken>,
    /// When each bucket began, and the counts before it.
    buckets: VecDeque<(Instant, Counts)>,
}

impl CallHistory {
    /// A call ended: well, or with this code and message by this fault. A cancelled call has not
    /// ended.
    pub fn note(&self, function: &str, result: Result<(), (Code, &str)>, fault: Option<Fault>) {
        let failed = match (result, fault) {
            (Err((Code::NotLeading, _)), _) | (_, Some(Fault::Machine | Fault::Cloud | Fault::Operator)) => return,
            (_, fault) => fault.is_some(),
        };
        {
            let History { counts, broken, buckets } = &mut *self.seen();
            let now = Instant::now();
            if buckets.back().is_none_or(|(began, _)| *began + BUCKET <= now) {
                if buckets.len() == BUCKETS_MAX {
                    buckets.pop_front();
                }
                buckets.push_back((now, *counts));
            }
            counts.ended += 1;
            counts.failed += u64::from(failed);
            if failed && let Err((code @ (Code::Trapped | Code::LimitExceeded), message)) = result {
                counts.broken += 1;
                let account = one_line(&format!("{function}: {message}"), ACCOUNT_BYTES_MAX);
                *broken = Some(Broken { code, account });
            }
        }
        self.changed.notify_waiters();
    }

    /// All calls until now.
    pub fn counts(&self) -> Counts {
        self.seen().counts
    }

    /// The calls that had ended at this time, to the resolution of the history. A call that is
    /// older than the history counts as ended.
    pub(crate) fn counts_at(&self, time: Instant) -> Counts {
        let History { counts, buckets, .. } = &*self.seen();
        buckets.iter().find(|(began, _)| *began + BUCKET > time).map_or(*counts, |(_, before)| *before)
    }

    pub(crate) fn last_broken(&self) -> Option<Broken> {
        self.seen().broken.clone()
    }

    /// Ends with the next call of the release.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn seen(&self) -> MutexGuard<'_, History> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_provider::Code;
    use tokio::time::{Instant, advance};

    use super::{BUCKET, BUCKETS_MAX, CallHistory, Counts};
    use crate::Fault;

    const fn failed(code: Code) -> Result<(), (Code, &'static str)> {
        Err((code, ""))
    }

    #[tokio::test(start_paused = true)]
    async fn the_counts_of_a_window_leave_out_what_ended_before_it() {
        let call_history = CallHistory::default();
        let began = Instant::now();
        for _ in 0..2 * BUCKETS_MAX {
            call_history.note("f", failed(Code::Trapped), Some(Fault::Release));
            advance(BUCKET).await;
        }
        call_history.note("f", Ok(()), None);
        let now = Instant::now();
        let window = |time| call_history.counts().since(call_history.counts_at(now - time));
        assert_eq!(window(Duration::ZERO), Counts { ended: 1, failed: 0, broken: 0 });
        assert_eq!(window(3 * BUCKET), Counts { ended: 4, failed: 3, broken: 3 });
        assert_eq!(
            call_history.counts().since(call_history.counts_at(began)).ended,
            BUCKETS_MAX as u64,
            "the history is bounded"
        );
        assert_eq!(call_history.seen().buckets.len(), BUCKETS_MAX);
    }

    #[test]
    fn a_call_that_failed_by_no_fault_of_the_release_is_not_counted() {
        let call_history = CallHistory::default();
        for fault in [Fault::Machine, Fault::Cloud, Fault::Operator] {
            call_history.note("f", failed(Code::Internal), Some(fault));
        }
        call_history.note("f", failed(Code::NotLeading), None);
        assert_eq!(call_history.counts(), Counts::default());
        call_history.note("f", failed(Code::DeadlineExceeded), Some(Fault::Release));
        assert_eq!(call_history.counts(), Counts { ended: 1, failed: 1, broken: 0 });
        call_history.note("f", failed(Code::NotFound), None);
        assert_eq!(call_history.counts(), Counts { ended: 2, failed: 1, broken: 0 });
    }
}
