//! Whether a release is worse than its predecessor, judged by how the calls of both end.
//!
//! # Rule
//! A release fails at the first of these:
//! - A trap or a limit, where the predecessor had none; where the predecessor had some, more than
//!   twice their share.
//! - A share of failed calls that is [`ERRORS_BEYOND`] above the predecessor's, where both have
//!   ended [`SAMPLE`] calls.
//!
//! A release has passed when it has ended its number of calls and served its time without failing.
//!
//! Only faults of the release count ([`crate::Fault`]). Both are compared over one window. A canary
//! and its predecessor are compared since the canary began. A release on probation is compared with
//! the predecessor's calls in the last `time` before the swap.
//!
//! # What follows
//! A release on probation that fails is rolled back: its predecessor, which was kept, serves again.
//! A canary that fails serves no more; one that passes serves all objects. The digest of a release
//! that failed is quarantined, whatever the settings: only another release, a person who asks for
//! it ([`super::Slot::ask_again`]), or a restart of a manager that keeps no record of it ends that.
//! The predecessor of a release that comes while another one is on probation is the last one that
//! passed. New settings end a trial: a predecessor has the old settings, and must not serve again
//! with their permissions.

use std::{fmt, sync::Arc, time::Duration};

use skysail_provider::Code;
use tokio::time::Instant;

use super::{Active, Reason, event::Watch};
use crate::vitals::{Broken, Counts, Vitals};

/// A share of fewer calls proves nothing.
pub(super) const SAMPLE: u64 = 20;

/// How much the error rate may exceed the predecessor's: clouds fail more at some times.
const ERRORS_BEYOND: f64 = 0.25;

/// A release that gets too few calls has passed after so many times its time.
pub(super) const LONGEST: u32 = 12;

/// How long a new release is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbationOptions {
    /// So many calls of the release have to end.
    pub calls: u64,
    /// And so much time has to pass; twelve times as much is enough in any case.
    pub time: Duration,
}

impl ProbationOptions {
    pub(super) fn time_ms(self) -> u64 {
        u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A new release serves a share of the objects for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CanaryOptions {
    /// The share: 1 to 99.
    pub percent: u8,
    /// How long.
    pub watched: ProbationOptions,
}

/// One release that is watched. It holds no memory of the release.
pub(super) struct Trial {
    release: Arc<Vitals>,
    predecessor: Arc<Vitals>,
    /// The calls of each before the window, of the release and of the predecessor: those of the
    /// release as a canary, for example.
    earlier: [Counts; 2],
    options: ProbationOptions,
    began: Instant,
}

/// The result of one comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Open,
    Passed,
    Failed(Breach),
}

/// Why a release failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Breach {
    /// A call broke.
    Broken(Broken),
    /// Too many errors: the share of the release and that of its predecessor.
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
    pub(super) fn new(Watch { release, predecessor, options, beside, .. }: &Watch) -> Self {
        let vitals = |release: &Active| Arc::clone(release.provider.release().vitals());
        let (release, predecessor, began) = (vitals(release), vitals(predecessor), Instant::now());
        let window = if *beside { Duration::ZERO } else { options.time };
        let earlier = began.checked_sub(window).map_or_else(Counts::default, |start| predecessor.counts_at(start));
        let earlier = [release.counts(), earlier];
        Self { release, predecessor, earlier, options: *options, began }
    }

    /// Waits until the release has passed or failed.
    pub(super) async fn end(self) -> Result<(), Breach> {
        let Self { release, predecessor, earlier: [earlier, earlier_before], options, began } = self;
        loop {
            let changed = release.changed();
            let elapsed = began.elapsed();
            let now = release.counts().since(earlier);
            let broken = release.last_broken().filter(|_| now.broken > 0);
            let before = predecessor.counts().since(earlier_before);
            match judge(options, (now, broken), before, elapsed) {
                Verdict::Passed => return Ok(()),
                Verdict::Failed(breach) => return Err(breach),
                Verdict::Open => {}
            }
            let next = if elapsed < options.time { 1 } else { LONGEST };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(began + options.time * next) => {}
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
