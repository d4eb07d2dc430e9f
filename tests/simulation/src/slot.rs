//! The slot of one provider in one process: the real decisions and the real task of `skysail-slot`,
//! which loads releases of the model instead of components.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use skysail_provider::{Code, Error, Interface, Result};
use skysail_slot::{
    Component, ComponentLoader, Done, EarlierOffers, Executor, INBOX_MAX, Judge, Living, Load, Loaded, Offered,
    OnDifference, Proposal, Refusal, RefusalReason, Release as _, Report, Request, Routing, Settings as _,
    ShadowStatus, SlotStatus, Stage, Told, Under,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    chance::Chance,
    clock::wait,
    release::{Maker, Nature, Release, Settings},
    story::Story,
    trials::{Trials, is_own_fault},
};

/// The longest time that a component is compiled.
pub(crate) const COMPILING_MAX_MS: u64 = 5_000;
/// The longest time for the questions to a release and its predecessor.
const SHADOW_MAX_MS: u64 = 3_000;
/// How long calls may go on after their settings were replaced: two seconds, and a little for the
/// end itself.
const SETTINGS_MAX: Duration = Duration::from_millis(2_500);

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
    living: Arc<Living>,
    /// Whether questions of the controllers are remembered.
    keeps_questions: AtomicBool,
    watched: Mutex<Watched>,
}

/// What the referee remembers of a slot.
#[derive(Default)]
struct Watched {
    /// Digests of releases that were rolled back, and that nobody asked for since.
    rolled_back: BTreeSet<String>,
    /// The digest that the operator asks for.
    asked: Option<String>,
    /// The places whose components may begin to serve: that of the source, and that of the source
    /// before it until the slot has forgotten its offers.
    places: BTreeSet<usize>,
    trials: Trials,
    /// When its process cancelled a call last.
    cancelled: Option<Instant>,
}

/// Settings that may be committed.
pub(crate) struct Proposed {
    slot: Arc<Slot>,
    decide: oneshot::Sender<Done>,
    asked: Option<String>,
}

