//! Kubernetes Events about objects, with the counts and limits of client-go.
//!
//! The Events are of core/v1, as upstream's controllers write them: equal Events share one object
//! whose count grows, so `kubectl describe` shows "x12 over 5m". kube's own recorder writes
//! events.k8s.io/v1, keeps a map without a bound and loses the first text of a series; so this
//! module uses `Api` directly.
//!
//! # Guarantees
//! - `emit` never blocks: the queue holds [`QUEUE_MAX`] notices; a notice that does not fit is
//!   dropped and counted.
//! - Memory is bounded by [`SERIES_MAX`].
//! - A "begin" notice is dropped if the operation ended while the notice waited in the queue: the
//!   "end" notice contains the same information.
//! - Per source and object a burst of 25, then one in 300 s; more than 10 texts of one reason
//!   within 600 s become one series.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::api::{Api, Patch, PatchParams, PostParams};
use skysail_provider::{EventKind, ObjectReference};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    clients::Clients,
    error::{api_status, chain, is_fenced},
    metrics::ControllerMetrics,
    names::{PROVIDER_API_VERSION, PROVIDER_KIND},
};

/// Room for two thousand nodes that become ready and a thousand Services that get an address at the
/// same moment.
const QUEUE_MAX: usize = 4096;
/// Size of client-go's correlator cache.
const SERIES_MAX: usize = 4096;
/// Burst of client-go's spam filter.
const BURST: f64 = 25.0;
/// Refill interval of client-go's spam filter: one more Event each 300 s.
const REFILL: Duration = Duration::from_mins(5);
/// As client-go's aggregator: more than this many texts of one reason become one series.
const SIMILAR_MAX: usize = 10;
/// Window of client-go's aggregator.
const SIMILAR_WINDOW: Duration = Duration::from_mins(10);
/// The API refuses a longer note.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The API refuses a longer name.
const NAME_BYTES_MAX: usize = 253;
/// Tries for each write; Events are best-effort and must not accumulate. A try follows the last one
/// without a pause, which would let the queue fill: it helps after a lost connection, and the rate
/// limit of the client bounds the requests.
const TRIES: usize = 3;

/// The content of one Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The reporting component: the column `FROM` of `kubectl describe`.
    pub source: Arc<str>,
    /// The object that the Event is about.
    pub object: ObjectReference,
    /// Normal, or Warning if a person should look.
    pub kind: EventKind,
    /// Machine-readable reason in CamelCase.
    pub reason: String,
    /// Text for a person; cut at 1,024 bytes.
    pub message: String,
}

/// A notice in the queue.
pub struct Waiting {
    notice: Notice,
    /// Set for a notice about the beginning of an operation.
    begun: Option<Begun>,
}

/// A handle to the notice about the beginning of an operation.
#[derive(Clone)]
pub(crate) struct Begun(Arc<AtomicBool>);

impl Begun {
    /// Marks the operation as ended. Under load the queue holds thousands of notices; the notice
    /// about the beginning is dropped if it is still waiting.
    pub(crate) fn ended(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The sending half of the Event queue.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Waiting>,
    metrics: ControllerMetrics,
}

impl Events {
    /// Also returns the receiving half, for a [`Recorder`].
    #[must_use]
    pub fn new(metrics: ControllerMetrics) -> (Self, mpsc::Receiver<Waiting>) {
        let (queue, notices) = mpsc::channel(QUEUE_MAX);
        (Self { queue, metrics }, notices)
    }

    /// Queues the notice; returns false if the queue is full and the notice was dropped.
    pub fn emit(&self, notice: Notice) -> bool {
        self.enqueue(notice, None)
    }

    /// Queues a notice about work that begins, such as `EnsuringLoadBalancer`; [`Begun::ended`]
    /// withdraws the notice if it still waits.
    pub(crate) fn emit_beginning(&self, notice: Notice) -> Begun {
        let begun = Begun(Arc::default());
        self.enqueue(notice, Some(begun.clone()));
        begun
    }

