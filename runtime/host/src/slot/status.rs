//! What a slot tells about itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use tokio::sync::watch;

use super::{Active, SlotMetrics, Stage, Step};
use crate::admission::{CONTRACT_VERSION, RefusalCode};

/// What a slot is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotStatus {
    /// The provider's name in the provider file.
    pub provider: String,
    /// What serves; none while nothing does.
    pub active: Option<ActiveStatus>,
    /// Whether the serving release is still on probation; none where it has passed.
    pub probation: Option<ProbationStatus>,
    /// What serves a share of the objects; none while one release serves all of them.
    pub canary: Option<CanaryStatus>,
    /// How the newest release that was asked beside its predecessor differed from it; none where
    /// none was, or nothing of it is left to say.
    pub shadow: Option<ShadowStatus>,
    /// What is on its way.
    pub candidate: Option<CandidateStatus>,
    /// Why the newest offer does not serve, or the newest settings have not become those of what
    /// serves; none where both are well.
    pub refused: Option<Refusal>,
    /// Why there is nothing to offer; none where the source's newest word was an offer.
    pub source_failure: Option<SourceFailure>,
    /// Exchanges since the process started, the first one included.
    pub swaps: u64,
    /// Releases that serve no new call and still have one running.
    pub draining: u64,
    /// Changes whenever the calls of some object begin to go to another release: then every object
    /// has to be reconciled once.
    pub generation: u64,
}

impl SlotStatus {
    /// Why what should serve does not, one line; none where all is well or still on its way.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        // An offer ends a failure of the source, so that of the two the failure is the newer one.
        let failure = self.source_failure.as_ref().map(|failure| failure.reason.as_str());
        failure.or_else(|| self.refused.as_ref().map(|refusal| refusal.reason.as_str()))
    }
}

/// Why a source has nothing to offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceFailure {
    /// A stable CamelCase name: metric label and reason of a condition.
    pub code: &'static str,
    /// Names place, reason and way out.
    pub reason: String,
}

/// The release that serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveStatus {
    /// Number of the exchange that made it active: [`SlotStatus::swaps`] at that moment.
    pub swap: u64,
    /// `sha256:…` of the `.wasm` file.
    pub digest: String,
    /// Where it came from.
    pub origin: String,
    /// As it calls itself.
    pub name: String,
    /// As it says.
    pub version: String,
    /// Version of the contract that it is called by.
    pub contract: &'static str,
    /// Names of the interfaces that it has besides `identity`.
    pub interfaces: Vec<&'static str>,
    /// Schemes of the provider IDs that are its own.
    pub provider_id_schemes: Vec<String>,
    /// Milliseconds since 1970, UTC.
    pub since_ms: u64,
}

/// A release that may be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbationStatus {
    /// `sha256:…` of what serves again then.
    pub predecessor: String,
    /// Calls that it has to end.
    pub calls: u64,
    /// Milliseconds that it has to serve.
    pub time_ms: u64,
}

/// A release that serves a share of the objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// `sha256:…` of the file.
    pub digest: String,
    /// Where it came from.
    pub origin: String,
    /// As it says.
    pub version: String,
    /// Of the objects.
    pub percent: u8,
    /// Calls that it has to end.
    pub calls: u64,
    /// Milliseconds that it has to serve.
    pub time_ms: u64,
}

/// How a release's answers compare with its predecessor's, without an effect on the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowStatus {
    /// `sha256:…` of the release that was asked.
    pub digest: String,
    /// Questions that both were asked.
    pub asked: u64,
    /// Of those: the predecessor had no answer, so that there was nothing to compare.
    pub unanswered: u64,
    /// Of those: the answers differed.
    pub differing: u64,
    /// The first of the differences, one line each.
    pub differences: Vec<String>,
}

/// A release on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// `sha256:…` of the file.
    pub digest: String,
    /// Where it came from.
    pub origin: String,
    /// What it has reached.
    pub stage: Stage,
}

/// Why a release does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}")]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// `sha256:…` of the file.
    pub digest: String,
    /// Where it came from.
    pub origin: String,
    /// What it had reached.
    pub stage: Stage,
    /// [`Reason::category`].
    pub code: &'static str,
    /// Names origin, place, reason and way out; several sentences where several things are wrong.
    pub reason: String,
    /// Whether the same bytes with the same settings will be refused again. Where not, the fault is
    /// the machine's or the cloud's, and [`super::Slot::retry`] tries the release again.
    pub lasting: bool,
    /// Whether it had been tried again because a person asked ([`super::Slot::ask_again`]): that is
    /// not done twice.
    pub retried: bool,
}

impl Refusal {
    /// Whether it served and was taken back for what it did.
    #[must_use]
    pub fn was_taken_back(&self) -> bool {
        self.stage >= Stage::Canary
    }
}

