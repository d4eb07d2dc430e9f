//! Offers, and the stream of offers of a source.

use std::{
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{Digest, SourceError};

/// The content of one whole file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The file's content, which nothing has checked yet.
    pub bytes: Bytes,
    /// The digest of `bytes`.
    pub digest: Digest,
    /// The place of origin, for messages: `file /etc/skysail/provider.wasm`.
    pub origin: String,
}

/// The offers and errors of one source, in order; never the same digest or the same error twice in
/// a row.
///
/// The channel holds one report. While the report waits, the source reads nothing; then it reads
/// the current content. Dropping the stream ends the source.
#[derive(Debug)]
pub struct Offers {
    reports: mpsc::Receiver<Result<SourceFile, SourceError>>,
    watcher: JoinSet<()>,
}

impl Offers {
    /// Reports that the channel holds. One, because a second report would be out of date when it is
    /// received.
    pub(crate) const QUEUE: usize = 1;

    pub(crate) const fn new(reports: mpsc::Receiver<Result<SourceFile, SourceError>>, watcher: JoinSet<()>) -> Self {
        Self { reports, watcher }
    }

    /// The next offer or error. `None` after the source has ended, which happens only when its
    /// runtime shuts down.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    ///
    /// # Panics
    /// With the panic of the source, which is a bug: without it the source would end in silence.
    pub async fn next(&mut self) -> Option<Result<SourceFile, SourceError>> {
        StreamExt::next(self).await
    }
}

impl Stream for Offers {
    type Item = Result<SourceFile, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let report = ready!(self.reports.poll_recv(cx));
        if report.is_none()
            && let Some(Err(ended)) = ready!(self.watcher.poll_join_next(cx))
            && let Ok(panic) = ended.try_into_panic()
        {
            resume_unwind(panic);
        }
        Poll::Ready(report)
    }
}

/// The last report of a source. An equal report is dropped; the first offer after a failure is
/// reported even if its digest has not changed.
#[derive(Default)]
pub(crate) struct Last(Option<Result<Digest, String>>);

impl Last {
    /// Whether the last report was a failure.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self.0, Some(Err(_)))
    }

    /// Whether this report equals the last one.
    pub(crate) fn is_unchanged(&self, seen: Result<Digest, &SourceError>) -> bool {
        match (&self.0, seen) {
            (Some(Ok(offered)), Ok(digest)) => *offered == digest,
            (Some(Err(told)), Err(error)) => *told == error.message(),
            (None | Some(_), _) => false,
        }
    }

    /// Returns the report if it differs from the last one, and remembers it.
    pub(crate) fn if_changed(
        &mut self,
        seen: Result<SourceFile, SourceError>,
    ) -> Option<Result<SourceFile, SourceError>> {
        if self.is_unchanged(seen.as_ref().map(|offer| offer.digest)) {
            return None;
        }
        self.0 = Some(seen.as_ref().map(|offer| offer.digest).map_err(SourceError::message));
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures::FutureExt as _;
    use tokio::{sync::mpsc, task::JoinSet};

    use super::Offers;

    #[tokio::test]
    async fn a_panic_of_a_source_goes_on_in_the_task_that_waits_for_its_offers() {
        for panics in [true, false] {
            let (reports, receiver) = mpsc::channel(Offers::QUEUE);
            let mut watcher = JoinSet::new();
            watcher.spawn(async move {
                drop(reports);
                assert!(!panics, "the bug");
            });
            let mut offers = Offers::new(receiver, watcher);
            let next = AssertUnwindSafe(offers.next()).catch_unwind().await;
            assert_eq!(next.is_err(), panics);
        }
    }
}
