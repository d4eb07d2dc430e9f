//! The place in the host that one provider occupies, and the swap of its release while calls run.
//!
//! # Structure
//! [`state`] holds the whole decision: a pure function `step(state, event) -> (state, effects)`.
//! [`task`] is the one task of a slot: it receives events, calls `step` and runs the effects.
//! Callers of the provider read [`Routing`] through one pointer, which the task exchanges as a
//! whole. [`load`] takes a component through the stages of [`Stage`], `trial` compares a release
//! with its predecessor, `shadow` asks both the same questions, `drain` ends old calls.
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
//! - A release that is worse than its predecessor is rolled back (`trial`). Before a release serves
//!   all objects, the slot may compare its answers with the predecessor's (`shadow`), and let it
//!   serve a share of the objects ([`CanaryOptions`]).
//! - All releases that are routed, or kept for a rollback, have the settings in force.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use skysail_provider::{Code, Error, Info, Interface};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinSet,
};

use crate::{
    CallRecorder, Engine, Sandbox, SandboxError, SandboxOptions, SandboxedProvider, admission,
    jail::{Compiled, Compiler},
};

mod drain;
mod event;
mod load;
mod metrics;
mod provider;
mod quarantine;
mod shadow;
mod stage;
mod state;
mod status;
mod task;
mod trial;

#[cfg(test)]
mod tests;

pub(crate) use drain::Drain;
pub use metrics::SlotMetrics;
pub use shadow::{OnDifference, ShadowOptions};
pub use stage::Stage;
pub use status::{
    ActiveStatus, CanaryStatus, CandidateStatus, ProbationStatus, Reason, Refusal, ShadowStatus, SlotStatus,
    SourceFailure,
};
pub use trial::{CanaryOptions, ProbationOptions};

use event::{Event, Request, Told};
use shadow::Memory;
use state::State;
use task::Task;

/// Events that wait for the slot's task. The task only reads them and never waits for a release, so
/// a sender waits for a moment at most.
const INBOX_MAX: usize = 16;

/// How a slot is made, and what [`Slot::prepare`] replaces.
#[derive(Clone, Debug)]
pub struct SlotOptions {
    /// Name, limits, cloud-config and the rest of what the provider has whichever release serves.
    pub sandbox: SandboxOptions,
    /// Accept a release that lacks an interface of its predecessor. Default: refuse it, because
    /// nobody would take care of the objects that were made through that interface.
    pub allow_interface_loss: bool,
    /// Accept a release with another name or other provider-ID schemes than its predecessor.
    /// Default: refuse it, because the provider would no longer recognize its nodes and load
    /// balancers.
    pub allow_identity_change: bool,
    /// Accept a release that declares an origin which no egress rule allows. Default: refuse it,
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
            allow_interface_loss: false,
            allow_identity_change: false,
            allow_unmet_egress: false,
            rollout: RolloutOptions { shadow: None, canary: None, probation: None },
            retry: None,
        }
    }
}

/// The phases of a new release, in this order. By default it serves all objects at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RolloutOptions {
    /// Whether the release is asked what its predecessor was asked.
    pub shadow: Option<ShadowOptions>,
    /// Whether the release serves a share of the objects first.
    pub canary: Option<CanaryOptions>,
    /// How long the release is watched when it serves all objects.
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

/// A component that a source hands to a slot.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The `.wasm` file, not yet judged.
    pub bytes: Bytes,
    /// Where the component came from, for people: `file /etc/skysail/provider.wasm`.
    pub origin: String,
}

/// What became of an offer that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The release serves all objects now.
    Activated,
    /// The release serves a share of the objects now; the status tells the rest.
    Canary,
    /// The release served already, all objects or a share; nothing changed.
    AlreadyActive,
    /// A newer offer came before this one served; nothing changed.
    Overtaken,
    /// New settings came while this offer was loaded. [`Slot::retry`] loads it again.
    PutOff,
}

/// Whether an offer of before, which does not serve, may still be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierOffers {
    /// The offer may be tried.
    Stand,
    /// The offer came from another source: it is forgotten at the commit.
    Forgotten,
}

