//! What has to be true of the trials of a slot, judged by the ends of the calls themselves.
//!
//! # Invariants
//! - A release is rolled back only if one of its calls failed by its own fault.
//! - A release passes a trial only after the time of the trial, and not if its calls broke while
//!   its predecessor's did not.
//! - A release that is loaded serves only if the present source offered it.
//! - A release that was on probation goes into the state folder only after it passed, or after the
//!   settings ceased to ask for probations.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use skysail_provider::{Code, Error};
use skysail_slot::{Release as _, Routing, Settings as _, SlotStatus};
use tokio::time::Instant;

use crate::{cloud::seen, release::Release};

/// Longer than a call of the predecessor before the trial is remembered beyond its window.
const REMEMBERED: Duration = Duration::from_secs(20);
/// While settings are judged, the end of a trial waits, and calls may break meanwhile: a judgement
/// takes less than this.
const JUDGED_MAX: Duration = Duration::from_mins(1);

/// What the referee knows of the trials of one slot.
#[derive(Default)]
pub(crate) struct Trials {
    /// When a call of a release failed last by the release's own fault, by digest.
    failed: BTreeMap<String, Instant>,
    /// The same for calls that ended by a trap or a limit.
    broken: BTreeMap<String, Instant>,
    canary: Option<Trial>,
    /// The canary's release, which serves all objects if it passes.
    canary_release: Weak<Release>,
    probation: Option<Trial>,
    /// The release that was loaded last.
    loaded: Weak<Release>,
    /// The digest of the release that began a probation, did not pass it, and was not replaced.
    unproven: Option<String>,
    /// When settings were judged last.
    judged: Option<Instant>,
}

struct Trial {
    digest: String,
    predecessor: String,
    /// The number of the swap before the trial.
    swap: u64,
    began: Instant,
    time: Duration,
    /// When a call of the release broke first in this trial.
    broken: Option<Instant>,
}

/// Whether a call failed by a fault of the release.
pub(crate) fn is_own_fault(error: &Error) -> bool {
    let codes = [Code::Trapped, Code::LimitExceeded, Code::Internal, Code::DeadlineExceeded];
    let seen = seen(error);
    let is_starved = error.code == Code::DeadlineExceeded && !seen.computed;
    codes.contains(&error.code) && !(seen.cloud_failed || seen.denied || is_starved)
}

impl Trials {
    /// A call of this release failed.
    pub(crate) fn failed(&mut self, digest: &str, error: &Error) {
        if !is_own_fault(error) {
            return;
        }
        let now = Instant::now();
        self.failed.insert(digest.to_owned(), now);
        if matches!(error.code, Code::Trapped | Code::LimitExceeded) {
            self.broken.insert(digest.to_owned(), now);
            let trials = self.canary.iter_mut().chain(&mut self.probation);
            for trial in trials.filter(|trial| trial.digest == digest) {
                trial.broken.get_or_insert(now);
            }
        }
    }

    /// New settings are judged.
    pub(crate) fn judges(&mut self) {
        self.judged = Some(Instant::now());
    }

    /// Calls go elsewhere now. Returns a violation.
    pub(crate) fn routed(&mut self, routing: &Routing<Release>, places: &BTreeSet<usize>) -> Option<String> {
        let canary = self.canary_release.upgrade();
        let is_promoted = routing.active.as_ref().zip(canary).is_some_and(|(one, other)| Arc::ptr_eq(one, &other));
        self.canary_release = routing.canary.as_ref().map(|share| Arc::downgrade(&share.release)).unwrap_or_default();
        let wants_probation = |active: &Release| active.settings().rollout().probation.is_some();
        if routing.active.as_ref().is_some_and(|active| !wants_probation(active)) {
            self.unproven = None;
        }
        if is_promoted {
            return self.canary.as_ref().and_then(|trial| self.judge(trial));
        }
        let is_loaded = |release: &&Arc<Release>| Arc::as_ptr(release) == self.loaded.as_ptr();
        let is_foreign = |release: &&Arc<Release>| is_loaded(release) && !places.contains(&release.place());
        let foreign = routing.releases().find(is_foreign);
        foreign.map(|release| format!("gives calls to {release}, which another source offered"))
    }

    /// A release has been loaded because of an offer.
    pub(crate) fn loaded(&mut self, release: &Arc<Release>) {
        self.loaded = Arc::downgrade(release);
    }

    /// A release goes into the state folder. Returns a violation.
    pub(crate) fn kept(&self, digest: &str) -> Option<String> {
        (self.unproven.as_deref() == Some(digest)).then(|| "is kept, and has not passed its probation".to_owned())
    }

    /// A release has passed probation. Returns a violation.
    pub(crate) fn passed(&mut self, release: &Release) -> Option<String> {
        self.unproven = None;
        self.probation.as_ref().filter(|trial| trial.digest == release.digest()).and_then(|trial| self.judge(trial))
    }

    /// A release was rolled back. Returns a violation.
    pub(crate) fn rolled_back(&self, digest: &str) -> Option<String> {
        (!self.failed.contains_key(digest)).then(|| "was rolled back, and none of its calls failed by its fault".into())
    }

    /// The slot has this status now.
    pub(crate) fn published(&mut self, status: &SlotStatus) {
        let active = status.active.as_ref().map(|active| active.digest.clone()).unwrap_or_default();
        let last_passed = status.probation.as_ref().map(|probation| probation.predecessor.clone());
        let canary = status.canary.as_ref().map(|canary| (canary.digest.clone(), canary.time_ms));
        let probation = status.probation.as_ref().map(|probation| (active.clone(), probation.time_ms));
        let swap = status.swaps;
        let is_replaced = status.active.is_some() && self.unproven.as_ref() != Some(&active);
        if status.probation.is_some() {
            self.unproven = Some(active.clone());
        } else if is_replaced {
            self.unproven = None;
        }
        // A swap begins another probation, and not another canary.
        begin(&mut self.canary, canary, (last_passed.as_ref().unwrap_or(&active), None));
        begin(&mut self.probation, probation, (last_passed.as_ref().unwrap_or(&active), Some(swap)));
    }

    /// What is wrong if the release passes this trial now.
    fn judge(&self, trial: &Trial) -> Option<String> {
        if trial.began.elapsed() < trial.time {
            let (elapsed, time) = (trial.began.elapsed().as_millis(), trial.time.as_millis());
            return Some(format!("passes a trial of {time} ms after {elapsed} ms"));
        }
        let broken = trial.broken?;
        if self.judged.is_some_and(|judged| judged + JUDGED_MAX > broken) {
            return None;
        }
        let before = self.broken.get(&trial.predecessor);
        let is_excused = before.is_some_and(|last| *last + trial.time + REMEMBERED > trial.began);
        (!is_excused).then(|| "passes a trial although its calls broke, and its predecessor's did not".to_owned())
    }
}

/// Takes up the trial of the status: of this digest, for this time.
fn begin(trial: &mut Option<Trial>, now: Option<(String, u64)>, (predecessor, swap): (&str, Option<u64>)) {
    let Some((digest, time_ms)) = now else {
        *trial = None;
        return;
    };
    let swap = swap.unwrap_or_default();
    if trial.as_ref().is_none_or(|known| known.digest != digest || known.swap != swap) {
        let (predecessor, time) = (predecessor.to_owned(), Duration::from_millis(time_ms));
        *trial = Some(Trial { digest, predecessor, swap, began: Instant::now(), time, broken: None });
    }
}
