//! The task between a source and the slot that takes its offers.

use std::sync::Arc;

use skysail_host::slot::{Offer, Offered, Refusal, Slot, SlotStatus, SourceFailure};
use skysail_sources::{Archive, ArchiveError, Digest, Offers, Quarantined, SourceError};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet, spawn_blocking},
    time::MissedTickBehavior,
};

use super::{RETRY_PERIOD, Surroundings};
use crate::provider_file::ProviderSpec;

/// Offers the component of the source to the slot, now and after each change. Dropped, the task
/// ends, and the slot keeps its releases.
pub(super) struct Feeder {
    decided: watch::Receiver<bool>,
    heard: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

impl Feeder {
    /// `another_source`: the earlier offers to the slot came from another source.
    pub(super) fn start(
        slot: &Arc<Slot>,
        spec: &ProviderSpec,
        surroundings: &Surroundings,
        another_source: bool,
    ) -> Self {
        let (decide, decided) = watch::channel(false);
        let (hear, heard) = watch::channel(false);
        let Surroundings { archive, kubernetes } = surroundings;
        let bytes_max = spec.limits.component_bytes;
        let keeper = archive.as_ref().map(|archive| Keeper {
            archive: Arc::clone(archive),
            provider: spec.name.clone(),
            source: spec.source.kept_as(),
            bytes_max,
        });
        let mut task = JoinSet::new();
        // `Fleet::prepare` checked that a source which needs a cluster has one.
        if let Some(offers) = spec.source.watch(bytes_max, kubernetes.as_ref()) {
            let slot = Arc::clone(slot);
            task.spawn(async move {
                if another_source {
                    slot.forget_offers().await;
                }
                fill(slot, offers, keeper, Word { decide, hear }).await;
            });
        }
        Self { decided, heard, _task: task }
    }

    /// Becomes true when the first offer serves, or is known not to serve.
    pub(super) fn decided(&self) -> watch::Receiver<bool> {
        self.decided.clone()
    }

    /// Becomes true when the source itself has reported an offer or a failure.
    pub(super) fn heard(&self) -> watch::Receiver<bool> {
        self.heard.clone()
    }
}

/// The archive of a provider's last release, for a start at which its source does not answer.
#[derive(Clone)]
struct Keeper {
    archive: Arc<Archive>,
    provider: String,
    source: String,
    bytes_max: u64,
}

impl Keeper {
    /// The component that served last.
    async fn kept(&self) -> Option<skysail_sources::Offer> {
        let Self { archive, provider, source, bytes_max } = self.clone();
        // A task that was cancelled is a process that ends.
        spawn_blocking(move || archive.get(&provider, &source, bytes_max)).await.ok().flatten()
    }

    /// Keeps a component that has passed probation. A failure is logged and stops nothing.
    async fn keep(&self, offer: skysail_sources::Offer) {
        let Self { archive, provider, source, .. } = self.clone();
        self.told(spawn_blocking(move || archive.put(&provider, &source, &offer)).await);
    }

    /// A release that was rolled back before this process began is not tried again by itself.
    async fn quarantine(&self, slot: &Slot) {
        let Self { archive, provider, .. } = self.clone();
        let quarantined = spawn_blocking(move || archive.quarantined(&provider)).await.unwrap_or_default();
        for Quarantined { digest, reason, retried } in quarantined {
            slot.quarantine(digest, reason, retried).await;
        }
    }

    async fn remember(&self, refusal: Refusal) {
        let Self { archive, provider, .. } = self.clone();
        let Refusal { digest, reason, retried, .. } = refusal;
        let quarantined = Quarantined { digest, reason, retried };
        self.told(spawn_blocking(move || archive.quarantine(&provider, quarantined)).await);
    }

