//! A leader: renews the lease in the background, keeps the fence open as long as that succeeds, and
//! gives the lease back at the end.

use std::{fmt, sync::Arc, time::Duration};

use skysail_provider::Fence;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{elector::Elector, event, fenced, lease::LeaseError};

/// How often a release is tried: the first one may find that a renewal without an answer was
/// carried out.
const RELEASE_TRIES: usize = 3;

/// This process leads no more and has to end: somebody else may lead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election lost: lease {lease}: {reason}")]
pub struct Lost {
    /// Name of the lease.
    pub lease: String,
    /// Why.
    pub reason: String,
}

/// Holds the lease. Dropped, it renews no more: the lease runs out, as after a crash.
pub struct Leader {
    fence: Fence,
    /// Ends the renewals, with a release.
    stop: CancellationToken,
    keeping: JoinSet<Result<(), Lost>>,
    lease: String,
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("lease", &self.lease).field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl Leader {
    /// Begins to renew a lease that was taken, in a task of its own: nothing that the leader does
    /// may hold it up.
    pub(crate) fn start(elector: Elector, until: Duration) -> Self {
        let clock = Arc::clone(&elector.lock.clock);
        let fence = Fence::until(move || clock.elapsed(), until);
        let (stop, lease) = (CancellationToken::new(), elector.lock.config.lease.clone());
        elector.metrics.leads(&lease, true);
        elector.health.renewed();
        let mut keeping = JoinSet::new();
        keeping.spawn(Keeper { elector, fence: fence.clone(), until, events: JoinSet::new() }.run(stop.clone()));
        Self { fence, stop, keeping, lease }
    }

    /// Open while this process may write.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Waits until the lease is lost. The fence is closed by then.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn lost(&mut self) -> Lost {
        let ended = self.keeping.join_next().await;
        self.fence.close();
        match ended {
            Some(Ok(Err(lost))) => lost,
            Some(Ok(Ok(())) | Err(_)) | None => {
                Lost { lease: self.lease.clone(), reason: "nothing renews it any more".to_owned() }
            }
        }
    }

    /// Closes the fence, then gives the lease back. That it could not be given back is only logged:
    /// it runs out.
    ///
    /// # Errors
    /// It was lost before.
    pub async fn release(mut self) -> Result<(), Lost> {
        self.stop.cancel();
        match self.keeping.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(_)) | None => Ok(()),
        }
    }
}

/// The task that renews.
struct Keeper {
    elector: Elector,
    fence: Fence,
    /// When the fence closes.
    until: Duration,
    events: JoinSet<()>,
}

/// Why one try to renew failed.
enum Failed {
    /// May succeed the next time.
    Again(LeaseError),
    /// Somebody else holds it: there is no next time.
    Taken(String),
}

impl From<LeaseError> for Failed {
    fn from(error: LeaseError) -> Self {
        Self::Again(error)
    }
}

impl Keeper {
    async fn run(mut self, stop: CancellationToken) -> Result<(), Lost> {
        self.tell("became leader");
        let mut last = "this process stood still".to_owned();
        loop {
            let pause = self.elector.lock.config.timing.retry_period().min(self.left());
            let stopped = timeout(pause, stop.cancelled()).await.is_ok();
            if self.fence.check().is_err() {
                return Err(self.lost(last));
            }
            if stopped {
                self.release().await;
                return Ok(());
            }
            match timeout(self.left(), self.try_renew()).await {
                Ok(Ok(sent)) => {
                    self.until = sent + self.elector.lock.config.timing.renew_deadline();
                    if self.fence.extend(self.until).is_err() {
                        return Err(self.lost("a renewal took too long".to_owned()));
                    }
                    self.elector.health.renewed();
                }
                Ok(Err(Failed::Taken(holder))) => return Err(self.lost(format!("{holder:?} holds it"))),
                Ok(Err(Failed::Again(error))) => {
                    last = error.reason();
                    tracing::warn!(lease.name = self.elector.lock.config.lease, reason = last, "failed to renew lease");
                }
                Err(_elapsed) => return Err(self.lost("the API did not answer in time".to_owned())),
            }
        }
    }

    /// Until the fence closes.
    fn left(&self) -> Duration {
        self.until.saturating_sub(self.elector.lock.clock.elapsed())
    }

    /// The short way first: one write. Where the lease is not as it was left, it is read.
    async fn try_renew(&mut self) -> Result<Duration, Failed> {
        let lock = &mut self.elector.lock;
        if lock.is_valid() {
            match lock.renew().await {
                Ok(sent) => return Ok(sent),
                Err(error) => tracing::info!(reason = error.reason(), "failed to renew the lease at once: reading it"),
            }
        }
        lock.read().await?;
        self.elector.metrics.slowpath(&lock.config.lease);
        if lock.known().is_some() && !lock.is_ours() {
            return Err(Failed::Taken(lock.holder().to_owned()));
        }
        Ok(lock.take().await?)
    }

    fn lost(&self, reason: String) -> Lost {
        self.fence.close();
        let lease = self.elector.lock.config.lease.clone();
        self.elector.metrics.leads(&lease, false);
        Lost { lease, reason }
    }

    async fn release(&mut self) {
        self.tell("stopped leading");
        while self.events.join_next().await.is_some() {}
        // Before the release: from then on somebody else may write.
        self.fence.close();
        let lock = &mut self.elector.lock;
        let lease = lock.config.lease.clone();
        for _ in 0..RELEASE_TRIES {
            match lock.give_back().await {
                Ok(()) => {
                    tracing::info!(lease.name = lease, "lease released");
                    break;
                }
                Err(error) => tracing::warn!(lease.name = lease, reason = error.reason(), "failed to release lease"),
            }
            if lock.read().await.is_err() || !lock.is_ours() {
                break;
            }
        }
        self.elector.metrics.leads(&lease, false);
        self.elector.health.stands_by();
    }

    /// Says it on the Lease, without waiting.
    fn tell(&mut self, what: &str) {
        let lock = &self.elector.lock;
        let Some(lease) = lock.known().cloned() else { return };
        let message = format!("{} {what}", lock.config.identity);
        let client = fenced(&self.elector.client, self.fence.clone());
        self.events.spawn(event::tell(client, lease, message, lock.clock.now()));
    }
}
