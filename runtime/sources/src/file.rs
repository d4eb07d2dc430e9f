//! A component in a file: on a disk, or under a key of a mounted folder (ConfigMap, image volume,
//! host path).
//!
//! # Flow
//! 1. Something wakes the source: a notification from the kernel, or the slow poll.
//! 2. The file is read and hashed, twice, [`FileSourceSettings::settle`] apart (after a rename one
//!    right after the other), until two readings agree.
//! 3. A digest that differs from the last one offered becomes an [`Offer`]; the same one means
//!    silence.
//!
//! # Why two readings
//! People save in three ways. A rename and the `..data` symlink of a ConfigMap replace the file as
//! a whole: who saves so has written it, and it needs no rest where the kernel says that it was one
//! (a writer that goes on after the rename has a truncated component refused, as below). `cp`
//! truncates and then writes piece by piece, so a reading in between sees a prefix. Size, times and
//! digest of two readings agree while a writer is at work only if the writer paused for the whole
//! settle time, without one notification; the pieces of a copy on a local disk follow each other
//! within microseconds. A writer that does pause that long (a stalled network disk) leaves a
//! truncated component, which the next guard refuses: a component's sections carry their lengths,
//! and its exports come last. When the rest arrives, the digest differs again and the whole file is
//! offered.
//!
//! # Caveats
//! Notifications are hints: they get lost (overflow, network file systems) and lie (`..data` swaps
//! appear as writes). Only the digest counts. A `subPath` mount never changes while its pod lives;
//! the source says so when it finds itself on one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time,
};

use crate::{Offer, Offers, SourceError, offer::Last};

mod read;
mod watch;

#[cfg(test)]
mod tests;

use read::Reading;
use watch::Watches;

/// How a file is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSourceSettings {
    /// How often the file is read where no notification came. Default 30 s, at least
    /// [`Self::POLL_MIN`].
    pub poll: Duration,
    /// How long the file has to rest before it is offered, unless it was renamed into its place.
    /// Default 50 ms: ten thousand times the pause between two writes of a copy, and a sixth of
    /// what a swap may take.
    pub settle: Duration,
    /// Largest file that is read, in bytes. Default 32 MiB.
    pub bytes_max: u64,
}

impl FileSourceSettings {
    /// Shortest period of the poll: each poll reads the whole file.
    pub const POLL_MIN: Duration = Duration::from_millis(100);
}

impl Default for FileSourceSettings {
    fn default() -> Self {
        Self { poll: Duration::from_secs(30), settle: Duration::from_millis(50), bytes_max: 32 << 20 }
    }
}

/// Readings of one file that differ before the source says that it never rests; then it tries
/// again. At the default settle time this is ten seconds, longer than any copy of a file below the
/// size limit to a disk that works.
const READINGS_MAX: usize = 200;

/// Watches one file.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    settings: FileSourceSettings,
}

impl FileSource {
    /// A source for this file. Nothing is read yet; a missing file is no error here.
    #[must_use]
    pub fn new(path: PathBuf, settings: FileSourceSettings) -> Self {
        let poll = settings.poll.max(FileSourceSettings::POLL_MIN);
        Self { path, settings: FileSourceSettings { poll, ..settings } }
    }

    /// Reads the file and watches it until the returned stream is dropped.
    ///
    /// The first item comes at once: the file's content, or why there is none. Must be called on a
    /// tokio runtime with time enabled.
    #[must_use]
    pub fn watch(self) -> Offers {
        let wake = Arc::new(Notify::new());
        let watches = Watches::new(Arc::clone(&wake));
        self.watch_with(wake, watches)
    }

    fn watch_with(self, wake: Arc<Notify>, watches: Watches) -> Offers {
        let (reports, receiver) = mpsc::channel(Offers::QUEUE);
        let mut watcher = JoinSet::new();
        watcher.spawn(
            Task { path: self.path.clone(), settings: self.settings, wake, watches, last: Last::default() }
                .run(reports),
        );
        Offers::new(receiver, watcher)
    }
}

struct Task {
    path: PathBuf,
    settings: FileSourceSettings,
    wake: Arc<Notify>,
    watches: Watches,
    last: Last,
}

impl Task {
    async fn run(mut self, reports: mpsc::Sender<Result<Offer, SourceError>>) {
        watch::warn_of_sub_path(&self.path);
        loop {
            // Watches first: a change after this and before the reading wakes the loop once more.
            self.watches.follow(&self.path);
            let settled = self.settle().await;
            if let Some(report) = self.report(settled)
                && reports.send(report).await.is_err()
            {
                return;
            }
            tokio::select! {
                () = self.wake.notified() => {}
                () = time::sleep(self.settings.poll) => {}
                () = reports.closed() => return,
            }
        }
    }

    /// Reads until two readings in a row agree.
    ///
    /// A reading that agrees with what was reported last needs no second one: nothing will be done
    /// with it.
    async fn settle(&mut self) -> Result<Reading, SourceError> {
        let mut before = self.read().await;
        for _ in 0..READINGS_MAX {
            if self.is_old_news(&before) {
                return before;
            }
            // Asked after the reading: a write after the rename has taken this away again.
            if !self.watches.take_replaced() {
                time::sleep(self.settings.settle).await;
            }
            self.watches.follow(&self.path);
            let after = self.read().await;
            if agree(&before, &after) {
                return after;
            }
            before = after;
        }
        Err(SourceError::Unsettled { path: self.path.clone() })
    }

    async fn read(&self) -> Result<Reading, SourceError> {
        let (path, bytes_max) = (self.path.clone(), self.settings.bytes_max);
        let reading = tokio::task::spawn_blocking(move || read::read(&path, bytes_max));
        reading.await.unwrap_or_else(|error| {
            let source = Arc::new(std::io::Error::other(error));
            Err(SourceError::Unreadable { path: self.path.clone(), source })
        })
    }

    fn is_old_news(&self, reading: &Result<Reading, SourceError>) -> bool {
        self.last.is_old_news(reading.as_ref().map(|reading| reading.digest))
    }

    fn report(&mut self, settled: Result<Reading, SourceError>) -> Option<Result<Offer, SourceError>> {
        let offer = |Reading { bytes, digest, stamp: _ }| Offer { bytes, digest, origin: origin(&self.path) };
        self.last.news(settled.map(offer))
    }
}

fn origin(path: &Path) -> String {
    format!("file {}", crate::text::path(path))
}

fn agree(before: &Result<Reading, SourceError>, after: &Result<Reading, SourceError>) -> bool {
    match (before, after) {
        (Ok(before), Ok(after)) => before.stamp == after.stamp && before.digest == after.digest,
        (Err(before), Err(after)) => before.says_the_same_as(after),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}
