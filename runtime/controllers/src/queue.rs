//! A queue of keys with delays, with the guarantees of client-go's work queue, on tokio's clock.
//!
//! # Guarantees
//! - A key is queued at most once; its earliest time wins.
//! - A key never runs twice at the same time; a key that is added while it runs, runs once more
//!   afterwards.
//! - The number of keys, and so the number of objects, bounds the size; there is no channel that
//!   could overflow.
//!
//! kube's `scheduler` takes its requests from one stream. Here several tasks add keys, and a stream
//! between them would need an unbounded channel or could block a watch. The queue does not
//! interpret keys.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use metrics::{Counts, Held};
pub(crate) use metrics::{QueueLabels, QueueMetrics};

mod metrics;

/// After this many conflicts or outages of the Kubernetes API in a row, a change of the object no
/// longer ends the backoff, which is at most 10 s. Another client may write the object each time
/// before we do: then each try, with its call to the cloud, would cause the next one.
const CONFLICTS_UNTIL_WAIT: u32 = 3;

/// When to run a key again after it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// When the key is added again.
    OnChange,
    /// After this time, or earlier when the key is added.
    After(Duration),
    /// After this time, or earlier when the key is added or nudged.
    Within(Duration),
}

/// Whether a running key has to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Again {
    No,
    Nudged,
    /// The key was added at this time.
    Added(Instant),
}

/// A running key.
#[derive(Clone, Copy)]
struct Run {
    since: Instant,
    again: Again,
    /// Whether this run ended with a conflict or an outage of the Kubernetes API, after others in a
    /// row.
    contended: bool,
}

/// The consecutive failures of a key.
#[derive(Clone, Copy, Default)]
struct Failures {
    count: u32,
    /// Conflicts and outages of the Kubernetes API in a row since the last failure of another kind.
    at_api: u32,
    /// Whether the last failure was a denial.
    denied: bool,
}

type Due = (Instant, u64);

/// What ends the wait of a delayed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The time, an add or a nudge.
    ByNudge,
    /// The time, or an add.
    ByAdd,
    /// The time alone.
    AtTime,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Neither queued nor running.
    Absent,
    /// Due, behind `before` other keys.
    Ready { since: Instant, before: usize },
    /// Running; with `again` the key runs once more afterwards.
    Running { since: Instant, again: bool },
    /// Waiting for a time, or for what ends the wait earlier.
    Delayed { until: Instant, ends: Ends },
}

/// The state of one key, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyState {
    pub(crate) place: Place,
    /// Failures in a row that make the backoff longer.
    pub(crate) failures: u32,
    /// Conflicts and outages of the Kubernetes API in a row since the last failure of another kind.
    pub(crate) failures_at_api: u32,
    /// Whether the last failure was a denial.
    pub(crate) denied: bool,
}

struct Inner<K> {
    ready: VecDeque<K>,
    ready_since: HashMap<K, Instant>,
    delayed: BTreeMap<Due, K>,
    due: HashMap<K, (Due, Ends)>,
    running: HashMap<K, Run>,
    failures: HashMap<K, Failures>,
    sequence: u64,
    counts: Counts,
}

/// See the module.
pub(crate) struct WorkQueue<K> {
    inner: Mutex<Inner<K>>,
    wake: Notify,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    fn counting(counts: Counts) -> Self {
        let inner = Inner {
            ready: VecDeque::new(),
            ready_since: HashMap::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            running: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
            counts,
        };
        Self { inner: Mutex::new(inner), wake: Notify::new() }
    }

    /// Adds a key whose object changed: the key is ready at once, even during a backoff. After
    /// [`CONFLICTS_UNTIL_WAIT`] conflicts or outages of the Kubernetes API in a row the backoff, at
    /// most 10 s, goes on.
    pub(crate) fn add(&self, key: K) {
        let mut inner = self.lock();
        if matches!(inner.due.get(&key), Some((_, Ends::AtTime))) {
            return;
        }
        let now = Instant::now();
        if inner.running.contains_key(&key) {
            inner.run_again(&key, now);
            return;
        }
        inner.undelay(&key);
        inner.make_ready(key, now);
        drop(inner);
        self.wake.notify_one();
    }

