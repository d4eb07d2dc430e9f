//! What a slot is doing, and every change of it: one pure function, [`State::step`].
//!
//! # Rule
//! - The types allow only what can be: a canary, a probation and settings that wait exist only
//!   while a release serves, a predecessor is kept only on probation, a refusal stands only beside
//!   what it keeps from serving, and at most one thing is loaded or judged.
//! - `step` decides what the events mean. What follows from the difference of two states (which
//!   releases calls go to, which of them drain, which are watched) is derived in one place,
//!   [`State::follow`], so that no event can forget it.
//! - Loads, judgements and trials have numbers. The end of an earlier one changes nothing.
//! - While settings are judged or prepared, other requests wait: what was judged stays true until
//!   the commit.

use std::{mem, sync::Arc};

use crate::{
    CanaryOptions, CandidateStatus, Component, EarlierOffers, Effect, Event, Judge, Load, Loaded, Offered,
    ProbationOptions, Proposal, Refusal, Release, Reply, Report, Request, Settings as _, SettingsOutcome, ShadowStatus,
    SourceFailure, Stage, Told, Under, Wanted, refusals::Refusals,
};

mod follow;
mod output;
mod swaps;
#[cfg(test)]
pub(crate) mod tests;

use output::Output;

/// See the module.
pub struct State<R: Release> {
    provider: Arc<str>,
    /// The settings in force.
    settings: R::Settings,
    /// What serves, or why settings ended it.
    serving: Result<Serving<R>, Option<Refusal>>,
    /// The digest of the newest release that served all objects and has not passed the probation
    /// that the settings require: new settings ended its probation, or it began to serve because
    /// its predecessor refused new settings.
    unproven: Option<Arc<str>>,
    work: Work<R>,
    newest: Newest,
    refusals: Refusals,
    /// The release that the operator asks for again, by its digest.
    asked: Option<String>,
    shadow: Option<ShadowStatus>,
    source_failure: Option<SourceFailure>,
    swaps: u64,
    generation: u64,
    /// The number of the last load, judgement or trial.
    number: u64,
}

/// What serves.
struct Serving<R: Release> {
    active: Arc<R>,
    probation: Option<Probation<R>>,
    canary: Option<Canary<R>>,
    wanted: Option<Wanted<R::Settings>>,
}

/// The active release may be rolled back.
struct Probation<R> {
    number: u64,
    predecessor: Arc<R>,
    watched: ProbationOptions,
}

struct Canary<R> {
    number: u64,
    release: Arc<R>,
    options: CanaryOptions,
}

/// What the slot is busy with.
enum Work<R: Release> {
    Idle,
    /// An offer is loaded.
    Loading {
        number: u64,
        component: Component,
        stage: Stage,
        /// As [`State::swaps`] when the load began: the load is judged beside what served then.
        swaps: u64,
        /// The first is the caller whose request began the load.
        replies: Vec<Reply>,
    },
    /// The active release is loaded under the settings that it refused ([`Under::Wanted`]).
    Reloading {
        number: u64,
        candidate: CandidateStatus,
        replies: Vec<Reply>,
    },
    /// Releases are asked about new settings.
    Judging {
        number: u64,
        candidate: Option<CandidateStatus>,
        waiting: Vec<Request<R>>,
    },
    /// New settings may be committed.
    Prepared {
        number: u64,
        proposal: Box<Proposal<R>>,
        waiting: Vec<Request<R>>,
    },
}

/// What became of the newest offer that the slot knows.
enum Newest {
    /// The offered release serves, or the offer is forgotten.
    Settled,
    /// New settings interrupted it, ended its canary or came after its refusal: it is loaded again.
    PutOff(Component),
    /// The release is loaded again only if the refusal does not last or the operator asks for it.
    Refused(Component, Refusal),
}

// === impl Work ===

impl<R: Release> Work<R> {
    fn take(&mut self) -> Self {
        mem::replace(self, Self::Idle)
    }
}

// === impl Serving ===

impl<R: Release> Serving<R> {
    /// The last release that passed probation: a new release is compared with this one.
    fn last_passed(&self) -> &Arc<R> {
        self.probation.as_ref().map_or(&self.active, |probation| &probation.predecessor)
    }
}

