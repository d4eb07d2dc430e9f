//! The explanation of a Service for a terminal. The texts of a cloud and a guest are untrusted, so
//! control characters are removed.

use skysail_controllers::{
    LastOutcome, LoadBalancerRecord, QueuePlace, QueueStatus, ServiceExplanation, ServiceObject, ServiceProvider,
};

use crate::{
    commands::run::ServiceDocument,
    last_calls::{LastCall, LastRequest},
    output::{age, fuel, milliseconds, plain, table},
};

/// Columns of a line's name.
const NAME_WIDTH: usize = 12;
/// Characters of a digest that are printed: as many as the conditions of a Provider have.
const DIGEST_CHARS: usize = 19;

/// The page.
pub(super) fn of(document: &ServiceDocument) -> String {
    let ServiceDocument { explanation, calls } = document;
    let ServiceExplanation {
        namespace,
        name,
        object,
        owner,
        provider,
        load_balancer,
        plan,
        paused,
        deletion_policy,
        queue,
        last_outcome,
    } = explanation;
    let mut lines = vec![format!("Service {}: {}", plain(&format!("{namespace}/{name}")), headline(explanation))];
    let owned_by = owner.provider.as_deref().unwrap_or("none");
    lines.push(line("owner", &format!("{owned_by}: {}", owner.reason)));
    lines.extend(provider.as_ref().map(works));
    lines.extend(object.as_ref().map(wanted));
    lines.extend(load_balancer.as_ref().map(made));
    lines.extend(paused.as_ref().map(|paused| line("paused", paused)));
    lines.extend(deletion_policy.as_ref().map(|policy| line("on deletion", policy)));
    lines.push(line("next step", &format!("{}: {}", plan.step, plan.reason)));
    lines.extend(queue.as_ref().map(next_run));
    lines.push(last_outcome.as_ref().map_or_else(|| line("last run", "none since the manager started"), last_run));
    lines.push(String::new());
    lines.extend(calls_of(calls));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A line with a label.
fn line(name: &str, text: &str) -> String {
    format!("  {name:NAME_WIDTH$}{}", plain(text))
}

/// Whether nothing is left to do for the Service, or another controller serves it.
pub(super) fn is_settled(explanation: &ServiceExplanation) -> bool {
    let ServiceExplanation { object, owner, plan, paused, last_outcome, .. } = explanation;
    let failed = last_outcome.as_ref().is_some_and(|outcome| outcome.message.is_some());
    object.as_ref().is_some_and(|object| match owner.provider {
        None => !object.ingress.is_empty() && !object.deleting && plan.step == "Nothing",
        Some(_) => !object.deleting && paused.is_none() && !failed && plan.step == "Nothing",
    })
}

/// The state in a few words.
fn headline(explanation: &ServiceExplanation) -> String {
    let ServiceExplanation { object, owner, plan, paused, queue, last_outcome, .. } = explanation;
    let failed = last_outcome.as_ref().is_some_and(|outcome| outcome.message.is_some());
    let waits = queue.as_ref().and_then(|queue| queue.due_in_ms).map(|due| format!("next run in {}", seconds(due)));
    let queued = match queue.as_ref().map(|queue| queue.place) {
        Some(QueuePlace::Running) => Some("a run is in progress".to_owned()),
        Some(QueuePlace::Ready) => Some("waits for a worker".to_owned()),
        Some(QueuePlace::Waiting) => waits,
        Some(QueuePlace::Absent) | None => None,
    };
    let state = match object {
        None => "deleted",
        Some(object) if object.deleting && paused.is_some() => "paused, and is being deleted",
        Some(_) if paused.is_some() => "paused",
        Some(object) if object.deleting => "is being deleted",
        Some(object) if !object.wants_load_balancer => "wants no load balancer",
        Some(_) if owner.provider.is_none() => "no provider owns it",
        Some(_) if plan.step == "Refuse" => "invalid",
        Some(_) if failed => "failed",
        Some(_) if plan.step == "Nothing" => "up to date",
        Some(_) => "has a step to do",
    };
    queued.map_or_else(|| state.to_owned(), |queued| format!("{state}, {queued}"))
}

fn works(provider: &ServiceProvider) -> String {
    let ServiceProvider { name, release, exports_load_balancers, nodes } = provider;
    let release = release.as_deref().unwrap_or("no release serves, so each call fails with NotServing");
    let without = if *exports_load_balancers == Some(false) { ", without the interface load-balancers" } else { "" };
    let nodes = nodes.map_or_else(|| "its nodes are not decided".to_owned(), |nodes| format!("nodes: {nodes}"));
    line("provider", &format!("{name}: {release}{without}; {nodes}"))
}

fn wanted(object: &ServiceObject) -> String {
    let ServiceObject { uid: _, wants_load_balancer: _, class, deleting: _, finalizers, named_provider, ingress } =
        object;
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let class = class.as_ref().map(|class| format!("; class: {class}")).unwrap_or_default();
    let named = named_provider.as_ref().map(|name| format!("; annotation names: {name}")).unwrap_or_default();
    line("object", &format!("addresses: {}; finalizers: {}{class}{named}", list(ingress), list(finalizers)))
}

fn made(record: &LoadBalancerRecord) -> String {
    let LoadBalancerRecord { provider, provider_exists, state, explanation, nodes, ingress, status_written } = record;
    let removed = if *provider_exists { "" } else { " (removed)" };
    let nodes = nodes.as_ref().map(|nodes| format!("; nodes: {nodes}")).unwrap_or_default();
    let ingress = ingress.as_ref().map(|ingress| format!("; addresses: {}", ingress.join(", "))).unwrap_or_default();
    let unwritten = if *status_written == Some(false) { ", not in the status yet" } else { "" };
    line("state", &format!("{state} at {provider}{removed}: {explanation}{nodes}{ingress}{unwritten}"))
}

fn next_run(queue: &QueueStatus) -> String {
    let QueueStatus { place, since_ms, due_in_ms, explanation, failures, api_failures, denied: _ } = queue;
    let when = match (place, due_in_ms, since_ms) {
        (QueuePlace::Waiting, Some(0), _) => "is due".to_owned(),
        (QueuePlace::Waiting, Some(due), _) => format!("in {}", seconds(*due)),
        (QueuePlace::Running, _, Some(since)) => format!("began {} ago", seconds(*since)),
        (QueuePlace::Ready, _, Some(since)) => format!("is due since {}", seconds(*since)),
        _ => "none is planned".to_owned(),
    };
    let count = |number: u32, what: &str| if number == 0 { String::new() } else { format!("; {what}: {number}") };
    let failures =
        count(*failures, "failures in a row") + &count(*api_failures, "failures of the Kubernetes API in a row");
    line("next run", &format!("{when}; {explanation}{failures}"))
}

fn last_run(outcome: &LastOutcome) -> String {
    let LastOutcome { ago_ms, provider, step, code, message } = outcome;
    let message = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    line("last run", &format!("{} ago, {step} by {provider}: {code}{message}", seconds(*ago_ms)))
}

fn calls_of(calls: &[LastCall]) -> Vec<String> {
    if calls.is_empty() {
        return vec![
            "  No call about this Service since the manager started, or newer calls of others took its place."
                .to_owned(),
        ];
    }
    let header = ["LAST CALLS", "AGO", "OUTCOME", "TIME", "FUEL", "REQUESTS", "PROVIDER", "RELEASE"].map(str::to_owned);
    let row = |call: &LastCall| {
        [
            call.function.clone(),
            seconds(call.ago_ms),
            call.outcome.clone(),
            milliseconds(call.duration_ms),
            fuel(call.fuel),
            call.requests_sent.to_string(),
            call.provider.clone(),
            call.digest.chars().take(DIGEST_CHARS).collect(),
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(calls.iter().map(row)).collect();
    let mut printed = table(&rows).into_iter();
    let mut lines: Vec<String> = printed.next().map(|head| format!("  {head}")).into_iter().collect();
    for (row, call) in printed.zip(calls) {
        lines.push(format!("  {row}"));
        lines.extend(call.message.as_ref().map(|message| format!("    {}", plain(message))));
        lines.extend(call.requests.iter().map(|request| format!("    {}", plain(&request_line(request)))));
    }
    lines
}

fn request_line(request: &LastRequest) -> String {
    let LastRequest { method, url, status, failure, duration_ms } = request;
    let url = if url.is_empty() { "(an invalid URL)" } else { url };
    let end = status.map(|status| status.to_string()).or_else(|| failure.clone()).unwrap_or_default();
    format!("{method} {url}: {end}, {}", milliseconds(*duration_ms))
}

/// Milliseconds as an age, rounded up.
fn seconds(milliseconds: u64) -> String {
    age(i64::try_from(milliseconds.div_ceil(1_000)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
