//! The operator's budget of deletions of one provider in one process, as the host keeps it: a
//! model, because the simulation has no host.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use skysail_provider::{Error, Result};
use tokio::time::Instant;

/// `spec.deletionBudget`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletionLimit {
    pub(crate) deletions: usize,
    pub(crate) window: Duration,
}

/// When deletions left, oldest first, as far as a window of this length remembers them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window(VecDeque<Instant>);

impl Window {
    /// The number of deletions in the window of this length that ends now, and when the oldest one
    /// leaves it.
    pub(crate) fn seen(&mut self, length: Duration) -> (usize, Duration) {
        let now = Instant::now();
        self.0.retain(|sent| *sent + length > now);
        let oldest = self.0.front().map_or(now, |sent| *sent + length);
        (self.0.len(), oldest.saturating_duration_since(now))
    }

    pub(crate) fn add(&mut self) {
        self.0.push_back(Instant::now());
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Deletions {
    limit: Option<DeletionLimit>,
    sent: Mutex<Window>,
}

impl Deletions {
    pub(crate) fn new(limit: Option<DeletionLimit>) -> Self {
        Self { limit, sent: Mutex::default() }
    }

    /// Takes a place for a deletion, which `is_let_through` takes also from a full window.
    pub(crate) fn take(&self, is_let_through: bool) -> Result<()> {
        let Some(DeletionLimit { deletions, window }) = self.limit else { return Ok(()) };
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, wait) = sent.seen(window);
        if count >= deletions && !is_let_through {
            let text = format!("the budget allows {deletions} deletions in {} ms", window.as_millis());
            return Err(Error::deletion_held(wait, text));
        }
        sent.add();
        Ok(())
    }
}