// === impl State ===

impl<R: Release> State<R> {
    /// An empty slot.
    pub fn new(provider: Arc<str>, settings: R::Settings) -> Self {
        Self {
            provider,
            asked: settings.retry().map(ToOwned::to_owned),
            settings,
            serving: Err(None),
            unproven: None,
            work: Work::Idle,
            newest: Newest::Settled,
            refusals: Refusals::default(),
            shadow: None,
            source_failure: None,
            swaps: 0,
            generation: 0,
            number: 0,
        }
    }

    /// The state after an event, and the effects of the event.
    #[must_use]
    pub fn step(mut self, event: Event<R>) -> (Self, Vec<Effect<R>>) {
        let (before, mut output) = (self.outline(), Output::new());
        let is_idle = |state: &Self| matches!(state.work, Work::Idle);
        let was_idle = is_idle(&self);
        self.take(event, &mut output);
        let mut effects = self.follow(before);
        effects.append(&mut output.effects);
        if is_idle(&self) && !was_idle {
            // After the loads that requests which had waited began and ended in this step.
            effects.push(Effect::StopWork);
        }
        effects.push(Effect::Publish(Box::new(self.status()), self.held()));
        effects.append(&mut output.answers);
        (self, effects)
    }

    /// Whether questions of the controllers are remembered.
    pub fn keeps_questions(&self) -> bool {
        let rollout = self.settings.rollout();
        rollout.shadow.is_some() || rollout.plan.is_some()
    }

    fn take(&mut self, event: Event<R>, output: &mut Output<R>) {
        match event {
            Event::Request(request) => self.request(request, output),
            Event::Reached { number: of, candidate: now } => match &mut self.work {
                Work::Loading { number, stage, .. } if *number == of => *stage = now.stage,
                Work::Reloading { number, candidate, .. } if *number == of => *candidate = now,
                Work::Judging { number, candidate, .. } if *number == of => *candidate = Some(now),
                _ => {}
            },
            Event::Loaded { number: of, loaded } => match self.work.take() {
                Work::Loading { number, component, swaps, replies, .. } if number == of => {
                    if swaps == self.swaps {
                        self.loaded(component, loaded, replies, output);
                    } else {
                        // A trial ended during the load: another release serves, perhaps this one.
                        self.begin(component, replies, output);
                    }
                }
                Work::Reloading { number, replies, .. } if number == of => {
                    self.reloaded(loaded.result, replies, output);
                }
                other => self.work = other,
            },
            Event::Judged { number: of, proposal, proposer } => match self.work.take() {
                Work::Judging { number, waiting, .. } if number == of => {
                    self.work = Work::Prepared { number, proposal, waiting };
                    output.answers.push(Effect::AwaitCommit(number, proposer));
                }
                other => self.work = other,
            },
            Event::Committed { number: of, done } => match self.work.take() {
                Work::Prepared { number, proposal, waiting } if number == of => {
                    self.commit(*proposal, output);
                    output.answers.push(Effect::Confirm(done));
                    self.resume(waiting, output);
                }
                other => self.work = other,
            },
            Event::Abandoned { number: of } => match self.work.take() {
                Work::Judging { number, waiting, .. } | Work::Prepared { number, waiting, .. } if number == of => {
                    self.resume(waiting, output);
                }
                other => self.work = other,
            },
        }
    }

    fn resume(&mut self, waiting: Vec<Request<R>>, output: &mut Output<R>) {
        waiting.into_iter().for_each(|request| self.request(request, output));
    }

    fn request(&mut self, request: Request<R>, output: &mut Output<R>) {
        if let Work::Judging { waiting, .. } | Work::Prepared { waiting, .. } = &mut self.work {
            waiting.push(request);
            return;
        }
        match request {
            Request::Offered { component, reply } => {
                self.source_failure = None;
                self.begin(component, vec![reply], output);
            }
            Request::Retry { reply } => self.retry(vec![reply], output),
            Request::Proposed { settings, earlier, proposer } => self.propose(settings, earlier, proposer, output),
            Request::Told { told, done } => {
                self.told(told, output);
                output.answers.push(Effect::Confirm(done));
            }
            Request::TrialEnded { number, result } => self.trial_ended(number, result, output),
        }
    }

