//! A candidate: waits until the lease is free or expired, and takes it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::ElectionConfig,
    health::Health,
    jitter::Jitter,
    leader::Leader,
    lease::{LeaseError, Lock},
    lease_watch::LeaseWatch,
    metrics::ElectionMetrics,
};

/// After a conflict the next try follows after this part of the retry period.
const CONFLICT_DIVISOR: u32 = 10;

/// The parts of an [`Elector`].
pub struct ElectorOptions {
    /// The client for the lease; it must not be fenced.
    pub client: kube::Client,
    /// The lease and the identity of the candidate.
    pub config: ElectionConfig,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The metrics of elections.
    pub metrics: ElectionMetrics,
}

/// A candidate for the leadership.
pub struct Elector {
    pub(crate) client: kube::Client,
    pub(crate) lock: Lock,
    pub(crate) metrics: ElectionMetrics,
    pub(crate) health: Health,
    jitter: Jitter,
    /// The leader in the last log line.
    said: watch::Sender<String>,
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("config", &self.lock.config).finish_non_exhaustive()
    }
}

impl Elector {
    /// Creates a candidate, which does nothing yet.
    #[must_use]
    pub fn new(options: ElectorOptions) -> Self {
        let ElectorOptions { client, config, clock, metrics } = options;
        metrics.leads(&config.lease, false);
        let health = Health::new(&config.lease, config.timing.lease_duration(), Arc::clone(&clock));
        let jitter = Jitter::of(&config.identity);
        let lock = Lock::new(client.clone(), config, clock);
        Self { client, lock, metrics, health, jitter, said: watch::Sender::default() }
    }

    /// The health check of the leader, valid for the life of the process.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// The identity of the leader that this candidate waits for, as last seen; empty before. Does
    /// not change once this candidate is the leader.
    #[must_use]
    pub fn other_leader(&self) -> watch::Receiver<String> {
        self.said.subscribe()
    }

    /// Waits for the lease; none if `stop` came first. Tries at once, whenever the lease is
    /// released, and when it expires.
    pub async fn acquire(mut self, stop: &CancellationToken) -> Option<Leader> {
        let ElectionConfig { namespace, lease, identity, timing } = self.lock.config.clone();
        tracing::info!(lease.namespace = namespace, lease.name = lease, identity, "attempting to acquire leader lease");
        let mut lease_watch = LeaseWatch::new(self.lock.api().clone(), &lease, timing.retry_period());
        loop {
            // Checked only between tries: a cancelled try may have taken the lease.
            if stop.is_cancelled() {
                return None;
            }
            match self.try_acquire().await {
                Ok(Some(sent)) => {
                    tracing::info!(lease.namespace = namespace, lease.name = lease, "successfully acquired lease");
                    return Some(Leader::start(self, sent + timing.renew_deadline()));
                }
                Ok(None) => stop.run_until_cancelled(self.wait_for_a_chance(&mut lease_watch)).await,
                Err(error) => {
                    tracing::warn!(
                        lease.name = lease,
                        reason = error.reason(),
                        "failed to acquire the lease; trying again"
                    );
                    stop.run_until_cancelled(self.wait_after(&error, &mut lease_watch)).await
                }
            };
        }
    }

    /// Returns `None` if another process holds the lease, otherwise the time when the request was
    /// sent: the duration of the lease begins then.
    ///
    /// Reads the lease first, whatever the watch reported: a watch may lag or may have broken
    /// unnoticed. The write has the resource version of that read.
    async fn try_acquire(&mut self) -> Result<Option<Duration>, LeaseError> {
        self.lock.read().await?;
        if self.lock.is_free() { self.lock.take().await.map(Some) } else { Ok(None) }
    }

    /// Waits a jittered retry period, or until the watch reports the lease. After a conflict only a
    /// part of the period: another candidate may have taken the lease, or another client may have
    /// changed the object.
    async fn wait_after(&mut self, error: &LeaseError, lease_watch: &mut LeaseWatch) {
        let period = self.lock.config.timing.retry_period();
        let pause = self.jitter.stretch(if error.is_conflict() { period / CONFLICT_DIVISOR } else { period });
        if let Ok(seen) = timeout(pause, lease_watch.next()).await {
            self.lock.see(seen);
        }
    }

    /// Waits until the lease is free or expired. If the watch reports nothing for a jittered retry
    /// period, returns, so that the lease is read.
    async fn wait_for_a_chance(&mut self, lease_watch: &mut LeaseWatch) {
        self.log_leader();
        let period = self.lock.config.timing.retry_period();
        let mut ask = Instant::now() + self.jitter.stretch(period);
        while !self.lock.is_free() {
            tokio::select! {
                seen = lease_watch.next() => {
                    self.lock.see(seen);
                    self.log_leader();
                    ask = Instant::now() + self.jitter.stretch(period);
                }
                () = sleep(self.lock.left()) => {}
                () = sleep_until(ask) => return,
            }
        }
    }

    fn log_leader(&mut self) {
        let holder = self.lock.holder();
        if *self.said.borrow() != holder && !holder.is_empty() {
            tracing::info!(lease.name = self.lock.config.lease, leader = holder, "standing by");
            self.said.send_replace(holder.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
