//! The slot of one provider in one process: the real decisions of `skysail-slot`, and a task that
//! runs their effects with releases of the model instead of components.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use skysail_provider::{Code, Error, Interface, Result};
use skysail_slot::{
    DRAIN, EarlierOffers, Effect, Judge, Load, Loaded, Outcome, Place, Proposal, Reason, Refusal, Release as _, Report,
    Request, Routing, SETTINGS, Settings as _, SlotStatus, Stage, Told, Wanted,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    chance::Chance,
    clock::wait,
    release::{Maker, Nature, Release, Settings},
    story::Story,
};

/// As in the host.
const INBOX_MAX: usize = 16;
/// The longest time that a component is compiled.
const COMPILING_MAX_MS: u64 = 5_000;

pub(crate) type Event = skysail_slot::Event<Release>;
type State = skysail_slot::State<Release>;

/// See the module.
pub(crate) struct Slot {
    /// Process and provider, for people.
    pub(crate) name: String,
    routing: Mutex<Routing<Release>>,
    status: watch::Sender<SlotStatus>,
    inbox: mpsc::Sender<Event>,
    pub(crate) story: Story,
    /// Releases in memory.
    living: Arc<AtomicUsize>,
    watched: Mutex<Watched>,
}

/// What the referee remembers of a slot.
#[derive(Default)]
struct Watched {
    /// Settings that were replaced.
    retired: Vec<Settings>,
    /// Digests of releases that were rolled back, and that nobody asked for since.
    rolled_back: BTreeSet<String>,
}

impl Slot {
    /// An empty slot, and its task.
    pub(crate) fn new(
        name: String,
        settings: Settings,
        maker: Maker,
        (story, chance): (Story, Chance),
    ) -> (Arc<Self>, impl Future<Output = String> + Send + use<>) {
        let (inbox, events) = mpsc::channel(INBOX_MAX);
        let state = State::new(name.as_str().into(), settings);
        let slot = Arc::new(Self {
            name,
            routing: Mutex::default(),
            status: watch::Sender::new(state.status()),
            inbox,
            story,
            living: Arc::clone(&maker.living),
            watched: Mutex::default(),
        });
        let loader = Loader { maker, chance: Mutex::new(chance) };
        let task = Task {
            slot: Arc::clone(&slot),
            events,
            loader: Arc::new(loader),
            work: None,
            canary: None,
            probation: None,
        };
        (slot, task.run(state))
    }

    pub(crate) fn status(&self) -> watch::Receiver<SlotStatus> {
        self.status.subscribe()
    }