    // --- offers ---

    /// An offer is taken up: the newest one, whether now or once more.
    fn begin(&mut self, component: Component, mut replies: Vec<Reply>, output: &mut Output<R>) {
        if let Work::Loading { component: loading, replies: waiting, .. } = &mut self.work
            && loading.digest == component.digest
        {
            waiting.append(&mut replies);
            return;
        }
        let is = |release: &R| release.digest() == &*component.digest;
        let serves = self.serving.as_ref().is_ok_and(|serving| is(&serving.active));
        if !(serves && matches!(self.work, Work::Reloading { .. })) {
            self.interrupt(Offered::Overtaken, output);
        }
        if let Ok(Serving { active, canary, .. }) = &mut self.serving
            && (is(active) || canary.as_ref().is_some_and(|canary| is(&canary.release)))
        {
            // A source that goes back to the active release ends its canary.
            canary.take_if(|_| is(active));
            self.newest = Newest::Settled;
            return output.answer(replies, &Ok(Offered::AlreadyActive));
        }
        if let Some(refusal) = self.standing_refusal(&component).cloned() {
            return self.refuse(component, refusal, replies, output);
        }
        self.number += 1;
        let (number, in_force, serving) = (self.number, self.settings.clone(), self.serving.as_ref().ok());
        let under = match serving.and_then(|serving| serving.wanted.as_ref()) {
            Some(Wanted { settings, .. }) => Under::WantedFirst { wanted: settings.clone(), in_force },
            None => Under::InForce(in_force),
        };
        let active = serving.map(|serving| Arc::clone(&serving.active));
        output.effects.push(Effect::Load(Box::new(Load { number, component: component.clone(), under, active })));
        self.work = Work::Loading { number, component, stage: Stage::Offered, swaps: self.swaps, replies };
    }

    /// Ends the load that is under way, and returns its component if that is an offer.
    fn interrupt(&mut self, why: Offered, output: &mut Output<R>) -> Option<Component> {
        match self.work.take() {
            Work::Loading { component, replies, .. } => {
                output.answer(replies, &Ok(why));
                Some(component)
            }
            Work::Reloading { replies, .. } => {
                output.answer(replies, &Ok(why));
                None
            }
            other => {
                self.work = other;
                None
            }
        }
    }

    fn retry(&mut self, mut replies: Vec<Reply>, output: &mut Output<R>) {
        if let Work::Loading { replies: waiting, .. } = &mut self.work {
            waiting.append(&mut replies);
            return;
        }
        match &self.newest {
            Newest::PutOff(component) => self.begin(component.clone(), replies, output),
            Newest::Refused(component, refusal) if !refusal.lasting || self.is_asked_for(component) => {
                self.begin(component.clone(), replies, output);
            }
            Newest::Settled | Newest::Refused(..) => self.reload(replies, output),
        }
    }

    /// Loads the active release under the settings that it refused because of the machine or the
    /// cloud. A trial, which these settings would end, comes first.
    fn reload(&mut self, mut replies: Vec<Reply>, output: &mut Output<R>) {
        if let Work::Reloading { replies: waiting, .. } = &mut self.work {
            waiting.append(&mut replies);
            return;
        }
        match &self.serving {
            Ok(Serving { active, probation: None, canary: None, wanted: Some(wanted) }) if !wanted.refusal.lasting => {
                self.number += 1;
                let (number, component, active) = (self.number, active.component().clone(), Some(Arc::clone(active)));
                let candidate = CandidateStatus::new(&component, Stage::Offered);
                let under = Under::Wanted(wanted.settings.clone());
                output.effects.push(Effect::Load(Box::new(Load { number, component, under, active })));
                self.work = Work::Reloading { number, candidate, replies };
            }
            _ => output.answer(replies, &Ok(Offered::AlreadyActive)),
        }
    }

