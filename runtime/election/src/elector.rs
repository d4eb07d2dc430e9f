//! A candidate: waits until the lease is free or has run out, and takes it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::ElectionConfig,
    health::Health,
    jitter::Jitter,
    leader::Leader,
    lease::{LeaseError, Lock},
    metrics::ElectionMetrics,
    releases::Releases,
};

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
    releases: Releases,
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
        let releases = Releases::new(lock.api().clone(), &lock.config.lease, lock.config.timing.retry_period());
        Self { client, lock, metrics, health, releases, jitter, said: String::new() }
    }

    /// Says for as long as this process lives whether the leader is well.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Waits for the lease; none where `stop` came first. Tries at once, then every retry period, jittered, and whenever somebody gives it back.
    pub async fn acquire(mut self, stop: &CancellationToken) -> Option<Leader> {
        let ElectionConfig { namespace, lease, identity, timing } = self.lock.config.clone();
        tracing::info!(lease.namespace = namespace, lease.name = lease, identity, "attempting to acquire leader lease");
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
                Ok(None) => self.say_who_leads(),
                Err(error) => {
                    tracing::warn!(lease.name = lease, reason = error.reason(), "the lease is not ours yet");
                }
            }
            let pause = self.jitter.stretch(timing.retry_period());
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(pause) => {}
                () = self.releases.next() => {}
            }
        }
    }

    /// None where somebody holds it. Otherwise it is ours from when the request was sent.
    async fn try_acquire(&mut self) -> Result<Option<Duration>, LeaseError> {
        self.lock.read().await?;
        let free = self.lock.holder().is_empty() || self.lock.is_ours() || !self.lock.is_valid();
        if free { self.lock.take().await.map(Some) } else { Ok(None) }
    }

    fn say_who_leads(&mut self) {
        if self.said != self.lock.holder() {
            self.said = self.lock.holder().to_owned();
            tracing::info!(lease.name = self.lock.config.lease, leader = self.said, "standing by");
        }
    }
}

#[cfg(test)]
mod tests;
