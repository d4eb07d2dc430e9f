//! The status of a `Provider`, from the status of its slot, by the API conventions of Kubernetes.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{SignedDuration, Timestamp},
};
use skysail_controllers::Finding;
use skysail_host::{
    FunctionCalls, LastFailure,
    slot::{
        ActiveStatus, CanaryStatus, CandidateStatus, ProbationStatus, Refusal, ShadowStatus, SlotStatus, SourceFailure,
        Stage,
    },
};
use skysail_provider::Code;

use super::ProviderState;
use crate::{
    custom_resource::{
        Active, Calls, Canary, Candidate, FailedCall, Failure, Probation, ProviderStatus, Refused, Shadow,
    },
    providers::Problem,
};

/// Longest message of a condition, in bytes. A message may contain text of a guest or a registry.
const MESSAGE_BYTES_MAX: usize = 4096;

/// How long the condition says that the cloud denied a call, if no call of that function succeeds:
/// twice the longest wait of the controllers before they repeat a denied call. The object of the
/// call may be deleted, and then the call is not repeated.
const DENIED_STANDS: SignedDuration = SignedDuration::from_secs(600);

/// The status of a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotReport<'a> {
    pub(super) slot: &'a SlotStatus,
    /// Whether the current source has answered. Until then the slot's status of offers is that of
    /// the source before.
    pub(super) heard: bool,
}

/// `True`, `False` or `Unknown`, with a reason and a message.
type Verdict = (&'static str, String, String);

/// The types of conditions, as `kubectl wait --for=condition=` takes them.
pub(super) const READY: &str = "Ready";
pub(super) const RELEASE_ACCEPTED: &str = "ReleaseAccepted";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
pub(super) const PAUSED: &str = "Paused";
const LOAD_BALANCERS_RETAINED: &str = "LoadBalancersRetained";

/// The reason if the object is invalid.
pub(super) const SPEC_REFUSED: &str = "SpecRefused";
/// The reason if an older provider has the same claim.
pub(super) const CLAIM_TAKEN: &str = "ClaimTaken";

/// The current status; a condition whose status did not change keeps its transition time.
pub(super) fn status_of(
    provider_state: &ProviderState,
    said: Option<SlotReport<'_>>,
    before: &ProviderStatus,
    now: Timestamp,
) -> ProviderStatus {
    let slot = said.map(|said| said.slot);
    let serves = slot.and_then(|slot| slot.active.as_ref());
    // The API stores whole seconds: with fractions the status would always differ from the stored.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let conditions = [
        (READY, ready(provider_state, said)),
        (RELEASE_ACCEPTED, release_accepted(provider_state, said)),
        (PROGRESSING, progressing(said)),
        (DEGRADED, degraded(provider_state, said, now)),
        (PAUSED, paused(provider_state)),
        (LOAD_BALANCERS_RETAINED, retained(provider_state)),
    ];
    let shown = |(type_, (status, reason, mut message)): (&str, Verdict)| {
        cut(&mut message, MESSAGE_BYTES_MAX);
        let known = condition(before, type_).filter(|known| known.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason,
            message,
            observed_generation: Some(provider_state.generation),
            last_transition_time: known.map_or_else(|| Time(now), |known| known.last_transition_time.clone()),
        }
    };
    ProviderStatus {
        observed_generation: provider_state.generation,
        conditions: conditions.map(shown).into(),
        active: serves.map(active),
        provider_id_schemes: serves.map_or(&before.provider_id_schemes, |active| &active.provider_id_schemes).clone(),
        probation: slot.and_then(|slot| slot.probation.as_ref()).map(probation),
        canary: slot.and_then(|slot| slot.canary.as_ref()).map(canary),
        shadow: slot.and_then(|slot| slot.shadow.as_ref()).map(shadow),
        candidate: slot.and_then(|slot| slot.candidate.as_ref().map(candidate).or_else(|| of_canary(slot))),
        refused: slot.and_then(|slot| slot.refused.as_ref()).map(refused),
        source_failure: slot.filter(|_| heard(said)).and_then(|slot| slot.source_failure.as_ref()).map(failure),
        swaps: slot.map_or(0, |slot| slot.swaps),
        draining: slot.map_or(0, |slot| slot.draining),
        // The writer decides when figures are worth a write.
        calls: before.calls.clone(),
    }
}

