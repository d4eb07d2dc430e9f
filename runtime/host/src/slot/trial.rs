//! A release beside its predecessor: whether it is worse, by how its calls end.
//!
//! # Rule
//! A release fails at the first of these:
//! - A trap or a limit, where the predecessor had none; where it had some, more than twice their
//!   share.
//! - A share of failed calls that is [`ERRORS_BEYOND`] above the predecessor's, where both have
//!   ended [`SAMPLE`] calls.
//!
//! A release that has ended its number of calls and served its time without has passed.
//!
//! Only faults of the release count ([`crate::Fault`]). Both are compared over one window: while
//! the predecessor serves the other objects, the time since the release began; where it serves
//! none, as much time before the exchange as the release is watched at least.

use std::{fmt, sync::Arc, time::Duration};

use skysail_provider::Code;
use tokio::time::Instant;

use super::{Active, ProbationOptions, Reason};
use crate::vitals::{Broken, Counts, Vitals};

/// Calls below which a share says nothing.
pub(super) const SAMPLE: u64 = 20;

/// What an error rate may be above the predecessor's: a cloud has better and worse hours.
const ERRORS_BEYOND: f64 = 0.25;

/// A release that is called too seldom for its number of calls has passed after so many times its
/// time.
pub(super) const LONGEST: u32 = 12;

/// One release that is watched.
pub(super) struct Trial {
    release: Arc<Active>,
    /// The predecessor's.
    before: Arc<Vitals>,
    /// What each did before the window, the release and the predecessor: the release as a canary,
    /// for example.
    earlier: [Counts; 2],
    options: ProbationOptions,
    began: Instant,
}

/// What comes of a release.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
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
    pub(super) const fn reason(&self) -> Reason {
        match self {
            Self::Broken(Broken { code: Code::LimitExceeded, .. }) => Reason::ProbationLimit,
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

impl Trial {
    /// `beside`: the predecessor goes on to serve the other objects.
    pub(super) fn new(release: Arc<Active>, predecessor: &Active, options: ProbationOptions, beside: bool) -> Self {
        let (before, began) = (Arc::clone(predecessor.provider.release().vitals()), Instant::now());
        let window = if beside { Duration::ZERO } else { options.time };
        let earlier = began.checked_sub(window).map_or_else(Counts::default, |start| before.counts_at(start));
        let earlier = [release.provider.release().vitals().counts(), earlier];
        Self { release, before, earlier, options, began }
    }

    pub(super) const fn release(&self) -> &Arc<Active> {
        &self.release
    }

    pub(super) const fn options(&self) -> ProbationOptions {
        self.options
    }

    /// Waits until it is known what comes of the release.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn end(&self) -> Result<(), Breach> {
        let vitals = self.release.provider.release().vitals();
        loop {
            let changed = vitals.changed();
            let elapsed = self.began.elapsed();
            let [earlier, earlier_before] = self.earlier;
            let now = vitals.counts().since(earlier);
            let broken = vitals.last_broken().filter(|_| now.broken > 0);
            let before = self.before.counts().since(earlier_before);
            match judge(self.options, (now, broken), before, elapsed) {
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
}

pub(super) fn judge(
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
