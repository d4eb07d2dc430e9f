//! The named place that one provider occupies, and the swap of its occupant while calls run.
//!
//! # Flow
//! [`Slot::offer`] takes a component through the stages of [`Stage`]: each step either reaches the
//! next stage or refuses the release. Reaching [`Stage::Active`] is one pointer exchange; the
//! predecessor serves the calls that began on it, then its memory is given back.
//!
//! # Guarantees
//! - A call ends on the release it began on: it holds that release until it ends. One that has not
//!   ended some time after the exchange is repeated on what serves (`drain`).
//! - Whatever goes wrong before the exchange leaves the active release as it is, and the reason in
//!   [`SlotStatus::refused`].
//! - The latest offer wins: an offer of another component ends the one that is under way or waits.
//!   New settings do not wait for an offer that is under way either: it is put off.
//! - The digest that serves, offered again, changes nothing. A digest that was refused for what it
//!   is stays refused, without being compiled again, until [`Reconfiguration::commit`].
//!
//! - A release that turns out worse than its predecessor is taken back (`probation`). Before that
//!   it may be asked what its predecessor is asked (`shadow`), and serve a share of the objects
//!   (`canary`).

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use skysail_provider::{Code, Error, Info, Interface};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::{
    CallRecorder, Engine, Release, Sandbox, SandboxError, SandboxOptions, SandboxedProvider, admission,
    jail::{Compiled, Compiler},
};

mod canary;
mod drain;
mod metrics;
mod probation;
mod provider;
mod quarantine;
mod reconfigure;
mod shadow;
mod stage;
mod status;
mod steps;
mod taken_back;
mod trial;

#[cfg(test)]
mod tests;

pub use canary::CanaryOptions;
pub(crate) use drain::Drain;
use drain::{DRAIN, SETTINGS};
pub use metrics::SlotMetrics;
pub use probation::ProbationOptions;
pub use reconfigure::{EarlierOffers, Reconfiguration};
pub use shadow::{OnDifference, ShadowOptions};
pub use stage::Stage;
pub use status::{
    ActiveStatus, CanaryStatus, CandidateStatus, ProbationStatus, Reason, Refusal, ShadowStatus, SlotStatus,
    SourceFailure,
};

use probation::Probation;
use quarantine::Quarantine;
use shadow::{Compared, Memory};
use stage::Step;
use status::Shared;

/// How a slot is made, and what [`Slot::prepare`] replaces.
#[derive(Clone, Debug)]
pub struct SlotOptions {
    /// Name, limits, cloud-config and the rest of what the provider has whichever release serves.
    pub sandbox: SandboxOptions,
    /// Lets a release serve that lacks an interface of its predecessor. Default no: objects that
    /// the provider made through it would be left alone.
    pub allow_interface_loss: bool,
    /// Lets a release serve that has another name or other provider-ID schemes than its
    /// predecessor. Default no: nodes and load balancers would no longer be known as this
    /// provider's.
    pub allow_identity_change: bool,
    /// Lets a release serve that says it needs an origin which no egress rule allows. Default no:
    /// it would fail where it needs it.
    pub allow_unmet_egress: bool,
    /// How a new release takes over.
    pub rollout: RolloutOptions,
    /// As for [`Slot::ask_again`].
    pub retry: Option<String>,
}

impl SlotOptions {
    /// What is refused by default is refused; each release that is accepted serves at once.
    #[must_use]
    pub const fn new(sandbox: SandboxOptions) -> Self {
        Self {
            sandbox,
            allow_interface_loss: false,
            allow_identity_change: false,
            allow_unmet_egress: false,
            rollout: RolloutOptions { shadow: None, canary: None, probation: None },
            retry: None,
        }
    }
}

