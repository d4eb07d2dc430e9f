//! Sees at once what becomes of the lease: that it is renewed, given back, taken, deleted. A
//! replica that sees no event asks for the lease every few seconds anyway.

use std::{error::Error as StdError, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep_until};

/// A watch of one lease.
pub(crate) struct Sightings {
    api: Api<Lease>,
    params: WatchParams,
    /// Between two watches.
    pause: Duration,
    stream: Option<BoxStream<'static, Result<WatchEvent<Lease>, kube::Error>>>,
    not_before: Instant,
    complained: bool,
}

impl Sightings {
    pub(crate) fn new(api: Api<Lease>, lease: &str, pause: Duration) -> Self {
        let params = WatchParams::default().fields(&format!("metadata.name={lease}"));
        Self { api, params, pause, stream: None, not_before: Instant::now(), complained: false }
    }

    /// Waits until the lease was written or deleted, and gives it as it is then. The first one of a
    /// watch may be no news.
    ///
    /// # Cancel safety
    /// Nothing that is heard gets lost; a watch that is not yet begun is begun again.
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
                tracing::debug!(error = &error as &dyn StdError, "the lease cannot be watched");
            }
            Err(error) => {
                self.complained = true;
                tracing::warn!(
                    error = &error as &dyn StdError,
                    "the lease cannot be watched: grant watch on it, or a hand-over takes seconds more"
                );
            }
        }
    }
}