/// What can keep a release from serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The file is not what it should be.
    Admission(RefusalCode),
    /// Judging and compiling cost more than they may.
    CompileLimit,
    /// The compiler refused it, or the compile jail's child crashed over it.
    CompileFailed,
    /// The compile jail could not be run.
    CompileUnavailable,
    /// It could not be loaded or linked.
    LinkFailed,
    /// `describe` did not answer, or answered what the contract does not allow.
    DescribeFailed,
    /// It has `instances` and names no scheme of provider IDs.
    NoProviderIdScheme,
    /// It has another name or other schemes than its predecessor.
    IdentityChanged,
    /// It lacks an interface of its predecessor.
    InterfaceLost,
    /// It says that it needs what no egress rule allows.
    EgressNotAllowed,
    /// `check-config` did not answer, or answered what the contract does not allow.
    CheckConfigFailed,
    /// It says that the cloud-config is wrong.
    ConfigRefused,
    /// Asked what its predecessor was asked, it trapped or met a limit.
    ShadowBroken,
    /// Asked what its predecessor was asked, it answered otherwise, and the operator wants such a
    /// release refused.
    ShadowDiffers,
    /// On probation or as a canary calls trapped: one where none of its predecessor's had, else
    /// more than twice their share.
    ProbationTrap,
    /// The same of calls that met a limit.
    ProbationLimit,
    /// On probation or as a canary far more calls failed than of its predecessor's.
    ProbationErrors,
    /// It was taken back before this process began.
    Quarantined,
}

impl Reason {
    /// A stable CamelCase name: metric label and reason of a condition.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Admission(code) => code.category(),
            Self::CompileLimit => "CompileLimit",
            Self::CompileFailed => "CompileFailed",
            Self::CompileUnavailable => "CompileUnavailable",
            Self::LinkFailed => "LinkFailed",
            Self::DescribeFailed => "DescribeFailed",
            Self::NoProviderIdScheme => "NoProviderIdScheme",
            Self::IdentityChanged => "IdentityChanged",
            Self::InterfaceLost => "InterfaceLost",
            Self::EgressNotAllowed => "EgressNotAllowed",
            Self::CheckConfigFailed => "CheckConfigFailed",
            Self::ConfigRefused => "ConfigRefused",
            Self::ShadowBroken => "ShadowBroken",
            Self::ShadowDiffers => "ShadowDiffers",
            Self::ProbationTrap => "ProbationTrap",
            Self::ProbationLimit => "ProbationLimit",
            Self::ProbationErrors => "ProbationErrors",
            Self::Quarantined => "Quarantined",
        }
    }
}

pub(super) fn active(active: &Active) -> ActiveStatus {
    #[expect(clippy::disallowed_methods, reason = "a date for people; nothing is decided by it")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ActiveStatus {
        swap: 0,
        digest: active.provider.release().digest().to_owned(),
        origin: active.offer.origin.clone(),
        name: active.info.name.clone(),
        version: active.info.version.clone(),
        contract: CONTRACT_VERSION,
        interfaces: active.interfaces.iter().map(|interface| interface.name()).collect(),
        provider_id_schemes: active.info.provider_id_schemes.clone(),
        since_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
    }
}

/// The status, shared with the releases so that the last one to leave can say so.
pub(super) struct Shared {
    status: watch::Sender<SlotStatus>,
    metrics: SlotMetrics,
    provider: Arc<str>,
    /// Releases in memory.
    living: AtomicU64,
    /// Every step that was taken.
    #[cfg(test)]
    pub(super) walked: std::sync::Mutex<Vec<(Stage, Step)>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.metrics.release(&self.provider);
    }
}

impl Shared {
    pub(super) fn new(provider: Arc<str>, metrics: SlotMetrics) -> Self {
        let status = SlotStatus { provider: provider.as_ref().to_owned(), ..SlotStatus::default() };
        metrics.keep(&provider);
        metrics.serving(&provider).set(0);
        metrics.draining(&provider).set(0);
        Self {
            status: watch::Sender::new(status),
            metrics,
            provider,
            living: AtomicU64::new(0),
            #[cfg(test)]
            walked: std::sync::Mutex::default(),
        }
    }

