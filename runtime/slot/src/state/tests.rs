//! Random sequences of events, offers, swaps, rollbacks and settings: what holds after each step.
//!
//! The world below does what the slot's task does with the effects, without running anything: it
//! remembers what is under way, and ends it as the sequence says. A failing sequence is printed
//! with the seed of its run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use proptest::prelude::*;
use skysail_provider::{Info, Interface, NODES_PER_PAGE};
use tokio::sync::oneshot;

use super::{
    CanaryOptions, Component, EarlierOffers, Effect, Event, Judge, Load, Loaded, Offered, ProbationOptions, Proposal,
    Refusal, Report, Request, SettingsOutcome, SourceFailure, Stage, State, Told, Under, Wanted, Work,
};
use crate::{
    Breach, CallHistory, Drain, Offer, OnDifference, RolloutOptions, Routing, ShadowOptions, SlotStatus, TrialPlace,
};

/// Components that a sequence knows; the last one has another name than the others.
const COMPONENTS: u8 = 4;
/// Never part of a sequence.
const FRESH: u8 = 99;

const WATCHED: ProbationOptions = ProbationOptions { calls: 1, time: Duration::from_secs(1) };

/// A release is what the state has to know of it.
#[derive(Debug)]
pub(crate) struct Release {
    component: Component,
    info: Info,
    settings: Settings,
    call_history: Arc<CallHistory>,
    drain: Drain,
    /// As many owners as there are releases in memory.
    _living: Arc<()>,
}

impl crate::Release for Release {
    type Settings = Settings;
    type Proposer = ();
    const CONTRACT: &'static str = "0.1.0";

