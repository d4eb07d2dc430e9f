//! The time in which a new release has to show that it is no worse than the one before it.
//!
//! # Rule
//! From the exchange on, until it has ended a number of calls and a time has passed, a release is
//! compared with its predecessor (`trial`). Where it is worse, the slot goes back to the
//! predecessor, which was kept for that, at once: calls that run end on the release they began on,
//! the next one begins on the predecessor. The digest is quarantined and is not taken again while
//! the process lives, whatever the settings: only another release, a person who asks for it
//! ([`Slot::ask_again`]), or a restart of a manager that keeps no record of it. The predecessor of
//! a release that comes while another one is on probation is the last that passed probation.
//!
//! New settings end a probation: what was kept was kept under the old ones, and must not come back
//! with their permissions.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Active, ProbationStatus, Slot, Stage,
    trial::{Breach, Trial},
};

#[cfg(test)]
mod tests;

/// How long a new release is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbationOptions {
    /// It has to have ended so many calls.
    pub calls: u64,
    /// And so much time has to have passed; twelve times as much is enough in any case.
    pub time: Duration,
}

/// One release on probation, with the one that serves again if it fails.
pub(super) struct Probation {
    trial: Trial,
    predecessor: Arc<Active>,
}

impl Probation {
    pub(super) fn new(release: Arc<Active>, predecessor: Arc<Active>, options: ProbationOptions) -> Self {
        Self { trial: Trial::new(release, &predecessor, options, false), predecessor }
    }

    /// Whom the next release is compared with, should it come now.
    pub(super) fn predecessor(&self) -> Arc<Active> {
        Arc::clone(&self.predecessor)
    }

    pub(super) fn status(&self) -> ProbationStatus {
        let ProbationOptions { calls, time } = self.trial.options();
        ProbationStatus {
            predecessor: self.predecessor.provider.release().digest().to_owned(),
            calls,
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Slot {
    /// Watches each new release while it is on probation or serves a share of the objects, and
    /// rolls it back where it does not hold out. Runs until it is dropped; a slot that nobody
    /// guards keeps whatever was offered last, and never lets a canary serve more than its share.
    ///
    /// # Cancel safety
    /// What was begun is done or not: the exchange is one step.
    pub async fn guard(&self) {
        let (mut probations, mut canaries) = (self.probation.subscribe(), self.canary.subscribe());
        loop {
            let probation = probations.borrow_and_update().clone();
            let canary = canaries.borrow_and_update().clone();
            tokio::select! {
                (probation, ended) = ended(probation, |probation| &probation.trial) => match ended {
                    Ok(()) => self.end_probation(&probation).await,
                    Err(breach) => self.roll_back(&probation, &breach).await,
                },
                (canary, ended) = ended(canary, |canary| canary.trial()) => match ended {
                    Ok(()) => self.promote(&canary).await,
                    Err(breach) => self.recall(&canary, &breach).await,
                },
                // The slot has the other ends.
                _ = probations.changed() => {}
                _ = canaries.changed() => {}
            }
        }
    }

    /// The release passed probation: its predecessor's memory is given back.
    async fn end_probation(&self, probation: &Arc<Probation>) {
        let _work = self.interrupt().await;
        if !self.is_on_probation(probation) {
            return;
        }
        let digest = probation.trial.release().provider.release().digest();
        tracing::info!(provider.name = %self.name, component.digest = digest, "release passed probation");
        self.set_probation(None);
        // A person who asked for it was right.
        self.quarantine.forget(digest);
    }

    async fn roll_back(&self, probation: &Arc<Probation>, breach: &Breach) {
        let mut work = self.interrupt().await;
        if !self.is_on_probation(probation) {
            return;
        }
        let predecessor = &probation.predecessor;
        let serves = format!("its predecessor (version {}) serves again", predecessor.info.version);
        let refusal = self.take_back(&mut work, probation.trial.release(), Stage::Active, (breach, &serves));
        self.exchange(Arc::clone(predecessor), None, Some(&refusal));
    }

    fn is_on_probation(&self, probation: &Arc<Probation>) -> bool {
        self.probation.borrow().as_ref().is_some_and(|current| Arc::ptr_eq(current, probation))
    }

    /// What a release that comes now has to be no worse than.
    pub(super) fn borne_out(&self) -> Option<Arc<Active>> {
        let probation = self.probation.borrow().as_ref().map(|probation| probation.predecessor());
        probation.or_else(|| self.active.load_full())
    }

    pub(super) fn set_probation(&self, probation: Option<Arc<Probation>>) {
        self.shared.probation(probation.as_deref().map(Probation::status));
        // After the status: the memory that this gives back is counted there.
        let before = self.probation.send_replace(probation);
        drop(before);
        self.shared.count_draining();
    }
}

/// What came of the one that is watched; nothing ever where none is.
async fn ended<T>(watched: Option<Arc<T>>, trial: impl FnOnce(&T) -> &Trial) -> (Arc<T>, Result<(), Breach>) {
    match watched {
        Some(watched) => {
            let ended = trial(&watched).end().await;
            (watched, ended)
        }
        None => std::future::pending().await,
    }
}

/// Where the guard and the status find it.
pub(super) type Current = watch::Sender<Option<Arc<Probation>>>;