    fn reloaded(&mut self, result: Result<Arc<R>, Refusal>, replies: Vec<Reply>, output: &mut Output<R>) {
        let mut answer = Offered::AlreadyActive;
        match (result, &mut self.serving) {
            (Ok(release), _) => answer = self.introduce(release, output),
            (Err(refusal), Ok(Serving { wanted: Some(wanted), .. })) => {
                if refusal.lasting {
                    output.report(Report::KeepsConfig(refusal.clone()));
                }
                wanted.refusal = refusal;
            }
            (Err(_), _) => {}
        }
        output.answer(replies, &Ok(answer));
    }

    /// Whether this release was rolled back, the operator asks for it, it was not tried again for
    /// that, and there is a release to return to.
    fn is_asked_for(&self, component: &Component) -> bool {
        let digest = &*component.digest;
        let refusal = self.refusals.get(digest).filter(|refusal| refusal.was_rolled_back() && !refusal.retried);
        refusal.is_some() && self.asked.as_deref() == Some(digest) && self.serving.is_ok()
    }

    /// The refusal of this release, unless the operator asks for the release again.
    fn standing_refusal(&self, component: &Component) -> Option<&Refusal> {
        self.refusals.get(&component.digest).filter(|_| !self.is_asked_for(component))
    }

    /// Ends the load of a rolled-back release that the operator does not ask for any more.
    fn withdraw(&mut self, output: &mut Output<R>) {
        match self.work.take() {
            Work::Loading { component, replies, .. } if self.standing_refusal(&component).is_some() => {
                self.begin(component, replies, output);
            }
            other => self.work = other,
        }
    }

    fn loaded(
        &mut self,
        component: Component,
        Loaded { result, shadow, wanted: still_refused }: Loaded<R>,
        mut replies: Vec<Reply>,
        output: &mut Output<R>,
    ) {
        if let Some(shadow) = shadow {
            output.report(Report::Shadowed(shadow.clone()));
            self.shadow = Some(shadow);
        }
        // What is undecided stays so: a canary may be rolled back.
        if let (Some(refusal), Ok(_)) = (still_refused, &result)
            && let Ok(Serving { wanted: Some(wanted), .. }) = &mut self.serving
            && (wanted.refusal.lasting || !refusal.lasting)
        {
            wanted.refusal = refusal;
        }
        match result {
            Ok(release) => {
                let offered = self.introduce(release, output);
                self.newest = Newest::Settled;
                let others = replies.split_off(replies.len().min(1));
                output.answer(replies, &Ok(offered));
                output.answer(others, &Ok(Offered::AlreadyActive));
            }
            Err(refusal) => {
                self.remember(&refusal);
                self.refuse(component, refusal, replies, output);
            }
        }
    }

    /// A refusal by a fault of the machine or the cloud is not held against a release.
    fn remember(&mut self, refusal: &Refusal) {
        if refusal.lasting {
            self.refusals.put(refusal);
        }
    }

    fn refuse(&mut self, component: Component, refusal: Refusal, replies: Vec<Reply>, output: &mut Output<R>) {
        output.report(Report::Refused(refusal.clone()));
        output.answer(replies, &Err(refusal.clone()));
        self.newest = Newest::Refused(component, refusal);
    }

    /// As [`SlotStatus::refused`](crate::SlotStatus::refused).
    fn refused(&self) -> Option<&Refusal> {
        match (&self.newest, &self.serving) {
            (Newest::Refused(_, refusal), _) => Some(refusal),
            (_, Ok(serving)) => serving.wanted.as_ref().map(|wanted| &wanted.refusal),
            (_, Err(refusal)) => refusal.as_ref(),
        }
    }

    // --- settings ---