    fn component(&self) -> &Component {
        &self.component
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn interfaces(&self) -> &[Interface] {
        &[Interface::LoadBalancers]
    }

    fn call_history(&self) -> &Arc<CallHistory> {
        &self.call_history
    }

    fn drain(&self) -> &Drain {
        &self.drain
    }

    fn is_under(&self, settings: &Settings) -> bool {
        crate::Settings::is(&self.settings, settings)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Settings(Arc<(RolloutOptions, Option<String>, Drain)>);

impl Settings {
    /// Equal ones that were made later.
    fn again(&self) -> Self {
        let (rollout, retry, _) = &*self.0;
        Self(Arc::new((rollout.clone(), retry.clone(), Drain::default())))
    }
}

impl crate::Settings for Settings {
    fn rollout(&self) -> &RolloutOptions {
        &self.0.0
    }

    fn retry(&self) -> Option<&str> {
        self.0.1.as_deref()
    }

    fn drain(&self) -> &Drain {
        &self.0.2
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

pub(crate) fn offered(number: u8) -> Component {
    Component::new(Offer { bytes: Bytes::from(vec![number]), origin: format!("file {number}") })
}

pub(crate) fn settings(kind: u8) -> Settings {
    let canary = (kind & 1 == 1).then_some(CanaryOptions { percent: 20, watched: WATCHED });
    let probation = (kind & 2 == 2).then_some(WATCHED);
    let shadow = (kind & 4 == 4).then_some(ShadowOptions { on_difference: OnDifference::Report });
    let retry = (kind & 16 == 16).then(|| offered(kind % COMPONENTS).digest.to_string());
    Settings(Arc::new((RolloutOptions { shadow, plan: None, canary, probation }, retry, Drain::default())))
}

pub(crate) fn refusal(component: &Component, lasting: bool) -> Refusal {
    Refusal {
        digest: component.digest.to_string(),
        origin: component.offer.origin.clone(),
        stage: Stage::Described,
        code: "ConfigRefused",
        reason: "why".to_owned(),
        lasting,
        retried: false,
    }
}

/// What is under way, as in the slot's task.
enum Pending {
    Nothing,
    Load(Box<Load<Release>>),
    Judge(Box<Judge<Release>>),
    Commit(u64),
}

struct World {
    state: Option<State<Release>>,
    pending: Pending,
    trials: [Option<u64>; 2],
    routing: Routing<Release>,
    status: SlotStatus,
    living: Arc<()>,
    answers: Vec<oneshot::Receiver<Result<Offered, Refusal>>>,
    confirmations: Vec<oneshot::Receiver<()>>,
    /// Rolled back, and not asked for since.
    rolled_back: BTreeSet<String>,
    /// Whether each release counted as one that passed when it last served all objects.
    passed: BTreeMap<String, bool>,
    /// The last release that served all objects.
    last: Option<String>,
}

/// One step of a sequence: the kind of step, and its variant.
type Choice = (u8, u8);

impl World {
    fn new(kind: u8) -> Self {
        let state = State::new("cloud".into(), settings(kind));
        Self {
            status: state.status(),
            state: Some(state),
            pending: Pending::Nothing,
            trials: [None; 2],
            routing: Routing::default(),
            living: Arc::default(),
            answers: Vec::new(),
            confirmations: Vec::new(),
            rolled_back: BTreeSet::new(),
            passed: BTreeMap::new(),
            last: None,
        }
    }

    fn state(&self) -> &State<Release> {
        self.state.as_ref().unwrap()
    }

    fn release(&self, component: &Component, settings: &Settings) -> Arc<Release> {
        let is_other = component.digest == offered(COMPONENTS - 1).digest;
        let name = if is_other { "q" } else { "p" }.to_owned();
        let (version, description, provider_id_schemes) = Default::default();
        let (has_cluster_id, serial_load_balancers, page_nodes) = (false, false, NODES_PER_PAGE);
        let info =
            Info { name, version, description, provider_id_schemes, has_cluster_id, serial_load_balancers, page_nodes };
        let (component, settings, living) = (component.clone(), settings.clone(), Arc::clone(&self.living));
        let (call_history, drain) = Default::default();
        Arc::new(Release { component, info, settings, call_history, drain, _living: living })
    }

    fn answer<T>(receivers: &mut Vec<oneshot::Receiver<T>>) -> oneshot::Sender<T> {
        let (sender, receiver) = oneshot::channel();
        receivers.push(receiver);
        sender
    }

    fn act(&mut self, (which, how): Choice) {
        let digest = |how: u8| offered(how % COMPONENTS).digest.to_string();
        match which % 12 {
            0..=2 => self.offer(how % COMPONENTS),
            3..=5 => self.end_work(how),
            6 => {
                let reply = Self::answer(&mut self.answers);
                self.step(Event::Request(Request::Retry { reply }));
            }
            7 => {
                let place = usize::from(how & 1);
                let result = if how & 2 == 2 { Ok(()) } else { Err(Breach::Errors { share: 1.0, before: 0.0 }) };
                if let Some(number) = self.trials[place].take() {
                    self.step(Event::Request(Request::TrialEnded { number, result }));
                }
            }
            8 => {
                let earlier = if how & 32 == 32 { EarlierOffers::Forgotten } else { EarlierOffers::Stand };
                self.step(Event::Request(Request::Proposed { settings: settings(how), earlier, proposer: () }));
            }
            9 => {
                let told = match how % 5 {
                    0 => Told::Asked(None),
                    1 => Told::Asked(Some(digest(how / 5))),
                    2 => Told::Forget,
                    3 => Told::SourceFailed(SourceFailure { code: "SourceEmpty", reason: "why".to_owned() }),
                    _ => {
                        let refusal = Refusal { stage: Stage::Active, ..refusal(&offered(how / 5 % COMPONENTS), true) };
                        Told::Quarantined(refusal)
                    }
                };
                let done = Self::answer(&mut self.confirmations);
                self.step(Event::Request(Request::Told { told, done }));
            }
            _ => self.late(how),
        }
    }

    fn offer(&mut self, number: u8) {
        let (component, reply) = (offered(number), Self::answer(&mut self.answers));
        let digest = Arc::clone(&component.digest);
        self.step(Event::Request(Request::Offered { component, reply }));
        if let Work::Loading { component, .. } = &self.state().work {
            assert_eq!(component.digest, digest, "the latest offer wins");
        }
    }

    /// The end of what is under way, as `how` says.
    fn end_work(&mut self, how: u8) {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Load(load) => {
                let Load { number, component, under, .. } = *load;
                let undecided = refusal(&component, false);
                let refused = refusal(&component, how & 8 == 0);
                let (result, wanted) = match (how % 4, under) {
                    (0, Under::WantedFirst { wanted, .. } | Under::Wanted(wanted)) => {
                        (Ok(self.release(&component, &wanted)), None)
                    }
                    (0 | 1, Under::InForce(settings)) => (Ok(self.release(&component, &settings)), None),
                    (1, Under::WantedFirst { in_force, .. }) => {
                        (Ok(self.release(&component, &in_force)), Some(refused))
                    }
                    (_, Under::WantedFirst { .. }) if !refused.lasting => (Err(undecided), Some(refused)),
                    (how, Under::WantedFirst { .. }) => (Err(refusal(&component, how == 2)), Some(refused)),
                    (how, _) => (Err(refusal(&component, how == 2)), None),
                };
                self.step(Event::Loaded { number, loaded: Loaded { result, shadow: None, wanted } });
            }
            Pending::Judge(judge) => {
                let Judge { number, settings, earlier, active, newest, .. } = *judge;
                if how.is_multiple_of(5) {
                    return self.step(Event::Abandoned { number });
                }
                let (settings, outcome) = match (active, newest, how % 5) {
                    (None, ..) => (settings, SettingsOutcome::Empty),
                    (Some(active), _, 1) => {
                        let outcome = SettingsOutcome::Serves(self.release(&active.component, &settings));
                        (settings, outcome)
                    }
                    (Some(_), Some(newest), 2) => {
                        let outcome = SettingsOutcome::Serves(self.release(&newest, &settings));
                        (settings, outcome)
                    }
                    (Some(active), _, 3) => {
                        let refusal = refusal(&active.component, true);
                        let kept = settings.again();
                        let release = self.release(&active.component, &kept);
                        (kept, SettingsOutcome::KeepsConfig(release, Wanted { settings, refusal }))
                    }
                    (Some(active), ..) => (
                        settings,
                        SettingsOutcome::Stops(active.component.clone(), refusal(&active.component, how & 8 == 8)),
                    ),
                };
                let proposal = Box::new(Proposal { settings, earlier, outcome });
                self.step(Event::Judged { number, proposal, proposer: () });
            }
            Pending::Commit(number) if how.is_multiple_of(3) => self.step(Event::Abandoned { number }),
            Pending::Commit(number) => {
                let done = Self::answer(&mut self.confirmations);
                self.step(Event::Committed { number, done });
                let old = self.routing.releases().find(|release| !self.is_in_force(release));
                assert!(old.is_none(), "nothing of the old settings serves");
            }
        }
    }

    /// The end of something that is over, or is not yet: it changes nothing.
    fn late(&mut self, how: u8) {
        let state = self.state();
        let current = match &state.work {
            Work::Idle => None,
            Work::Loading { number, .. }
            | Work::Reloading { number, .. }
            | Work::Judging { number, .. }
            | Work::Prepared { number, .. } => Some(*number),
        };
        let number = if how & 1 == 1 { state.number + 1 } else { u64::from(how / 8) };
        let under_way = [current, self.trials[0], self.trials[1]];
        let decides = matches!(state.work, Work::Judging { .. } | Work::Prepared { .. });
        if under_way.contains(&Some(number)) || decides {
            return;
        }
        let (before, swaps) = (state.status(), state.swaps);
        let event = match how / 2 % 4 {
            0 => Event::Request(Request::TrialEnded { number, result: Ok(()) }),
            1 => Event::Abandoned { number },
            2 => Event::Committed { number, done: oneshot::channel().0 },
            _ => {
                let result = Err(refusal(&offered(0), true));
                Event::Loaded { number, loaded: Loaded { result, shadow: None, wanted: None } }
            }
        };
        self.step(event);
        assert_eq!((self.state().status(), self.state().swaps), (before, swaps), "it changes nothing");
    }

    fn is_in_force(&self, release: &Release) -> bool {
        crate::Release::is_under(release, &self.state().settings)
    }

    /// One step, its effects, and what has to hold after them.
    fn step(&mut self, event: Event<Release>) {
        let before = (self.routing.clone(), self.state().generation);
        let kept: Vec<_> = self
            .state()
            .serving
            .iter()
            .flat_map(|serving| serving.probation.iter())
            .map(|probation| probation.predecessor.component.digest.to_string())
            .collect();
        let (state, effects) = self.state.take().unwrap().step(event);
        self.state = Some(state);
        let (mut is_published, mut is_routed, mut passes) = (false, false, None);
        let active = self.status.active.as_ref().map(|active| active.digest.clone());
        for effect in effects {
            assert_eq!(
                is_published,
                matches!(effect, Effect::Answer(..) | Effect::Confirm(_) | Effect::AwaitCommit(..)),
                "answers come after the status, and nothing else does"
            );
            match effect {
                Effect::StopWork => self.pending = Pending::Nothing,
                Effect::Load(load) => self.pending = Pending::Load(load),
                Effect::Judge(judge, ()) => self.pending = Pending::Judge(judge),
                Effect::AwaitCommit(number, ()) => self.pending = Pending::Commit(number),
                Effect::Undrain(_) => assert!(!is_routed, "a release may have calls before it gets some"),
                Effect::Route(routing) => {
                    is_routed = true;
                    self.routing = routing;
                }
                Effect::Drain(release) => {
                    assert!(is_routed, "no call begins on a release that drains");
                    assert!(self.routing.releases().all(|routed| !Arc::ptr_eq(routed, &release)));
                }
                Effect::Retire(settings) => {
                    assert!(self.routing.releases().all(|routed| !crate::Release::is_under(&**routed, &settings)));
                }
                Effect::Watch(place, watch) => {
                    if let Some(watch) = &watch {
                        let serves = self.routing.active.as_ref().is_some_and(|a| Arc::ptr_eq(a, &watch.predecessor));
                        assert_eq!(watch.beside, serves, "the predecessor is watched while it serves");
                        assert!(place == TrialPlace::Canary || !serves);
                    }
                    self.trials[usize::from(place == TrialPlace::Probation)] = watch.map(|watch| watch.number);
                }
                Effect::Report(Report::RolledBack(refusal)) => drop(self.rolled_back.insert(refusal.digest)),
                Effect::Report(Report::Passed(release)) => passes = Some(release.component.digest.to_string()),
                Effect::KeepQuestions(_) | Effect::Report(_) => {}
                Effect::Publish(status, _) => {
                    is_published = true;
                    self.status = *status;
                }
                Effect::Answer(reply, answer) => drop(reply.send(answer)),
                Effect::Confirm(done) => drop(done.send(())),
            }
        }
        assert!(is_published);
        self.holds(&before, &kept);
        self.passes_rightly(active.as_deref(), &kept, passes.as_deref());
    }

    /// A release has passed where its probation ended well, and where it needs none. `before`
    /// served all objects before the step, `kept` was its predecessor, and `passes` ended its
    /// probation in the step.
    fn passes_rightly(&mut self, before: Option<&str>, kept: &[String], passes: Option<&str>) {
        let Some(active) = &self.status.active else { return };
        let digest = &*active.digest;
        let has_passed = self.passed.get(digest) == Some(&true);
        let needs_none = crate::Settings::rollout(&self.state().settings).probation.is_none();
        let may_pass = match before {
            Some(before) => has_passed && (before == digest || kept.iter().any(|kept| kept == digest)),
            None => has_passed || self.last.as_deref() != Some(digest),
        };
        let has_to_pass = needs_none || passes == Some(digest);
        assert!(!active.passed || may_pass || has_to_pass, "no probation of {digest} ended well");
        assert!(active.passed || !has_to_pass, "{digest} has passed");
        self.passed.insert(digest.to_owned(), active.passed);
        self.last = Some(digest.to_owned());
    }

    fn holds(&mut self, (routing, generation): &(Routing<Release>, u64), kept: &[String]) {
        let state = self.state();
        assert!(state.routing().is(&self.routing), "calls go where the state says");
        let waits = matches!(state.work, Work::Judging { .. } | Work::Prepared { .. });
        for (known, watched) in state.outline().trials.into_iter().zip(self.trials) {
            assert!(known == watched || (watched.is_none() && waits), "{known:?} is watched, not {watched:?}");
        }
        let is_changed = !self.routing.is(routing) && self.routing.active.is_some();
        assert_eq!(state.generation - generation, u64::from(is_changed), "every object is reconciled once");
        match (&state.work, &self.pending) {
            (Work::Idle, Pending::Nothing) => {}
            (Work::Loading { number, component, .. }, Pending::Load(load)) => {
                assert_eq!((number, &component.digest), (&load.number, &load.component.digest));
            }
            (Work::Reloading { number, .. }, Pending::Load(load)) => {
                let active = self.routing.active.as_ref().unwrap();
                assert_eq!((number, &load.component.digest), (&load.number, &active.component.digest));
            }
            (Work::Judging { number, .. }, Pending::Judge(judge)) => assert_eq!(*number, judge.number),
            (Work::Prepared { number, .. }, Pending::Commit(commit)) => assert_eq!(number, commit),
            _ => panic!("something is under way that the state does not know, or the reverse"),
        }
        let kept_now = state.serving.iter().filter_map(|serving| Some(&serving.probation.as_ref()?.predecessor));
        assert!(self.routing.releases().chain(kept_now).all(|release| self.is_in_force(release)), "old settings");
        for release in self.routing.releases() {
            let digest = &*release.component.digest;
            let is_new = !kept.iter().any(|kept| kept == digest)
                && routing.releases().all(|known| &*known.component.digest != digest);
            if is_new && self.rolled_back.contains(digest) && state.refusals.get(digest).is_some() {
                assert_eq!(state.asked.as_deref(), Some(digest), "a rolled-back release serves only on request");
            }
        }
        if let Ok(serving) = &state.serving {
            let canary = serving.canary.as_ref().map(|canary| &canary.release);
            for tried in canary.into_iter().chain(serving.probation.is_some().then_some(&serving.active)) {
                let predecessor = &serving.last_passed().component.digest;
                assert_ne!(&tried.component.digest, predecessor, "a release is not its own predecessor");
            }
        }
        assert_eq!(self.routing.active.is_some(), self.status.active.is_some());
        if let Some(active) = &self.routing.active {
            assert_eq!(self.status.active.as_ref().map(|status| &*status.digest), Some(&*active.component.digest));
        }
    }

    /// After any sequence a new release that can be loaded serves, and no caller waits for ever.
    fn end(mut self) {
        while !matches!(self.state().work, Work::Idle) {
            self.end_work(1);
        }
        self.offer(FRESH);
        self.end_work(1);
        assert!(self.routing.releases().any(|release| release.component.digest == offered(FRESH).digest));
        assert!(matches!(self.pending, Pending::Nothing));
        drop(self.state.take());
        assert!(self.answers.iter_mut().all(|answer| answer.try_recv().is_ok()), "each caller has an answer");
        assert!(self.confirmations.iter_mut().all(|done| done.try_recv().is_ok()));
        self.routing = Routing::default();
        assert_eq!(Arc::strong_count(&self.living), 1, "no release stays in memory");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn a_slot_keeps_its_guarantees_through_any_sequence_of_events(
        kind in any::<u8>(), choices in proptest::collection::vec(any::<Choice>(), 0..60),
    ) {
        let mut world = World::new(kind);
        choices.into_iter().for_each(|choice| world.act(choice));
        world.end();
    }
}

impl World {
    fn has_passed(&self) -> bool {
        self.status.active.as_ref().unwrap().passed
    }

    /// The probation of what serves ends.
    fn end_probation(&mut self, result: Result<(), Breach>) {
        let number = self.trials[1].take().unwrap();
        self.step(Event::Request(Request::TrialEnded { number, result }));
    }

    fn end_canary(&mut self) {
        let number = self.trials[0].take().unwrap();
        self.step(Event::Request(Request::TrialEnded { number, result: Ok(()) }));
    }

    /// The operator asks for this release again.
    fn ask(&mut self, digest: Option<String>) {
        let done = Self::answer(&mut self.confirmations);
        self.step(Event::Request(Request::Told { told: Told::Asked(digest), done }));
    }

    /// New settings of this kind, under which the active release goes on (1), the newest offer
    /// serves (2) or no release serves (4).
    fn reconfigure(&mut self, kind: u8, outcome: u8) {
        let earlier = EarlierOffers::Stand;
        self.step(Event::Request(Request::Proposed { settings: settings(kind), earlier, proposer: () }));
        self.end_work(outcome);
        self.end_work(1);
    }
}

const CANARY: u8 = 1;
const PROBATION: u8 = 2;

/// Two releases have served, and the second one is on probation.
fn on_probation() -> World {
    let mut world = World::new(PROBATION);
    for number in 0..2 {
        world.offer(number);
        world.end_work(1);
    }
    assert!(world.status.probation.is_some() && !world.has_passed());
    world
}

/// Found by the sequences above.
#[test]
fn a_retry_that_the_operator_withdraws_during_the_load_does_not_serve() {
    let mut world = on_probation();
    world.end_probation(Err(Breach::Errors { share: 1.0, before: 0.0 }));
    let (good, bad) = (offered(0).digest, offered(1).digest);
    for withdrawn in [None, Some(offered(2).digest.to_string())] {
        world.ask(Some(bad.to_string()));
        assert!(matches!(&world.state().work, Work::Loading { component, .. } if component.digest == bad));
        world.ask(withdrawn);
        assert!(matches!(world.state().work, Work::Idle));
        assert_eq!(world.status.active.as_ref().unwrap().digest, *good);
        assert_eq!(world.status.refused.as_ref().unwrap().digest, *bad);
    }
    world.ask(Some(bad.to_string()));
    world.end_work(1);
    assert_eq!(world.status.active.as_ref().unwrap().digest, *bad);
}

#[test]
fn a_release_whose_probation_new_settings_end_has_not_passed() {
    let mut world = on_probation();
    world.reconfigure(PROBATION, 1);
    assert!(world.status.probation.is_none() && !world.has_passed());
    world.reconfigure(PROBATION, 1);
    assert!(!world.has_passed(), "whatever other settings follow");
    // Nothing serves under wrong settings, and the release serves again when they are corrected.
    world.reconfigure(PROBATION, 4);
    world.offer(1);
    world.end_work(1);
    assert!(world.status.probation.is_none() && !world.has_passed());
    // A later release that fails gives the place back.
    world.offer(2);
    world.end_work(1);
    world.end_probation(Err(Breach::Errors { share: 1.0, before: 0.0 }));
    assert!(world.status.active.as_ref().unwrap().digest == *offered(1).digest && !world.has_passed());
    world.reconfigure(0, 1);
    assert!(world.has_passed(), "the settings have no probation");
}

#[test]
fn a_release_that_only_new_settings_brought_in_has_not_passed() {
    let mut world = World::new(PROBATION);
    world.offer(0);
    world.end_work(1);
    assert!(world.has_passed(), "nothing served before it");
    world.offer(1);
    // Release 1 is refused, and then accepted under settings that the active release refuses.
    world.end_work(2);
    world.reconfigure(PROBATION, 2);
    assert!(world.status.active.as_ref().unwrap().digest == *offered(1).digest && !world.has_passed());
    // The next one brings settings in that the active release refused.
    world.reconfigure(PROBATION, 3);
    world.offer(2);
    world.end_work(0);
    assert!(world.status.active.as_ref().unwrap().digest == *offered(2).digest && !world.has_passed());
}

/// The rights of the old settings are gone, so that nothing serves until the machine can load it.
#[test]
fn a_release_that_the_machine_cannot_load_under_new_settings_serves_after_the_next_retry() {
    let mut world = World::new(0);
    world.offer(0);
    world.end_work(1);
    let digest = offered(0).digest;
    // A refusal that does not last.
    world.reconfigure(0, 4);
    assert!(world.status.active.is_none());
    assert_eq!(world.status.refused.as_ref().unwrap().digest, *digest);
    let reply = World::answer(&mut world.answers);
    world.step(Event::Request(Request::Retry { reply }));
    world.end_work(1);
    assert_eq!(world.status.active.as_ref().unwrap().digest, *digest);
    assert!(world.status.refused.is_none());
}

/// The active release keeps its old cloud-config, and the next offer is loaded on a busy machine.
#[test]
fn a_new_cloud_config_that_a_fault_of_the_machine_left_undecided_is_tried_again() {
    const UNDECIDED: u8 = 8;
    let kept = || {
        let mut world = World::new(0);
        world.offer(0);
        world.end_work(1);
        world.reconfigure(0, 3);
        world.offer(1);
        world
    };
    let retry = |world: &mut World| {
        let reply = World::answer(&mut world.answers);
        world.step(Event::Request(Request::Retry { reply }));
    };
    // The offer is refused under the old cloud-config: it may be accepted under the new one.
    let mut world = kept();
    world.end_work(UNDECIDED | 2);
    retry(&mut world);
    assert!(matches!(&world.state().work, Work::Loading { component, .. } if component.digest == offered(1).digest));
    world.end_work(0);
    assert_eq!(world.status.active.as_ref().unwrap().digest, *offered(1).digest);
    assert_eq!(world.status.refused, None, "the new cloud-config is in force");
    // The offer serves under the old cloud-config: the new one still has to be tried.
    let mut world = kept();
    world.end_work(UNDECIDED | 1);
    assert!(world.status.refused.is_some());
    retry(&mut world);
    // Undecided again.
    world.end_work(3);
    retry(&mut world);
    assert!(matches!(world.state().work, Work::Reloading { .. }));
    world.end_work(0);
    assert_eq!(world.status.active.as_ref().unwrap().digest, *offered(1).digest);
    assert_eq!(world.status.refused, None, "the new cloud-config is in force");
    // Refused for good.
    let mut world = kept();
    world.end_work(UNDECIDED | 1);
    retry(&mut world);
    world.end_work(2);
    retry(&mut world);
    assert!(matches!(world.state().work, Work::Idle));
    assert!(world.status.refused.as_ref().unwrap().lasting);
}

/// The quarantine has the rolled-back release, and the newest offer is not refused.
#[test]
fn a_rollback_beside_a_canary_is_no_refusal_of_the_canary() {
    let mut world = World::new(PROBATION | CANARY);
    for number in 0..2 {
        world.offer(number);
        world.end_work(1);
    }
    world.end_canary();
    assert!(world.status.probation.is_some());
    world.offer(2);
    world.end_work(1);
    world.end_probation(Err(Breach::Errors { share: 1.0, before: 0.0 }));
    assert_eq!(world.status.active.as_ref().unwrap().digest, *offered(0).digest);
    assert_eq!(world.status.quarantine[0].digest, *offered(1).digest);
    assert_eq!(world.status.refused, None);
    world.end_canary();
    assert_eq!(world.status.active.as_ref().unwrap().digest, *offered(2).digest);
    assert_eq!(world.status.refused, None);
}

#[test]
fn a_slot_that_settings_have_emptied_says_why_until_the_next_settings() {
    let mut world = World::new(0);
    world.offer(0);
    world.end_work(1);
    world.offer(1);
    world.end_work(2);
    world.reconfigure(0, 4);
    assert_eq!(world.status.active, None);
    assert_eq!(world.status.refused.as_ref().unwrap().digest, *offered(0).digest);
    world.reconfigure(0, 1);
    assert_eq!(world.status.refused, None);
}

/// The feeder offers a component once. New settings that another provider refuses are abandoned,
/// and then only the slot knows of the offer that these settings interrupted.
#[test]
fn an_offer_that_new_settings_interrupt_is_loaded_at_the_next_retry() {
    for abandoned in [true, false] {
        let mut world = World::new(0);
        world.offer(0);
        world.end_work(1);
        world.offer(1);
        let (settings, earlier) = (settings(2), EarlierOffers::Stand);
        world.step(Event::Request(Request::Proposed { settings, earlier, proposer: () }));
        // Judged, and committed; or neither.
        for _ in 0..if abandoned { 1 } else { 2 } {
            world.end_work(if abandoned { 0 } else { 1 });
        }
        let reply = World::answer(&mut world.answers);
        world.step(Event::Request(Request::Retry { reply }));
        world.end_work(1);
        assert_eq!(world.status.active.as_ref().unwrap().digest, *offered(1).digest, "abandoned: {abandoned}");
    }
}