    fn enqueue(&self, mut notice: Notice, begun: Option<Begun>) -> bool {
        cut(&mut notice.message, MESSAGE_BYTES_MAX);
        let taken = self.queue.try_send(Waiting { notice, begun }).is_ok();
        if !taken {
            self.metrics.events_dropped.inc();
        }
        taken
    }
}

/// Cuts at a character boundary.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

/// Whether a retry would get the same answer.
fn is_final(error: &kube::Error) -> bool {
    is_fenced(error) || api_status(error).is_some_and(|status| status < 500 && status != 429)
}

/// Writes what [`Events`] took.
pub struct Recorder {
    clients: Clients,
    metrics: ControllerMetrics,
    correlator: Correlator,
}

impl Recorder {
    /// Uses the clients for Events in `clients`.
    #[must_use]
    pub fn new(clients: Clients, metrics: ControllerMetrics) -> Self {
        Self { clients, metrics, correlator: Correlator::default() }
    }

    /// Writes until all senders are dropped or `stop` is cancelled; then writes only the notices
    /// that are already queued.
    pub async fn run(mut self, mut notices: mpsc::Receiver<Waiting>, stop: CancellationToken) {
        while let Some(Some(waiting)) = stop.run_until_cancelled(notices.recv()).await {
            self.record(waiting).await;
        }
        notices.close();
        while let Some(waiting) = notices.recv().await {
            self.record(waiting).await;
        }
    }

    async fn record(&mut self, Waiting { notice, begun }: Waiting) {
        if begun.is_some_and(|begun| begun.0.load(Ordering::Relaxed)) {
            return;
        }
        let Some(series) = self.correlator.correlate(notice, Instant::now()) else {
            self.metrics.events_dropped.inc();
            return;
        };
        let mut last = None;
        for _ in 0..TRIES {
            match self.write(&series).await {
                Ok(event_name) => {
                    self.metrics.events_written.inc();
                    self.correlator.written(&series, event_name);
                    return;
                }
                Err(error) if is_final(&error) => {
                    last = Some(error);
                    break;
                }
                Err(error) => last = Some(error),
            }
        }
        self.metrics.events_dropped.inc();
        if let Some(error) = last {
            let Notice { object, reason, .. } = &series.notice;
            tracing::warn!(
                object.kind,
                object.namespace,
                object.name,
                reason,
                error = chain(&error),
                "writing an Event failed; the Event is lost"
            );
        }
    }

    /// Creates the series' Event or updates its count; returns its name.
    async fn write(&self, series: &Series) -> Result<String, kube::Error> {
        let namespace = match series.notice.object.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let client = self.clients.events(series.notice.object.kind);
        let api: Api<core::Event> = Api::namespaced(client.clone(), namespace);
        if let Some(name) = &series.event_name {
            let patch = serde_json::json!({
                "count": series.count, "lastTimestamp": Time(Timestamp::now()), "message": series.notice.message,
            });
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                // The Event expired: the series continues in a new Event.
                Err(error) if api_status(&error) == Some(404) => {}
                result => return result.map(|_| name.clone()),
            }
        }
        let event = event(series, namespace, Timestamp::now());
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await.map(|_| name)
    }
}

