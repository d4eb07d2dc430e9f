//! Decides which release of a provider serves, and knows nothing of WebAssembly.
//!
//! [`State::step`] is the whole decision: a pure function from a state and an [`Event`] to a state
//! and [`Effect`]s. The task of a slot ([`run`]) receives the events and runs the effects. There
//! are two [`Executor`]s: `skysail-host` loads components into sandboxes, and the simulation loads
//! a model. [`Release`] and [`Settings`] are all that this crate knows of what is loaded.
//!
//! Two decisions wait for loads: [`load`] decides under which settings an offer is loaded, and
//! [`judge`] which release serves under new settings. Each executor has a [`ComponentLoader`], and
//! the order of what is tried is the same for both.
//!
//! The rest of the crate is what the task needs and what no WebAssembly runtime has a part in:
//! [`Routing`] says which release has a call, [`fault`] whose fault a failed call is,
//! [`CallHistory`] counts calls, [`Trial`] judges a release by these counts, [`Drain`] ends the
//! calls of a release.

mod call_history;
mod component;
mod drain;
mod event;
pub mod fault;
mod load;
mod refusals;
mod release;
mod rollout;
mod routing;
mod stage;
mod state;
mod status;
mod task;
mod trial;

pub use self::{
    call_history::{Broken, CallHistory, Counts},
    component::{Component, Offer, digest_of, digest_text},
    drain::{DRAIN, Drain, SETTINGS},
    event::{
        Done, EarlierOffers, Effect, Event, Judge, Load, Loaded, Offered, Proposal, Reply, Report, Request,
        SettingsOutcome, Told, TrialPlace, Under, Wanted, Watch,
    },
    fault::Fault,
    load::{ComponentLoader, JUDGEMENT_MAX, judge, load},
    release::{Release, Settings, is_same_identity},
    rollout::{CanaryOptions, OnDifference, PlanOptions, ProbationOptions, RolloutOptions, ShadowOptions},
    routing::{Routing, Share, is_in_share},
    stage::Stage,
    state::State,
    status::{
        ActiveStatus, CanaryStatus, CandidateStatus, ProbationStatus, Refusal, RefusalReason, ShadowStatus, SlotStatus,
        SourceFailure,
    },
    task::{Executor, INBOX_MAX, Living, Proposer, run},
    trial::{Breach, LONGEST, SAMPLE, Trial},
};