    pub(crate) fn routing(&self) -> Routing<Release> {
        self.routing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Releases in memory.
    pub(crate) fn living(&self) -> usize {
        self.living.load(Ordering::SeqCst)
    }

    /// The answer to a request; none where the process ends.
    pub(crate) async fn request<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request<Release>) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Event::Request(request(reply))).await.ok()?;
        answer.await.ok()
    }

    /// Judges settings, and commits them after this time; drops them where there is none.
    pub(crate) async fn reconfigure(&self, settings: Settings, commit_after: Option<Duration>) {
        let earlier = EarlierOffers::Stand;
        let asked = settings.retry().map(ToOwned::to_owned);
        let prepared = self.request(|proposer| Request::Proposed { settings, earlier, proposer }).await;
        let (Some(decide), Some(after)) = (prepared, commit_after) else { return };
        wait(after).await;
        if let Some(asked) = asked {
            self.watched().rolled_back.remove(&asked);
        }
        let (done, is_done) = oneshot::channel();
        drop(decide.send(done));
        drop(is_done.await);
        drop(self.request(|reply| Request::Retry { reply }).await);
    }

    /// Tells the slot whether a person asks for a rolled-back release again.
    pub(crate) async fn ask_again(&self, digest: Option<String>) {
        if let Some(digest) = &digest {
            self.watched().rolled_back.remove(digest);
        }
        // Without an answer the process ends.
        let _gone = self.request(|done| Request::Told { told: Told::Asked(digest), done }).await;
    }

    /// The release for a call that begins. Invariant: its settings are in force, and it was not
    /// rolled back.
    pub(crate) fn hold(&self, interface: Interface, uid: Option<&str>) -> Result<Arc<Release>> {
        let release = self.routing().pick(interface, uid).cloned();
        let release = release.ok_or_else(|| Error::new(Code::NotServing, "no release serves"))?;
        let watched = self.watched();
        if watched.retired.iter().any(|settings| release.is_under(settings)) {
            self.story.violate(format_args!("{}: {release} has a call under replaced settings", self.name));
        }
        if watched.rolled_back.contains(release.digest()) {
            self.story.violate(format_args!("{}: {release} was rolled back and has a call", self.name));
        }
        Ok(release)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === loads ===

struct Loader {
    maker: Maker,
    chance: Mutex<Chance>,
}

impl Loader {
    /// One component on its way under some settings.
    async fn attempt(
        &self,
        component: &skysail_slot::Component,
        settings: &Settings,
        active: Option<&Release>,
    ) -> Result<Arc<Release>, Refusal> {
        let is_active = active.is_some_and(|active| active.digest() == &*component.digest);
        let (time, unlucky) = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            let time = chance.milliseconds(0..=if is_active { 100 } else { COMPILING_MAX_MS });
            (time, chance.once_in(self.maker.unlucky()))
        };
        wait(time).await;
        let refuse = |stage, reason: Reason, lasting| {
            let (digest, origin) = (component.digest.to_string(), component.offer.origin.clone());
            let code = reason.category();
            Err(Refusal { digest, reason: format!("{origin}: {code}"), origin, stage, code, lasting, retried: false })
        };
        let release = self.maker.make(component, settings);
        if unlucky {
            return refuse(Stage::Verified, Reason::CompileUnavailable, false);
        }
        match release.nature {
            Nature::Broken => refuse(Stage::Compiled, Reason::LinkFailed, true),
            _ if settings.conf().tight => refuse(Stage::Linked, Reason::DescribeFailed, true),
            Nature::Choosy(config) if config != settings.conf().config => {
                refuse(Stage::Described, Reason::ConfigRefused, true)
            }
            Nature::Good | Nature::Choosy(_) | Nature::Traps => Ok(release),
        }
    }

    /// As in the host: settings that wait for their release are tried first.
    async fn load(&self, load: Load<Release>) -> Loaded<Release> {
        let Load { component, settings, wanted, active, .. } = load;
        let mut refused = None;
        if let Some(wanted) = wanted {
            match self.attempt(&component, &wanted, active.as_deref()).await {
                Ok(release) => return Loaded { result: Ok(release), shadow: None, wanted: None },
                Err(refusal) => refused = Some(refusal),
            }
        }
        let result = self.attempt(&component, &settings, active.as_deref()).await;
        Loaded { result, shadow: None, wanted: refused }
    }

    /// As in the host.
    async fn judge(&self, judge: Judge<Release>) -> Box<Proposal<Release>> {
        let Judge { settings, earlier, active, newest, in_force, .. } = judge;
        let proposal = |settings, outcome| Box::new(Proposal { settings, earlier, outcome });
        let Some(active) = active else { return proposal(settings, Outcome::Empty) };
        let refusal = match self.attempt(active.component(), &settings, Some(&active)).await {
            Ok(release) => return proposal(settings, Outcome::Serves(release)),
            Err(refusal) => refusal,
        };
        if let Some(newest) = newest
            && let Ok(release) = self.attempt(&newest, &settings, Some(&active)).await
        {
            return proposal(settings, Outcome::Serves(release));
        }
        if !refusal.lasting {
            let release = self.maker.make(active.component(), &settings);
            return proposal(settings, Outcome::Serves(release));
        }
        let kept = settings.with_config(in_force.conf().config);
        if let Ok(release) = self.attempt(active.component(), &kept, Some(&active)).await {
            return proposal(kept, Outcome::KeepsConfig(release, Wanted { settings, refusal }));
        }
        proposal(settings, Outcome::Stops(active.component().clone(), refusal))
    }
}

// === the task ===

struct Task {
    slot: Arc<Slot>,
    events: mpsc::Receiver<Event>,
    loader: Arc<Loader>,
    work: Option<BoxFuture<'static, Event>>,
    canary: Option<BoxFuture<'static, Event>>,
    probation: Option<BoxFuture<'static, Event>>,
}

