//! What follows from the difference between two states alone: routing, drains, trials, the status.

use std::sync::Arc;

use super::{Canary, Probation, Serving, State, Work};
use crate::{
    ActiveStatus, CanaryStatus, CandidateStatus, Effect, ProbationStatus, Release, Routing, Settings, SettingsOutcome,
    Share, SlotStatus, TrialPlace, Watch,
};

/// What [`State::follow`] compares.
pub(super) struct Outline<R: Release> {
    routing: Routing<R>,
    pub(super) trials: [Option<u64>; 2],
    settings: R::Settings,
    keeps_questions: bool,
}

impl<R: Release> State<R> {
    pub(super) fn routing(&self) -> Routing<R> {
        let Ok(Serving { active, canary, .. }) = &self.serving else { return Routing::default() };
        let share =
            |canary: &Canary<R>| Share { release: Arc::clone(&canary.release), percent: canary.options.percent };
        Routing { active: Some(Arc::clone(active)), canary: canary.as_ref().map(share) }
    }

    pub(super) fn outline(&self) -> Outline<R> {
        let serving = self.serving.as_ref().ok();
        let canary = serving.and_then(|serving| serving.canary.as_ref());
        let probation = serving.and_then(|serving| serving.probation.as_ref());
        Outline {
            routing: self.routing(),
            trials: [canary.map(|canary| canary.number), probation.map(|probation| probation.number)],
            settings: self.settings.clone(),
            keeps_questions: self.keeps_questions(),
        }
    }

    /// The effects that follow from the difference between two states alone.
    pub(super) fn follow(&mut self, before: Outline<R>) -> Vec<Effect<R>> {
        let (after, mut effects) = (self.outline(), Vec::new());
        if !after.routing.is(&before.routing) {
            self.generation += u64::from(after.routing.active.is_some());
            let beyond = |one: &Routing<R>, other: &Routing<R>| {
                let other: Vec<_> = other.releases().map(Arc::as_ptr).collect();
                one.releases().filter(|release| !other.contains(&Arc::as_ptr(release))).cloned().collect::<Vec<_>>()
            };
            effects.extend(beyond(&after.routing, &before.routing).into_iter().map(Effect::Undrain));
            let gone = beyond(&before.routing, &after.routing);
            effects.push(Effect::Route(after.routing));
            effects.extend(gone.into_iter().map(Effect::Drain));
        }
        for (place, (before, after)) in
            [TrialPlace::Canary, TrialPlace::Probation].into_iter().zip(before.trials.into_iter().zip(after.trials))
        {
            if before != after {
                effects.push(Effect::Watch(place, self.watch(place)));
            }
        }
        if !before.settings.is(&after.settings) {
            effects.push(Effect::Retire(before.settings));
        }
        if before.keeps_questions != after.keeps_questions {
            effects.push(Effect::KeepQuestions(after.keeps_questions));
        }
        effects
    }

    /// Releases that serve, are kept for a rollback, or serve after the commit.
    pub(super) fn held(&self) -> u64 {
        let serving = self.serving.as_ref().map_or(0, |Serving { probation, canary, .. }| {
            1 + u64::from(probation.is_some()) + u64::from(canary.is_some())
        });
        let prepared = match &self.work {
            Work::Prepared { proposal, .. } => {
                matches!(proposal.outcome, SettingsOutcome::Serves(_) | SettingsOutcome::KeepsConfig(..))
            }
            _ => false,
        };
        serving + u64::from(prepared)
    }

    fn watch(&self, place: TrialPlace) -> Option<Watch<R>> {
        let serving = self.serving.as_ref().ok()?;
        let predecessor = Arc::clone(serving.last_passed());
        Some(match place {
            TrialPlace::Canary => {
                let Canary { number, release, options } = serving.canary.as_ref()?;
                let beside = Arc::ptr_eq(&predecessor, &serving.active);
                Watch { number: *number, release: Arc::clone(release), predecessor, options: options.watched, beside }
            }
            TrialPlace::Probation => {
                let Probation { number, watched, .. } = serving.probation.as_ref()?;
                let release = Arc::clone(&serving.active);
                Watch { number: *number, release, predecessor, options: *watched, beside: false }
            }
        })
    }

    /// The status; `draining` and the dates are the task's to tell.
    pub fn status(&self) -> SlotStatus {
        let serving = self.serving.as_ref().ok();
        let canary = serving.and_then(|serving| serving.canary.as_ref());
        let probation = serving.and_then(|serving| serving.probation.as_ref());
        SlotStatus {
            provider: self.provider.to_string(),
            active: serving.map(|Serving { active, probation, .. }| {
                let passed = probation.is_none() && !self.is_unproven(active);
                ActiveStatus::new(&**active, self.swaps, passed)
            }),
            probation: probation.map(|probation| ProbationStatus::new(&*probation.predecessor, probation.watched)),
            canary: canary.map(|canary| CanaryStatus::new(&*canary.release, canary.options)),
            shadow: self.shadow.clone(),
            candidate: match &self.work {
                Work::Loading { component, stage, .. } => Some(CandidateStatus::new(component, *stage)),
                Work::Reloading { candidate, .. } => Some(candidate.clone()),
                Work::Judging { candidate, .. } => candidate.clone(),
                Work::Idle | Work::Prepared { .. } => None,
            },
            refused: self.refused().cloned(),
            quarantine: self.refusals.quarantine(),
            source_failure: self.source_failure.clone(),
            swaps: self.swaps,
            draining: 0,
            generation: self.generation,
        }
    }
}
