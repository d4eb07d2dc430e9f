//! The place in the host that one provider occupies, and the swap of its release while calls run.
//!
//! # Structure
//! `skysail-slot` holds the whole decision: a pure function `step(state, event) -> (state,
//! effects)`, and the one task of a slot, which receives events, calls `step` and runs the effects.
//! [`executor`] is what the task has this crate do. Callers of the provider read [`Routing`]
//! through one pointer, which the task exchanges as a whole. [`load`] takes a component through the
//! stages of [`Stage`], a trial compares a release with its predecessor, `shadow` asks both the
//! same questions, `drain` ends old calls.
//!
//! # Guarantees
//! - A call ends on the release it began on. A call that has not ended some time after the swap is
//!   cancelled and repeated on the release that serves then (`drain`).
//! - A failure before the swap leaves the active release as it is, and the reason in
//!   [`SlotStatus::refused`].
//! - The latest offer wins: an offer of another component ends the load that is under way. New
//!   settings end that load too: its offer is put off.
//! - An offer of the digest that serves changes nothing. A digest that was refused by a fault of
//!   the release stays refused, without another compilation, until [`Reconfiguration::commit`].
//! - A release that is worse than its predecessor is rolled back (a trial). Before a release serves
//!   all objects, the slot may compare its answers with the predecessor's (`shadow`), and let it
//!   serve a share of the objects ([`CanaryOptions`]).
//! - All releases that are routed, or kept for a rollback, have the settings in force.
//! - Where a release asks for it, the calls that change load balancers run one at a time, across
//!   releases (`turns`).

use std::{collections::BTreeSet, fmt, sync::Arc};

use arc_swap::ArcSwap;
use skysail_provider::{Code, Error, Info, Interface};
pub use skysail_slot::{
    ActiveStatus, CanaryOptions, CanaryStatus, CandidateStatus, DRAIN, EarlierOffers, Offer, Offered, OnDifference,
    PlanOptions, ProbationOptions, ProbationStatus, Refusal, RefusalReason, RolloutOptions, ShadowOptions,
    ShadowStatus, SlotStatus, SourceFailure, Stage,
};
use skysail_slot::{CallHistory, Component, Done, Drain, INBOX_MAX, Living, Proposer, Release, Request, Routing, Told};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use crate::{
    CallRecorder, Engine, Panics, Sandbox, SandboxError, SandboxOptions, SandboxedProvider,
    admission::CONTRACT_VERSION,
    jail::{Compiled, Compiler},
};

mod drain;
mod executor;
mod fair_turns;
mod load;
mod metrics;
mod provider;
mod shadow;

#[cfg(test)]
mod tests;

use executor::Hosted;
use fair_turns::FairTurns;
pub use metrics::SlotMetrics;
use shadow::QuestionLog;

type State = skysail_slot::State<Active>;
type Event = skysail_slot::Event<Active>;

/// How a slot is made, and what [`Slot::prepare`] replaces.
#[derive(Clone, Debug)]
pub struct SlotOptions {
    /// Name, limits, cloud-config and the rest of what the provider has whichever release serves.
    pub sandbox: SandboxOptions,
    /// The interfaces that are used; another one counts as not exported. Default: all that the
    /// component exports. The interfaces that only tools call are always used.
    pub interfaces: Option<BTreeSet<Interface>>,
    /// Whether the operator claims provider IDs by their prefix: then a component with machines
    /// need name no scheme.
    pub claims_prefixes: bool,
    /// Accept a release that lacks an interface of its predecessor. Default: refuse it, because
    /// no release would take care of the objects that were made through that interface.
    pub allow_interface_loss: bool,
    /// Accept a release with another name or other provider-ID schemes than its predecessor.
    /// Default: refuse it, because the provider would no longer recognize its nodes and load
    /// balancers.
    pub allow_identity_change: bool,
    /// Accept a release that requires an origin which no egress rule allows. Default: refuse it,
    /// because its requests to that origin would fail.
    pub allow_unmet_egress: bool,
    /// How a new release takes over.
    pub rollout: RolloutOptions,
    /// As for [`Slot::ask_again`].
    pub retry: Option<String>,
}

