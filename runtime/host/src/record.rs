//! One [`CallRecord`] for each call, with its outcome and its cost, published as log line,
//! Prometheus metrics and broadcast.
//!
//! Labels are bounded: provider, function, outcome and limit are closed sets; never a URL, an
//! object or a message.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use serde_json::Value;
use skysail_provider::{Code, Limit, LimitHit, ObjectReference};
use tokio::sync::{broadcast, mpsc};
use tracing::Span;

use crate::{
    Fault,
    disturbance::Disturber,
    http_client::NotedRequest,
    profile::Profile,
    recording::{Recording, Redact, RuleError},
    series::SeriesByProvider,
    symbols::{SymbolFiles, Symbols},
    world::World,
};

/// Records that are buffered for a slow subscriber before it loses the oldest: a few seconds of a
/// busy controller.
pub const RECORDS_BUFFERED_MAX: usize = 256;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The call returned a result.
    Ok,
    /// With an error: of the guest, of the sandbox, or because the result breaks the contract. If
    /// the contract returns a list of results, an error in the list concerns one entry and the call
    /// is `Ok`.
    Failed {
        /// Decides what the caller does.
        code: Code,
        /// The text for people.
        message: String,
    },
    /// The caller dropped the call before there was a result.
    Cancelled,
}

impl CallOutcome {
    /// `Ok`, `Cancelled`, or the code's category: metric label and log field.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Ok => "Ok",
            Self::Failed { code, message: _ } => code.category(),
            Self::Cancelled => "Cancelled",
        }
    }
}

/// The HTTP usage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HttpUse {
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes of their headers and bodies.
    pub bytes_sent: u64,
    /// Bytes of the responses' headers and bodies, as the guest received them.
    pub bytes_received: u64,
    /// Time spent waiting for HTTP; requests in parallel count once.
    pub time: Duration,
    /// The largest number of requests that were in flight at once.
    pub in_flight_max: u32,
}

/// One call of a provider: its outcome and its cost.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Name of the provider in the provider file.
    pub provider: Arc<str>,
    /// Digest of the called release.
    pub digest: Arc<str>,
    /// Interface and function of the contract: `load-balancers.ensure`.
    pub function: &'static str,
    /// The object that the call was about.
    pub object: Option<ObjectReference>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// Who caused the failure; none if the failure needs no action.
    pub fault: Option<Fault>,
    /// CPU work, in fuel units. For a call that was cancelled or reached its deadline: the fuel
    /// used up to its last host call.
    pub fuel: u64,
    /// Wall time from start to end of the call, including the time waiting for a place.
    pub wall: Duration,
    /// Time that the call waited until fewer than `concurrentCalls` calls of its provider ran.
    pub waited: Duration,
    /// CPU time, of the guest and of the host for it.
    pub cpu: Duration,
    /// Time inside the guest's code.
    pub guest: Duration,
    /// HTTP usage.
    pub http: HttpUse,
    /// The last requests, refused ones included, at most
    /// [`crate::http_client::REQUESTS_NOTED_MAX`].
    pub requests: Vec<NotedRequest>,
    /// Peak linear memory, in bytes, summed over all memories.
    pub memory_peak: u64,
    /// Log lines kept.
    pub log_lines: u64,
    /// Log lines dropped because a limit was met.
    pub log_lines_dropped: u64,
    /// Events passed on for publication.
    pub events: u64,
    /// Events dropped: a limit was reached, or this call has no event sink.
    pub events_dropped: u64,
    /// Limits that were reached, whether they ended the call or only refused something; each once,
    /// with the largest usage.
    pub limits_hit: Vec<LimitHit>,
    /// The whole call, where calls are recorded ([`CallRecorder::recording`]) and this one had a
    /// guest.
    pub recording: Option<Arc<Recording>>,
}

