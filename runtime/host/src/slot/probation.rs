//! The time in which a new release has to bear out that it is no worse than the one before it.
//!
//! # Rule
//! From the exchange on, until it has ended a number of calls and a time has passed, a release is compared with its predecessor:
//! - A trap, a limit or a deadline, where the predecessor had none; where it had some, more than twice their share.
//! - A share of errors that is [`ERRORS_BEYOND`] above the predecessor's, where both have ended [`SAMPLE`] calls.
//!
//! Either gives the slot back to the predecessor, which was kept for that, at once: calls that run end on the release they began on, the next
//! one begins on the predecessor. The digest is quarantined and is not taken again while the process lives, whatever the settings: only another release, or a
//! restart of whoever keeps no record of it. The predecessor of a release that comes while another one is on probation is the last that bore out.
//!
//! New settings end a probation: what was kept was kept under the old ones, and must not come back with their permissions.

use std::{fmt, sync::Arc, time::Duration};

use skysail_provider::Code;
use tokio::{sync::watch, time::Instant};

use super::{Active, ProbationStatus, Reason, Refusal, Slot, Stage};
use crate::vitals::{Broken, Counts};

#[cfg(test)]
mod tests;

/// Calls below which a share says nothing.
const SAMPLE: u64 = 20;

/// What an error rate may be above the predecessor's: a cloud has better and worse hours.
const ERRORS_BEYOND: f64 = 0.25;

/// A release that is called too seldom for its number of calls has borne out after so many times its time.
const LONGEST: u32 = 12;

/// How long a new release is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbationOptions {
    /// It has to have ended so many calls.
    pub calls: u64,
    /// And so much time has to have passed; twelve times as much is enough in any case.
    pub time: Duration,
}

/// One release on probation, with the one that serves again if it does not bear out.
pub(super) struct Probation {
    release: Arc<Active>,
    predecessor: Arc<Active>,
    options: ProbationOptions,
    began: Instant,
}

/// What comes of a release.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Open,
    Passed,
    Failed(Breach),
}

/// Why a release does not stay.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Breach {
    /// A call broke.
    Broken(Broken),
    /// Too many errors: its share and the predecessor's.
    Errors { share: f64, before: f64 },
}

impl Breach {
    const fn reason(&self) -> Reason {
        match self {
            Self::Broken(Broken { code: Code::LimitExceeded, .. }) => Reason::ProbationLimit,
            Self::Broken(Broken { code: Code::DeadlineExceeded, .. }) => Reason::ProbationDeadline,
            Self::Broken(_) => Reason::ProbationTrap,
            Self::Errors { .. } => Reason::ProbationErrors,
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(Broken { account, code: _ }) => f.write_str(account),
            Self::Errors { share, before } => {
                write!(f, "{:.0} % of its calls failed, of its predecessor's {:.0} %", share * 100.0, before * 100.0)
            }
        }
    }
}

impl Probation {
    pub(super) fn new(release: Arc<Active>, predecessor: Arc<Active>, options: ProbationOptions) -> Self {
        Self { release, predecessor, options, began: Instant::now() }
    }

    /// Whom the next release is compared with, should it come now.
    pub(super) fn predecessor(&self) -> Arc<Active> {
        Arc::clone(&self.predecessor)
    }

    pub(super) fn status(&self) -> ProbationStatus {
        ProbationStatus {
            predecessor: self.predecessor.provider.release().digest().to_owned(),
            calls: self.options.calls,
            time_ms: u64::try_from(self.options.time.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Waits until it is known what comes of the release.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn end(&self) -> Result<(), Breach> {
        let vitals = self.release.provider.release().vitals();
        loop {
            let changed = vitals.changed();
            let elapsed = self.began.elapsed();
            match self.judge(elapsed) {
                Verdict::Passed => return Ok(()),
                Verdict::Failed(breach) => return Err(breach),
                Verdict::Open => {}
            }
            let next = if elapsed < self.options.time { 1 } else { LONGEST };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(self.began + self.options.time * next) => {}
            }
        }
    }

    fn judge(&self, elapsed: Duration) -> Verdict {
        let vitals = self.release.provider.release().vitals();
        let (now, before) = (vitals.counts(), self.predecessor.provider.release().vitals().counts());
        judge(self.options, (now, vitals.first_broken()), before, elapsed)
    }
}

fn judge(
    options: ProbationOptions,
    (now, broken): (Counts, Option<Broken>),
    before: Counts,
    elapsed: Duration,
) -> Verdict {
    let enough = now.ended >= SAMPLE && before.ended >= SAMPLE;
    if let Some(broken) = broken
        && (before.broken == 0 || (enough && share(now.broken, now.ended) > 2.0 * share(before.broken, before.ended)))
    {
        return Verdict::Failed(Breach::Broken(broken));
    }
    let (failed, failed_before) = (share(now.failed, now.ended), share(before.failed, before.ended));
    if enough && failed > failed_before + ERRORS_BEYOND {
        return Verdict::Failed(Breach::Errors { share: failed, before: failed_before });
    }
    let over = elapsed >= options.time && now.ended >= options.calls;
    if over || elapsed >= options.time * LONGEST { Verdict::Passed } else { Verdict::Open }
}

#[expect(clippy::cast_precision_loss, reason = "a share of counts of calls")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Slot {
    /// Watches each new release while it is on probation, and takes it back where it does not bear out. Runs until it is dropped; a slot that
    /// nobody guards keeps whatever was offered last.
    ///
    /// # Cancel safety
    /// What was begun is done or not: the exchange is one step.
    pub async fn guard(&self) {
        let mut current = self.probation.subscribe();
        loop {
            let probation = current.borrow_and_update().clone();
            let ended = match &probation {
                Some(probation) => tokio::select! {
                    ended = probation.end() => Some(ended),
                    changed = current.changed() => changed.ok().and(None),
                },
                None => current.changed().await.ok().and(None),
            };
            match (probation, ended) {
                (Some(probation), Some(Ok(()))) => self.end_probation(&probation),
                (Some(probation), Some(Err(breach))) => self.roll_back(&probation, &breach).await,
                (_, _) => {}
            }
        }
    }

    /// The release bore out: its predecessor's memory is given back.
    fn end_probation(&self, probation: &Arc<Probation>) {
        if self.is_current(probation) {
            tracing::info!(
                provider.name = %self.name,
                component.digest = probation.release.provider.release().digest(),
                "release bore out"
            );
            self.set_probation(None);
        }
    }

    async fn roll_back(&self, probation: &Arc<Probation>, breach: &Breach) {
        let mut work = self.interrupt().await;
        if !self.is_current(probation) {
            return;
        }
        let (release, predecessor) = (&probation.release, &probation.predecessor);
        let refusal = Refusal {
            digest: release.provider.release().digest().to_owned(),
            origin: release.offer.origin.clone(),
            stage: Stage::Active,
            code: breach.reason().category(),
            reason: format!(
                "{}: it was taken back, and its predecessor (version {}) serves again: {breach}: offer a mended release; this one is not taken \
                 again",
                release.offer.origin, predecessor.info.version
            ),
            lasting: true,
        };
        tracing::error!(
            provider.name = %self.name,
            component.digest = refusal.digest,
            code = refusal.code,
            "release taken back: {}", refusal.reason
        );
        work.quarantine.put(&refusal);
        self.exchange(Arc::clone(predecessor), None, Some(&refusal));
    }

    fn is_current(&self, probation: &Arc<Probation>) -> bool {
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

/// Where the guard and the status find it.
pub(super) type Current = watch::Sender<Option<Arc<Probation>>>;
