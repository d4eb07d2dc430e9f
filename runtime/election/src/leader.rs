//! A leader: renews the lease in the background, keeps the fence open while renewals succeed, and
//! releases the lease at the end.

use std::{fmt, sync::Arc, time::Duration};

use skysail_provider::Fence;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{elector::Elector, event, fenced, lease::LeaseError};

/// Tries of a release: the first one may find that an unanswered renewal was carried out.
const RELEASE_TRIES: usize = 3;

/// This process is not the leader any more and has to end: another replica may lead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election lost: lease {lease}: {reason}")]
pub struct Lost {
    /// Name of the lease.
    pub lease: String,
    /// Why.
    pub reason: String,
}

/// The holder of the lease. Dropping it stops the renewals, and the lease expires, as after a
/// crash.
pub struct Leader {
    fence: Fence,
    /// Ends the renewals and releases the lease.
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
    /// Starts to renew an acquired lease in its own task, so that the leader's work cannot delay a
    /// renewal.
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

    /// The fence; open while this process may write.
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
                Lost { lease: self.lease.clone(), reason: "the task that renews the lease ended".to_owned() }
            }
        }
    }

    /// Closes the fence, then releases the lease. A failed release is only logged: the lease
    /// expires.
    ///
    /// # Errors
    /// The lease was lost before.
    pub async fn release(mut self) -> Result<(), Lost> {
        self.stop.cancel();
        match self.keeping.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(_)) | None => Ok(()),
        }
    }
}

/// The task that renews the lease.
struct Keeper {
    elector: Elector,
    fence: Fence,
    /// When the fence closes.
    until: Duration,
    events: JoinSet<()>,
}

/// Why a renewal failed.
enum Failed {
    /// The next try may succeed.
    Again(LeaseError),
    /// Another process holds the lease; no further try.
    Taken(String),
}

impl From<LeaseError> for Failed {
    fn from(error: LeaseError) -> Self {
        Self::Again(error)
    }
}

impl Keeper {
    async fn run(mut self, stop: CancellationToken) -> Result<(), Lost> {
        self.emit_event("became leader");
        let mut last = "this process was frozen or suspended".to_owned();
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
                        return Err(self.lost("a renewal took longer than the renew deadline".to_owned()));
                    }
                    self.elector.health.renewed();
                }
                Ok(Err(Failed::Taken(holder))) => return Err(self.lost(format!("{holder:?} holds the lease"))),
                Ok(Err(Failed::Again(error))) => {
                    last = error.reason();
                    tracing::warn!(lease.name = self.elector.lock.config.lease, reason = last, "failed to renew lease");
                }
                Err(_elapsed) => {
                    return Err(self.lost("the API server did not answer before the renew deadline".to_owned()));
                }
            }
        }
    }

    /// Time until the fence closes.
    fn left(&self) -> Duration {
        self.until.saturating_sub(self.elector.lock.clock.elapsed())
    }

    /// Tries a single write first. If the lease changed since, reads it and writes again.
    async fn try_renew(&mut self) -> Result<Duration, Failed> {
        let lock = &mut self.elector.lock;
        if lock.is_ours() && lock.is_valid() {
            match lock.renew().await {
                Ok(sent) => return Ok(sent),
                Err(error) => tracing::info!(
                    reason = error.reason(),
                    "failed to renew the lease with the known resource version; reading the lease"
                ),
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
        self.emit_event("stopped leading");
        while self.events.join_next().await.is_some() {}
        // Before the release, because after it another replica may write.
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

    /// Emits an Event about the Lease, without waiting.
    fn emit_event(&mut self, what: &str) {
        let lock = &self.elector.lock;
        let Some(lease) = lock.known().cloned() else { return };
        let message = format!("{} {what}", lock.config.identity);
        let client = fenced(&self.elector.client, self.fence.clone());
        self.events.spawn(event::emit(client, lease, message, lock.clock.now()));
    }
}
