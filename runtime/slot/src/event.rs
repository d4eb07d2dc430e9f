//! The vocabulary between a slot's callers, its [`State`](crate::State) and its task: events and
//! effects.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    Breach, CandidateStatus, Component, ProbationOptions, Refusal, Release, Routing, ShadowStatus, SlotStatus,
    SourceFailure, Trial,
};

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
    /// New settings came while this offer was loaded. [`Request::Retry`] loads it again.
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

/// The caller of an offer or a retry.
pub type Reply = oneshot::Sender<Result<Offered, Refusal>>;

/// A caller that waits for the end of something without a result.
pub type Done = oneshot::Sender<()>;

/// A component that is to be loaded.
pub struct Load<R: Release> {
    /// Number of this load.
    pub number: u64,
    /// The component.
    pub component: Component,
    /// The settings that it is loaded under.
    pub under: Under<R::Settings>,
    /// The release that serves.
    pub active: Option<Arc<R>>,
}

/// The settings that a component is loaded under.
pub enum Under<S> {
    /// An offer: the settings in force.
    InForce(S),
    /// An offer where the active release refused settings ([`Wanted`]): these, or else those in
    /// force.
    WantedFirst {
        /// As [`Wanted::settings`].
        wanted: S,
        /// The settings in force.
        in_force: S,
    },
    /// The active release, which has the settings in force: the settings that it refused because of
    /// the machine or the cloud.
    Wanted(S),
}

/// The result of a load.
pub struct Loaded<R> {
    /// The release, or why there is none.
    pub result: Result<Arc<R>, Refusal>,
    /// How the release compares with the active one, where both were asked.
    pub shadow: Option<ShadowStatus>,
    /// The reason if an offer was refused under [`Under::WantedFirst`], too.
    pub wanted: Option<Refusal>,
}

/// New settings that are to be judged.
pub struct Judge<R: Release> {
    /// Identifies this judgement; a result with an older number is ignored.
    pub number: u64,
    /// The new settings.
    pub settings: R::Settings,
    /// Goes into the proposal.
    pub earlier: EarlierOffers,
    /// What serves.
    pub active: Option<Arc<R>>,
    /// Tried where the active release refuses the settings.
    pub newest: Option<Component>,
    /// The settings that are to be replaced.
    pub in_force: R::Settings,
}

/// New settings, and which release serves under them.
pub struct Proposal<R: Release> {
    /// The current settings after the commit.
    pub settings: R::Settings,
    /// As [`Judge::earlier`].
    pub earlier: EarlierOffers,
    /// What serves.
    pub outcome: SettingsOutcome<R>,
}

/// Which release serves under new settings.
pub enum SettingsOutcome<R: Release> {
    /// No release serves, as before.
    Empty,
    /// This release serves.
    Serves(Arc<R>),
    /// This release serves with its old cloud-config, because it refused the new one.
    KeepsConfig(Arc<R>, Wanted<R::Settings>),
    /// No release serves any more, because the active one cannot be loaded.
    Stops(Component, Refusal),
}

/// Settings that the active release refused. They differ from the current ones by their
/// cloud-config.
pub struct Wanted<S> {
    /// Each later offer is loaded under them first.
    pub settings: S,
    /// Why the active release refused them.
    pub refusal: Refusal,
}

/// What can happen to a slot.
pub enum Event<R: Release> {
    /// A caller's request, or the end of a trial.
    Request(Request<R>),
    /// A load or a judgement has come to this candidate and stage.
    Reached {
        /// Number of the load or the judgement.
        number: u64,
        /// The component and its stage.
        candidate: CandidateStatus,
    },
    /// A load has ended.
    Loaded {
        /// Number of the load.
        number: u64,
        /// The result.
        loaded: Loaded<R>,
    },
    /// Settings are judged.
    Judged {
        /// Number of the judgement.
        number: u64,
        /// The settings, which can be committed.
        proposal: Box<Proposal<R>>,
        /// The caller that proposed the settings.
        proposer: R::Proposer,
    },
    /// The settings come into force.
    Committed {
        /// Number of the judgement.
        number: u64,
        /// The caller that waits for the commit.
        done: Done,
    },
    /// The settings are wrong in themselves, or no caller waits for the judgement or for the commit
    /// any more.
    Abandoned {
        /// Number of the judgement.
        number: u64,
    },
}

impl<R: Release> Event<R> {
    /// The event after [`Effect::AwaitCommit`]: the proposer commits, or drops the sender.
    pub async fn of_commit(number: u64, decided: oneshot::Receiver<Done>) -> Self {
        match decided.await {
            Ok(done) => Self::Committed { number, done },
            Err(_dropped) => Self::Abandoned { number },
        }
    }
}

