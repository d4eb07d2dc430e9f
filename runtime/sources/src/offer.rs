//! What a source yields, and the stream of it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::Stream;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{Digest, SourceError};

/// One whole file, as it was at one moment.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The component, or whatever was there: nobody has judged it yet.
    pub bytes: Bytes,
    /// Of `bytes`.
    pub digest: Digest,
    /// Where it came from, for people: `file /etc/skysail/provider.wasm`.
    pub origin: String,
}

/// The offers of one source, in order; never the same digest twice in a row, never the same error
/// twice in a row.
///
/// One report waits in the channel; while it waits the source reads nothing, and afterwards it
/// yields what is there then. Dropping this ends the source.
#[derive(Debug)]
pub struct Offers {
    reports: mpsc::Receiver<Result<Offer, SourceError>>,
    _watcher: JoinSet<()>,
}

impl Offers {
    /// Reports that wait for their taker. One: a second would only be older than what is on disk by
    /// then.
    pub(crate) const QUEUE: usize = 1;

    pub(crate) const fn new(reports: mpsc::Receiver<Result<Offer, SourceError>>, watcher: JoinSet<()>) -> Self {
        Self { reports, _watcher: watcher }
    }

    /// The next offer, or why there is none. `None` after the source has ended, which it does only
    /// when its runtime shuts down.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Offer, SourceError>> {
        self.reports.recv().await
    }
}

impl Stream for Offers {
    type Item = Result<Offer, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reports.poll_recv(cx)
    }
}

/// What a source reported last: the same again is not reported; the first offer after a failure is,
/// also of the same digest.
#[derive(Default)]
pub(crate) struct Last(Option<Result<Digest, String>>);

impl Last {
    /// Whether the last report was a failure.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self.0, Some(Err(_)))
    }

    /// Whether a person would read the same again.
    pub(crate) fn is_old_news(&self, seen: Result<Digest, &SourceError>) -> bool {
        match (&self.0, seen) {
            (Some(Ok(offered)), Ok(digest)) => *offered == digest,
            (Some(Err(told)), Err(error)) => *told == error.told(),
            (None | Some(_), _) => false,
        }
    }

    /// The report, where it is news.
    pub(crate) fn news(&mut self, seen: Result<Offer, SourceError>) -> Option<Result<Offer, SourceError>> {
        if self.is_old_news(seen.as_ref().map(|offer| offer.digest)) {
            return None;
        }
        self.0 = Some(seen.as_ref().map(|offer| offer.digest).map_err(SourceError::told));
        Some(seen)
    }
}