    /// A release takes a step. All of them come by here, and a debug build, as tests are, takes
    /// none that the table does not have.
    pub(super) fn step(&self, digest: &str, from: Stage, step: Step) {
        debug_assert!(from.leads(step), "{from:?} does not lead to {step:?}");
        let to = match step {
            Step::To(stage) => stage.name(),
            Step::Refused(reason) => reason.category(),
        };
        tracing::debug!(provider.name = %self.provider, component.digest = digest, from = from.name(), to, "release takes a step");
        #[cfg(test)]
        self.walked.lock().unwrap().push((from, step));
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<SlotStatus> {
        self.status.subscribe()
    }

    pub(super) fn status(&self) -> SlotStatus {
        self.status.borrow().clone()
    }

    pub(super) fn source_failed(&self, failure: SourceFailure) {
        self.metrics.source_failed(&self.provider, failure.code);
        let failure = Some(failure);
        self.status
            .send_if_modified(|status| std::mem::replace(&mut status.source_failure, failure.clone()) != failure);
    }

    pub(super) fn source_works(&self) {
        self.status.send_if_modified(|status| status.source_failure.take().is_some());
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.status.borrow().refused.clone()
    }

    pub(super) fn candidate(&self, candidate: Option<CandidateStatus>) {
        self.status.send_modify(|status| status.candidate = candidate);
    }

    pub(super) fn refused(&self, refusal: &Refusal) {
        self.metrics.refused(&self.provider, refusal.stage, refusal.code);
        self.status.send_modify(|status| status.refused = Some(refusal.clone()));
    }

    /// A person asks for something else than before: what was tried once more may be so again.
    pub(super) fn asked_anew(&self) {
        self.status.send_if_modified(|status| {
            status.refused.as_mut().is_some_and(|refusal| std::mem::take(&mut refusal.retried))
        });
    }

    /// What is to be said now, which was said before and is not counted again.
    pub(super) fn settled(&self, refusal: Option<Refusal>) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.refused, refusal.clone()) != refusal);
    }

    pub(super) fn probation(&self, probation: Option<ProbationStatus>) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.probation, probation.clone()) != probation);
    }

    /// A release serves a share of the objects, or none does any more; with the reason where it was
    /// taken back.
    pub(super) fn canary(&self, canary: Option<CanaryStatus>, taken_back: Option<&Refusal>) {
        if let Some(refusal) = taken_back {
            self.count_taken_back(refusal);
        }
        self.status.send_if_modified(|status| {
            let changed = std::mem::replace(&mut status.canary, canary.clone()) != canary;
            if changed {
                status.generation += 1;
            }
            if let Some(refusal) = taken_back {
                status.refused = Some(refusal.clone());
            }
            changed || taken_back.is_some()
        });
    }

    pub(super) fn shadow(&self, shadow: Option<ShadowStatus>) {
        if let Some(shadow) = &shadow {
            self.metrics.shadowed(&self.provider, shadow.asked, shadow.differing);
        }
        self.status.send_if_modified(|status| std::mem::replace(&mut status.shadow, shadow.clone()) != shadow);
    }

    /// Nothing serves any more.
    pub(super) fn stopped(&self) {
        self.metrics.serving(&self.provider).set(0);
        self.status.send_modify(|status| status.active = None);
    }

    /// A release that is loaded; it may become active or be dropped.
    pub(super) fn entered(&self) {
        self.living.fetch_add(1, Ordering::SeqCst);
    }

    /// A release serves all objects; where it takes another one back, with the reason.
    pub(super) fn activated(
        &self,
        active: ActiveStatus,
        probation: Option<ProbationStatus>,
        taken_back: Option<&Refusal>,
    ) {
        self.metrics.swapped(&self.provider);
        self.metrics.serving(&self.provider).set(1);
        if let Some(refusal) = taken_back {
            self.count_taken_back(refusal);
        }
        self.status.send_modify(|status| {
            status.swaps += 1;
            status.generation += 1;
            // The canary may be the one that serves now.
            status.canary.take_if(|canary| canary.digest == active.digest);
            status.active = Some(ActiveStatus { swap: status.swaps, ..active });
            status.probation = probation;
            status.refused = taken_back.cloned();
        });
        self.count_draining();
    }

    fn count_taken_back(&self, refusal: &Refusal) {
        self.metrics.rolled_back(&self.provider, refusal.code);
        self.metrics.refused(&self.provider, refusal.stage, refusal.code);
    }

    pub(super) fn left(&self) {
        self.living.fetch_sub(1, Ordering::SeqCst);
        self.count_draining();
    }

    pub(super) fn count_draining(&self) {
        self.status.send_if_modified(|status| {
            // A candidate's own is counted when it is active; until then it is the one too many.
            let serving = u64::from(status.active.is_some()) + u64::from(status.canary.is_some());
            // Kept, and not on its way out.
            let kept = u64::from(status.probation.is_some());
            let draining = self.living.load(Ordering::SeqCst).saturating_sub(serving + kept);
            self.metrics.draining(&self.provider).set(i64::try_from(draining).unwrap_or(i64::MAX));
            std::mem::replace(&mut status.draining, draining) != draining
        });
    }
}
