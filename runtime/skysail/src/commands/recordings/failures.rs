//! The last failed calls of each provider, in production: a folder for each provider in which the
//! oldest recordings make place for new ones.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use skysail_host::{
    CallRecorder,
    recording::{Recording, Redact},
};
use tokio::sync::mpsc;

use super::{Folder, make, names, number};
use crate::args::RecordingArgs;

/// The most files of one provider: an incident repeats few different failures.
const FILES_MAX: usize = 20;

/// The most bytes of the files of one provider, the last one aside: the disk of a pod is small.
const BYTES_MAX: u64 = 64 << 20;

/// Recordings that wait for the disk. A call may receive 16 MiB, and all are held in memory.
const WAITING_MAX: usize = 4;

/// Writes the recordings of failed calls.
#[derive(Debug)]
pub(crate) struct Failures {
    failed: mpsc::Receiver<Arc<Recording>>,
    folders: Folders,
}

/// The folder of each provider.
#[derive(Debug)]
struct Folders {
    path: PathBuf,
    of: BTreeMap<String, Folder>,
}

impl Failures {
    /// Makes the recorder record what the flags ask for; none if they ask for nothing.
    ///
    /// # Errors
    /// A rule is wrong, or the folder cannot be made.
    pub(crate) fn of(args: &RecordingArgs, recorder: &mut CallRecorder) -> anyhow::Result<Option<Self>> {
        let Some(path) = args.record_failures.clone() else { return Ok(None) };
        let redact = Redact::parse(&args.redact).context("--redact")?;
        make(&path).context("--record-failures")?;
        let (send, failed) = mpsc::channel(WAITING_MAX);
        *recorder = recorder.clone().recording_failures(redact, send);
        Ok(Some(Self { failed, folders: Folders { path, of: BTreeMap::new() } }))
    }

    /// Writes until no call can follow. A recording that cannot be written is only worth a line in
    /// the log: the provider serves without it.
    pub(crate) async fn run(self) {
        let Self { mut failed, mut folders } = self;
        while let Some(recording) = failed.recv().await {
            let writing = tokio::task::spawn_blocking(move || {
                if let Err(error) = folders.write(&recording) {
                    tracing::warn!(provider.name = recording.provider, "a failed call is not recorded: {error:#}");
                }
                folders
            });
            folders = match writing.await {
                Ok(folders) => folders,
                Err(error) => {
                    tracing::warn!("failed calls are no longer recorded: {error}");
                    return;
                }
            };
        }
    }
}

impl Folders {
    fn write(&mut self, recording: &Recording) -> anyhow::Result<()> {
        // The name of a provider is a DNS label.
        let path = self.path.join(&recording.provider);
        let folder = match self.of.entry(recording.provider.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Folder::open(path.clone())?),
        };
        if let Err(error) = folder.write_next(recording) {
            // Perhaps the operator removed the folder: make it again for the next one.
            self.of.remove(&recording.provider);
            return Err(error);
        }
        remove_oldest(&path, FILES_MAX, BYTES_MAX)
            .with_context(|| format!("the oldest recordings in {} cannot be removed", path.display()))
    }
}

/// Removes the oldest recordings beyond so many files and bytes, but never the last one.
fn remove_oldest(folder: &Path, files_max: usize, bytes_max: u64) -> std::io::Result<()> {
    let mut numbered: Vec<_> =
        names(folder)?.into_iter().filter_map(|name| Some((number(&name)?, folder.join(name)))).collect();
    numbered.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes = 0_u64;
    for (index, (_, path)) in numbered.iter().enumerate() {
        bytes = bytes.saturating_add(fs::metadata(path)?.len());
        if index > 0 && (index >= files_max || bytes > bytes_max) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::names, remove_oldest};

    #[test]
    fn the_oldest_recordings_go_by_their_number_and_the_last_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = |files_max, bytes_max| {
            remove_oldest(folder.path(), files_max, bytes_max).unwrap();
            names(folder.path()).unwrap()
        };
        for number in [999_998, 999_999, 1_000_000, 1_000_001] {
            fs::write(folder.path().join(format!("{number}-routes.list.json")), "12345678").unwrap();
        }
        fs::write(folder.path().join("notes.json"), "of the operator").unwrap();
        let kept = ["1000000-routes.list.json", "1000001-routes.list.json", "999999-routes.list.json", "notes.json"];
        assert_eq!(left(3, 1_000), kept);
        assert_eq!(left(3, 16), ["1000000-routes.list.json", "1000001-routes.list.json", "notes.json"]);
        assert_eq!(left(3, 1), ["1000001-routes.list.json", "notes.json"]);
    }
}