/// Events that wait while settings are judged or prepared. Each has a caller that waits for it, or
/// is the end of one of two trials, so that they are few.
pub enum Request<R: Release> {
    /// A source has a component.
    Offered {
        /// The newest component of the source.
        component: Component,
        /// The caller that offers.
        reply: Reply,
    },
    /// Tries the newest offer again, where the operator asks for it, where it was put off, or where
    /// it was refused by a fault of the machine or the cloud.
    Retry {
        /// The caller that asks.
        reply: Reply,
    },
    /// The active release and the newest offer are asked whether they accept new settings.
    Proposed {
        /// The new settings.
        settings: R::Settings,
        /// What becomes of earlier offers.
        earlier: EarlierOffers,
        /// The caller that proposes.
        proposer: R::Proposer,
    },
    /// A fact from outside of the slot.
    Told {
        /// The fact.
        told: Told,
        /// The caller that waits until the slot has recorded the fact.
        done: Done,
    },
    /// A trial has ended.
    TrialEnded {
        /// Number of the trial.
        number: u64,
        /// Whether the release passed.
        result: Result<(), Breach>,
    },
}

/// A fact that a caller reports to a slot.
pub enum Told {
    /// The operator wants the rolled-back release with this digest to be tried once more; none ends
    /// that wish.
    Asked(Option<String>),
    /// Every offer that does not serve all objects came from another source.
    Forget,
    /// Another process rolled this release back.
    Quarantined(Refusal),
    /// The source has nothing to offer.
    SourceFailed(SourceFailure),
}

/// What the slot's task has to do, in this order.
pub enum Effect<R: Release> {
    /// Ends the load, the judgement or the wait for a commit.
    StopWork,
    /// Loads an offer; ends in [`Event::Loaded`].
    Load(Box<Load<R>>),
    /// Judges settings; ends in [`Event::Judged`] or [`Event::Abandoned`].
    Judge(Box<Judge<R>>, R::Proposer),
    /// Ends the drain of this release, which serves again; a release that never served has none.
    Undrain(Arc<R>),
    /// Calls that begin go here.
    Route(Routing<R>),
    /// The calls of this release have to end soon.
    Drain(Arc<R>),
    /// The calls under these settings have to end sooner.
    Retire(R::Settings),
    /// Watches this release and no other at this place.
    Watch(TrialPlace, Option<Watch<R>>),
    /// Whether questions of the controllers are remembered.
    KeepQuestions(bool),
    /// A log line and a metric.
    Report(Report<R>),
    /// Publishes the status; the number counts the releases that the state holds.
    Publish(Box<SlotStatus>, u64),
    /// The settings are prepared: waits for [`Event::Committed`] or [`Event::Abandoned`].
    AwaitCommit(u64, R::Proposer),
    /// Answers an offer or a retry.
    Answer(Reply, Result<Offered, Refusal>),
    /// Answers a caller without a result.
    Confirm(Done),
}

/// Where a release is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialPlace {
    /// The release serves a share of the objects.
    Canary,
    /// The release serves all objects.
    Probation,
}

/// A trial that begins.
pub struct Watch<R> {
    /// Number of the trial.
    pub number: u64,
    /// The watched release.
    pub release: Arc<R>,
    /// The release that `release` is compared with.
    pub predecessor: Arc<R>,
    /// How long the release is watched.
    pub options: ProbationOptions,
    /// Whether the predecessor serves the other objects meanwhile.
    pub beside: bool,
}

impl<R: Release> Watch<R> {
    /// The trial, which ends in [`Request::TrialEnded`]. It begins now, and holds no release in
    /// memory.
    pub fn trial(&self) -> impl Future<Output = Event<R>> + Send + use<R> {
        let trial = Trial::new(self.release.call_history(), self.predecessor.call_history(), self.options, self.beside);
        let number = self.number;
        async move { Event::Request(Request::TrialEnded { number, result: trial.end().await }) }
    }
}

/// What is logged and counted.
pub enum Report<R> {
    /// Serves all objects now.
    Active(Arc<R>),
    /// Serves this percentage of the objects now.
    Canary(Arc<R>, u8),
    /// Has passed probation.
    Passed(Arc<R>),
    /// An offer does not serve.
    Refused(Refusal),
    /// A release served and does not serve any more.
    RolledBack(Refusal),
    /// The active release refuses the new cloud-config.
    KeepsConfig(Refusal),
    /// The active release cannot be loaded under the new settings: nothing serves.
    Stopped(Refusal),
    /// A release was asked what the active one was asked.
    Shadowed(ShadowStatus),
    /// The source has nothing to offer.
    SourceFailed(SourceFailure),
}