/// How a new release takes over, in this order; by default it serves at once, whatever it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RolloutOptions {
    /// Whether it is asked what its predecessor is asked.
    pub shadow: Option<ShadowOptions>,
    /// Whether it serves a share of the objects first; [`Slot::guard`] ends that.
    pub canary: Option<CanaryOptions>,
    /// How long it is watched when it serves all of them; [`Slot::guard`] does it.
    pub probation: Option<ProbationOptions>,
}

/// What all slots of a process share. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct SlotServices {
    /// Engines for guests.
    pub engine: Engine,
    /// Where calls are recorded.
    pub recorder: CallRecorder,
    /// Where components are compiled.
    pub compiler: Compiler,
    /// Metrics of all slots.
    pub metrics: SlotMetrics,
}

/// A component that shall serve.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The `.wasm` file, not yet judged.
    pub bytes: Bytes,
    /// Where it came from, for people: `file /etc/skysail/provider.wasm`.
    pub origin: String,
}

/// What became of an offer that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It serves now.
    Activated,
    /// It serves a share of the objects now; what comes of it is in the status.
    Canary,
    /// It served already, all objects or a share; nothing happened to it.
    AlreadyActive,
    /// A newer offer came before this one served; nothing happened.
    Overtaken,
    /// New settings came while this one was under way. [`Slot::retry`] takes it up again.
    PutOff,
}

/// The place that one provider occupies. It is a [`skysail_provider::Provider`]; with nothing in it
/// every call is [`Code::NotServing`].
pub struct Slot {
    name: Arc<str>,
    services: SlotServices,
    active: ArcSwapOption<Active>,
    shared: Arc<Shared>,
    newest: watch::Sender<Newest>,
    /// Held by the one offer or reconfiguration that is being worked on.
    work: Mutex<Work>,
    /// Reconfigurations that wait for the work.
    waiting: watch::Sender<usize>,
    probation: probation::Current,
    canary: canary::Current,
    /// The release that a person asks for again, by its digest.
    asked: watch::Sender<Option<String>>,
    quarantine: Quarantine,
    memory: Memory,
}

/// The newest offer.
#[derive(Clone, Copy, Default)]
struct Newest {
    number: u64,
    digest: [u8; 32],
}

/// What only the offer that is being worked on may touch.
struct Work {
    options: SlotOptions,
    sandbox: Arc<Sandbox>,
    /// What [`Slot::ask_again`] said when somebody looked last.
    asked: Option<String>,
    /// The release that was taken back last, as long as nothing newer was offered.
    taken_back: Option<Offer>,
    /// The newest offer, where it was refused or put off: tried again when the settings change. One
    /// component, at most `componentBytes`.
    refused: Option<Offer>,
    /// Settings of which the release that serves refuses the cloud-config.
    wanted: Option<Box<Wanted>>,
}

impl Work {
    /// The newest offer serves: nothing that came before it is tried again.
    fn settle(&mut self) {
        self.refused = None;
        self.taken_back = None;
    }

    /// Other settings are in force: calls under the old ones end soon.
    fn replace_sandbox(&mut self, sandbox: Arc<Sandbox>) {
        std::mem::replace(&mut self.sandbox, sandbox).drain().begin(SETTINGS);
    }

    /// Why settings wait, where some do.
    fn waits(&self) -> Option<Refusal> {
        self.wanted.as_ref().map(|wanted| wanted.refusal.clone())
    }
}

/// Settings that differ from those in force by their cloud-config.
struct Wanted {
    options: SlotOptions,
    sandbox: Arc<Sandbox>,
    /// What the release that serves says about them.
    refusal: Refusal,
}

/// The occupant of a slot.
struct Active {
    provider: SandboxedProvider,
    info: Arc<Info>,
    interfaces: Vec<Interface>,
    /// To serve with other settings, the component is loaded again.
    offer: Offer,
    /// For the same.
    compiled: Compiled,
    drain: Drain,
    shared: Arc<Shared>,
}

impl Active {
    /// Whether name and provider-ID schemes are those of the other.
    fn is_who(&self, other: &Info) -> bool {
        is_same_identity(&self.info, other)
    }
}