    /// Adds a key because something that its object depends on changed. A key that waits for a
    /// backoff or a retry-after ([`Next::After`]) keeps waiting and sees the change then.
    pub(crate) fn nudge(&self, key: K) {
        let mut inner = self.lock();
        if let Some(run) = inner.running.get_mut(&key) {
            run.again = run.again.max(Again::Nudged);
            return;
        }
        if matches!(inner.due.get(&key), Some((_, Ends::AtTime | Ends::ByAdd))) {
            return;
        }
        inner.undelay(&key);
        inner.make_ready(key, Instant::now());
        drop(inner);
        self.wake.notify_one();
    }

    /// Adds a key after a delay, unless it already waits for an earlier time. A running key runs
    /// once more when it ends, whatever its result: the current run may have seen the earlier
    /// state.
    pub(crate) fn add_after(&self, key: K, after: Duration) {
        let mut inner = self.lock();
        let now = Instant::now();
        if inner.running.contains_key(&key) {
            inner.run_again(&key, now);
            return;
        }
        inner.delay(key, now + after, Ends::ByAdd);
        drop(inner);
        self.wake.notify_one();
    }

    /// Waits until a key is ready, without taking it: adding a ready key again before it is taken
    /// causes no second run.
    pub(crate) async fn ready(&self) {
        loop {
            let due = {
                let mut inner = self.lock();
                inner.promote(Instant::now());
                if !inner.ready.is_empty() {
                    return;
                }
                inner.delayed.first_key_value().map(|((at, _), _)| *at)
            };
            match due {
                // Whether the task was woken or the key is due, the next round checks again.
                Some(at) => drop(timeout_at(at, self.wake.notified()).await),
                None => self.wake.notified().await,
            }
        }
    }

    /// The next key, marked as running until [`Self::done`].
    ///
    /// # Cancel safety
    /// A key is taken only in the poll that returns it.
    pub(crate) async fn next(&self) -> K {
        loop {
            self.ready().await;
            if let Some(key) = self.try_next() {
                return key;
            }
        }
    }

    /// A key that is ready now, marked as running.
    pub(crate) fn try_next(&self) -> Option<K> {
        let mut inner = self.lock();
        let now = Instant::now();
        inner.promote(now);
        inner.take(now)
    }

