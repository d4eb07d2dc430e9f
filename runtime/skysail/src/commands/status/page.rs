//! The text of one provider for a terminal, with problems first. The texts of a cloud, a guest or a
//! registry are untrusted, so control characters are removed.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use super::ProviderObject;
use crate::{
    custom_resource::{Active, Calls, FailedCall, ProviderStatus},
    output::{age, fuel, milliseconds, plain, table},
};

/// Columns of a line's name.
const NAME_WIDTH: usize = 12;

/// The page.
pub(super) fn of(provider: &ProviderObject, wide: bool, now: Timestamp) -> String {
    let name = &provider.metadata.name;
    let Some(status) = provider.status.as_ref().filter(|status| !status.conditions.is_empty()) else {
        let lines = [
            format!("Provider {}: unknown", plain(name)),
            line(
                "reason",
                "no manager has reported on the provider; check that the leader runs with --provider-resources",
            ),
        ];
        return joined(lines);
    };
    let mut lines = vec![format!("Provider {}: {}", plain(name), headline(status))];
    lines.extend(trouble(status));
    lines.extend(paused(status));
    lines.extend(retained(status));
    if let Some(generation) =
        provider.metadata.generation.filter(|generation| *generation != status.observed_generation)
    {
        let about = status.observed_generation;
        lines.push(line(
            "outdated",
            &format!("no manager has applied generation {generation} yet; this status is about generation {about}"),
        ));
    }
    lines.extend(releases(status, now));
    lines.push(String::new());
    lines.extend(conditions(status, wide, now));
    lines.push(String::new());
    lines.extend(calls(&status.calls, wide));
    lines.extend(failures(&status.calls, now));
    joined(lines)
}

fn joined(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A line with a label.
fn line(name: &str, text: &str) -> String {
    format!("  {name:NAME_WIDTH$}{}", plain(text))
}

fn condition<'a>(status: &'a ProviderStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

fn is_true<'a>(status: &'a ProviderStatus, type_: &str) -> Option<&'a Condition> {
    condition(status, type_).filter(|condition| condition.status == "True")
}

fn headline(status: &ProviderStatus) -> &'static str {
    match (is_true(status, "Ready"), is_true(status, "Degraded"), is_true(status, "Paused")) {
        (Some(_), None, None) => "ready",
        (Some(_), None, Some(_)) => "ready, and paused",
        (Some(_), Some(_), None) => "ready, but degraded",
        (Some(_), Some(_), Some(_)) => "ready, but degraded, and paused",
        (None, _, _) => "not ready",
    }
}

/// The problems of the provider, each text once.
fn trouble(status: &ProviderStatus) -> Vec<String> {
    let mut lines = Vec::new();
    let mut printed = "";
    if let Some(Condition { reason, message, .. }) = is_true(status, "Degraded") {
        lines.push(line("problem", &format!("{reason}: {message}")));
        printed = message;
    } else if let Some(ready) = condition(status, "Ready").filter(|ready| ready.status != "True") {
        lines.push(line("reason", &ready.message));
    }
    if let Some(failure) = status.source_failure.as_ref().filter(|failure| failure.reason != printed) {
        lines.push(line("source", &format!("{}: {}", failure.code, failure.reason)));
    }
    if let Some(refused) = &status.refused {
        let again =
            if refused.lasting { "; the same component would be refused again" } else { "; it will be tried again" };
        let from = if refused.origin.is_empty() { String::new() } else { format!(", from {}", refused.origin) };
        let text = format!("{} at {}: {}{from}{again}", refused.digest, refused.stage, refused.code);
        lines.push(line("refused", &text));
        if refused.reason != printed {
            lines.push(line("", &refused.reason));
        }
    }
    lines
}

/// What is paused: the provider, or some of its Services.
fn paused(status: &ProviderStatus) -> Option<String> {
    let Condition { message, .. } = condition(status, "Paused").filter(|paused| paused.reason != "NotPaused")?;
    Some(line("paused", message))
}

/// The load balancers that stay without a Service.
fn retained(status: &ProviderStatus) -> Option<String> {
    is_true(status, "LoadBalancersRetained").map(|Condition { message, .. }| line("retained", message))
}

