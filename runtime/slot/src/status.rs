//! The types in which a slot tells about itself.

use serde::Serialize;
use skysail_provider::Info;

use crate::{CanaryOptions, Component, ProbationOptions, Release, Stage};

/// What a slot is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotStatus {
    /// The provider's name in the provider file.
    pub provider: String,
    /// The release that serves; none while nothing does.
    pub active: Option<ActiveStatus>,
    /// The probation of the active release; none where it is not on probation.
    pub probation: Option<ProbationStatus>,
    /// The release that serves a share of the objects; none while one release serves all objects.
    pub canary: Option<CanaryStatus>,
    /// How the newest release that was asked beside its predecessor differed from the predecessor;
    /// none where no release was asked under these settings.
    pub shadow: Option<ShadowStatus>,
    /// The release that is being loaded.
    pub candidate: Option<CandidateStatus>,
    /// Why the newest offer does not serve, or why the active release does not have the newest
    /// cloud-config, or why no release serves under these settings; none where nothing is refused.
    pub refused: Option<Refusal>,
    /// The releases that were rolled back, the oldest first.
    #[serde(skip)]
    pub quarantine: Vec<Refusal>,
    /// Why the source has nothing to offer; none where the source's newest report was an offer.
    pub source_failure: Option<SourceFailure>,
    /// Swaps since the process started, the first release included.
    pub swaps: u64,
    /// Releases that get no new call and still have a call under way.
    pub draining: u64,
    /// Changes whenever the calls of some object begin to go to another release: every object then
    /// has to be reconciled once.
    pub generation: u64,
}

impl SlotStatus {
    /// Why the newest offer or the newest settings are not in force, one line; none where they are
    /// in force or are being loaded.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        // An offer ends a failure of the source, so that the failure is the newer one of the two.
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
    /// Names the place, the reason and the remedy.
    pub reason: String,
}

/// The release that serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveStatus {
    /// Number of the swap that made the release active: [`SlotStatus::swaps`] at that moment.
    pub swap: u64,
    /// `sha256:…` of the `.wasm` file.
    pub digest: String,
    /// Where the component came from.
    pub origin: String,
    /// The name in the release's description.
    pub name: String,
    /// The version in the release's description.
    pub version: String,
    /// Version of the contract between host and release.
    pub contract: &'static str,
    /// Names of the interfaces that the release exports besides `identity`.
    pub interfaces: Vec<&'static str>,
    /// Schemes of the provider's own provider IDs.
    pub provider_id_schemes: Vec<String>,
    /// Milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// Whether the release passed probation, or needed none: nothing served before it, or the
    /// settings have no probation. Otherwise it is on probation, or new settings ended its
    /// probation or brought it in; the archive then keeps an earlier release.
    pub passed: bool,
}

/// The probation of the active release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbationStatus {
    /// `sha256:…` of the release that serves again after a rollback.
    pub predecessor: String,
    /// Calls that have to end.
    pub calls: u64,
    /// Milliseconds that the release has to serve.
    pub time_ms: u64,
}

/// A release that serves a share of the objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// `sha256:…` of the file.
    pub digest: String,
    /// Where the component came from.
    pub origin: String,
    /// The version in the release's description.
    pub version: String,
    /// The share of the objects.
    pub percent: u8,
    /// Calls that have to end.
    pub calls: u64,
    /// Milliseconds that the release has to serve.
    pub time_ms: u64,
}

/// How a release's answers compare with its predecessor's. The questions change nothing in the
/// cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowStatus {
    /// `sha256:…` of the release that was asked.
    pub digest: String,
    /// Questions that both were asked.
    pub asked: u64,
    /// Questions that the predecessor did not answer, so that there is nothing to compare.
    pub unanswered: u64,
    /// Questions whose answers differed.
    pub differing: u64,
    /// The first of the differences, one line each.
    pub differences: Vec<String>,
}

/// A release that is being loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// `sha256:…` of the file.
    pub digest: String,
    /// Where the component came from.
    pub origin: String,
    /// The stage that the release has reached.
    pub stage: Stage,
}

/// Why a release does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}")]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// `sha256:…` of the file.
    pub digest: String,
    /// Where the component came from.
    pub origin: String,
    /// The stage that the release had reached.
    pub stage: Stage,
    /// [`RefusalReason::category`].
    pub code: &'static str,
    /// Names the origin, the place, the reason and the remedy; several sentences where several
    /// things are wrong.
    pub reason: String,
    /// Whether the same bytes with the same settings will be refused again. Otherwise the fault is
    /// the machine's or the cloud's, and [`crate::Request::Retry`] tries the release again.
    pub lasting: bool,
    /// Whether the release had been tried once more because the operator asked for it
    /// ([`crate::Told::Asked`]). This is not done twice.
    pub retried: bool,
}

