//! The vocabulary between a slot's callers, its [`State`](super::state::State) and its task: events
//! and effects.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    Active, CandidateStatus, Component, EarlierOffers, Offered, ProbationOptions, Refusal, Routing, Settings,
    ShadowStatus, SlotStatus, SourceFailure,
    load::{Judge, Load, Loaded},
    trial::Breach,
};
use crate::{Sandbox, SandboxError};

/// The caller of an offer or a retry.
pub(super) type Reply = oneshot::Sender<Result<Offered, Refusal>>;

/// The caller that prepares settings. It receives the means to commit them, and a confirmation when
/// they are in force.
pub(super) type ProposalReply = oneshot::Sender<Result<oneshot::Sender<Done>, SandboxError>>;

/// A caller that waits for the end of something without a result.
pub(super) type Done = oneshot::Sender<()>;

/// Settings that the active release refused. They differ from those in force by their cloud-config.
pub(super) struct Wanted {
    pub(super) settings: Settings,
    pub(super) refusal: Refusal,
}

/// New settings, and which release serves under them.
pub(super) struct Proposal {
    pub(super) settings: Settings,
    pub(super) earlier: EarlierOffers,
    pub(super) outcome: Outcome,
}

/// Which release serves under new settings.
pub(super) enum Outcome {
    /// None, as before.
    Empty,
    /// This one.
    Serves(Arc<Active>),
    /// This one, with its old cloud-config.
    KeepsConfig(Arc<Active>, Wanted),
    /// None any more.
    Stops(Component, Refusal),
}

/// What can happen to a slot.
pub(super) enum Event {
    Request(Request),
    /// A load or a judgement has come to this candidate and stage.
    Reached {
        number: u64,
        candidate: CandidateStatus,
    },
    Loaded {
        number: u64,
        loaded: Loaded,
    },
    Judged {
        number: u64,
        judged: Result<Box<Proposal>, SandboxError>,
        reply: ProposalReply,
    },
    Committed {
        number: u64,
        done: Done,
    },
    /// Nobody waits for the judgement, or for the commit, any more.
    Abandoned {
        number: u64,
    },
}

/// Events that wait while settings are judged or prepared. Each has a caller that waits for it, or
/// is the end of one of two trials, so that they are few.
pub(super) enum Request {
    Offered { component: Component, reply: Reply },
    Retry { reply: Reply },
    Proposed { settings: Settings, earlier: EarlierOffers, reply: ProposalReply },
    Told { told: Told, done: Done },
    TrialEnded { number: u64, result: Result<(), Breach> },
}

/// What somebody tells a slot.
pub(super) enum Told {
    Asked(Option<String>),
    Forget,
    Quarantined(Refusal),
    SourceFailed(SourceFailure),
}

/// What the slot's task has to do, in this order.
pub(super) enum Effect {
    /// Ends the load, the judgement or the wait for a commit.
    StopWork,
    Load(Box<Load>),
    Judge(Box<Judge>, ProposalReply),
    /// The calls of this release may go on: it serves (again).
    Undrain(Arc<Active>),
    Route(Routing),
    /// The calls of this release have to end soon.
    Drain(Arc<Active>),
    /// The calls under these settings have to end sooner.
    Retire(Arc<Sandbox>),
    /// Watches this release and no other at this place.
    Watch(Place, Option<Watch>),
    /// Whether questions of the controllers are remembered.
    KeepQuestions(bool),
    /// A log line and a metric.
    Report(Report),
    /// With the number of releases that the state holds.
    Publish(Box<SlotStatus>, u64),
    /// The settings are prepared: waits for the commit.
    AwaitCommit(u64, ProposalReply),
    Reject(ProposalReply, SandboxError),
    Answer(Reply, Result<Offered, Refusal>),
    Confirm(Done),
}

/// Where a release is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Canary,
    Probation,
}

/// A trial that begins.
pub(super) struct Watch {
    pub(super) number: u64,
    pub(super) release: Arc<Active>,
    pub(super) predecessor: Arc<Active>,
    pub(super) options: ProbationOptions,
    /// The predecessor goes on to serve other objects.
    pub(super) beside: bool,
}

/// What is logged and counted.
pub(super) enum Report {
    Active(Arc<Active>),
    Canary(Arc<Active>, u8),
    Passed(Arc<Active>),
    Refused(Refusal),
    RolledBack(Refusal),
    KeepsConfig(Refusal),
    Stopped(Refusal),
    Shadowed(ShadowStatus),
    SourceFailed(SourceFailure),
}