    fn told(&self, written: Result<Result<(), ArchiveError>, JoinError>) {
        // A task that was cancelled is a process that ends.
        if let Ok(Err(error)) = written {
            tracing::warn!(provider.name = self.provider, "--state-dir: {:#}", anyhow::Error::from(error));
        }
    }
}

/// Writes releases that passed probation, and releases that were rolled back, to the archive.
struct Kept {
    keeper: Keeper,
    /// What the source offered last.
    last: Option<skysail_sources::Offer>,
    /// The component in the archive.
    kept: Option<Digest>,
    remembered: Option<Refusal>,
}

impl Kept {
    async fn follow(&mut self, status: SlotStatus) {
        // A refusal without an origin was read from the archive.
        if let Some(refusal) = status.refused.filter(|refusal| refusal.was_rolled_back() && !refusal.origin.is_empty())
            && self.remembered.as_ref() != Some(&refusal)
        {
            self.remembered = Some(refusal.clone());
            // If a person asks for the release and it passes, the archive has to be written again.
            self.kept = None;
            self.keeper.remember(refusal).await;
        }
        let Some(offer) = &self.last else { return };
        let serves = status.active.is_some_and(|active| active.digest == offer.digest.to_string());
        if serves && status.probation.is_none() && self.kept != Some(offer.digest) {
            self.kept = Some(offer.digest);
            self.keeper.keep(offer.clone()).await;
        }
    }
}

/// What the feeder's task reports.
struct Word {
    decide: watch::Sender<bool>,
    hear: watch::Sender<bool>,
}

async fn fill(slot: Arc<Slot>, mut offers: Offers, keeper: Option<Keeper>, Word { decide, hear }: Word) {
    if let Some(keeper) = &keeper {
        keeper.quarantine(&slot).await;
    }
    if let Some(keeper) = &keeper
        && slot.serving().is_none()
        && let Some(kept) = keeper.kept().await
    {
        tracing::info!(provider.name = keeper.provider, component.digest = %kept.digest, "taking up what served last");
        let served = slot.offer(Offer { bytes: kept.bytes, origin: kept.origin }).await.is_ok();
        decide.send_replace(served);
    }
    let mut kept = keeper.map(|keeper| Kept { keeper, last: None, kept: None, remembered: None });
    let mut status = slot.status();
    let mut retry = tokio::time::interval(RETRY_PERIOD);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Requests to the slot. A newer offer ends the earlier ones, so these are few, and a fix does
    // not wait for them.
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            report = offers.next() => match report {
                Some(Ok(offer)) => {
                    let (slot, bytes, origin) = (Arc::clone(&slot), offer.bytes.clone(), offer.origin.clone());
                    // A refusal is in the slot's status, log line and metrics.
                    under_way.spawn(async move {
                        let offered = slot.offer(Offer { bytes, origin }).await;
                        offered != Ok(Offered::Overtaken)
                    });
                    if let Some(kept) = &mut kept {
                        kept.last = Some(offer);
                    }
                }
                Some(Err(error)) => {
                    slot.source_failed(failure(&error)).await;
                    decide.send_replace(true);
                    hear.send_replace(true);
                }
                None => return,
            },
            Some(ended) = under_way.join_next() => {
                // A task that panicked reports nothing more.
                if ended.unwrap_or(true) {
                    decide.send_replace(true);
                    hear.send_replace(true);
                }
            }
            // The slot outlives its feeder, so this is a change.
            _ = status.changed(), if kept.is_some() => {}
            _ = retry.tick(), if under_way.is_empty() => try_again(&mut under_way, &slot),
        }
        if let Some(kept) = &mut kept {
            let now = status.borrow_and_update().clone();
            kept.follow(now).await;
        }
    }
}

fn try_again(under_way: &mut JoinSet<bool>, slot: &Arc<Slot>) {
    let slot = Arc::clone(slot);
    under_way.spawn(async move {
        drop(slot.retry().await);
        // This is no report of the source.
        false
    });
}

fn failure(error: &SourceError) -> SourceFailure {
    SourceFailure { code: error.category(), reason: error.message() }
}
