//! Which release serves all objects: a release begins to serve, a trial ends, a release is rolled
//! back, or counts as one that passed probation.

use std::{mem, sync::Arc};

use super::{Canary, Newest, Probation, Serving, State, output::Output};
use crate::{Breach, Component, Offered, Refusal, Release, Report, Settings as _, Stage, Wanted, is_same_identity};

impl<R: Release> State<R> {
    /// A release that is loaded begins to serve.
    pub(super) fn introduce(&mut self, release: Arc<R>, output: &mut Output<R>) -> Offered {
        let Ok(serving) = &mut self.serving else {
            self.serve_all(release, output);
            return Offered::Activated;
        };
        let is_its = |wanted: &mut Wanted<_>| release.is_under(&wanted.settings);
        if let Some(wanted) = serving.wanted.take_if(is_its) {
            // The release brings the settings into force. All others have the old ones, so that
            // none of them may serve beside it or again.
            self.settings = wanted.settings;
            self.serve_untried(release, output);
            return Offered::Activated;
        }
        // Releases with different names would treat each other's objects as foreign. A release that
        // passed probation needs no trial when its source goes back to it.
        if let Some(options) = self.settings.rollout().canary
            && release.digest() != serving.last_passed().digest()
            && is_same_identity(release.info(), serving.last_passed().info())
            && is_same_identity(release.info(), serving.active.info())
        {
            self.number += 1;
            output.report(Report::Canary(Arc::clone(&release), options.percent));
            serving.canary = Some(Canary { number: self.number, release, options });
            return Offered::Canary;
        }
        self.serve_all(release, output);
        Offered::Activated
    }

    /// A release serves all objects, on probation if the settings say so.
    fn serve_all(&mut self, release: Arc<R>, output: &mut Output<R>) {
        self.number += 1;
        let predecessor = self.serving.as_ref().ok().map(|serving| Arc::clone(serving.last_passed()));
        let predecessor = predecessor.filter(|predecessor| predecessor.digest() != release.digest());
        let probation = self.settings.rollout().probation.zip(predecessor);
        let wanted = self.serving.as_mut().ok().and_then(|serving| serving.wanted.take());
        let number = self.number;
        let probation = probation.map(|(watched, predecessor)| Probation { number, predecessor, watched });
        let passes =
            probation.is_none() && (self.settings.rollout().probation.is_none() || !self.is_unproven(&release));
        self.exchange(release, output);
        if let Ok(serving) = &mut self.serving {
            serving.probation = probation;
            serving.wanted = wanted;
        }
        if passes {
            self.pass();
        }
    }

    /// A release serves all objects under new settings: no predecessor has them, so that no
    /// probation is possible.
    pub(super) fn serve_untried(&mut self, release: Arc<R>, output: &mut Output<R>) {
        let goes_on = |serving: &Serving<R>| serving.probation.is_none() && serving.active.digest() == release.digest();
        if !self.serving.as_ref().is_ok_and(goes_on) {
            self.unproven = Some(Arc::clone(&release.component().digest));
        }
        self.exchange(release, output);
        if self.settings.rollout().probation.is_none() {
            self.pass();
        }
    }

    /// The active release has passed probation, or needs none.
    fn pass(&mut self) {
        let Ok(Serving { active, .. }) = &self.serving else { return };
        // A release that passes after a retry is no longer refused.
        self.refusals.forget(active.digest());
        self.unproven.take_if(|unproven| **unproven == *active.digest());
    }

    pub(super) fn is_unproven(&self, release: &R) -> bool {
        self.unproven.as_deref() == Some(release.digest())
    }

    /// A release serves all objects, and nothing else is left of what served.
    fn exchange(&mut self, active: Arc<R>, output: &mut Output<R>) {
        self.swaps += 1;
        output.report(Report::Active(Arc::clone(&active)));
        self.serving = Ok(Serving { active, probation: None, canary: None, wanted: None });
    }

    pub(super) fn trial_ended(&mut self, number: u64, result: Result<(), Breach>, output: &mut Output<R>) {
        let Ok(serving) = &mut self.serving else { return };
        if let Some(Canary { release, options, .. }) = serving.canary.take_if(|canary| canary.number == number) {
            match result {
                Ok(()) => self.serve_all(release, output),
                Err(breach) => {
                    let serves = format!("the active release serves its {} % again", options.percent);
                    self.roll_back(&release, Stage::Canary, (&breach, &serves), output);
                }
            }
        } else if let Some(probation) = serving.probation.take_if(|probation| probation.number == number) {
            match result {
                Ok(()) => {
                    output.report(Report::Passed(Arc::clone(&serving.active)));
                    self.pass();
                }
                Err(breach) => {
                    let predecessor = probation.predecessor;
                    let serves = format!("its predecessor (version {}) serves again", predecessor.info().version);
                    let release = mem::replace(&mut serving.active, Arc::clone(&predecessor));
                    self.swaps += 1;
                    output.report(Report::Active(predecessor));
                    self.roll_back(&release, Stage::Active, (&breach, &serves), output);
                }
            }
        }
    }

    /// A release does not stay, and is not tried again by itself.
    fn roll_back(&mut self, release: &R, stage: Stage, (breach, serves): (&Breach, &str), output: &mut Output<R>) {
        let Component { offer, digest, .. } = release.component();
        let retried = self.asked.as_deref() == Some(&**digest);
        let way_out = if retried {
            "it was tried once more already, and is tried another time only where rollout.retry is removed and written again"
        } else {
            "this one is tried again only where rollout.retry names its digest"
        };
        let refusal = Refusal {
            digest: digest.to_string(),
            origin: offer.origin.clone(),
            stage,
            code: breach.reason().category(),
            reason: format!(
                "{}: it was rolled back, and {serves}: {breach}; offer a corrected release; {way_out}",
                offer.origin
            ),
            lasting: true,
            retried,
        };
        self.refusals.put(&refusal);
        // Otherwise something newer was offered.
        let has_canary = self.serving.as_ref().is_ok_and(|serving| serving.canary.is_some());
        if matches!(self.newest, Newest::Settled) && (stage == Stage::Canary || !has_canary) {
            self.newest = Newest::Refused(release.component().clone(), refusal.clone());
        }
        output.report(Report::RolledBack(refusal));
    }
}