impl CallRecord {
    /// A call that has used nothing.
    #[must_use]
    pub fn new(provider: Arc<str>, digest: Arc<str>, function: &'static str, outcome: CallOutcome) -> Self {
        Self {
            provider,
            digest,
            function,
            object: None,
            outcome,
            fault: None,
            fuel: 0,
            wall: Duration::ZERO,
            waited: Duration::ZERO,
            cpu: Duration::ZERO,
            guest: Duration::ZERO,
            http: HttpUse::default(),
            requests: Vec::new(),
            memory_peak: 0,
            log_lines: 0,
            log_lines_dropped: 0,
            events: 0,
            events_dropped: 0,
            limits_hit: Vec::new(),
            recording: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    provider: String,
    function: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FunctionLabels {
    provider: String,
    function: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    provider: String,
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

/// The metrics of provider calls. Cloning shares them; the default is not registered anywhere.
#[derive(Clone, Debug)]
pub struct CallMetrics {
    calls: Family<CallLabels, Counter>,
    release_faults: Family<FunctionLabels, Counter>,
    duration: Family<FunctionLabels, Histogram>,
    cpu_time: Family<FunctionLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    guest_time: Family<FunctionLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    fuel: Family<FunctionLabels, Counter>,
    memory_peak: Family<FunctionLabels, Histogram>,
    limits: Family<LimitLabels, Counter>,
    http_requests: Family<ProviderLabels, Counter>,
    http_sent: Family<ProviderLabels, Counter>,
    http_received: Family<ProviderLabels, Counter>,
    http_time: Family<ProviderLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    log_lines: Family<ProviderLabels, Counter>,
    log_lines_dropped: Family<ProviderLabels, Counter>,
    events: Family<ProviderLabels, Counter>,
    events_dropped: Family<ProviderLabels, Counter>,
    running: Family<ProviderLabels, Gauge>,
    /// The names of the providers, with the functions that were called.
    providers: SeriesByProvider<&'static str>,
}

impl Default for CallMetrics {
    fn default() -> Self {
        // From an empty call (20 microseconds) to the longest realistic deadline.
        let seconds = || Histogram::new([0.0001, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0]);
        let bytes =
            || Histogram::new([18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30].map(|bits| f64::from(1_u32 << bits)));
        Self {
            calls: Family::default(),
            release_faults: Family::default(),
            duration: Family::new_with_constructor(seconds),
            cpu_time: Family::default(),
            guest_time: Family::default(),
            fuel: Family::default(),
            memory_peak: Family::new_with_constructor(bytes),
            limits: Family::default(),
            http_requests: Family::default(),
            http_sent: Family::default(),
            http_received: Family::default(),
            http_time: Family::default(),
            log_lines: Family::default(),
            log_lines_dropped: Family::default(),
            events: Family::default(),
            events_dropped: Family::default(),
            running: Family::default(),
            providers: SeriesByProvider::default(),
        }
    }
}

impl CallMetrics {
    /// Creates the metrics and registers them under `skysail_provider_…`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let r = registry.sub_registry_with_prefix("skysail_provider");
        r.register("calls", "Count of provider calls by outcome", metrics.calls.clone());
        r.register(
            "release_faults",
            "Count of provider calls that failed because of a fault of the release",
            metrics.release_faults.clone(),
        );
        r.register_with_unit("call_duration", "Wall time of provider calls", Unit::Seconds, metrics.duration.clone());
        r.register_with_unit("cpu_time", "CPU time of provider calls", Unit::Seconds, metrics.cpu_time.clone());
        r.register_with_unit("guest_time", "Time inside guest code", Unit::Seconds, metrics.guest_time.clone());
        r.register("fuel", "Count of fuel units used by guests", metrics.fuel.clone());
        r.register_with_unit(
            "memory_peak",
            "Peak linear memory of provider calls",
            Unit::Bytes,
            metrics.memory_peak.clone(),
        );
        r.register("limit_hits", "Count of provider calls that reached a limit of the sandbox", metrics.limits.clone());
        r.register("http_requests", "Count of HTTP requests sent for guests", metrics.http_requests.clone());
        r.register_with_unit("http_sent", "Count of HTTP bytes sent", Unit::Bytes, metrics.http_sent.clone());
        r.register_with_unit(
            "http_received",
            "Count of HTTP bytes received",
            Unit::Bytes,
            metrics.http_received.clone(),
        );
        r.register_with_unit("http_time", "Time that calls waited for HTTP", Unit::Seconds, metrics.http_time.clone());
        r.register("log_lines", "Count of log lines of guests that were written", metrics.log_lines.clone());
        r.register(
            "log_lines_dropped",
            "Count of log lines of guests that were dropped",
            metrics.log_lines_dropped.clone(),
        );
        r.register(
            "events",
            "Count of Kubernetes Events that providers emitted and that were passed on for publication",
            metrics.events.clone(),
        );
        r.register(
            "events_dropped",
            "Count of Kubernetes Events that providers emitted and that were dropped, because a call emitted too many",
            metrics.events_dropped.clone(),
        );
        r.register("calls_running", "Provider calls that run now", metrics.running.clone());
        metrics
    }

    pub(crate) fn running(&self, provider: &str) -> Gauge {
        self.running.get_or_create_owned(&ProviderLabels { provider: provider.to_owned() })
    }

    /// One more sandbox of this name; see [`Self::release`].
    pub(crate) fn keep(&self, provider: &Arc<str>) {
        self.providers.keep(provider);
    }

    /// One sandbox of this name fewer: no call of it runs any more. The last one removes the
    /// provider's series.
    pub(crate) fn release(&self, provider: &str) {
        self.providers.release(provider, |functions| self.remove(provider, functions));
    }

    fn remove(&self, provider: &str, functions: BTreeSet<&'static str>) {
        let outcomes = || Code::ALL.into_iter().map(Code::category).chain(["Ok", "Cancelled"]);
        for function in functions {
            for outcome in outcomes() {
                self.calls.remove(&CallLabels { provider: provider.to_owned(), function, outcome });
            }
            let labels = FunctionLabels { provider: provider.to_owned(), function };
            self.release_faults.remove(&labels);
            self.duration.remove(&labels);
            self.cpu_time.remove(&labels);
            self.guest_time.remove(&labels);
            self.fuel.remove(&labels);
            self.memory_peak.remove(&labels);
        }
        for limit in Limit::ALL {
            self.limits.remove(&LimitLabels { provider: provider.to_owned(), limit: limit.name() });
        }
        let labels = ProviderLabels { provider: provider.to_owned() };
        for family in [&self.http_requests, &self.http_sent, &self.http_received] {
            family.remove(&labels);
        }
        self.http_time.remove(&labels);
        for family in [&self.log_lines, &self.log_lines_dropped, &self.events, &self.events_dropped] {
            family.remove(&labels);
        }
        self.running.remove(&labels);
    }

    fn observe(&self, record: &CallRecord) {
        self.providers.note(&record.provider, record.function);
        let provider = record.provider.to_string();
        let call =
            CallLabels { provider: provider.clone(), function: record.function, outcome: record.outcome.category() };
        self.calls.get_or_create(&call).inc();
        let function = FunctionLabels { provider: provider.clone(), function: record.function };
        if record.fault == Some(Fault::Release) {
            self.release_faults.get_or_create(&function).inc();
        }
        self.duration.get_or_create(&function).observe(record.wall.as_secs_f64());
        self.cpu_time.get_or_create(&function).inc_by(record.cpu.as_secs_f64());
        self.guest_time.get_or_create(&function).inc_by(record.guest.as_secs_f64());
        self.fuel.get_or_create(&function).inc_by(record.fuel);
        #[expect(clippy::cast_precision_loss, reason = "a histogram bucket needs no exact byte")]
        self.memory_peak.get_or_create(&function).observe(record.memory_peak as f64);
        for hit in &record.limits_hit {
            self.limits.get_or_create(&LimitLabels { provider: provider.clone(), limit: hit.limit.name() }).inc();
        }
        let labels = ProviderLabels { provider };
        self.http_requests.get_or_create(&labels).inc_by(record.http.requests);
        self.http_sent.get_or_create(&labels).inc_by(record.http.bytes_sent);
        self.http_received.get_or_create(&labels).inc_by(record.http.bytes_received);
        self.http_time.get_or_create(&labels).inc_by(record.http.time.as_secs_f64());
        self.log_lines.get_or_create(&labels).inc_by(record.log_lines);
        self.log_lines_dropped.get_or_create(&labels).inc_by(record.log_lines_dropped);
        self.events.get_or_create(&labels).inc_by(record.events);
        self.events_dropped.get_or_create(&labels).inc_by(record.events_dropped);
    }
}

/// Publishes the [`CallRecord`] of each call of each provider, as metrics and to observers. Clones
/// publish to the same metrics and observers.
#[derive(Clone, Debug)]
pub struct CallRecorder {
    metrics: CallMetrics,
    observers: broadcast::Sender<Arc<CallRecord>>,
    worlds: Worlds,
    /// None in a manager.
    symbols: Option<Arc<SymbolFiles>>,
    /// None in a manager.
    profile: Option<Arc<Profile>>,
}

/// Which world the calls have.
#[derive(Clone, Debug)]
enum Worlds {
    Live,
    /// Recorded, and a request may be disturbed.
    Recorded(Redact, Disturber),
    /// Recorded; the recordings of failed calls go there.
    Failures(Redact, mpsc::Sender<Arc<Recording>>),
    Replayed(Arc<Recording>, Redact),
}

impl Default for CallRecorder {
    fn default() -> Self {
        Self::new(CallMetrics::default())
    }
}

impl CallRecorder {
    /// Records into these metrics.
    #[must_use]
    pub fn new(metrics: CallMetrics) -> Self {
        let observers = broadcast::Sender::new(RECORDS_BUFFERED_MAX);
        Self { metrics, observers, worlds: Worlds::Live, symbols: None, profile: None }
    }

    /// The same, and the errors of calls name the functions of a component whose names are in these
    /// files.
    #[must_use]
    pub fn with_symbols(self, files: Arc<SymbolFiles>) -> Self {
        Self { symbols: Some(files), ..self }
    }

    /// The same, with the symbols of another recorder.
    #[must_use]
    pub fn with_symbols_of(self, other: &Self) -> Self {
        Self { symbols: other.symbols.clone(), ..self }
    }

    /// The same, and calls are added to this profile. They take several times as long.
    #[must_use]
    pub fn profiled(self, profile: Arc<Profile>) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// The profile to which a call of this function belongs.
    pub(crate) fn profile(&self, function: &str) -> Option<&Profile> {
        self.profile.as_deref().filter(|profile| profile.is_of(function))
    }

    /// The names of a component's functions, if they are known.
    pub(crate) fn symbols(&self, component: &str) -> Option<Arc<Symbols>> {
        self.symbols.as_ref()?.of(component)
    }

    /// The same, and each [`CallRecord`] has a recording of its call, without what the rules leave
    /// out.
    #[must_use]
    pub fn recording(self, redact: Redact) -> Self {
        self.disturbed_by(Disturber::default(), redact)
    }

    /// As [`Self::recording`], and the disturber may let a request fail.
    #[must_use]
    pub fn disturbed_by(self, disturber: Disturber, redact: Redact) -> Self {
        Self { worlds: Worlds::Recorded(redact, disturber), ..self }
    }

    /// The same, and the recording of each call that somebody has to act on ([`CallRecord::fault`])
    /// goes to `failed`. If the receiver is slow, recordings are lost: calls wait for nobody.
    #[must_use]
    pub fn recording_failures(self, redact: Redact, failed: mpsc::Sender<Arc<Recording>>) -> Self {
        Self { worlds: Worlds::Failures(redact, failed), ..self }
    }

    /// The same, but each call has the world of this recording: its clocks, its cache, its answers
    /// to requests. No request leaves the process. Each [`CallRecord`] has a recording, too.
    ///
    /// # Errors
    /// A rule of the recording's redaction cannot be used.
    pub fn replaying(self, recording: Arc<Recording>) -> Result<Self, RuleError> {
        let redact = Redact::parse(&recording.redact)?;
        Ok(Self { worlds: Worlds::Replayed(recording, redact), ..self })
    }

    /// The world of a new call.
    pub(crate) fn world(&self, arguments: &dyn Fn() -> Value) -> World {
        match &self.worlds {
            Worlds::Live => World::Live,
            Worlds::Recorded(redact, disturber) => World::recorded(redact.clone(), disturber.clone(), arguments()),
            Worlds::Failures(redact, _) => World::recorded(redact.clone(), Disturber::default(), arguments()),
            Worlds::Replayed(recording, redact) => World::replayed(Arc::clone(recording), redact.clone(), arguments()),
        }
    }

    /// Subscribes to all future records; a subscriber that lags by more than
    /// [`RECORDS_BUFFERED_MAX`] records loses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<CallRecord>> {
        self.observers.subscribe()
    }

    pub(crate) const fn metrics(&self) -> &CallMetrics {
        &self.metrics
    }

    /// Takes what was recorded of a call that ends with this record, if anybody wants it.
    pub(crate) fn keep(&self, record: &mut CallRecord, recording: impl FnOnce(&CallRecord) -> Option<Recording>) {
        match &self.worlds {
            Worlds::Live => {}
            Worlds::Recorded(..) | Worlds::Replayed(..) => record.recording = recording(record).map(Arc::new),
            // Not with the record, whose subscribers would hold hundreds of recordings in memory.
            Worlds::Failures(_, failed) => {
                if record.fault.is_some()
                    && let Ok(place) = failed.try_reserve()
                    && let Some(recording) = recording(record)
                {
                    place.send(Arc::new(recording));
                }
            }
        }
    }

    pub(crate) fn record(&self, record: CallRecord) {
        self.metrics.observe(&record);
        log_call(&record);
        note_in_span(&record);
        if self.observers.receiver_count() > 0 {
            #[expect(clippy::let_underscore_must_use, reason = "the last observer may go at any time")]
            let _ = self.observers.send(Arc::new(record));
        }
    }
}

/// One log line for each call: a fault of the release or of the machine is a warning, everything
/// else is for debugging.
fn log_call(record: &CallRecord) {
    macro_rules! event {
        ($level:expr, $text:expr, $($error:tt)*) => {
            tracing::event!(
                $level,
                provider.name = &*record.provider,
                provider.operation = record.function,
                component.digest = &*record.digest,
                call.outcome = record.outcome.category(),
                call.fuel = record.fuel,
                call.wall_us = micros(record.wall),
                call.waited_us = micros(record.waited),
                call.cpu_us = micros(record.cpu),
                call.guest_us = micros(record.guest),
                call.http_us = micros(record.http.time),
                call.http_requests = record.http.requests,
                call.http_sent_bytes = record.http.bytes_sent,
                call.http_received_bytes = record.http.bytes_received,
                call.memory_peak_bytes = record.memory_peak,
                call.log_lines = record.log_lines,
                call.log_lines_dropped = record.log_lines_dropped,
                call.events = record.events,
                call.events_dropped = record.events_dropped,
                $($error)*
                $text
            )
        };
    }
    match &record.outcome {
        CallOutcome::Failed { code: _, message } if matches!(record.fault, Some(Fault::Release | Fault::Machine)) => {
            let limit = record.limits_hit.first().map_or_else(String::new, ToString::to_string);
            event!(tracing::Level::WARN, "provider call failed", call.error = %message, call.limit = %limit,);
        }
        CallOutcome::Failed { code: _, message } => {
            event!(tracing::Level::DEBUG, "provider call returned an error", call.error = %message,);
        }
        CallOutcome::Ok => event!(tracing::Level::DEBUG, "provider call done",),
        CallOutcome::Cancelled => event!(tracing::Level::DEBUG, "provider call cancelled",),
    }
}

/// Completes the span of the call, after the log line, so that the line has each field once.
fn note_in_span(record: &CallRecord) {
    let span = Span::current();
    span.record("call.fuel", record.fuel)
        .record("call.cpu_us", micros(record.cpu))
        .record("call.http_requests", record.http.requests)
        .record("call.memory_peak_bytes", record.memory_peak);
    if let CallOutcome::Failed { message, .. } = &record.outcome {
        span.record("error.type", record.outcome.category()).record("error.message", message);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
