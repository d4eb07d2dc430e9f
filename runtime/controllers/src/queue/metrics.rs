//! The metrics of the work queues: client-go's names, buckets and meanings, with the provider as an
//! additional label.
//!
//! Events are counted when they happen. The content of a queue is read at each scrape; client-go
//! records it twice a second.

use std::{
    collections::BTreeMap,
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};

use super::WorkQueue;

/// Client-go's ten buckets: 10 ns, each ten times the one before.
const BUCKETS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// Upstream's name of a queue, and its provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(crate) struct QueueLabels {
    pub(crate) name: &'static str,
    pub(crate) provider: String,
}

/// The counters of one queue.
#[derive(Debug)]
pub(super) struct Counts {
    /// Keys that became ready, or were added again while they ran.
    pub(super) adds: Counter,
    /// Keys that are retried after a failure.
    pub(super) retries: Counter,
    /// Time from ready to running.
    pub(super) queue_duration: Histogram,
    /// Time from running to done.
    pub(super) work_duration: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            adds: Counter::default(),
            retries: Counter::default(),
            queue_duration: histogram(),
            work_duration: histogram(),
        }
    }
}

/// The content of a queue at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Keys that are ready, or will run again.
    pub(super) depth: usize,
    /// Sum of the times that the running keys have run.
    pub(super) unfinished: Duration,
    /// Time that the longest running key has run.
    pub(super) longest: Duration,
}

/// The queues whose state the metrics report. A new queue replaces an earlier one with the same
/// labels: a manager that follows another reuses the names.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<BTreeMap<QueueLabels, Look>>>);

/// Returns `None` after the queue was dropped.
type Look = Box<dyn Fn() -> Option<Held> + Send + Sync>;

/// The metrics of all queues. Cloning is cheap and shares them.
#[derive(Clone, Debug)]
pub(crate) struct QueueMetrics {
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    queue_duration: Family<QueueLabels, Histogram>,
    work_duration: Family<QueueLabels, Histogram>,
    watched: Watched,
}

impl QueueMetrics {
    /// Creates the metrics and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: Family::new_with_constructor(histogram),
            work_duration: Family::new_with_constructor(histogram),
            watched: Watched::default(),
        };
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// A new queue that counts under these labels; without labels its counters are not exported.
    pub(crate) fn queue<K: Clone + Eq + Hash + Send + 'static>(
        &self,
        labels: Option<QueueLabels>,
    ) -> Arc<WorkQueue<K>> {
        let Some(labels) = labels else {
            return Arc::new(WorkQueue::counting(Counts::default()));
        };
        let counts = Counts {
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
        };
        let queue = Arc::new(WorkQueue::counting(counts));
        let weak = Arc::downgrade(&queue);
        let look: Look = Box::new(move || weak.upgrade().map(|queue| queue.held()));
        self.watched.0.lock().unwrap_or_else(PoisonError::into_inner).insert(labels, look);
        queue
    }

    /// The provider is gone, and with it its queues.
    pub(crate) fn remove(&self, provider: &str) {
        let mut watched = self.watched.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|labels, _| {
            let stays = labels.provider != provider;
            if !stays {
                self.adds.remove(labels);
                self.retries.remove(labels);
                self.queue_duration.remove(labels);
                self.work_duration.remove(labels);
            }
            stays
        });
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let watched = self.watched.0.lock().unwrap_or_else(PoisonError::into_inner);
        // First, because reading a queue promotes due keys, which counts adds.
        let held: Vec<(&QueueLabels, Held)> =
            watched.iter().filter_map(|(labels, look)| Some((labels, look()?))).collect();
        self.encode_counts(&mut encoder)?;
        encode_held(&mut encoder, &held)
    }
}

impl QueueMetrics {
    fn encode_counts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.adds.is_empty() {
            return Ok(());
        }
        let adds = ("workqueue_adds", "Count of adds handled by a work queue");
        encode(encoder, adds, &self.adds)?;
        let retries = ("workqueue_retries", "Count of retries after a failure");
        encode(encoder, retries, &self.retries)?;
        let queue_duration =
            ("workqueue_queue_duration_seconds", "Time that an item stays in a work queue before it is worked on");
        encode(encoder, queue_duration, &self.queue_duration)?;
        let work_duration = ("workqueue_work_duration_seconds", "Time that the work on an item takes");
        encode(encoder, work_duration, &self.work_duration)
    }
}

fn encode_held(encoder: &mut DescriptorEncoder<'_>, held: &[(&QueueLabels, Held)]) -> fmt::Result {
    if held.is_empty() {
        return Ok(());
    }
    let depth = ("workqueue_depth", "Count of items that wait in a work queue");
    gauge(encoder, depth, held, |held| held.depth)?;
    let unfinished = (
        "workqueue_unfinished_work_seconds",
        "Sum of the times that the items in work have been worked on; a value that only grows indicates a stuck item",
    );
    gauge(encoder, unfinished, held, |held| held.unfinished.as_secs_f64())?;
    let longest =
        ("workqueue_longest_running_processor_seconds", "Time that the longest running item has been worked on");
    gauge(encoder, longest, held, |held| held.longest.as_secs_f64())
}

fn encode(encoder: &mut DescriptorEncoder<'_>, (name, help): (&str, &str), metric: &impl EncodeMetric) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    held: &[(&QueueLabels, Held)],
    value: fn(&Held) -> V,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    held.iter().try_for_each(|(labels, held)| ConstGauge::new(value(held)).encode(family.encode_family(*labels)?))
}

#[cfg(test)]
mod tests;