/// The place that one provider occupies. It is a [`skysail_provider::Provider`]; while nothing
/// serves, every call is [`Code::NotServing`].
pub struct Slot {
    name: Arc<str>,
    services: SlotServices,
    routing: Arc<ArcSwap<Routing>>,
    status: Arc<watch::Sender<SlotStatus>>,
    memory: Arc<Memory>,
    inbox: mpsc::Sender<Event>,
    /// The one task of the slot, which ends when the slot is dropped.
    task: JoinSet<()>,
}

/// Which release has a call. This is all that callers read, and it is exchanged as a whole.
#[derive(Clone, Default)]
struct Routing {
    active: Option<Arc<Active>>,
    canary: Option<Share>,
}

/// A release that serves a share of the objects.
#[derive(Clone)]
struct Share {
    release: Arc<Active>,
    percent: u8,
}

impl Share {
    /// Whether the object of this UID is in the share. The UID alone decides, so that the answer is
    /// the same in every process and for every release, and no object sees two releases in turn.
    fn serves(&self, uid: &str) -> bool {
        is_in_share(uid, self.percent)
    }
}

fn is_in_share(uid: &str, percent: u8) -> bool {
    let [first, second, ..] = <[u8; 32]>::from(Sha256::digest(uid));
    u16::from_be_bytes([first, second]) % 100 < u16::from(percent)
}

impl Routing {
    /// The canary that has this interface.
    fn canary_with(&self, interface: Interface) -> Option<&Share> {
        self.canary.as_ref().filter(|canary| canary.release.interfaces.contains(&interface))
    }

    /// The release for a call of this interface about the object of this UID. A call about no
    /// single object (lists, routes) stays with the active release.
    fn pick(&self, interface: Interface, uid: Option<&str>) -> Option<&Arc<Active>> {
        let canary = self.canary_with(interface).filter(|canary| uid.is_some_and(|uid| canary.serves(uid)));
        canary.map(|canary| &canary.release).or(self.active.as_ref())
    }

    fn releases(&self) -> impl Iterator<Item = &Arc<Active>> {
        self.active.iter().chain(self.canary.as_ref().map(|canary| &canary.release))
    }

    /// Whether every call goes to the same release by both.
    fn is(&self, other: &Self) -> bool {
        let percent = |routing: &Self| routing.canary.as_ref().map(|canary| canary.percent);
        percent(self) == percent(other) && self.releases().map(Arc::as_ptr).eq(other.releases().map(Arc::as_ptr))
    }
}

/// An offer with its digest, which is computed once.
#[derive(Clone)]
struct Component {
    offer: Offer,
    hash: [u8; 32],
    /// `sha256:…`.
    digest: Arc<str>,
}

impl Component {
    fn new(offer: Offer) -> Self {
        let hash = admission::digest_of(&offer.bytes);
        Self { offer, hash, digest: admission::digest_text(&hash).into() }
    }

    fn at(&self, stage: Stage) -> CandidateStatus {
        CandidateStatus { digest: self.digest.to_string(), origin: self.offer.origin.clone(), stage }
    }
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

/// A release that is loaded.
struct Active {
    provider: SandboxedProvider,
    info: Arc<Info>,
    interfaces: Vec<Interface>,
    /// Needed to load the release again under other settings, as is `compiled`.
    component: Component,
    compiled: Compiled,
    drain: Drain,
    living: Arc<Living>,
}

/// Releases of a slot that are in memory.
#[derive(Default)]
struct Living {
    count: AtomicU64,
    left: Notify,
}

impl Active {
    fn new(
        provider: SandboxedProvider,
        info: Arc<Info>,
        component: Component,
        compiled: Compiled,
        living: Arc<Living>,
    ) -> Arc<Self> {
        living.count.fetch_add(1, Ordering::SeqCst);
        let interfaces = provider.release().interfaces();
        Arc::new(Self { provider, info, interfaces, component, compiled, drain: Drain::new(), living })
    }