impl Refusal {
    /// Whether the release served and was rolled back.
    #[must_use]
    pub fn was_rolled_back(&self) -> bool {
        self.stage >= Stage::Canary
    }
}

/// Why a release does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The file is not a component of the contract; with the category of the admission's code.
    Admission(&'static str),
    /// Reading and compiling the component met a limit.
    CompileLimit,
    /// The compiler refused the component, or the compile jail's child crashed.
    CompileFailed,
    /// The compile jail could not be run.
    CompileUnavailable,
    /// The component could not be loaded or linked.
    LinkFailed,
    /// `describe` did not answer, or answered what the contract does not allow.
    DescribeFailed,
    /// The release exports `instances` and names no scheme of provider IDs.
    NoProviderIdScheme,
    /// The release has another name or other schemes than its predecessor.
    IdentityChanged,
    /// The release lacks an interface of its predecessor.
    InterfaceLost,
    /// `check-config` did not answer, or answered what the contract does not allow.
    CheckConfigFailed,
    /// The release refuses the cloud-config.
    ConfigRefused,
    /// `origins` did not answer, or answered what the contract does not allow.
    OriginsFailed,
    /// Under this cloud-config the release requires an origin that no egress rule allows.
    EgressNotAllowed,
    /// The release trapped or met a limit on a question that its predecessor answered.
    ShadowBroken,
    /// The release answered a question otherwise than its predecessor, and the operator wants such
    /// a release refused.
    ShadowDiffers,
    /// In a dry run the release would change the cloud where its predecessor would not, and the
    /// operator wants such a release refused.
    PlanWrites,
    /// On probation or as a canary, calls of the release trapped: one call where none of the
    /// predecessor's calls had, otherwise more than twice the predecessor's share.
    ProbationTrap,
    /// The same for calls that met a limit.
    ProbationLimit,
    /// On probation or as a canary, far more calls failed than of the predecessor.
    ProbationErrors,
    /// The release was rolled back before this process began.
    Quarantined,
}

impl RefusalReason {
    /// A stable CamelCase name: metric label and reason of a condition.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Admission(category) => category,
            Self::CompileLimit => "CompileLimit",
            Self::CompileFailed => "CompileFailed",
            Self::CompileUnavailable => "CompileUnavailable",
            Self::LinkFailed => "LinkFailed",
            Self::DescribeFailed => "DescribeFailed",
            Self::NoProviderIdScheme => "NoProviderIdScheme",
            Self::IdentityChanged => "IdentityChanged",
            Self::InterfaceLost => "InterfaceLost",
            Self::CheckConfigFailed => "CheckConfigFailed",
            Self::ConfigRefused => "ConfigRefused",
            Self::OriginsFailed => "OriginsFailed",
            Self::EgressNotAllowed => "EgressNotAllowed",
            Self::ShadowBroken => "ShadowBroken",
            Self::ShadowDiffers => "ShadowDiffers",
            Self::PlanWrites => "PlanWrites",
            Self::ProbationTrap => "ProbationTrap",
            Self::ProbationLimit => "ProbationLimit",
            Self::ProbationErrors => "ProbationErrors",
            Self::Quarantined => "Quarantined",
        }
    }
}

impl ActiveStatus {
    /// `swap`: the number of the swap that made it active.
    pub(crate) fn new<R: Release>(release: &R, swap: u64, passed: bool) -> Self {
        let Info { name, version, provider_id_schemes, .. } = release.info().clone();
        Self {
            swap,
            digest: release.digest().to_owned(),
            origin: release.component().offer.origin.clone(),
            name,
            version,
            contract: R::CONTRACT,
            interfaces: release.interfaces().iter().map(|interface| interface.name()).collect(),
            provider_id_schemes,
            since_ms: 0,
            passed,
        }
    }
}

impl ProbationStatus {
    pub(crate) fn new(predecessor: &impl Release, watched: ProbationOptions) -> Self {
        Self { predecessor: predecessor.digest().to_owned(), calls: watched.calls, time_ms: watched.time_ms() }
    }
}

impl CanaryStatus {
    pub(crate) fn new(release: &impl Release, CanaryOptions { percent, watched }: CanaryOptions) -> Self {
        Self {
            digest: release.digest().to_owned(),
            origin: release.component().offer.origin.clone(),
            version: release.info().version.clone(),
            percent,
            calls: watched.calls,
            time_ms: watched.time_ms(),
        }
    }
}

impl CandidateStatus {
    /// The component at this stage.
    #[must_use]
    pub fn new(component: &Component, stage: Stage) -> Self {
        Self { digest: component.digest.to_string(), origin: component.offer.origin.clone(), stage }
    }
}