/// Whether nodes and load balancers of the one are known as the other's.
fn is_same_identity(one: &Info, other: &Info) -> bool {
    let sorted = |info: &Info| {
        let mut schemes = info.provider_id_schemes.clone();
        schemes.sort_unstable();
        schemes
    };
    one.name == other.name && sorted(one) == sorted(other)
}

impl Drop for Active {
    fn drop(&mut self) {
        self.shared.left();
    }
}

impl Slot {
    /// An empty slot.
    ///
    /// # Errors
    /// [`SandboxError`] for a limit out of its range.
    pub fn new(services: SlotServices, options: SlotOptions) -> Result<Self, SandboxError> {
        let sandbox = Sandbox::new(&services.engine, services.recorder.clone(), options.sandbox.clone())?;
        let name: Arc<str> = options.sandbox.name.as_str().into();
        let shared = Arc::new(Shared::new(Arc::clone(&name), services.metrics.clone()));
        let asked = options.retry.clone();
        let memory = Memory::default();
        memory.keeps(options.rollout.shadow.is_some());
        let work = Work { options, sandbox, asked: asked.clone(), taken_back: None, refused: None, wanted: None };
        Ok(Self {
            name,
            services,
            active: ArcSwapOption::empty(),
            shared,
            newest: watch::Sender::default(),
            work: Mutex::new(work),
            waiting: watch::Sender::new(0),
            probation: probation::Current::new(None),
            canary: canary::Current::new(None),
            asked: watch::Sender::new(asked),
            quarantine: Quarantine::default(),
            memory,
        })
    }