impl Task {
    async fn run(mut self, mut state: State) -> String {
        loop {
            let event = tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => event,
                    None => return "its slot is gone".to_owned(),
                },
                event = ended(&mut self.work) => event,
                event = ended(&mut self.canary) => event,
                event = ended(&mut self.probation) => event,
            };
            let effects;
            (state, effects) = state.step(event);
            effects.into_iter().for_each(|effect| self.run_effect(effect));
        }
    }

    fn run_effect(&mut self, effect: Effect<Release>) {
        let (slot, loader) = (&self.slot, Arc::clone(&self.loader));
        match effect {
            Effect::StopWork => self.work = None,
            Effect::Load(load) => {
                slot.tell(format_args!("loads {}", load.component.offer.origin));
                let number = load.number;
                self.work = Some(async move { Event::Loaded { number, loaded: loader.load(*load).await } }.boxed());
            }
            Effect::Judge(judge, mut proposer) => {
                slot.tell(format_args!("judges {:?}", judge.settings.conf()));
                let number = judge.number;
                let work = async move {
                    tokio::select! {
                        biased;
                        proposal = loader.judge(*judge) => Event::Judged { number, proposal, proposer },
                        () = proposer.closed() => Event::Abandoned { number },
                    }
                };
                self.work = Some(work.boxed());
            }
            Effect::AwaitCommit(number, proposer) => {
                let (decide, decided) = oneshot::channel();
                drop(proposer.send(decide));
                self.work = Some(Event::of_commit(number, decided).boxed());
            }
            Effect::Undrain(release) => release.drain.end(),
            Effect::Route(routing) => {
                let shown =
                    |release: &Option<Arc<Release>>| release.as_ref().map_or("nothing".to_owned(), ToString::to_string);
                match &routing.canary {
                    Some(share) => slot.tell(format_args!(
                        "routes to {}, and {} % to {}",
                        shown(&routing.active),
                        share.percent,
                        share.release
                    )),
                    None => slot.tell(format_args!("routes to {}", shown(&routing.active))),
                }
                *slot.routing.lock().unwrap_or_else(PoisonError::into_inner) = routing;
            }
            Effect::Drain(release) => release.drain.begin(DRAIN),
            Effect::Retire(settings) => {
                settings.drain().begin(SETTINGS);
                slot.watched().retired.push(settings);
            }
            Effect::Watch(place, watch) => {
                let trial = watch.map(|watch| watch.trial().boxed());
                match place {
                    Place::Canary => self.canary = trial,
                    Place::Probation => self.probation = trial,
                }
            }
            Effect::Report(report) => slot.report(&report),
            Effect::Publish(status, _) => drop(slot.status.send_replace(*status)),
            // Nobody may be waiting any more for one of these.
            Effect::Answer(reply, answer) => drop(reply.send(answer)),
            Effect::Confirm(done) => drop(done.send(())),
            Effect::KeepQuestions(_) => {}
        }
    }
}

impl Slot {
    fn tell(&self, what: impl std::fmt::Display) {
        self.story.tell(&self.name, what);
    }

    fn report(&self, report: &Report<Release>) {
        match report {
            Report::Passed(release) => self.tell(format_args!("{release} has passed probation")),
            Report::Refused(refusal) => self.tell(format_args!("refuses {refusal}")),
            Report::RolledBack(refusal) => {
                self.tell(format_args!("rolls back {}", refusal.origin));
                self.watched().rolled_back.insert(refusal.digest.clone());
            }
            Report::KeepsConfig(refusal) => self.tell(format_args!("keeps the old config: {refusal}")),
            Report::Stopped(refusal) => self.tell(format_args!("stops: {refusal}")),
            Report::Active(_) | Report::Canary(..) | Report::Shadowed(_) | Report::SourceFailed(_) => {}
        }
    }
}

async fn ended(under_way: &mut Option<BoxFuture<'static, Event>>) -> Event {
    match under_way {
        Some(future) => {
            let event = future.await;
            *under_way = None;
            event
        }
        None => std::future::pending().await,
    }
}
