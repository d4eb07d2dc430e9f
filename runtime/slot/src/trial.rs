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
//! A canary that fails serves no more; one that passes serves all objects. A failed release's
//! digest stays quarantined under every setting, until the operator names it in `rollout.retry`
//! ([`crate::Told::Asked`]) and the release then passes probation, or until a manager without
//! `--state-dir` restarts. At most 32 digests are kept. The predecessor of a release that comes
//! while another one is on probation is the last one that passed. New settings end a trial: a
//! predecessor has the old settings, and must not serve again with their permissions. A release
//! whose probation ended so serves on, and has not passed ([`crate::ActiveStatus::passed`]).

use std::{fmt, sync::Arc, time::Duration};

use skysail_provider::Code;
use tokio::time::Instant;

use crate::{Broken, CallHistory, Counts, ProbationOptions, RefusalReason};

/// Fewest calls of each release for which their shares of failed calls are compared.
pub const SAMPLE: u64 = 20;

/// How much the error rate may exceed the predecessor's: clouds fail more at some times.
const ERRORS_BEYOND: f64 = 0.25;

/// A release with too few calls passes after this multiple of [`ProbationOptions::time`].
pub const LONGEST: u32 = 12;

/// The watch over one release. The trial keeps the release's counts, and not the release, in
/// memory.
pub struct Trial {
    release: Arc<CallHistory>,
    predecessor: Arc<CallHistory>,
    /// The calls of each before the window, of the release and of the predecessor: those of the
    /// release as a canary, for example.
    earlier: [Counts; 2],
    options: ProbationOptions,
    began: Instant,
}

/// The result of one comparison.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Open,
    Passed,
    Failed(Breach),
}

/// Why a release failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Breach {
    /// A call broke.
    Broken(Broken),
    /// Too many errors: shares of all calls.
    Errors {
        /// The share of the release's calls that failed.
        share: f64,
        /// The share of its predecessor's calls that failed.
        before: f64,
    },
}

impl Breach {
    /// The reason of the refusal.
    #[must_use]
    pub const fn reason(&self) -> RefusalReason {
        match self {
            Self::Broken(Broken { code: Code::LimitExceeded, .. }) => RefusalReason::ProbationLimit,
            Self::Broken(_) => RefusalReason::ProbationTrap,
            Self::Errors { .. } => RefusalReason::ProbationErrors,
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
    /// A trial that begins now. `beside`: the predecessor serves the other objects meanwhile.
    #[must_use]
    pub fn new(
        release: &Arc<CallHistory>,
        predecessor: &Arc<CallHistory>,
        options: ProbationOptions,
        beside: bool,
    ) -> Self {
        let began = Instant::now();
        let window = if beside { Duration::ZERO } else { options.time };
        let earlier = began.checked_sub(window).map_or_else(Counts::default, |start| predecessor.counts_at(start));
        let earlier = [release.counts(), earlier];
        Self { release: Arc::clone(release), predecessor: Arc::clone(predecessor), earlier, options, began }
    }

    /// Waits until the release has passed or failed.
    ///
    /// # Errors
    /// [`Breach`]: the release has failed.
    pub async fn end(self) -> Result<(), Breach> {
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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use skysail_provider::Code;
    use tokio::time::advance;

    use super::{Breach, LONGEST, SAMPLE, Trial, Verdict, judge};
    use crate::{Broken, CallHistory, Counts, Fault, ProbationOptions};

    const WATCHED: ProbationOptions = ProbationOptions { calls: 5, time: Duration::from_secs(60) };

    fn counts(ended: u64, failed: u64, broken: u64) -> Counts {
        Counts { ended, failed, broken }
    }

    fn judged(now: Counts, before: Counts, seconds: u64) -> Verdict {
        let broken = Broken { code: Code::Trapped, account: "f: trapped".to_owned() };
        judge(WATCHED, (now, (now.broken > 0).then_some(broken)), before, Duration::from_secs(seconds))
    }

    fn is_failed(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Failed(_))
    }

    #[test]
    fn a_release_passes_by_calls_and_time_or_by_long_time_alone() {
        let (nothing, sound) = (counts(0, 0, 0), counts(100, 0, 0));
        assert_eq!(judged(counts(1000, 0, 0), sound, 59), Verdict::Open);
        assert_eq!(judged(counts(4, 0, 0), sound, 60), Verdict::Open);
        assert_eq!(judged(counts(5, 0, 0), sound, 60), Verdict::Passed);
        assert_eq!(judged(nothing, sound, 60 * u64::from(LONGEST) - 1), Verdict::Open);
        assert_eq!(judged(nothing, sound, 60 * u64::from(LONGEST)), Verdict::Passed);
    }

    #[test]
    fn one_broken_call_is_enough_where_the_predecessor_had_none() {
        assert!(is_failed(&judged(counts(1, 1, 1), counts(0, 0, 0), 0)));
        assert!(is_failed(&judged(counts(10_000, 1, 1), counts(3, 0, 0), 59)));
    }

    #[test]
    fn a_release_that_breaks_no_oftener_than_twice_its_predecessor_stays() {
        let before = counts(100, 10, 10);
        assert_eq!(judged(counts(1, 1, 1), before, 0), Verdict::Open, "no sample");
        assert_eq!(judged(counts(SAMPLE, 4, 4), before, 0), Verdict::Open);
        assert!(is_failed(&judged(counts(SAMPLE, 5, 5), before, 0)));
    }

    #[test]
    fn errors_count_against_the_predecessors_share() {
        let before = counts(100, 10, 0);
        assert_eq!(judged(counts(SAMPLE, 7, 0), before, 0), Verdict::Open, "a quarter above a tenth");
        let failed = judged(counts(SAMPLE, 8, 0), before, 0);
        assert_eq!(failed, Verdict::Failed(Breach::Errors { share: 0.4, before: 0.1 }));
        assert_eq!(judged(counts(SAMPLE - 1, SAMPLE - 1, 0), before, 0), Verdict::Open, "no sample");
        assert_eq!(
            judged(counts(SAMPLE, SAMPLE, 0), counts(SAMPLE - 1, 0, 0), 0),
            Verdict::Open,
            "nothing to compare with"
        );
    }

    fn traps(call_history: &CallHistory) {
        call_history.note("f", Err((Code::Trapped, "")), Some(Fault::Release));
    }

    /// Whether a release that traps once passes. Its predecessor traps before or after the start.
    async fn passes(beside: bool, traps_before: bool) -> bool {
        let (release, predecessor) = (Arc::<CallHistory>::default(), Arc::<CallHistory>::default());
        if traps_before {
            traps(&predecessor);
        }
        advance(WATCHED.time / 2).await;
        let trial = Trial::new(&release, &predecessor, WATCHED, beside);
        if !traps_before {
            traps(&predecessor);
        }
        traps(&release);
        let result = trial.end().await;
        assert_eq!(result.is_err(), matches!(result, Err(Breach::Broken(_))));
        result.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_canary_is_compared_with_what_its_predecessor_does_at_the_same_time() {
        assert!(passes(true, false).await, "both trap");
        assert!(!passes(true, true).await, "the predecessor had trapped, and works while the canary serves");
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_on_probation_is_compared_with_what_its_predecessor_did_before_the_swap() {
        assert!(passes(false, true).await);
    }
}