impl Proposed {
    /// Gives the order at once; the future ends when the settings are in force.
    pub(crate) fn commit(self) -> impl Future<Output = ()> + Send {
        self.slot.asked(self.asked);
        let (done, is_done) = oneshot::channel();
        drop(self.decide.send(done));
        async move { drop(is_done.await) }
    }
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
        let asked = settings.retry().map(ToOwned::to_owned);
        let state = State::new(name.as_str().into(), settings);
        let living = Arc::clone(&maker.living);
        let watched = Watched { asked, ..Watched::default() };
        let slot = Arc::new(Self {
            name,
            routing: Mutex::default(),
            status: watch::Sender::new(state.status()),
            inbox,
            story,
            living: Arc::clone(&living),
            keeps_questions: AtomicBool::new(false),
            watched: Mutex::new(watched),
        });
        let loader = Arc::new(Loader { slot: Arc::clone(&slot), maker, chance: Mutex::new(chance) });
        let task = skysail_slot::run(loader, events, living.subscribe(), state);
        (slot, task.map(|()| "its slot is gone".to_owned()))
    }

    pub(crate) fn status(&self) -> watch::Receiver<SlotStatus> {
        self.status.subscribe()
    }

    pub(crate) fn routing(&self) -> Routing<Release> {
        self.routing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn keeps_questions(&self) -> bool {
        self.keeps_questions.load(Ordering::SeqCst)
    }

    /// Releases in memory.
    pub(crate) fn living(&self) -> u64 {
        *self.living.borrow()
    }

    /// Whether its task runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.inbox.is_closed()
    }

    /// The answer to a request; none where the process ends.
    pub(crate) async fn request<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request<Release>) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Event::Request(request(reply))).await.ok()?;
        answer.await.ok()
    }

    /// Loads a component; none where the process ends.
    pub(crate) async fn offer(&self, component: Component) -> Option<Result<Offered, Refusal>> {
        self.request(|reply| Request::Offered { component, reply }).await
    }

    pub(crate) async fn retry(&self) {
        drop(self.request(|reply| Request::Retry { reply }).await);
    }

    pub(crate) async fn tell_of(&self, told: Told) {
        // Without an answer the process ends.
        let _gone = self.request(|done| Request::Told { told, done }).await;
    }

    /// A release was rolled back before this process began.
    pub(crate) async fn quarantine(&self, refusal: Refusal) {
        let routing = self.routing();
        let serves = routing.releases().any(|release| release.digest() == refusal.digest);
        {
            let mut watched = self.watched();
            if !serves && watched.asked.as_ref() != Some(&refusal.digest) {
                watched.rolled_back.insert(refusal.digest.clone());
            }
        }
        self.tell_of(Told::Quarantined(refusal)).await;
    }

    /// Tells the slot whether the operator asks for a rolled-back release again.
    pub(crate) async fn ask_again(&self, digest: Option<String>) {
        self.asked(digest.clone());
        self.tell_of(Told::Asked(digest)).await;
    }

    /// This place offers components from now on.
    pub(crate) fn takes_from(&self, place: usize) {
        self.watched().places.insert(place);
    }

    /// The offers of all other places are forgotten.
    pub(crate) async fn forget_all_but(&self, place: usize) {
        self.tell_of(Told::Forget).await;
        self.watched().places = BTreeSet::from([place]);
    }

    fn asked(&self, digest: Option<String>) {
        let mut watched = self.watched();
        if let Some(digest) = &digest {
            watched.rolled_back.remove(digest);
        }
        watched.asked = digest;
    }

    /// Judges settings. Dropped, the result changes nothing.
    pub(crate) async fn propose(self: &Arc<Self>, settings: Settings, earlier: EarlierOffers) -> Option<Proposed> {
        let asked = settings.retry().map(ToOwned::to_owned);
        let prepared = self.request(|proposer| Request::Proposed { settings, earlier, proposer }).await;
        let Ok(decide) = prepared?;
        Some(Proposed { slot: Arc::clone(self), decide, asked })
    }

    /// The component goes into the state folder. Invariant: it is not there to be tried.
    pub(crate) fn keeps(&self, component: &Component) {
        self.tell(format_args!("keeps {} in its state folder", component.offer.origin));
        let violation = self.watched().trials.kept(&component.digest);
        self.violate(&component.offer.origin, violation);
    }

    /// The release for a call that begins.
    pub(crate) fn hold(&self, interface: Interface, uid: Option<&str>) -> Result<Arc<Release>> {
        let routing = self.routing();
        let release = routing.pick(interface, uid).cloned();
        let release = release.ok_or_else(|| Error::new(Code::NotServing, "no release serves"))?;
        self.begins(&routing, &release)?;
        Ok(release)
    }

    /// A call of this release begins. Invariant: its settings are in force, it was not rolled back,
    /// and a canary comes from the present source. Otherwise the call fails, because it would be
    /// repeated without end.
    pub(crate) fn begins(&self, routing: &Routing<Release>, release: &Arc<Release>) -> Result<()> {
        let is_canary = routing.canary.as_ref().is_some_and(|share| Arc::ptr_eq(&share.release, release));
        let wrong = {
            let Watched { rolled_back, places, .. } = &*self.watched();
            if release.settings().replaced().is_some() {
                "has a call under replaced settings"
            } else if rolled_back.contains(release.digest()) {
                "was rolled back and has a call"
            } else if is_canary && !places.contains(&release.place()) {
                "of another source is a canary"
            } else {
                return Ok(());
            }
        };
        self.story.violate(format_args!("{}: {release} {wrong}", self.name));
        Err(Error::new(Code::NotServing, wrong))
    }

    /// A call of this release ended. Invariant: not long after the end of its settings, and it
    /// counts against the release only if it failed by the release's own fault.
    pub(crate) fn note<T>(&self, release: &Release, function: &str, answer: &Result<T>) {
        let counts = release.note(function, answer);
        if let Err(error) = answer {
            self.watched().trials.failed(release.digest(), error);
            if counts && !is_own_fault(error) {
                self.story.violate(format_args!("{}: a call counts against {release}: {error}", self.name));
            }
        }
        if release.settings().replaced().is_some_and(|replaced| replaced.elapsed() > SETTINGS_MAX) {
            self.story.violate(format_args!("{}: a call of {release} outlives its settings", self.name));
        }
    }

    /// The process cancelled a call.
    pub(crate) fn cancelled(&self) {
        self.watched().cancelled = Some(Instant::now());
    }

    /// Whether the process cancelled a call after this time.
    pub(crate) fn has_cancelled_since(&self, time: Instant) -> bool {
        self.watched().cancelled.is_some_and(|at| at > time)
    }

    fn violate(&self, release: impl Display, violation: Option<String>) {
        if let Some(violation) = violation {
            self.story.violate(format_args!("{}: {release} {violation}", self.name));
        }
    }

    fn tell(&self, what: impl Display) {
        self.story.tell(&self.name, what);
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === what the task has done ===

struct Loader {
    slot: Arc<Slot>,
    maker: Maker,
    chance: Mutex<Chance>,
}

impl Loader {
    /// One component on its way under some settings.
    async fn make(
        &self,
        component: &Component,
        settings: &Settings,
        active: Option<&Release>,
    ) -> Result<Arc<Release>, Refusal> {
        let refuse = |stage, reason, lasting| Err(refusal(component, stage, reason, lasting));
        let is_active = active.is_some_and(|active| active.digest() == &*component.digest);
        let (time, unlucky) = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            let time = chance.milliseconds(0..=if is_active { 100 } else { COMPILING_MAX_MS });
            (time, chance.once_in(self.maker.unlucky()))
        };
        wait(time).await;
        let release = self.maker.make(component, settings);
        if unlucky {
            return refuse(Stage::Verified, RefusalReason::CompileUnavailable, false);
        }
        match release.nature {
            Nature::Broken => refuse(Stage::Compiled, RefusalReason::LinkFailed, true),
            _ if settings.conf().tight => refuse(Stage::Linked, RefusalReason::DescribeFailed, true),
            Nature::Choosy(config) if config != settings.conf().config => {
                refuse(Stage::Described, RefusalReason::ConfigRefused, true)
            }
            Nature::Good | Nature::Choosy(_) | Nature::Traps | Nature::Differs | Nature::Careless => Ok(release),
        }
    }

    /// Asks the release what the active one was asked lately. Instead of questions and answers,
    /// which `skysail-host` compares, there is a draw of how many there were.
    async fn shadow(&self, release: &Release, settings: &Settings) -> Option<(ShadowStatus, Result<(), Refusal>)> {
        let options = settings.rollout().shadow?;
        let (time, asked) = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            (chance.milliseconds(0..=SHADOW_MAX_MS), u64::try_from(chance.number(0..=5)).unwrap_or_default())
        };
        wait(time).await;
        let refuse = |reason| Err(refusal(release.component(), Stage::ConfigChecked, reason, true));
        let (differing, judged) = match release.nature {
            Nature::Traps if asked > 0 => (1, refuse(RefusalReason::ShadowBroken)),
            Nature::Differs if asked > 0 && options.on_difference == OnDifference::Refuse => {
                (asked, refuse(RefusalReason::ShadowDiffers))
            }
            Nature::Differs => (asked, Ok(())),
            _ => (0, Ok(())),
        };
        let digest = release.digest().to_owned();
        Some((ShadowStatus { digest, asked, differing, ..ShadowStatus::default() }, judged))
    }
}