    fn digest(&self) -> &str {
        &self.component.digest
    }

    /// Whether name and provider-ID schemes are those of the other.
    fn is_who(&self, other: &Info) -> bool {
        is_same_identity(&self.info, other)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.living.count.fetch_sub(1, Ordering::SeqCst);
        self.living.left.notify_one();
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

/// Settings that a slot can take up: every release that had to be asked was asked. Dropped, they
/// change nothing.
///
/// While this lives, offers to the slot wait; calls go on.
#[must_use = "nothing changes before the commit"]
pub struct Reconfiguration {
    decide: oneshot::Sender<oneshot::Sender<()>>,
}

impl Reconfiguration {
    /// Brings the settings into force; they are, when the future ends. The order is given at once,
    /// whether or not somebody awaits the future.
    ///
    /// A call that begins afterwards has the new settings. A call under way keeps the old settings
    /// for seconds, and is then cancelled and repeated. Everything that was refused may be tried
    /// again: [`Slot::retry`] does it with the newest offer.
    pub fn commit(self) -> impl Future<Output = ()> + Send + use<> {
        let (done, is_done) = oneshot::channel();
        // An error is a slot that is gone: there is nothing to change.
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
        let mut slot = Self { name, services, routing, status, memory, inbox, task: JoinSet::new() };
        slot.task.spawn(Task::new(&slot, events).run(state));
        Ok(slot)
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

    /// Tries the newest offer again, where a person asks for it ([`Slot::ask_again`]), where it was
    /// put off, or where it was refused by a fault of the machine or the cloud. Otherwise nothing
    /// happens.
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
        let (origin, code) = (String::new(), Reason::Quarantined.category());
        let refusal = Refusal { digest, origin, stage: Stage::Active, code, reason, lasting: true, retried };
        self.tell(Told::Quarantined(refusal)).await;
    }

    /// Names the release, by its digest, that a person wants to be tried once more although it was
    /// rolled back; none where nobody wants one. The slot tries it if it is still the newest offer
    /// and another release serves to which the slot can return; once for as long as the same digest
    /// is named.
    pub async fn ask_again(&self, digest: Option<String>) {
        self.tell(Told::Asked(digest)).await;
    }

    /// Judges new settings of the provider in two steps, so that several slots change together or
    /// not at all: this step changes nothing yet. The name stays that of the slot. An offer that is
    /// loaded meanwhile is put off.
    ///
    /// # What serves afterwards
    /// A guest has no say in what it may do: egress rules, credentials and limits are in force from
    /// the commit on, whatever a guest answers. A refusal by a guest is therefore no error. It only
    /// decides which release serves:
    /// 1. the active release under the new settings, or else the newest offer, where that was
    ///    refused before;
    /// 2. the active release with its old cloud-config and everything else new, where the
    ///    cloud-config is another one;
    /// 3. nothing, where the release cannot be loaded under the new settings at all.
    ///
    /// The second and the third leave the refusal in the status. The new cloud-config stays wanted:
    /// each later offer is loaded under it first. A failure of the machine decides nothing: the
    /// active release serves under the new settings without having been asked; only where they need
    /// another engine (`stackBytes`) nothing serves until [`Slot::retry`] succeeds.
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
        let prepared = self.request(|reply| Request::Proposed { settings, earlier, reply }).await;
        // Without an answer the slot is gone, and there is nothing to commit to.
        let decide = prepared.unwrap_or_else(|| Ok(oneshot::channel().0))?;
        Ok(Reconfiguration { decide })
    }

    async fn tell(&self, told: Told) {
        // Without an answer the slot is gone.
        let _gone = self.request(|done| Request::Told { told, done }).await;
    }

    /// The answer to a request; none where the runtime ends, and the slot's task with it.
    async fn request<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
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
        let message = format!("the release of provider {} that serves does not export {interface}", self.name);
        Err(Error::new(Code::NotServing, message))
    }

    /// Whether a caller should try this interface: while nothing serves, nobody knows that it is
    /// not there.
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