/// The serving release, its probation, and the releases of a rollout.
fn releases(status: &ProviderStatus, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    match &status.active {
        Some(active) => lines.extend(serving(active, now)),
        None => lines.push(line("serves", "nothing")),
    }
    if let Some(probation) = &status.probation {
        let time = age(i64::try_from(probation.time_ms / 1_000).unwrap_or(i64::MAX));
        let text =
            format!("for {} calls and {time}; if it fails, {} serves again", probation.calls, probation.predecessor);
        lines.push(line("probation", &text));
    }
    if let Some(canary) = &status.canary {
        let (share, version, digest) = (canary.percent, &canary.version, &canary.digest);
        let time = age(i64::try_from(canary.time_ms / 1_000).unwrap_or(i64::MAX));
        let text = format!(
            "{version} serves {share} % of the objects for {} calls and {time}: {digest}, from {}",
            canary.calls, canary.origin
        );
        lines.push(line("canary", &text));
    }
    if let Some(shadow) = &status.shadow {
        let text = format!(
            "{} answered {} of {} calls differently from its predecessor; {} calls had no answer to compare",
            shadow.digest, shadow.differing, shadow.asked, shadow.unanswered
        );
        lines.push(line("shadow", &text));
        lines.extend(shadow.differences.iter().map(|difference| line("", difference)));
    }
    let is_canary = |digest: &str| status.canary.as_ref().is_some_and(|canary| canary.digest == *digest);
    if let Some(candidate) = status.candidate.as_ref().filter(|candidate| !is_canary(&candidate.digest)) {
        lines.push(line(
            "candidate",
            &format!("{} is {}, from {}", candidate.digest, candidate.stage, candidate.origin),
        ));
    }
    let draining = if status.draining == 0 { String::new() } else { format!(", {} draining", status.draining) };
    lines.push(line("swaps", &format!("{} since the manager started{draining}", status.swaps)));
    lines
}

fn serving(active: &Active, now: Timestamp) -> Vec<String> {
    let Active { digest, origin, name, version, contract, interfaces, provider_id_schemes, since } = active;
    let since = since.as_ref().map(|since| format!(", since {} ({})", since.0, ago(since, now))).unwrap_or_default();
    let mut lines = vec![
        line("serves", &format!("{name} {version}{since}")),
        line("digest", digest),
        line("from", origin),
        line("interfaces", &format!("{}; contract {contract}", interfaces.join(", "))),
    ];
    if !provider_id_schemes.is_empty() {
        let schemes: Vec<_> = provider_id_schemes.iter().map(|scheme| format!("{scheme}://")).collect();
        lines.push(line("node IDs", &schemes.join(", ")));
    }
    lines
}

fn conditions(status: &ProviderStatus, wide: bool, now: Timestamp) -> Vec<String> {
    let row = |Condition { type_, status, reason, last_transition_time, message, .. }: &Condition| {
        [type_.clone(), status.clone(), reason.clone(), ago(last_transition_time, now), message.clone()]
    };
    let header = ["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(status.conditions.iter().map(row)).collect();
    shown(rows, wide)
}

fn calls(calls: &[Calls], wide: bool) -> Vec<String> {
    if calls.is_empty() {
        return vec!["  No call of the serving release has ended yet.".to_owned()];
    }
    let row = |calls: &Calls| {
        [
            calls.function.clone(),
            calls.calls.to_string(),
            calls.failed.to_string(),
            milliseconds(calls.p50_ms),
            milliseconds(calls.p99_ms),
            fuel(calls.fuel_p99),
            fuel(calls.fuel_max),
            share(calls.fuel_max, calls.fuel_limit),
            counts(&calls.limit_hits),
            counts(&calls.outcomes),
        ]
    };
    let header =
        ["FUNCTION", "CALLS", "FAILED", "P50", "P99", "FUEL P99", "FUEL MAX", "OF LIMIT", "LIMITS HIT", "OUTCOMES"];
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(calls.iter().map(row)).collect();
    shown(rows, wide)
}

/// The last failure of each function, with the text of a panic.
fn failures(calls: &[Calls], now: Timestamp) -> Vec<String> {
    let failure = |calls: &Calls| {
        let FailedCall { code, message, time, succeeded_since } = calls.last_failure.as_ref()?;
        let when = time.as_ref().map(|time| format!(" {} ago", ago(time, now))).unwrap_or_default();
        let since = if *succeeded_since { " (a call has succeeded since)" } else { "" };
        Some(line("failed", &format!("{}{when}{since}: {code}: {message}", calls.function)))
    };
    let lines: Vec<_> = calls.iter().filter_map(failure).collect();
    if lines.is_empty() { lines } else { [vec![String::new()], lines].concat() }
}

/// The last column is only in the wide output.
fn shown<const COLUMNS: usize>(mut rows: Vec<[String; COLUMNS]>, wide: bool) -> Vec<String> {
    if !wide {
        rows.iter_mut().filter_map(|row| row.last_mut()).for_each(String::clear);
    }
    table(&rows).into_iter().map(|line| format!("  {line}")).collect()
}

/// `fuel 2, logLines 1`; `-` for none.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "-".to_owned();
    }
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// As a percentage with one decimal.
fn share(part: u64, whole: u64) -> String {
    match part.saturating_mul(1_000) / whole.max(1) {
        0 if part > 0 => "<0.1%".to_owned(),
        thousandths => format!("{}.{}%", thousandths / 10, thousandths % 10),
    }
}

fn ago(since: &Time, now: Timestamp) -> String {
    age(now.as_second().saturating_sub(since.0.as_second()))
}