fn refusal(component: &Component, stage: Stage, reason: RefusalReason, lasting: bool) -> Refusal {
    let (digest, origin) = (component.digest.to_string(), component.offer.origin.clone());
    let code = reason.category();
    Refusal { digest, reason: format!("{origin}: {code}"), origin, stage, code, lasting, retried: false }
}

impl ComponentLoader for Loader {
    type Release = Release;
    type Error = Infallible;

    async fn attempt(
        &self,
        _number: u64,
        component: &Component,
        settings: &Settings,
        active: Option<&Release>,
    ) -> Result<Arc<Release>, Refusal> {
        self.make(component, settings, active).await
    }

    async fn attempt_compared(
        &self,
        _number: u64,
        component: &Component,
        settings: &Settings,
        active: Option<&Release>,
    ) -> (Result<Arc<Release>, Refusal>, Option<ShadowStatus>) {
        let result = self.make(component, settings, active).await;
        if let (Ok(release), Some(_)) = (&result, active)
            && let Some((report, judged)) = self.shadow(release, settings).await
        {
            return (judged.map(|()| Arc::clone(release)), Some(report));
        }
        (result, None)
    }

    async fn unasked(
        &self,
        _number: u64,
        active: &Release,
        settings: &Settings,
        _refusal: &Refusal,
    ) -> Option<Arc<Release>> {
        Some(self.maker.make(active.component(), settings))
    }

