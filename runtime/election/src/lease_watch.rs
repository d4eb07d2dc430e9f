//! A watch of the Lease, which reports at once that the Lease was renewed, released, taken by
//! another holder or deleted. Each replica also reads the Lease every few seconds, for events that
//! the watch loses.

use std::{error::Error as StdError, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep_until};

/// A watch of one lease.
pub(crate) struct LeaseWatch {
    api: Api<Lease>,
    params: WatchParams,
    /// Pause between two watches.
    pause: Duration,
    stream: Option<BoxStream<'static, Result<WatchEvent<Lease>, kube::Error>>>,
    not_before: Instant,
    complained: bool,
}

impl LeaseWatch {
    pub(crate) fn new(api: Api<Lease>, lease: &str, pause: Duration) -> Self {
        let params = WatchParams::default().fields(&format!("metadata.name={lease}"));
        Self { api, params, pause, stream: None, not_before: Instant::now(), complained: false }
    }

    /// Waits until the lease was written or deleted, and returns its state. The first event of a
    /// watch may repeat a known state.
    ///
    /// # Cancel safety
    /// No event is lost; a watch that has not started is started again.
    pub(crate) async fn next(&mut self) -> Option<Lease> {
        loop {
            let Some(stream) = &mut self.stream else {
                sleep_until(self.not_before).await;
                self.not_before = Instant::now() + self.pause;
                self.begin().await;
                continue;
            };
            match stream.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => return Some(lease),
                Some(Ok(WatchEvent::Deleted(_))) => return None,
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => self.stream = None,
            }
        }
    }

    async fn begin(&mut self) {
        match self.api.watch(&self.params, "0").await {
            Ok(stream) => self.stream = Some(stream.boxed()),
            Err(error) if self.complained => {
                tracing::debug!(error = &error as &dyn StdError, "watching the lease failed");
            }
            Err(error) => {
                self.complained = true;
                tracing::warn!(
                    error = &error as &dyn StdError,
                    "watching the lease failed, so a change of the leader takes seconds longer; grant the verb watch on the lease"
                );
            }
        }
    }
}
