//! A component in a file: on a disk, or under a key of a mounted folder (ConfigMap, image volume,
//! host path).
//!
//! # Flow
//! 1. A notification from the kernel or the slow poll wakes the source.
//! 2. The source reads and hashes the file twice, [`FileSourceSettings::settle`] apart (without a
//!    pause after a rename), until two readings agree.
//! 3. A digest that differs from the last one offered becomes a [`SourceFile`]; an unchanged digest
//!    is not reported.
//!
//! # Why two readings
//! A file is replaced in three ways. A rename, and the exchange of a ConfigMap's `..data` symlink,
//! replace the whole file at once; where the kernel reports a rename, no pause is needed. `cp`
//! truncates the file and then writes it in pieces, so a reading in between sees a prefix. During a
//! copy, the size, the times and the digest of two readings agree only if the writer pauses for the
//! whole settle time; the pieces of a copy on a local disk follow each other within microseconds. A
//! writer that pauses longer (a stalled network disk) leaves a truncated component, which the
//! receiver refuses: a component's sections carry their lengths, and its exports come last. When
//! the rest arrives, the digest differs again and the whole file is offered.
//!
//! # Caveats
//! Notifications are hints: they can be lost (overflow, network file systems) or misleading
//! (`..data` swaps appear as writes). Only the digest counts. A `subPath` mount never changes while
//! its pod lives; the source logs a warning for one.

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

use crate::{Offers, SourceError, SourceFile, offer::Last};

mod read;
mod watch;

#[cfg(test)]
mod tests;

use read::Reading;
use watch::Watches;

/// How a file is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSourceSettings {
    /// How often the file is read without a notification. Default 30 s, at least
    /// [`Self::POLL_MIN`].
    pub poll: Duration,
    /// How long the file has to stay unchanged before it is offered, unless a rename put it there.
    /// Default 50 ms: ten thousand times the pause between two writes of a copy, and a twentieth of
    /// the bound of a swap.
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

/// Differing readings in a row before the source reports [`SourceError::Unsettled`] and starts
/// again. At the default settle time these take ten seconds, longer than a copy of any file below
/// the size limit to a working disk.
const READINGS_MAX: usize = 200;

/// Watches one file.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    settings: FileSourceSettings,
}

impl FileSource {
    /// A source for this file. Nothing is read yet, so a missing file is not an error here.
    #[must_use]
    pub fn new(path: PathBuf, settings: FileSourceSettings) -> Self {
        let poll = settings.poll.max(FileSourceSettings::POLL_MIN);
        Self { path, settings: FileSourceSettings { poll, ..settings } }
    }

    /// Reads the file and watches it until the returned stream is dropped.
    ///
    /// The first item comes at once: the file's content or an error. Must be called on a tokio
    /// runtime with time enabled.
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
    async fn run(mut self, reports: mpsc::Sender<Result<SourceFile, SourceError>>) {
        watch::warn_of_sub_path(&self.path);
        loop {
            // The watches come first, so that a change before the reading wakes the loop again.
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
    /// A reading that equals the last report needs no second reading, because it is not reported.
    async fn settle(&mut self) -> Result<Reading, SourceError> {
        let mut before = self.read().await;
        for _ in 0..READINGS_MAX {
            if self.is_unchanged(&before) {
                return before;
            }
            // Checked after the reading, because a write after the rename resets the flag.
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

    fn is_unchanged(&self, reading: &Result<Reading, SourceError>) -> bool {
        self.last.is_unchanged(reading.as_ref().map(|reading| reading.digest))
    }

    fn report(&mut self, settled: Result<Reading, SourceError>) -> Option<Result<SourceFile, SourceError>> {
        let offer = |Reading { bytes, digest, stamp: _ }| SourceFile { bytes, digest, origin: origin(&self.path) };
        self.last.if_changed(settled.map(offer))
    }
}

fn origin(path: &Path) -> String {
    format!("file {}", crate::text::path(path))
}

fn agree(before: &Result<Reading, SourceError>, after: &Result<Reading, SourceError>) -> bool {
    match (before, after) {
        (Ok(before), Ok(after)) => before.stamp == after.stamp && before.digest == after.digest,
        (Err(before), Err(after)) => before.has_same_message_as(after),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}