    fn keeping_config(&self, settings: &Settings, in_force: &Settings) -> Result<Option<Settings>, Infallible> {
        let config = in_force.conf().config;
        Ok((config != settings.conf().config).then(|| settings.with_config(config)))
    }
}

impl Executor for Loader {
    type Release = Release;
    type Error = Infallible;

    async fn load(&self, load: Load<Release>) -> Loaded<Release> {
        self.slot.tell(format_args!("loads {}", load.component.offer.origin));
        let is_offer = !matches!(load.under, Under::Wanted(_));
        let loaded = skysail_slot::load(self, load).await;
        if let Ok(release) = &loaded.result
            && is_offer
        {
            self.slot.watched().trials.loaded(release);
        }
        loaded
    }

    async fn judge(&self, judge: Judge<Release>) -> Result<Box<Proposal<Release>>, Infallible> {
        self.slot.tell(format_args!("judges {:?}", judge.settings.conf()));
        self.slot.watched().trials.judges();
        skysail_slot::judge(self, judge).await
    }

    fn route(&self, routing: Routing<Release>) {
        let shown = |release: &Option<Arc<Release>>| release.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        match &routing.canary {
            Some(share) => self.slot.tell(format_args!(
                "routes to {}, and {} % to {}",
                shown(&routing.active),
                share.percent,
                share.release
            )),
            None => self.slot.tell(format_args!("routes to {}", shown(&routing.active))),
        }
        let violation = {
            let Watched { trials, places, .. } = &mut *self.slot.watched();
            trials.routed(&routing, places)
        };
        self.slot.violate(shown(&routing.active), violation);
        let mut known = self.slot.routing.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = routing.active.as_ref().map(|active| active.settings());
        for release in known.releases() {
            if in_force.is_none_or(|settings| !release.settings().is(settings)) {
                release.settings().are_replaced();
            }
        }
        *known = routing;
    }

    fn keep_questions(&self, keeps: bool) {
        self.slot.keeps_questions.store(keeps, Ordering::SeqCst);
    }

    /// Invariant: new settings do not stop a release because the machine failed.
    fn report(&self, report: &Report<Release>) {
        match report {
            Report::Passed(release) => {
                self.slot.tell(format_args!("{release} has passed probation"));
                let violation = self.slot.watched().trials.passed(release);
                self.slot.violate(release, violation);
            }
            Report::Refused(refusal) => self.slot.tell(format_args!("refuses {refusal}")),
            Report::RolledBack(refusal) => {
                self.slot.tell(format_args!("rolls back {}", refusal.origin));
                let violation = self.slot.watched().trials.rolled_back(&refusal.digest);
                self.slot.violate(&refusal.origin, violation);
                self.slot.watched().rolled_back.insert(refusal.digest.clone());
            }
            Report::KeepsConfig(refusal) => self.slot.tell(format_args!("keeps the old config: {refusal}")),
            Report::Stopped(refusal) => {
                self.slot.tell(format_args!("stops: {refusal}"));
                let is_unasked = (!refusal.lasting).then(|| "stops, and only the machine failed".to_owned());
                self.slot.violate(&refusal.origin, is_unasked);
            }
            Report::SourceFailed(failure) => self.slot.tell(format_args!("hears that {}", failure.reason)),
            Report::Shadowed(report) => {
                self.slot.tell(format_args!("sees {} of {} answers differ", report.differing, report.asked));
            }
            Report::Active(_) | Report::Canary(..) => {}
        }
    }

    fn publish(&self, status: SlotStatus) {
        self.slot.watched().trials.published(&status);
        self.slot.status.send_replace(status);
    }
}