impl SlotOptions {
    /// The defaults; each release that is accepted serves all objects at once.
    #[must_use]
    pub const fn new(sandbox: SandboxOptions) -> Self {
        Self {
            sandbox,
            interfaces: None,
            claims_prefixes: false,
            allow_interface_loss: false,
            allow_identity_change: false,
            allow_unmet_egress: false,
            rollout: RolloutOptions { shadow: None, plan: None, canary: None, probation: None },
            retry: None,
        }
    }
}

impl SlotOptions {
    /// The interfaces of the release that are used.
    fn used(&self, release: &crate::Release) -> Vec<Interface> {
        let is_used = |interface: &Interface| {
            interface.is_for_tools() || self.interfaces.as_ref().is_none_or(|used| used.contains(interface))
        };
        release.interfaces().into_iter().filter(is_used).collect()
    }
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
    /// Panics of the slots' tasks, and of the tasks that offer releases to them.
    pub panics: Panics,
}

/// The place that one provider occupies. It is a [`skysail_provider::Provider`]; while nothing
/// serves, every call is [`Code::NotServing`].
pub struct Slot {
    name: Arc<str>,
    services: SlotServices,
    routing: Arc<ArcSwap<Routing<Active>>>,
    status: Arc<watch::Sender<SlotStatus>>,
    memory: Arc<QuestionLog>,
    turns: FairTurns,
    inbox: mpsc::Sender<Event>,
    /// The one task of the slot, which ends when the slot is dropped.
    task: JoinSet<()>,
}

/// Options, and the sandbox that is made from them.
#[derive(Clone)]
struct Settings {
    options: Arc<SlotOptions>,
    sandbox: Arc<Sandbox>,
}

impl Settings {
    fn new(services: &SlotServices, options: SlotOptions) -> Result<Self, SandboxError> {
        let sandbox = Sandbox::new(&services.engine, services.recorder.clone(), options.sandbox.clone())?;
        Ok(Self { options: Arc::new(options), sandbox })
    }
}

impl skysail_slot::Settings for Settings {
    fn rollout(&self) -> &RolloutOptions {
        &self.options.rollout
    }

    fn retry(&self) -> Option<&str> {
        self.options.retry.as_deref()
    }

    fn drain(&self) -> &Drain {
        self.sandbox.drain()
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sandbox, &other.sandbox)
    }
}

/// A release that is loaded.
struct Active {
    provider: SandboxedProvider,
    info: Arc<Info>,
    /// The exported interfaces that the settings use.
    interfaces: Vec<Interface>,
    component: Component,
    /// Needed to load the release again under other settings, as is `component`.
    compiled: Compiled,
    drain: Drain,
    living: Arc<Living>,
}

impl Active {
    fn new(
        provider: SandboxedProvider,
        options: &SlotOptions,
        info: Arc<Info>,
        (component, compiled): (Component, Compiled),
        living: Arc<Living>,
    ) -> Arc<Self> {
        living.send_modify(|count| *count += 1);
        let interfaces = options.used(provider.release());
        Arc::new(Self { provider, info, interfaces, component, compiled, drain: Drain::default(), living })
    }
}

impl Release for Active {
    type Settings = Settings;
    type Proposer = Proposer<SandboxError>;
    const CONTRACT: &'static str = CONTRACT_VERSION;