fn event(series: &Series, namespace: &str, now: Timestamp) -> core::Event {
    let Notice { source, object, kind, reason, message } = &series.notice;
    let ObjectReference { kind: object_kind, namespace: object_namespace, name, uid } = object;
    core::Event {
        metadata: ObjectMeta {
            name: Some(event_name(name, now)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: core::ObjectReference {
            api_version: Some(api_version(object_kind).to_owned()),
            kind: Some((*object_kind).to_owned()),
            namespace: Some(object_namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(name.clone()),
            uid: Some(uid.clone()).filter(|uid| !uid.is_empty()),
            ..core::ObjectReference::default()
        },
        reason: Some(reason.clone()),
        message: Some(message.clone()),
        source: Some(core::EventSource { component: Some(source.to_string()), host: None }),
        reporting_component: Some(source.to_string()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(series.count),
        type_: Some(
            match kind {
                EventKind::Normal => "Normal",
                EventKind::Warning => "Warning",
            }
            .to_owned(),
        ),
        ..core::Event::default()
    }
}

/// The `apiVersion` of the kinds that Events are about.
fn api_version(kind: &str) -> &'static str {
    match kind {
        PROVIDER_KIND => PROVIDER_API_VERSION,
        _ => "v1",
    }
}

/// As client-go names Events: the object's name and the time in hexadecimal, cut to the length
/// limit of a name.
fn event_name(object: &str, now: Timestamp) -> String {
    let time = format!(".{:x}", now.as_nanosecond());
    let mut name = object.to_owned();
    cut(&mut name, NAME_BYTES_MAX - time.len());
    // A label of a name ends with a letter or a digit.
    name.truncate(name.trim_end_matches(['.', '-']).len());
    name + &time
}

/// A notice with the count of equal notices.
#[derive(Clone, Debug)]
struct Series {
    /// The key under which notices are counted together.
    key: Digest,
    /// The notice with the text to write.
    notice: Notice,
    count: i32,
    event_name: Option<String>,
}

/// The hash of a notice or of a part of it. The maps hold hashes because thousands of texts would
/// be megabytes.
type Digest = [u64; 2];

/// Computes [`Digest`]s with random keys, so that no author of messages can produce a collision.
#[derive(Default)]
struct Digests([RandomState; 2]);

impl Digests {
    fn of(&self, value: &impl Hash) -> Digest {
        self.0.each_ref().map(|keys| keys.hash_one(value))
    }
}

struct Known {
    event_name: Option<String>,
    count: i32,
    used: u64,
}

struct Similar {
    since: Instant,
    texts: Vec<Digest>,
    used: u64,
}

struct Tokens {
    left: f64,
    at: Instant,
    used: u64,
}

/// Decides which notices form one series and which exceed the rate. Pure: the caller passes the
/// time.
#[derive(Default)]
struct Correlator {
    digests: Digests,
    /// The series of equal notices, by the digest of a notice.
    known: HashMap<Digest, Known>,
    /// The notices that differ in their text only, by the digest of the rest.
    similar: HashMap<Digest, Similar>,
    /// The rate that is left, by the digest of source and object.
    tokens: HashMap<Digest, Tokens>,
    clock: u64,
}

impl Correlator {
    /// The series of this notice; none if its object exceeded the rate.
    fn correlate(&mut self, notice: Notice, now: Instant) -> Option<Series> {
        self.clock += 1;
        let clock = self.clock;
        self.forget_oldest();

        let source = self.digests.of(&(&notice.source, &notice.object));
        let tokens = self.tokens.entry(source).or_insert(Tokens { left: BURST, at: now, used: clock });
        tokens.left = (tokens.left + (now - tokens.at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        (tokens.at, tokens.used) = (now, clock);
        if tokens.left < 1.0 {
            return None;
        }
        tokens.left -= 1.0;

        let without_text = self.digests.of(&(&notice.source, &notice.object, notice.kind, &notice.reason));
        let fresh = Similar { since: now, texts: Vec::new(), used: clock };
        let similar = self.similar.entry(without_text).or_insert(fresh);
        if now - similar.since > SIMILAR_WINDOW {
            (similar.since, similar.texts) = (now, Vec::new());
        }
        similar.used = clock;
        let text = self.digests.of(&notice.message);
        let is_new = !similar.texts.contains(&text);
        let (key, notice) = if is_new && similar.texts.len() >= SIMILAR_MAX {
            let mut message = format!("(combined from similar events): {}", notice.message);
            cut(&mut message, MESSAGE_BYTES_MAX);
            (without_text, Notice { message, ..notice })
        } else {
            if is_new {
                similar.texts.push(text);
            }
            (self.digests.of(&notice), notice)
        };
        let known = self.known.entry(key).or_insert(Known { event_name: None, count: 0, used: clock });
        known.count = known.count.saturating_add(1);
        known.used = clock;
        Some(Series { key, notice, count: known.count, event_name: known.event_name.clone() })
    }

    fn written(&mut self, series: &Series, event_name: String) {
        if let Some(known) = self.known.get_mut(&series.key) {
            known.event_name = Some(event_name);
        }
    }

    /// Halves a map that is full: rarely, so that its cost is spread over many notices.
    fn forget_oldest(&mut self) {
        let newest_half = self.clock.saturating_sub(SERIES_MAX as u64 / 2);
        if self.known.len() >= SERIES_MAX {
            self.known.retain(|_, known| known.used > newest_half);
        }
        if self.similar.len() >= SERIES_MAX {
            self.similar.retain(|_, similar| similar.used > newest_half);
        }
        if self.tokens.len() >= SERIES_MAX {
            self.tokens.retain(|_, tokens| tokens.used > newest_half);
        }
    }
}

#[cfg(test)]
mod tests;