pub(super) fn condition<'a>(status: &'a ProviderStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether a release serves, be it the newest release or its predecessor.
fn ready(provider_state: &ProviderState, said: Option<SlotReport<'_>>) -> Verdict {
    match serving(said) {
        Some(active) => ("True", "Serving".to_owned(), format!("{} serves", shown(active))),
        None => {
            let trouble = trouble(provider_state, said).map(|(_, reason)| reason);
            let trouble = trouble.unwrap_or_else(|| "the source has not offered one yet".to_owned());
            ("False", "NotServing".to_owned(), format!("no release serves: {trouble}"))
        }
    }
}

/// Whether the settings of the object and the release that the source offers were accepted.
fn release_accepted(provider_state: &ProviderState, said: Option<SlotReport<'_>>) -> Verdict {
    if let Some((code, reason)) = trouble(provider_state, said) {
        return ("False", code, reason);
    }
    let canary = said.filter(|said| said.heard).and_then(|said| said.slot.canary.as_ref());
    if let Some(CanaryStatus { version, digest, percent, .. }) = canary {
        let message =
            format!("release {version} ({}) from the source serves {percent} % of the objects", short(digest));
        return ("True", "Accepted".to_owned(), message);
    }
    let candidate = said.and_then(|said| said.slot.candidate.as_ref());
    match (serving(said).filter(|_| heard(said)), candidate) {
        (Some(active), _) => {
            ("True", "Accepted".to_owned(), format!("release {} from the source serves", shown(active)))
        }
        (None, Some(CandidateStatus { digest, .. })) => {
            ("Unknown", "Candidate".to_owned(), format!("{} is offered and is being checked", short(digest)))
        }
        (None, None) => {
            ("Unknown", "NothingOffered".to_owned(), "the source has not offered a component yet".to_owned())
        }
    }
}

fn progressing(said: Option<SlotReport<'_>>) -> Verdict {
    let slot = said.map(|said| said.slot);
    if let Some(CandidateStatus { digest, stage, .. }) = slot.and_then(|slot| slot.candidate.as_ref()) {
        return ("True", "Candidate".to_owned(), format!("{} is {}", short(digest), stage.name()));
    }
    if !heard(said) {
        return ("True", "WaitingForSource".to_owned(), "the source has not answered yet".to_owned());
    }
    if let Some(CanaryStatus { version, digest, percent, .. }) = slot.and_then(|slot| slot.canary.as_ref()) {
        let message = format!(
            "{version} ({}) serves {percent} % of the objects, until the trial succeeds or the release is rolled back",
            short(digest)
        );
        return ("True", "Canary".to_owned(), message);
    }
    match slot.and_then(|slot| slot.probation.as_ref()) {
        Some(ProbationStatus { predecessor, .. }) => {
            let message =
                format!("the serving release is on probation; if it fails, {} serves again", short(predecessor));
            ("True", "Probation".to_owned(), message)
        }
        None => ("False", "Complete".to_owned(), "no rollout is in progress".to_owned()),
    }
}

/// Whether the provider differs from its spec, or the cloud denies calls.
fn degraded(provider_state: &ProviderState, said: Option<SlotReport<'_>>, now: Timestamp) -> Verdict {
    match degradation(provider_state, said, now) {
        Some((code, reason)) => ("True", code, reason),
        None => {
            ("False", "AsExpected".to_owned(), "the provider matches its spec, or a rollout is in progress".to_owned())
        }
    }
}

/// Whether the settings pause the provider; otherwise also which of its Services users have paused.
fn paused(provider_state: &ProviderState) -> Verdict {
    match (provider_state.paused, provider_state.findings().remove(&Finding::ServicesPaused)) {
        (true, services) => {
            let text = "spec.paused is true, so no load balancer and no route changes and no node is deleted; set it to false to continue";
            let services = services.map(|services| format!(". {services}")).unwrap_or_default();
            ("True", "SpecPaused".to_owned(), format!("{text}{services}"))
        }
        (false, Some(services)) => ("False", "ServicesPaused".to_owned(), services),
        (false, None) => {
            ("False", "NotPaused".to_owned(), "neither the provider nor one of its Services is paused".to_owned())
        }
    }
}

