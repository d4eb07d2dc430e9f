//! Notices at once that a lease is free. Only a hint: whoever is told reads the lease, and who is never told reads it every few seconds anyway.

use std::{error::Error as StdError, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep_until};

/// A watch of one lease.
pub(crate) struct Releases {
    api: Api<Lease>,
    params: WatchParams,
    /// Between two watches.
    pause: Duration,
    stream: Option<BoxStream<'static, Result<WatchEvent<Lease>, kube::Error>>>,
    not_before: Instant,
    complained: bool,
}

impl Releases {
    pub(crate) fn new(api: Api<Lease>, lease: &str, pause: Duration) -> Self {
        let params = WatchParams::default().fields(&format!("metadata.name={lease}"));
        Self { api, params, pause, stream: None, not_before: Instant::now(), complained: false }
    }

    /// Waits until somebody gave the lease back, or deleted it.
    ///
    /// # Cancel safety
    /// Nothing that is heard gets lost; a watch that is not yet begun is begun again.
    pub(crate) async fn next(&mut self) {
        loop {
            let Some(stream) = &mut self.stream else {
                sleep_until(self.not_before).await;
                self.not_before = Instant::now() + self.pause;
                self.begin().await;
                continue;
            };
            match stream.next().await {
                Some(Ok(event)) if is_free(&event) => return,
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => self.stream = None,
                Some(Ok(_)) => {}
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

fn is_free(event: &WatchEvent<Lease>) -> bool {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            holder.unwrap_or_default().is_empty()
        }
        WatchEvent::Deleted(_) => true,
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => false,
    }
}
