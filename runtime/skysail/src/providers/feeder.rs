//! Fills one slot from one file: the task between a source and the slot that takes its offers.

use std::{path::PathBuf, sync::Arc};

use skysail_host::slot::{Offer, Slot, SourceFailure};
use skysail_sources::{FileSource, FileSourceSettings, SourceError};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use super::RETRY_PERIOD;
use crate::provider_file::ProviderSpec;

/// Offers what the component's file holds, now and whenever it changes; dropped, it ends. The slot keeps what it has.
pub(super) struct Feeder {
    decided: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

impl Feeder {
    pub(super) fn start(slot: &Arc<Slot>, spec: &ProviderSpec) -> Self {
        let (decide, decided) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(fill(Arc::clone(slot), spec.component.clone(), spec.limits.component_bytes, decide));
        Self { decided, _task: task }
    }

    /// Becomes true when the first offer serves, or it is known why none does.
    pub(super) fn decided(&self) -> watch::Receiver<bool> {
        self.decided.clone()
    }
}

async fn fill(slot: Arc<Slot>, component: PathBuf, bytes_max: u64, decide: watch::Sender<bool>) {
    let settings = FileSourceSettings { bytes_max, ..FileSourceSettings::default() };
    let mut offers = FileSource::new(component, settings).watch();
    let mut retry = tokio::time::interval(RETRY_PERIOD);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            report = offers.next() => {
                match report {
                    // A refusal is in the slot's status, its log line and its metrics: it is told once, there.
                    Some(Ok(offer)) => drop(slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await),
                    Some(Err(error)) => slot.source_failed(failure(&error)),
                    None => return,
                }
                decide.send_replace(true);
            }
            _ = retry.tick() => drop(slot.retry().await),
        }
    }
}

fn failure(error: &SourceError) -> SourceFailure {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    SourceFailure { code: error.category(), reason: format!("{error}{cause}") }
}