/// Whether load balancers of the provider stay in the cloud without a Service.
fn retained(provider_state: &ProviderState) -> Verdict {
    match provider_state.findings().remove(&Finding::LoadBalancersRetained) {
        Some(text) => ("True", "Retained".to_owned(), text),
        None => ("False", "NoneRetained".to_owned(), "each load balancer of the manager has its Service".to_owned()),
    }
}

/// Why the provider is degraded: a code, and the reason with the remedy.
pub(super) fn degradation(
    provider_state: &ProviderState,
    said: Option<SlotReport<'_>>,
    now: Timestamp,
) -> Option<(String, String)> {
    let kept_from = || {
        let mut findings = provider_state.findings();
        findings.remove(&Finding::ServicesPaused);
        findings.remove(&Finding::LoadBalancersRetained);
        let (first, _) = findings.first_key_value()?;
        Some((first.reason().to_owned(), findings.values().cloned().collect::<Vec<_>>().join("; ")))
    };
    trouble(provider_state, said).or_else(kept_from).or_else(|| denied(&provider_state.calls(), now))
}

/// Code and message if the last failure of a function is that the cloud denied the call, and no
/// call of that function has succeeded since.
fn denied(calls: &[Calls], now: Timestamp) -> Option<(String, String)> {
    let code = Code::Denied.category();
    let stands = |FailedCall { code: failed, time, succeeded_since, .. }: &FailedCall| {
        let is_recent = |time: &Time| now.duration_since(time.0) < DENIED_STANDS;
        failed == code && !succeeded_since && time.as_ref().is_some_and(is_recent)
    };
    let denied = |calls: &'_ Calls| {
        let FailedCall { message, .. } = calls.last_failure.as_ref().filter(|failure| stands(failure))?;
        Some(format!("{}: {message}; check the provider's credentials and their permissions", calls.function))
    };
    calls.iter().find_map(denied).map(|message| (code.to_owned(), format!("the cloud denied {message}")))
}

fn serving(said: Option<SlotReport<'_>>) -> Option<&ActiveStatus> {
    said?.slot.active.as_ref()
}

/// Whether the source has answered; without a slot there is no source to wait for.
fn heard(said: Option<SlotReport<'_>>) -> bool {
    said.is_none_or(|said| said.heard)
}

/// Why the newest settings or the newest release are not in force: a code, and the reason with the
/// remedy.
fn trouble(provider_state: &ProviderState, said: Option<SlotReport<'_>>) -> Option<(String, String)> {
    if let Some(Problem::Refused(reason)) = &provider_state.problem {
        return Some((SPEC_REFUSED.to_owned(), reason.clone()));
    }
    of_slot(said).or_else(|| {
        let dropped = match &provider_state.problem {
            Some(Problem::ClaimsDropped(reason)) => Some(reason.clone()),
            Some(Problem::Refused(_)) | None => None,
        };
        let taken: Vec<_> = dropped.into_iter().chain(provider_state.findings().remove(&Finding::ClaimTaken)).collect();
        (!taken.is_empty()).then(|| (CLAIM_TAKEN.to_owned(), taken.join("; ")))
    })
}

fn of_slot(said: Option<SlotReport<'_>>) -> Option<(String, String)> {
    let SlotReport { slot, heard } = said?;
    // An offer clears the failure of the source, so a failure is newer than a refusal.
    if let Some(SourceFailure { code, reason }) = slot.source_failure.as_ref().filter(|_| heard) {
        return Some(((*code).to_owned(), reason.clone()));
    }
    let Refusal { code, reason, .. } = slot.refused.as_ref()?;
    Some(((*code).to_owned(), reason.clone()))
}