    fn component(&self) -> &Component {
        &self.component
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn call_history(&self) -> &Arc<CallHistory> {
        self.provider.release().call_history()
    }

    fn drain(&self) -> &Drain {
        &self.drain
    }

    fn is_under(&self, settings: &Settings) -> bool {
        Arc::ptr_eq(self.provider.sandbox(), &settings.sandbox)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.living.send_modify(|count| *count -= 1);
    }
}

/// Settings that a slot can bring into force: the slot has asked every release that it had to ask.
/// A dropped value changes nothing.
///
/// While this lives, offers to the slot wait; calls go on.
#[must_use = "nothing changes before the commit"]
pub struct Reconfiguration {
    decide: oneshot::Sender<Done>,
}

impl Reconfiguration {
    /// Brings the settings into force, even if the caller does not await the future. When the
    /// future ends, the settings are in force.
    ///
    /// A call that begins afterwards has the new settings. A call under way keeps the old settings
    /// for seconds, and is then cancelled and repeated. Everything that was refused may be tried
    /// again: [`Slot::retry`] does it with the newest offer.
    pub fn commit(self) -> impl Future<Output = ()> + Send + use<> {
        let (done, is_done) = oneshot::channel();
        // An error means that the slot is gone: there is nothing to change.
        drop(self.decide.send(done));
        async move { drop(is_done.await) }
    }
}

impl Slot {
    /// An empty slot, and its task in the tokio runtime that this is called in.
    ///
    /// # Errors
    /// [`SandboxError`] for a limit out of its range.
    pub fn new(services: SlotServices, options: SlotOptions) -> Result<Self, SandboxError> {
        let name: Arc<str> = options.sandbox.name.as_str().into();
        let state = State::new(Arc::clone(&name), Settings::new(&services, options)?);
        let (inbox, events) = mpsc::channel(INBOX_MAX);
        let (routing, status, memory) = (Arc::default(), Arc::new(watch::Sender::new(state.status())), Arc::default());
        let turns = FairTurns::default();
        let mut slot = Self { name, services, routing, status, memory, turns, inbox, task: JoinSet::new() };
        let living = Arc::<Living>::default();
        let hosted = Hosted::new(&slot, &living);
        slot.task.spawn(slot.guard(skysail_slot::run(hosted, events, living.subscribe(), state)));
        Ok(slot)
    }

    /// Runs a task on which the slot depends: a panic is reported in [`SlotServices::panics`].
    pub fn guard<T: Future<Output = ()>>(&self, task: T) -> impl Future<Output = ()> + use<T> {
        self.services.panics.clone().guard(task)
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
        self.status.subscribe()
    }

    /// The active release, to be called directly; none while nothing serves. Holding it holds the
    /// release's memory.
    #[must_use]
    pub fn serving(&self) -> Option<SandboxedProvider> {
        self.routing.load().active.as_ref().map(|active| active.provider.clone())
    }

    /// The component of the active release; none while nothing serves.
    #[must_use]
    pub fn component(&self) -> Option<Offer> {
        self.routing.load().active.as_ref().map(|active| active.component.offer.clone())
    }

    /// Takes an offer through all stages, and waits for the end of it.
    ///
    /// # Errors
    /// [`Refusal`]: the active release, if any, serves on.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. An offer that the slot has is loaded all the same, until
    /// it serves, is refused, is overtaken or is forgotten.
    pub async fn offer(&self, offer: Offer) -> Result<Offered, Refusal> {
        let component = Component::new(offer);
        self.request(|reply| Request::Offered { component, reply }).await.unwrap_or(Ok(Offered::Overtaken))
    }

    /// Tries the newest offer again, where the operator asks for it ([`Slot::ask_again`]), where it
    /// was put off, or where it was refused by a fault of the machine or the cloud. Otherwise loads
    /// the active release under a cloud-config that such a fault kept it from accepting. Otherwise
    /// nothing happens.
    ///
    /// # Errors
    /// As [`Slot::offer`].
    pub async fn retry(&self) -> Result<Offered, Refusal> {
        self.request(|reply| Request::Retry { reply }).await.unwrap_or(Ok(Offered::AlreadyActive))
    }

    /// Forgets every offer that does not serve all objects: it came from another source.
    pub async fn forget_offers(&self) {
        self.tell(Told::Forget).await;
    }

    /// Says that the source has nothing to offer, until the next offer. The active release serves
    /// on.
    pub async fn source_failed(&self, failure: SourceFailure) {
        self.tell(Told::SourceFailed(failure)).await;
    }

