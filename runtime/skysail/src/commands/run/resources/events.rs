//! Events about a `Provider`: one for each notable change of its status. They compare with the
//! status in the API, so that a restart repeats none.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use skysail_controllers::names::reasons;
use skysail_provider::EventKind;

use super::status::{CLAIM_TAKEN, PAUSED, RELEASE_ACCEPTED, SPEC_REFUSED, condition};
use crate::custom_resource::{ProviderStatus, Refused};

/// Prefix of the refusal codes of releases that were rolled back.
const OF_PROBATION: &str = "Probation";

/// Kind, reason and message.
pub(super) type EventText = (EventKind, &'static str, String);

/// The Events about a change of the status.
pub(super) fn of(before: &ProviderStatus, after: &ProviderStatus) -> Vec<EventText> {
    let mut events = Vec::new();
    let digest = |status: &ProviderStatus| status.active.as_ref().map(|active| active.digest.clone());
    let rolled_back = rolled_back(before, after);
    if let Some(active) = &after.active
        && digest(before).as_ref() != Some(&active.digest)
        && rolled_back.is_none()
    {
        let note = format!("{} {} ({}) serves, from {}", active.name, active.version, active.digest, active.origin);
        events.push((EventKind::Normal, "ReleaseActivated", note));
    }
    if let Some(canary) = &after.canary
        && before.canary.as_ref().is_none_or(|known| known.digest != canary.digest)
    {
        let note = format!(
            "{} ({}) serves {} % of the objects, from {}",
            canary.version, canary.digest, canary.percent, canary.origin
        );
        events.push((EventKind::Normal, "CanaryStarted", note));
    }
    if let Some(shadow) = &after.shadow
        && shadow.differing > 0
        && before.shadow.as_ref() != Some(shadow)
    {
        let note = format!(
            "{} answered {} of {} calls differently from its predecessor: {}",
            shadow.digest,
            shadow.differing,
            shadow.asked,
            shadow.differences.join("; ")
        );
        events.push((EventKind::Warning, "ReleaseDiffers", note));
    }
    events.extend(paused(before, after));
    if let Some(note) = rolled_back {
        events.push((EventKind::Warning, "RolledBack", note));
    } else if let Some((reason, note)) = trouble(before, after) {
        events.push((EventKind::Warning, reason, note));
    }
    events
}

/// The message if a release was rolled back and its predecessor serves.
fn rolled_back(before: &ProviderStatus, after: &ProviderStatus) -> Option<String> {
    let refused = after.refused.as_ref().filter(|refused| refused.code.starts_with(OF_PROBATION))?;
    let same = |known: &Refused| {
        // A release that was retried on request and rolled back again is reported again.
        let again = refused.retried && !known.retried;
        known.digest == refused.digest && known.code == refused.code && !again
    };
    if before.refused.as_ref().is_some_and(same) {
        return None;
    }
    after.active.as_ref()?;
    Some(format!("{}: {}", refused.digest, refused.reason))
}

/// The begin or the end of the provider's pause.
fn paused(before: &ProviderStatus, after: &ProviderStatus) -> Option<EventText> {
    let is_paused = |status| condition(status, PAUSED).filter(|condition| condition.status == "True");
    match (is_paused(before), is_paused(after)) {
        (None, Some(now)) => Some((EventKind::Normal, reasons::PAUSED, now.message.clone())),
        (Some(_), None) => {
            let note = "the pause has ended; Skysail continues with what has changed meanwhile".to_owned();
            Some((EventKind::Normal, reasons::RESUMED, note))
        }
        (None, None) | (Some(_), Some(_)) => None,
    }
}

/// Reason and message if the settings or the offered release were refused for a new reason.
fn trouble(before: &ProviderStatus, after: &ProviderStatus) -> Option<(&'static str, String)> {
    let now = condition(after, RELEASE_ACCEPTED).filter(|now| now.status == "False")?;
    // Times, generations and the wording of a registry's answer may differ: a failure is reported
    // again only if its cause differs.
    let is_source = after.source_failure.as_ref().is_some_and(|failure| failure.code == now.reason);
    let said = |known: &Condition| {
        let same = (&known.status, &known.reason) == (&now.status, &now.reason);
        same && (is_source || known.message == now.message)
    };
    if condition(before, RELEASE_ACCEPTED).is_some_and(said) {
        return None;
    }
    let reason = match &*now.reason {
        SPEC_REFUSED => return Some((SPEC_REFUSED, now.message.clone())),
        CLAIM_TAKEN => return Some((CLAIM_TAKEN, now.message.clone())),
        _ if is_source => "SourceFailed",
        _ => "ReleaseRefused",
    };
    Some((reason, format!("{}: {}", now.reason, now.message)))
}
