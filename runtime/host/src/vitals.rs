//! How the calls of one release ended, counted for whoever decides whether it may stay.

use std::sync::{Mutex, PoisonError};

use skysail_provider::{Code, Limit, LimitHit};
use tokio::sync::{Notify, futures::Notified};

use skysail_provider::text::one_line;

use crate::Outcome;

/// Longest account of a broken call, in bytes.
const ACCOUNT_BYTES_MAX: usize = 300;

/// Calls by how they ended. What says nothing about the release is not among them: cancelled, without a place, after the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All of them.
    pub(crate) ended: u64,
    /// Of those: with an error that somebody has to do something about, broken ones among them.
    pub(crate) failed: u64,
    /// Of those: by a trap, a limit or the deadline.
    pub(crate) broken: u64,
}

impl Counts {
    /// What came after the earlier ones.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            ended: self.ended.saturating_sub(earlier.ended),
            failed: self.failed.saturating_sub(earlier.failed),
            broken: self.broken.saturating_sub(earlier.broken),
        }
    }
}

/// The first call of a release that broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) code: Code,
    /// Function and message, one line.
    pub(crate) account: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    seen: Mutex<(Counts, Option<Broken>)>,
    changed: Notify,
}

impl Vitals {
    pub(crate) fn note(&self, function: &str, outcome: &Outcome, limit: Option<LimitHit>) {
        let Some(kind) = kind(outcome, limit) else { return };
        {
            let (counts, broken) = &mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            counts.ended += 1;
            counts.failed += u64::from(kind != Kind::Answer);
            if let (Kind::Broken, Outcome::Failed { code, message }) = (kind, outcome) {
                counts.broken += 1;
                let account = one_line(&format!("{function}: {message}"), ACCOUNT_BYTES_MAX);
                broken.get_or_insert_with(|| Broken { code: *code, account });
            }
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn counts(&self) -> Counts {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn first_broken(&self) -> Option<Broken> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Ends at the next call that ends after this was made.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Answer,
    Failed,
    Broken,
}

/// What an outcome says about the release; none where it says nothing.
fn kind(outcome: &Outcome, limit: Option<LimitHit>) -> Option<Kind> {
    let code = match outcome {
        Outcome::Ok => return Some(Kind::Answer),
        Outcome::Cancelled => return None,
        Outcome::Failed { code, .. } => *code,
    };
    match code {
        // All places are taken: by this release's calls or by the cloud's slowness, nobody knows.
        Code::LimitExceeded if limit.is_some_and(|hit| hit.limit == Limit::ConcurrentCalls) => None,
        Code::NotLeading | Code::NotServing => None,
        Code::NotFound | Code::ImplementedElsewhere | Code::RetryAfter => Some(Kind::Answer),
        Code::Unsupported | Code::Invalid | Code::Denied | Code::Exhausted | Code::Unavailable | Code::Internal => {
            Some(Kind::Failed)
        }
        Code::Trapped | Code::LimitExceeded | Code::DeadlineExceeded => Some(Kind::Broken),
    }
}