    /// Refuses this digest from now on, whatever the settings: another process rolled it back.
    /// `retried`: as [`Refusal::retried`].
    pub async fn quarantine(&self, digest: String, reason: String, retried: bool) {
        let (origin, code) = (String::new(), RefusalReason::Quarantined.category());
        let refusal = Refusal { digest, origin, stage: Stage::Active, code, reason, lasting: true, retried };
        self.tell(Told::Quarantined(refusal)).await;
    }

    /// Sets the digest of the rolled-back release that the operator wants to be tried once more;
    /// none clears it. The slot tries the release once, until another digest is set, provided that
    /// the release is still the newest offer and that another release serves, to which the slot can
    /// return.
    pub async fn ask_again(&self, digest: Option<String>) {
        self.tell(Told::Asked(digest)).await;
    }

    /// Judges new settings of the provider in two steps, so that several slots change together or
    /// not at all: this step changes nothing yet. The name stays that of the slot. An offer that is
    /// loaded meanwhile is put off.
    ///
    /// # What serves afterwards
    /// A guest cannot delay a change of its rights: egress rules, credentials and limits are in
    /// force from the commit on, whatever a guest answers. A refusal by a guest is therefore no
    /// error. It only decides which release serves:
    /// 1. the active release under the new settings, or else the newest offer, where that was
    ///    refused before;
    /// 2. the active release with its old cloud-config and everything else new, where the
    ///    cloud-config is another one;
    /// 3. nothing, where the release cannot be loaded under the new settings at all.
    ///
    /// The second and the third leave the refusal in the status. The new cloud-config stays wanted:
    /// each later offer is loaded under it first, and where the machine or the cloud was at fault,
    /// [`Slot::retry`] loads the active release under it. A failure of the machine decides nothing:
    /// the active release serves under the new settings without having been asked; only where they
    /// need another engine (`stackBytes`) nothing serves until [`Slot::retry`] succeeds.
    ///
    /// # Errors
    /// The settings are wrong in themselves: the old ones stay in force.
    pub async fn prepare(
        &self,
        mut options: SlotOptions,
        earlier: EarlierOffers,
    ) -> Result<Reconfiguration, SandboxError> {
        self.name.as_ref().clone_into(&mut options.sandbox.name);
        let settings = Settings::new(&self.services, options)?;
        let prepared = self.request(|proposer| Request::Proposed { settings, earlier, proposer }).await;
        // Without an answer the slot is gone, and there is nothing to commit to: the process ends.
        let decide = prepared.unwrap_or_else(|| Ok(oneshot::channel().0))?;
        Ok(Reconfiguration { decide })
    }

    async fn tell(&self, told: Told) {
        // Without an answer the slot is gone.
        let _gone = self.request(|done| Request::Told { told, done }).await;
    }

    /// The answer to a request; none where the slot's task has ended: with the runtime, or by a
    /// panic, which ends the process ([`SlotServices::panics`]).
    async fn request<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request<Active>) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Event::Request(request(reply))).await.ok()?;
        answer.await.ok()
    }

    /// The release for a call of this interface about the object of this UID; held until the call
    /// ends.
    fn hold(&self, interface: Interface, uid: Option<&str>) -> Result<Arc<Active>, Error> {
        let routing = self.routing.load();
        let Some(release) = routing.pick(interface, uid) else {
            let status = self.status.borrow();
            let trouble = status.trouble().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            let message = format!("provider {} has no release that serves{trouble}", self.name);
            return Err(Error::new(Code::NotServing, message));
        };
        if release.interfaces.contains(&interface) {
            return Ok(Arc::clone(release));
        }
        let message = format!(
            "the release of provider {} that serves does not export {interface}, or the provider's spec.interfaces leaves it out",
            self.name
        );
        Err(Error::new(Code::NotServing, message))
    }

    /// Whether a caller should try this interface. True while no release serves, because the
    /// interfaces are then unknown.
    fn may_have(&self, interface: Interface) -> bool {
        self.routing.load().active.as_ref().is_none_or(|active| active.interfaces.contains(&interface))
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.serving().map(|provider| provider.release().digest().to_owned());
        f.debug_struct("Slot").field("name", &self.name).field("active", &digest).finish_non_exhaustive()
    }
}