    /// The provider's name in the provider file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the slot is doing, now and from now on. A change of [`SlotStatus::generation`] means
    /// that every object of the provider has to be reconciled once.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<SlotStatus> {
        self.shared.subscribe()
    }

    /// The release that serves, to be called directly; none while nothing serves. Holding it holds
    /// the release's memory.
    #[must_use]
    pub fn serving(&self) -> Option<SandboxedProvider> {
        self.active.load().as_ref().map(|active| active.provider.clone())
    }

    /// Takes an offer through all stages.
    ///
    /// # Errors
    /// [`Refusal`]: the active release, if any, serves on.
    ///
    /// # Cancel safety
    /// Dropping the future before the exchange drops the offer, and with it the compiler's process;
    /// nothing else has happened.
    pub async fn offer(&self, offer: Offer) -> Result<Offered, Refusal> {
        self.shared.source_works();
        let digest = admission::digest_of(&offer.bytes);
        let mut number = 0;
        self.newest.send_modify(|newest| {
            *newest = Newest { number: newest.number + 1, digest };
            number = newest.number;
        });
        let mut work = self.work.lock().await;
        if self.newest.borrow().number != number {
            return Ok(Offered::Overtaken);
        }
        self.take(&mut work, offer, number).await
    }

    /// What was offered and does not serve is not tried again unless it is offered again: it came
    /// from another source.
    pub async fn forget_offers(&self) {
        let mut work = self.interrupt().await;
        work.settle();
        self.end_canary(None);
        self.shared.shadow(None);
        // What was reported about them does not matter any more.
        self.shared.settled(work.waits());
    }

    /// Says that the source has nothing to offer, until the next offer; what serves, serves on.
    pub fn source_failed(&self, failure: SourceFailure) {
        tracing::warn!(provider.name = %self.name, code = failure.code, "nothing to offer: {}", failure.reason);
        self.shared.source_failed(failure);
    }

    /// Tries the newest offer again, where a person asks for it ([`Slot::ask_again`]), or where it
    /// was refused for a reason that is the machine's and not its own (the compile jail could not
    /// be run), or under settings that are no longer in force. Otherwise nothing happens.
    ///
    /// # Errors
    /// As [`Slot::offer`].
    pub async fn retry(&self) -> Result<Offered, Refusal> {
        let number = self.newest.borrow().number;
        let mut work = self.work.lock().await;
        if let Some(offer) = self.asked_for(&mut work) {
            return self.take(&mut work, offer, number).await;
        }
        let Some(offer) = work.refused.clone() else { return Ok(Offered::AlreadyActive) };
        // The reported refusal may be about another release: one that was rolled back while this
        // one was put off.
        let lasting = self
            .shared
            .refusal()
            .filter(|refusal| refusal.lasting)
            .is_some_and(|refusal| refusal.digest == admission::digest_text(&admission::digest_of(&offer.bytes)));
        if lasting { Ok(Offered::AlreadyActive) } else { self.take(&mut work, offer, number).await }
    }

    /// The work, as soon as possible: an offer that is under way gives it up.
    async fn interrupt(&self) -> MutexGuard<'_, Work> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        // Also where this future is dropped while it waits.
        let _waits = Waits(&self.waiting);
        self.work.lock().await
    }

    /// `number`: of the newest offer when this one was made.
    async fn take(&self, work: &mut Work, offer: Offer, number: u64) -> Result<Offered, Refusal> {
        let digest = admission::digest_of(&offer.bytes);
        let text = admission::digest_text(&digest);
        let is = |release: &Active| release.provider.release().digest() == text;
        let is_active = self.active.load().as_ref().is_some_and(|active| is(active));
        if is_active || self.canary.borrow().as_ref().is_some_and(|canary| is(canary.release())) {
            if is_active {
                // The source has gone back.
                self.end_canary(None);
            }
            work.settle();
            self.shared.settled(work.waits());
            return Ok(Offered::AlreadyActive);
        }
        if let Some(refusal) = self.quarantine.get(&text) {
            let newest = work.refused.replace(offer.clone());
            if self.asked_for(work).is_none() {
                self.shared.refused(&refusal);
                return Err(refusal);
            }
            work.refused = newest;
        }
        let (mut waiting, mut newest) = (self.waiting.subscribe(), self.newest.subscribe());
        let interrupted = async { drop(waiting.wait_for(|waiting| *waiting > 0).await) };
        // The same component again is no reason to begin again.
        let overtaken = async {
            let is_other = |newest: &Newest| newest.number != number && newest.digest != digest;
            drop(newest.wait_for(is_other).await);
        };
        let loaded = tokio::select! {
            biased;
            () = overtaken => return Ok(Offered::Overtaken),
            () = interrupted => {
                work.refused = Some(offer);
                return Ok(Offered::PutOff);
            }
            loaded = self.load_wanted(work, &offer) => loaded,
        };
        match loaded {
            Ok(release) => {
                let offered = self.begin(release, work);
                self.shared.settled(work.waits());
                work.settle();
                Ok(offered)
            }
            Err(refusal) => {
                tracing::warn!(
                    provider.name = %self.name,
                    component.digest = refusal.digest,
                    stage = refusal.stage.name(),
                    code = refusal.code,
                    "release refused: {}", refusal.reason
                );
                self.refuse(work, offer, &refusal);
                Err(refusal)
            }
        }
    }

    /// A release that may serve begins to.
    fn begin(&self, release: Active, work: &mut Work) -> Offered {
        if let Some(options) = work.options.rollout.canary
            && let Some(predecessor) = self.borne_out().filter(|predecessor| release.is_who(&predecessor.info))
            && self.active.load().as_ref().is_some_and(|active| release.is_who(&active.info))
        {
            self.begin_canary(release, &predecessor, options);
            return Offered::Canary;
        }
        self.activate(Arc::new(release), Stage::Shadowed, work);
        // What was offered before it.
        self.end_canary(None);
        Offered::Activated
    }

    /// Under the settings that are wanted, or else under those in force.
    async fn load_wanted(&self, work: &mut Work, offer: &Offer) -> Result<Active, Refusal> {
        if let Some(wanted) = &mut work.wanted {
            match self.load(&wanted.options, &wanted.sandbox, offer, Compared::Yes).await {
                Ok(active) => {
                    let (options, sandbox) = (wanted.options.clone(), Arc::clone(&wanted.sandbox));
                    work.options = options;
                    work.replace_sandbox(sandbox);
                    work.wanted = None;
                    return Ok(active);
                }
                Err(refusal) => wanted.refusal = refusal,
            }
        }
        self.load(&work.options, &work.sandbox, offer, Compared::Yes).await
    }

    fn refuse(&self, work: &mut Work, offer: Offer, refusal: &Refusal) {
        if refusal.lasting {
            self.quarantine.put(refusal);
        }
        work.refused = Some(offer);
        self.shared.refused(refusal);
    }

    /// Takes the release that serves out of service. A newer offer that was refused is kept in its
    /// stead for the next try.
    fn stop(&self, work: &mut Work, offer: Offer, refusal: &Refusal) {
        let predecessor = self.active.swap(None);
        self.set_probation(None);
        self.end_canary(None);
        self.shared.stopped();
        drop(predecessor);
        let newest = work.refused.take().unwrap_or(offer);
        self.refuse(work, newest, refusal);
    }

    /// A release serves all objects, and is compared with the last one that passed probation, for
    /// as long as the settings say.
    fn activate(&self, release: Arc<Active>, from: Stage, work: &mut Work) {
        self.shared.step(release.provider.release().digest(), from, Step::To(Stage::Active));
        let probation = work
            .options
            .rollout
            .probation
            .zip(self.borne_out())
            .map(|(options, predecessor)| Arc::new(Probation::new(Arc::clone(&release), predecessor, options)));
        if probation.is_none() {
            self.quarantine.forget(release.provider.release().digest());
        }
        self.exchange(release, probation, None);
    }

    /// The exchange; with the reason where it takes a release back. The status says all of it at
    /// once: else somebody could take a predecessor that serves again for a release that passed
    /// probation.
    fn exchange(&self, active: Arc<Active>, probation: Option<Arc<Probation>>, taken_back: Option<&Refusal>) {
        let interfaces = active.interfaces.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(",");
        tracing::info!(
            provider.name = %self.name,
            provider.version = active.info.version,
            component.digest = active.provider.release().digest(),
            interfaces,
            "release active"
        );
        let status = status::active(&active);
        active.drain.end();
        let predecessor = self.active.swap(Some(active));
        if let Some(predecessor) = &predecessor {
            predecessor.drain.begin(DRAIN);
        }
        self.shared.activated(status, probation.as_deref().map(Probation::status), taken_back);
        self.set_probation(probation);
        drop(predecessor);
    }

    /// The release for a call of this interface about the object of this UID; held until the call
    /// ends.
    fn hold(&self, interface: Interface, uid: Option<&str>) -> Result<Arc<Active>, Error> {
        if let Some(canary) = self.canary_of(interface, uid) {
            return Ok(canary);
        }
        let active = self.active.load_full().ok_or_else(|| {
            let trouble = self.shared.status().trouble().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            Error::new(Code::NotServing, format!("provider {} has no release that serves{trouble}", self.name))
        })?;
        if active.interfaces.contains(&interface) {
            return Ok(active);
        }
        let message = format!("the release of provider {} that serves does not export {interface}", self.name);
        Err(Error::new(Code::NotServing, message))
    }

    /// Whether a caller should try this interface: while nothing serves, nobody knows that it is
    /// not there.
    fn may_have(&self, interface: Interface) -> bool {
        self.active.load().as_ref().is_none_or(|active| active.interfaces.contains(&interface))
    }
}

/// One reconfiguration that waits for the work.
struct Waits<'a>(&'a watch::Sender<usize>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.serving().map(|provider| provider.release().digest().to_owned());
        f.debug_struct("Slot").field("name", &self.name).field("active", &digest).finish_non_exhaustive()
    }
}