    fn propose(
        &mut self,
        settings: R::Settings,
        earlier: EarlierOffers,
        proposer: R::Proposer,
        output: &mut Output<R>,
    ) {
        if let Some(component) = self.interrupt(Offered::PutOff, output) {
            self.newest = Newest::PutOff(component);
        }
        let newest = match &self.newest {
            Newest::PutOff(component) | Newest::Refused(component, _) if earlier == EarlierOffers::Stand => {
                let known = self.refusals.get(&component.digest);
                known.is_none_or(|refusal| !refusal.was_rolled_back()).then(|| component.clone())
            }
            _ => None,
        };
        self.number += 1;
        let number = self.number;
        let active = self.serving.as_ref().ok().map(|serving| Arc::clone(&serving.active));
        let candidate = active.as_ref().map(|active| CandidateStatus::new(active.component(), Stage::Offered));
        let judge = Judge { number, settings, earlier, active, newest, in_force: self.settings.clone() };
        output.effects.push(Effect::Judge(Box::new(judge), proposer));
        self.work = Work::Judging { number, candidate, waiting: Vec::new() };
    }

    fn commit(&mut self, Proposal { settings, earlier, outcome }: Proposal<R>, output: &mut Output<R>) {
        let canary = self.forget();
        self.newest = match (mem::replace(&mut self.newest, Newest::Settled), canary) {
            _ if earlier == EarlierOffers::Forgotten => Newest::Settled,
            // Under other settings a release may be accepted.
            (Newest::PutOff(component) | Newest::Refused(component, _), _) => Newest::PutOff(component),
            (Newest::Settled, Some(canary)) => Newest::PutOff(canary.release.component().clone()),
            (Newest::Settled, None) => Newest::Settled,
        };
        self.ask_again(settings.retry().map(ToOwned::to_owned));
        self.settings = settings;
        self.refusals.settings_changed();
        match outcome {
            SettingsOutcome::Empty => {}
            SettingsOutcome::Serves(release) => self.serve_settings(release, output),
            SettingsOutcome::KeepsConfig(release, wanted) => {
                self.serve_settings(release, output);
                output.report(Report::KeepsConfig(wanted.refusal.clone()));
                if let Ok(serving) = &mut self.serving {
                    serving.wanted = Some(wanted);
                }
            }
            SettingsOutcome::Stops(component, refusal) => {
                if let Ok(Serving { active, probation: Some(_), .. }) = &self.serving {
                    self.unproven = Some(Arc::clone(&active.component().digest));
                }
                self.remember(&refusal);
                output.report(Report::Stopped(refusal.clone()));
                self.serving = Err(Some(refusal.clone()));
                if matches!(self.newest, Newest::Settled) {
                    self.newest = Newest::Refused(component, refusal);
                }
            }
        }
    }

    /// Ends what earlier settings or another source began or said: the canary, the shadow and the
    /// reason why no release serves.
    fn forget(&mut self) -> Option<Canary<R>> {
        self.shadow = None;
        match &mut self.serving {
            Ok(serving) => serving.canary.take(),
            Err(refusal) => {
                *refusal = None;
                None
            }
        }
    }

    /// The same release as before, or the newest one where the active release refused the settings.
    fn serve_settings(&mut self, release: Arc<R>, output: &mut Output<R>) {
        if let Newest::PutOff(component) = &self.newest
            && &*component.digest == release.digest()
        {
            self.newest = Newest::Settled;
        }
        self.serve_untried(release, output);
    }

    fn told(&mut self, told: Told, output: &mut Output<R>) {
        match told {
            Told::Asked(asked) => {
                if self.ask_again(asked) {
                    self.withdraw(output);
                    self.retry(Vec::new(), output);
                }
            }
            Told::Forget => {
                self.interrupt(Offered::PutOff, output);
                self.forget();
                self.newest = Newest::Settled;
            }
            Told::Quarantined(refusal) => {
                if self.refusals.get(&refusal.digest).is_none() {
                    self.refusals.put(&refusal);
                }
            }
            Told::SourceFailed(failure) => {
                output.report(Report::SourceFailed(failure.clone()));
                self.source_failure = Some(failure);
            }
        }
    }

    /// Whether the operator asks for another release than before. A release that was tried once
    /// more may then be tried again.
    fn ask_again(&mut self, asked: Option<String>) -> bool {
        if self.asked == asked {
            return false;
        }
        self.asked = asked;
        self.refusals.allow_retries();
        if let Newest::Refused(_, refusal) = &mut self.newest {
            refusal.retried = false;
        }
        true
    }
}
