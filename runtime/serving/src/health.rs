//! Health endpoints: named checks, with the answers of Kubernetes' components.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use http::StatusCode;
use percent_encoding::percent_decode_str;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::line_rate::LineRate;

/// A check. Its note is sent to the client; its error is written to the log and never sent.
type Check = Arc<dyn Fn() -> Result<Option<String>, String> + Send + Sync>;

/// One named check.
#[derive(Clone)]
pub struct HealthCheck {
    name: String,
    check: Check,
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthCheck").field(&self.name).finish()
    }
}

impl HealthCheck {
    /// A check with this name. The check must not block or send requests.
    pub fn new(name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self::with_note(name, move || check().map(|()| None))
    }

    /// A check whose success may have a note, which `?verbose` shows to every client: one or two
    /// words of ours, and no text of a guest or a cloud. As [`Self::new`], it must not block.
    pub fn with_note(
        name: impl Into<String>,
        check: impl Fn() -> Result<Option<String>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), check: Arc::new(check) }
    }

    /// A check that always succeeds, which shows that the process answers.
    pub fn ping(name: impl Into<String>) -> Self {
        Self::new(name, || Ok(()))
    }
}

/// The checks of one endpoint. Cloning shares them; they may change while they are served.
#[derive(Clone, Debug, Default)]
pub struct HealthChecks(Arc<RwLock<Vec<HealthCheck>>>);

impl HealthChecks {
    /// A list with these checks.
    pub fn new(checks: impl IntoIterator<Item = HealthCheck>) -> Self {
        let all = Self::default();
        all.add(checks);
        all
    }

    /// Adds checks. A check replaces one with the same name.
    pub fn add(&self, checks: impl IntoIterator<Item = HealthCheck>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for check in checks {
            match all.iter_mut().find(|old| old.name == check.name) {
                Some(old) => *old = check,
                None => all.push(check),
            }
        }
    }

    /// Replaces all checks.
    pub fn replace(&self, checks: impl IntoIterator<Item = HealthCheck>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.add(checks);
    }

    fn all(&self) -> Vec<HealthCheck> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        // Upstream's default check.
        if all.is_empty() { vec![HealthCheck::ping("ping")] } else { all }
    }

    /// Runs the checks; returns `name: reason` of each that fails. A reason never goes to a client.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failure = |HealthCheck { name, check }| Some(format!("{name}: {}", check().err()?));
        self.all().into_iter().filter_map(failure).collect()
    }

    /// Runs the checks. `endpoint` is its name without a slash, `query` the request's.
    pub(crate) fn answer(&self, endpoint: &'static str, query: &str, metrics: &HealthMetrics) -> (StatusCode, String) {
        let mut excluded = excluded(query);
        let (mut lines, mut failed) = (String::new(), Vec::new());
        let mut line = |text: fmt::Arguments<'_>| lines.push_str(&text.to_string());
        let all = self.all();
        metrics.keep(endpoint, all.iter().map(|check| check.name.clone()).collect());
        for HealthCheck { name, check } in all {
            if excluded.remove(&name) {
                line(format_args!("[+]{name} excluded: ok\n"));
                continue;
            }
            let outcome = check();
            metrics.observe(&name, endpoint, outcome.is_ok());
            match outcome {
                Ok(None) => line(format_args!("[+]{name} ok\n")),
                Ok(Some(note)) => line(format_args!("[+]{name} ok: {note}\n")),
                Err(reason) => {
                    line(format_args!("[-]{name} failed: reason withheld\n"));
                    failed.push(format!("{name}: {reason}"));
                }
            }
        }
        if !excluded.is_empty() {
            let names: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
            line(format_args!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(", ")));
        }
        if !failed.is_empty() {
            if let Some(left_out) = metrics.lines.take() {
                tracing::info!("/{endpoint} fails: {}{left_out}", failed.join("; "));
            }
            return (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n"));
        }
        let verbose = pairs(query).any(|(key, _)| key == "verbose");
        (StatusCode::OK, if verbose { format!("{lines}{endpoint} check passed\n") } else { "ok".to_owned() })
    }
}

/// The values of `exclude=` in the query.
fn excluded(query: &str) -> BTreeSet<String> {
    pairs(query).filter(|(key, _)| key == "exclude").map(|(_, value)| value).collect()
}

fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key), decoded(value))
    })
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    name: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    name: String,
    r#type: &'static str,
    status: &'static str,
}

/// The metrics of `/metrics/slis`: the last outcome of each check, and the count of outcomes.
#[derive(Clone, Debug, Default)]
pub struct HealthMetrics {
    last: Family<CheckLabels, Gauge>,
    outcomes: Family<OutcomeLabels, Counter>,
    /// The names of the checks, by endpoint.
    names: Arc<Mutex<BTreeMap<&'static str, BTreeSet<String>>>>,
    lines: Arc<LineRate>,
}

impl HealthMetrics {
    /// Creates the metrics and registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Whether the last run of the health check succeeded";
        registry.register("kubernetes_healthcheck", help, metrics.last.clone());
        registry.register("kubernetes_healthchecks", "Count of health checks by outcome", metrics.outcomes.clone());
        metrics
    }

    /// Removes the series of checks that are gone, for example of a provider.
    fn keep(&self, endpoint: &'static str, names: BTreeSet<String>) {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.insert(endpoint, names.clone()).unwrap_or_default();
        for name in before.difference(&names) {
            self.last.remove(&CheckLabels { name: name.clone(), r#type: endpoint });
            for status in ["success", "error"] {
                self.outcomes.remove(&OutcomeLabels { name: name.clone(), r#type: endpoint, status });
            }
        }
    }

    fn observe(&self, name: &str, endpoint: &'static str, well: bool) {
        let labels = CheckLabels { name: name.to_owned(), r#type: endpoint };
        self.last.get_or_create(&labels).set(well.into());
        let status = if well { "success" } else { "error" };
        let labels = OutcomeLabels { name: name.to_owned(), r#type: endpoint, status };
        self.outcomes.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests;
