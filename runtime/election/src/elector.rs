//! A candidate: waits until the lease is free or has run out, and takes it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::ElectionConfig,
    health::Health,
    jitter::Jitter,
    leader::Leader,
    lease::{LeaseError, Lock},
    metrics::ElectionMetrics,
    sightings::Sightings,
};

/// A try that met somebody else's write is made again after this part of the retry period.
const CONFLICT_DIVISOR: u32 = 10;

/// What an [`Elector`] is made of.
pub struct ElectorOptions {
    /// Reads and writes the lease; not a fenced one.
    pub client: kube::Client,
    /// Which lease, and who wants it.
    pub config: ElectionConfig,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where it is counted.
    pub metrics: ElectionMetrics,
}

/// Wants to lead.
pub struct Elector {
    pub(crate) client: kube::Client,
    pub(crate) lock: Lock,
    pub(crate) metrics: ElectionMetrics,
    pub(crate) health: Health,
    jitter: Jitter,
    /// Who was said to lead.
    said: String,
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("config", &self.lock.config).finish_non_exhaustive()
    }
}

impl Elector {
    /// A candidate; it does nothing yet.
    #[must_use]
    pub fn new(options: ElectorOptions) -> Self {
        let ElectorOptions { client, config, clock, metrics } = options;
        metrics.leads(&config.lease, false);
        let health = Health::new(&config.lease, config.timing.lease_duration(), Arc::clone(&clock));
        let jitter = Jitter::of(&config.identity);
        let lock = Lock::new(client.clone(), config, clock);
        Self { client, lock, metrics, health, jitter, said: String::new() }
    }

    /// Says for as long as this process lives whether the leader is well.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Waits for the lease; none where `stop` came first. Tries at once, whenever somebody gives it
    /// back, and at the moment when it has run out.
    pub async fn acquire(mut self, stop: &CancellationToken) -> Option<Leader> {
        let ElectionConfig { namespace, lease, identity, timing } = self.lock.config.clone();
        tracing::info!(lease.namespace = namespace, lease.name = lease, identity, "attempting to acquire leader lease");
        let mut sightings = Sightings::new(self.lock.api().clone(), &lease, timing.retry_period());
        loop {
            // Not in the middle of a try: it may have taken the lease.
            if stop.is_cancelled() {
                return None;
            }
            match self.try_acquire().await {
                Ok(Some(sent)) => {
                    tracing::info!(lease.namespace = namespace, lease.name = lease, "successfully acquired lease");
                    return Some(Leader::start(self, sent + timing.renew_deadline()));
                }
                Ok(None) => stop.run_until_cancelled(self.wait_for_a_chance(&mut sightings)).await,
                Err(error) => {
                    tracing::warn!(lease.name = lease, reason = error.reason(), "the lease is not ours yet");
                    stop.run_until_cancelled(self.wait_after(&error, &mut sightings)).await
                }
            };
        }
    }

    /// None where somebody holds it. Otherwise it is ours from when the request was sent.
    ///
    /// It is read first, whatever the watch has told: a watch may be behind, or dead without
    /// anybody's noticing. And it is written only as it was read.
    async fn try_acquire(&mut self) -> Result<Option<Duration>, LeaseError> {
        self.lock.read().await?;
        if self.lock.is_free() { self.lock.take().await.map(Some) } else { Ok(None) }
    }

    /// Waits a retry period, jittered, or until something is heard of the lease. After somebody
    /// else's write only a part of it: another candidate may have taken the lease, or the API may
    /// have written something into it.
    async fn wait_after(&mut self, error: &LeaseError, sightings: &mut Sightings) {
        let period = self.lock.config.timing.retry_period();
        let pause = self.jitter.stretch(if error.is_conflict() { period / CONFLICT_DIVISOR } else { period });
        if let Ok(seen) = timeout(pause, sightings.next()).await {
            self.lock.see(seen);
        }
    }

    /// Waits until the lease is free or has run out. Where nothing is heard of it for a retry
    /// period, jittered, only until then: it has to be asked for.
    async fn wait_for_a_chance(&mut self, sightings: &mut Sightings) {
        self.say_who_leads();
        let period = self.lock.config.timing.retry_period();
        let mut ask = Instant::now() + self.jitter.stretch(period);
        while !self.lock.is_free() {
            tokio::select! {
                seen = sightings.next() => {
                    self.lock.see(seen);
                    self.say_who_leads();
                    ask = Instant::now() + self.jitter.stretch(period);
                }
                () = sleep(self.lock.left()) => {}
                () = sleep_until(ask) => return,
            }
        }
    }

    fn say_who_leads(&mut self) {
        if self.said != self.lock.holder() && !self.lock.holder().is_empty() {
            self.said = self.lock.holder().to_owned();
            tracing::info!(lease.name = self.lock.config.lease, leader = self.said, "standing by");
        }
    }
}

#[cfg(test)]
mod tests;
