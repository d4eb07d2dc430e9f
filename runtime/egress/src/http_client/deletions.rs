//! The budget of deletions of one provider: how many requests that may delete something leave in a
//! window. A wrong component, cloud-config or claim deletes no more than that before a person
//! notices.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How many deletions may leave in a window that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeletionLimit {
    /// Requests; 0 holds every deletion back. At most [`DeletionBudget::DELETIONS_MAX`].
    pub deletions: u32,
    /// Length of the window.
    pub window: Duration,
}

/// The budget of deletions of one provider, which outlives the provider's settings. The default has
/// no limit.
#[derive(Debug, Default)]
pub struct DeletionBudget(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    limit: Option<DeletionLimit>,
    /// When the last deletions left, oldest first: at most as many as the limit allows.
    sent: VecDeque<Instant>,
}

impl DeletionBudget {
    /// The most deletions in a window: each one is remembered until the window ends.
    pub const DELETIONS_MAX: u32 = 10_000;

    /// Replaces the limit. Deletions that have left under the former limit count.
    pub fn limit_to(&self, limit: Option<DeletionLimit>) {
        let mut inner = self.lock();
        inner.limit = limit;
        inner.trim();
    }

    /// Takes a place for one deletion, which `is_let_through` takes also from a full window.
    ///
    /// # Errors
    /// The window is full: the time until it has room.
    pub(super) fn take(&self, is_let_through: bool) -> Result<Option<Instant>, Held> {
        let (now, mut inner) = (Instant::now(), self.lock());
        let Some(limit) = inner.limit else { return Ok(None) };
        inner.sent.retain(|sent| *sent + limit.window > now);
        let max = usize::try_from(limit.deletions).unwrap_or(usize::MAX);
        if inner.sent.len() >= max && !is_let_through {
            let oldest = inner.sent.front().copied().unwrap_or(now);
            let wait = (oldest + limit.window).saturating_duration_since(now);
            return Err(Held { limit, wait });
        }
        inner.sent.push_back(now);
        inner.trim();
        Ok(Some(now))
    }

    /// Gives back the place of a deletion that did not leave.
    pub(super) fn give_back(&self, taken: Instant) {
        let mut inner = self.lock();
        if let Some(index) = inner.sent.iter().rposition(|sent| *sent == taken) {
            inner.sent.remove(index);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panicking thread leaves a valid list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Of more deletions than the limit allows only the newest ones decide when there is room.
    fn trim(&mut self) {
        let max = self.limit.map_or(0, |limit| usize::try_from(limit.deletions).unwrap_or(usize::MAX));
        let surplus = self.sent.len().saturating_sub(max);
        self.sent.drain(..surplus);
    }
}

/// A deletion that the budget holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The limit that was met.
    pub limit: DeletionLimit,
    /// Until the window has room.
    pub wait: Duration,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::{DeletionBudget, DeletionLimit};

    const WINDOW: Duration = Duration::from_secs(60);

    fn budget(deletions: u32) -> DeletionBudget {
        let budget = DeletionBudget::default();
        budget.limit_to(Some(DeletionLimit { deletions, window: WINDOW }));
        budget
    }

    fn wait(budget: &DeletionBudget) -> Option<u64> {
        budget.take(false).err().map(|held| held.wait.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_deletions_as_the_limit_leave_in_any_window() {
        let budget = budget(2);
        assert_eq!(wait(&budget), None);
        advance(Duration::from_secs(20)).await;
        assert_eq!((wait(&budget), wait(&budget)), (None, Some(40)));
        advance(Duration::from_secs(39)).await;
        assert_eq!(wait(&budget), Some(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!((wait(&budget), wait(&budget)), (None, Some(20)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_let_through_counts_and_what_did_not_leave_does_not() {
        let budget = budget(2);
        let first = budget.take(false).unwrap().unwrap();
        budget.give_back(first);
        assert_eq!((wait(&budget), wait(&budget), wait(&budget)), (None, None, Some(60)));
        advance(Duration::from_secs(10)).await;
        assert!(budget.take(true).is_ok() && budget.take(true).is_ok());
        advance(Duration::from_secs(50)).await;
        assert_eq!(wait(&budget), Some(10), "the window has those that were let through");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_limit_holds_for_what_has_left() {
        let budget = budget(3);
        assert_eq!((wait(&budget), wait(&budget)), (None, None));
        budget.limit_to(Some(DeletionLimit { deletions: 2, window: WINDOW }));
        assert_eq!(wait(&budget), Some(60));
        budget.limit_to(Some(DeletionLimit { deletions: 0, window: WINDOW }));
        assert_eq!(wait(&budget), Some(60), "zero holds every deletion back");
        budget.limit_to(None);
        assert_eq!(budget.take(false), Ok(None));
    }
}