fn active(active: &ActiveStatus) -> Active {
    let since = i64::try_from(active.since_ms).ok().and_then(|since| Timestamp::from_millisecond(since).ok());
    // The API stores whole seconds.
    let since = since.and_then(|since| Timestamp::from_second(since.as_second()).ok());
    Active {
        digest: active.digest.clone(),
        origin: active.origin.clone(),
        name: active.name.clone(),
        version: active.version.clone(),
        contract: active.contract.to_owned(),
        interfaces: active.interfaces.iter().map(|name| (*name).to_owned()).collect(),
        provider_id_schemes: active.provider_id_schemes.clone(),
        since: since.map(Time),
    }
}

fn probation(ProbationStatus { predecessor, calls, time_ms }: &ProbationStatus) -> Probation {
    Probation { predecessor: predecessor.clone(), calls: *calls, time_ms: *time_ms }
}

fn canary(CanaryStatus { digest, origin, version, percent, calls, time_ms }: &CanaryStatus) -> Canary {
    Canary {
        digest: digest.clone(),
        origin: origin.clone(),
        version: version.clone(),
        percent: *percent,
        calls: *calls,
        time_ms: *time_ms,
    }
}

fn shadow(ShadowStatus { digest, asked, unanswered, differing, differences }: &ShadowStatus) -> Shadow {
    Shadow {
        digest: digest.clone(),
        asked: *asked,
        unanswered: *unanswered,
        differing: *differing,
        differences: differences.clone(),
    }
}

fn candidate(CandidateStatus { digest, origin, stage }: &CandidateStatus) -> Candidate {
    Candidate { digest: digest.clone(), origin: origin.clone(), stage: stage.name().to_owned() }
}

/// A canary release is a candidate until it has passed.
fn of_canary(slot: &SlotStatus) -> Option<Candidate> {
    let CanaryStatus { digest, origin, .. } = slot.canary.as_ref()?;
    let stage = Stage::Canary.name().to_owned();
    Some(Candidate { digest: digest.clone(), origin: origin.clone(), stage })
}

fn refused(Refusal { digest, origin, stage, code, reason, lasting, retried }: &Refusal) -> Refused {
    let mut reason = reason.clone();
    cut(&mut reason, MESSAGE_BYTES_MAX);
    Refused {
        digest: digest.clone(),
        origin: origin.clone(),
        stage: stage.name().to_owned(),
        code: (*code).to_owned(),
        reason,
        lasting: *lasting,
        retried: *retried,
    }
}

fn failure(SourceFailure { code, reason }: &SourceFailure) -> Failure {
    let mut reason = reason.clone();
    cut(&mut reason, MESSAGE_BYTES_MAX);
    Failure { code: (*code).to_owned(), reason }
}

pub(super) fn calls(calls: FunctionCalls, fuel_limit: u64) -> Calls {
    let FunctionCalls { function, calls, failed, outcomes, p50, p99, fuel_p99, fuel_max, limit_hits, last_failure } =
        calls;
    // Milliseconds are precise enough for these limits, and coarse numbers need fewer writes.
    let milliseconds = |time: Duration| u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    let named =
        |counts: BTreeMap<&str, u64>| counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    Calls {
        function: function.to_owned(),
        calls,
        failed,
        outcomes: named(outcomes),
        p50_ms: milliseconds(p50),
        p99_ms: milliseconds(p99),
        fuel_p99,
        fuel_max,
        fuel_limit,
        limit_hits: named(limit_hits),
        last_failure: last_failure.map(failed_call),
    }
}

fn failed_call(LastFailure { code, message, time, succeeded_since }: LastFailure) -> FailedCall {
    // As the API writes times.
    let time = Timestamp::try_from(time).and_then(|time| Timestamp::from_second(time.as_second())).ok();
    FailedCall { code: code.to_owned(), message, time: time.map(Time), succeeded_since }
}

fn shown(ActiveStatus { name, version, digest, .. }: &ActiveStatus) -> String {
    format!("{name} {version} ({})", short(digest))
}

/// The first 12 hexadecimal digits of a digest.
pub(super) fn short(digest: &str) -> &str {
    const HEX_SHOWN: usize = "sha256:".len() + 12;
    digest.get(..HEX_SHOWN).unwrap_or(digest)
}

/// Cuts at a character boundary.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
    }
}