    /// Ends a run. A key that was added meanwhile is ready at once, except as in [`Self::add`]; a
    /// nudged key waits if `next` is [`Next::After`].
    pub(crate) fn done(&self, key: K, next: Next) {
        let mut inner = self.lock();
        let now = Instant::now();
        let (again, contended) = inner.end(&key, now);
        match (again, next) {
            (_, Next::After(after) | Next::Within(after)) if contended => {
                inner.delay(key, now + after, Ends::AtTime);
            }
            (Again::Added(since), _) => inner.wait(key, since),
            (Again::Nudged, Next::OnChange | Next::Within(_)) => inner.make_ready(key, now),
            (_, Next::After(after)) => inner.delay(key, now + after, Ends::ByAdd),
            (Again::No, Next::Within(after)) => inner.delay(key, now + after, Ends::ByNudge),
            (Again::No, Next::OnChange) => {}
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// Counts a retry after a failure; a failure that does not count leaves the number alone.
    /// Returns the previous number.
    pub(crate) fn failed(&self, key: &K, counts: bool, denied: bool) -> u32 {
        let mut inner = self.lock();
        inner.counts.retries.inc();
        let before = inner.failures.get(key).map_or(0, |failures| failures.count);
        let count = before.saturating_add(u32::from(counts));
        inner.failures.insert(key.clone(), Failures { count, at_api: 0, denied });
        before
    }

    /// Counts a retry after a conflict or an outage of the Kubernetes API, which leaves the number
    /// of failures alone. Returns the previous number of conflicts and outages.
    pub(crate) fn failed_at_api(&self, key: &K) -> u32 {
        let mut inner = self.lock();
        inner.counts.retries.inc();
        let failures = inner.failures.entry(key.clone()).or_default();
        let before = failures.at_api;
        (failures.at_api, failures.denied) = (before.saturating_add(1), false);
        let contended = failures.at_api >= CONFLICTS_UNTIL_WAIT;
        if let Some(run) = inner.running.get_mut(key) {
            run.contended = contended;
        }
        before
    }

    /// Keys whose last run was denied, and running keys, which may be denied in a moment.
    pub(crate) fn denied(&self) -> Vec<K> {
        let inner = self.lock();
        let denied = inner.failures.iter().filter(|(_, failures)| failures.denied).map(|(key, _)| key);
        let waiting = denied.filter(|key| inner.due.contains_key(key));
        waiting.chain(inner.running.keys()).cloned().collect()
    }

    /// Resets the failures of this key.
    pub(crate) fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// Delayed keys, the earliest first.
    pub(crate) fn delayed(&self) -> Vec<K> {
        self.lock().delayed.values().cloned().collect()
    }

    /// The state of this key. Changes nothing: a key whose time is over may still be delayed while
    /// all workers are busy.
    pub(crate) fn state(&self, key: &K) -> KeyState {
        let inner = self.lock();
        let place = match (inner.running.get(key), inner.ready_since.get(key), inner.due.get(key)) {
            (Some(run), _, _) => Place::Running { since: run.since, again: run.again != Again::No },
            (None, Some(since), _) => {
                let before = inner.ready.iter().take_while(|ready| *ready != key).count();
                Place::Ready { since: *since, before }
            }
            (None, None, Some(((until, _), ends))) => Place::Delayed { until: *until, ends: *ends },
            (None, None, None) => Place::Absent,
        };
        let Failures { count, at_api, denied } = inner.failures.get(key).copied().unwrap_or_default();
        KeyState { place, failures: count, failures_at_api: at_api, denied }
    }

    /// The current content of the queue, for metrics.
    fn held(&self) -> Held {
        let mut inner = self.lock();
        let now = Instant::now();
        // While all workers are busy, nothing else promotes the keys that are due.
        inner.promote(now);
        let again = inner.running.values().filter(|run| matches!(run.again, Again::Added(_))).count();
        let worked = || inner.running.values().map(|run| now.saturating_duration_since(run.since));
        Held {
            depth: inner.ready.len() + again,
            unfinished: worked().sum(),
            longest: worked().max().unwrap_or(Duration::ZERO),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Inner<K> {
    /// Makes a key ready from this moment on; a ready key stays as it is.
    fn make_ready(&mut self, key: K, since: Instant) {
        if !self.ready_since.contains_key(&key) {
            self.counts.adds.inc();
            self.wait(key, since);
        }
    }

    /// Appends the key to the ready keys.
    fn wait(&mut self, key: K, since: Instant) {
        self.ready_since.insert(key.clone(), since);
        self.ready.push_back(key);
    }

    /// Records an add of a running key; the first one counts.
    fn run_again(&mut self, key: &K, now: Instant) {
        if let Some(run) = self.running.get_mut(key)
            && !matches!(run.again, Again::Added(_))
        {
            run.again = Again::Added(now);
            self.counts.adds.inc();
        }
    }

    fn undelay(&mut self, key: &K) {
        if let Some((due, _)) = self.due.remove(key) {
            self.delayed.remove(&due);
        }
    }

    fn delay(&mut self, key: K, at: Instant, ends: Ends) {
        if self.ready_since.contains_key(&key) || self.due.get(&key).is_some_and(|((due, _), _)| *due <= at) {
            return;
        }
        self.undelay(&key);
        self.sequence += 1;
        let due = (at, self.sequence);
        self.delayed.insert(due, key.clone());
        self.due.insert(key, (due, ends));
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            let (at, _) = *entry.key();
            if at > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.make_ready(key, at);
        }
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        let key = self.ready.pop_front()?;
        if let Some(since) = self.ready_since.remove(&key) {
            self.counts.queue_duration.observe(now.saturating_duration_since(since).as_secs_f64());
        }
        self.running.insert(key.clone(), Run { since: now, again: Again::No, contended: false });
        Some(key)
    }

    /// Ends a run; returns what was requested meanwhile, and whether the run was contended.
    fn end(&mut self, key: &K, now: Instant) -> (Again, bool) {
        let Some(Run { since, again, contended }) = self.running.remove(key) else { return (Again::No, false) };
        self.counts.work_duration.observe(now.saturating_duration_since(since).as_secs_f64());
        (again, contended)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Counts, Ends, KeyState, Next, Place, WorkQueue};

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_at_most_once() {
        let queue = WorkQueue::counting(Counts::default());
        queue.add("a");
        queue.add("a");
        queue.nudge("a");
        queue.add_after("a", S);
        assert_eq!((queue.next().await, queue.try_next()), ("a", None));
        queue.done("a", Next::OnChange);
        assert_eq!((queue.try_next(), queue.delayed()), (None, Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_while_it_runs_runs_once_more() {
        let queue = WorkQueue::counting(Counts::default());
        queue.add("a");
        queue.next().await;
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.try_next(), None, "never twice at the same time");
        queue.done("a", Next::After(S));
        assert_eq!((queue.try_next(), queue.try_next()), (Some("a"), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_nudge_does_not_shorten_a_backoff_and_an_add_does() {
        let queue = WorkQueue::counting(Counts::default());
        queue.add("a");
        queue.next().await;
        queue.nudge("a");
        queue.done("a", Next::After(5 * S));
        queue.nudge("a");
        assert_eq!(queue.try_next(), None);
        queue.add("a");
        assert_eq!(queue.try_next(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_nudge_ends_the_wait_for_a_change() {
        let queue = WorkQueue::counting(Counts::default());
        queue.add("a");
        queue.next().await;
        queue.done("a", Next::Within(9 * S));
        assert_eq!(queue.try_next(), None);
        queue.nudge("a");
        assert_eq!(queue.try_next(), Some("a"));
        queue.nudge("a");
        queue.done("a", Next::Within(9 * S));
        assert_eq!(queue.try_next(), Some("a"), "a nudge meanwhile counts");
        queue.done("a", Next::Within(9 * S));
        let start = Instant::now();
        assert_eq!((queue.next().await, start.elapsed()), ("a", 9 * S));
        queue.done("a", Next::After(9 * S));
        queue.nudge("a");
        assert_eq!((queue.try_next(), queue.delayed()), (None, vec!["a"]), "the earlier `Within` is forgotten");
    }

    /// Another client writes the object each time before we do.
    #[tokio::test(start_paused = true)]
    async fn after_some_conflicts_in_a_row_a_change_ends_no_backoff() {
        let (queue, start) = (WorkQueue::counting(Counts::default()), Instant::now());
        let mut tries = Vec::new();
        queue.add("a");
        for changes_in_run in [false, true].repeat(4) {
            queue.next().await;
            tries.push(start.elapsed().as_secs());
            queue.failed_at_api(&"a");
            if changes_in_run {
                queue.add("a");
            }
            queue.done("a", Next::After(S));
            queue.add("a");
        }
        assert_eq!(tries, [0, 0, 0, 1, 2, 3, 4, 5]);
        queue.next().await;
        queue.done("a", Next::Within(1_800 * S));
        queue.add("a");
        assert_eq!(queue.try_next(), Some("a"), "a wait that follows no conflict ends");
        queue.failed_at_api(&"a");
        queue.add("a");
        queue.done("a", Next::Within(S));
        queue.nudge("a");
        queue.add("a");
        assert_eq!((queue.try_next(), queue.delayed()), (None, vec!["a"]), "a wait until a change is held, too");
        queue.next().await;
        queue.forget(&"a");
        queue.done("a", Next::After(S));
        queue.add("a");
        assert_eq!(queue.try_next(), Some("a"), "the backoff of another failure ends");
    }

    /// A release became active while a call on the one before it failed.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_with_a_delay_while_it_runs_waits_for_no_backoff() {
        let queue = WorkQueue::counting(Counts::default());
        queue.add("a");
        queue.next().await;
        queue.add_after("a", 9 * S);
        queue.done("a", Next::After(300 * S));
        assert_eq!(queue.try_next(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wins() {
        let queue = WorkQueue::counting(Counts::default());
        let start = Instant::now();
        queue.add_after("late", 9 * S);
        queue.add_after("early", 3 * S);
        queue.add_after("late", 5 * S);
        queue.add_after("early", 8 * S);
        assert_eq!((queue.next().await, start.elapsed()), ("early", 3 * S));
        assert_eq!((queue.next().await, start.elapsed()), ("late", 5 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_were_denied_last_or_are_running_are_listed() {
        let queue = WorkQueue::counting(Counts::default());
        for (key, denied) in [("denied", vec![true]), ("mended", vec![true, false]), ("failed", vec![false])] {
            queue.add(key);
            queue.next().await;
            for denied in denied {
                queue.failed(&key, true, denied);
            }
            queue.done(key, Next::After(S));
        }
        assert_eq!(queue.denied(), ["denied"]);
        queue.add("denied");
        assert!(queue.denied().is_empty(), "a ready key is not listed");
        queue.next().await;
        assert_eq!(queue.denied(), ["denied"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_until_they_are_forgotten() {
        let queue = WorkQueue::counting(Counts::default());
        let failed = |key| queue.failed(&key, true, false);
        let uncounted = |key| queue.failed(&key, false, false);
        assert_eq!((failed("a"), failed("a"), failed("b"), uncounted("a"), failed("a")), (0, 1, 0, 2, 2));
        assert_eq!(
            (queue.failed_at_api(&"a"), queue.failed_at_api(&"a"), failed("a"), queue.failed_at_api(&"a")),
            (0, 1, 3, 0)
        );
        queue.forget(&"a");
        assert_eq!((failed("a"), queue.failed_at_api(&"a")), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_state_of_a_key_follows_the_key_and_changes_nothing() {
        let (queue, start) = (WorkQueue::counting(Counts::default()), Instant::now());
        let place = |key| queue.state(&key).place;
        assert_eq!(place("b"), Place::Absent);
        queue.add("a");
        queue.add("b");
        assert_eq!(place("b"), Place::Ready { since: start, before: 1 });
        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
        assert_eq!(place("b"), Place::Running { since: start, again: false });
        queue.failed(&"b", true, true);
        queue.failed_at_api(&"b");
        queue.failed(&"b", true, true);
        queue.done("b", Next::After(S));
        let delayed = Place::Delayed { until: start + S, ends: Ends::ByAdd };
        assert_eq!(queue.state(&"b"), KeyState { place: delayed, failures: 2, failures_at_api: 0, denied: true });
        tokio::time::advance(2 * S).await;
        assert_eq!(place("b"), delayed, "no worker has looked yet");
        assert_eq!(queue.next().await, "b");
        queue.forget(&"b");
        queue.done("b", Next::OnChange);
        assert_eq!(
            queue.state(&"b"),
            KeyState { place: Place::Absent, failures: 0, failures_at_api: 0, denied: false }
        );
    }
}
