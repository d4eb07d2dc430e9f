//! A folder of recordings: files that `skysail call`, `skysail dev` and `skysail run` write, and
//! that `skysail replay` reads.

mod failures;
mod of_run;

use std::{
    fs::{self, DirBuilder},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use skysail_host::{
    CallRecord, CallRecorder, read_file,
    recording::{Recording, Redact},
    write_own_file,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use self::failures::Failures;
pub(crate) use self::of_run::Recordings;
use crate::output;

/// The maximum number of recordings that one process writes: hours of `skysail dev`, and a folder
/// that tools can still list.
const RECORDINGS_MAX: u32 = 10_000;

/// The largest file that is read: the bytes of a recording, which JSON may escape, and thousands of
/// nodes among the arguments.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// The end of a recording's name.
const SUFFIX: &str = ".json";

/// A folder that recordings are written into. Files that are there already stay.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The number of the last recording in the folder.
    last: u32,
    written: u32,
}

impl Folder {
    /// The folder that the flags name, which is made where it is missing; none if they name none.
    /// Makes the recorder record each call.
    ///
    /// # Errors
    /// A rule is wrong, or the folder cannot be made or read.
    pub(crate) fn of(
        record: Option<&PathBuf>,
        redact: &[String],
        recorder: &mut CallRecorder,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = record else { return Ok(None) };
        let redact = Redact::parse(redact).context("--redact")?;
        let folder = Self::open(path.clone()).context("--record")?;
        *recorder = recorder.clone().recording(redact);
        Ok(Some(folder))
    }

    /// A folder, which is made where it is missing.
    fn open(path: PathBuf) -> anyhow::Result<Self> {
        make(&path)?;
        let names = names(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let last = names.iter().filter_map(|name| number(name)).max().unwrap_or_default();
        Ok(Self { path, last, written: 0 })
    }

    /// Writes the recording of each call until no call can follow.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) async fn write_each(mut self, mut calls: Receiver<Arc<CallRecord>>) -> anyhow::Result<()> {
        loop {
            let recording = match calls.recv().await {
                Ok(record) => record.recording.clone(),
                Err(RecvError::Lagged(lost)) => {
                    tracing::warn!("{lost} calls are not recorded: the disk is slower than the calls");
                    None
                }
                Err(RecvError::Closed) => return Ok(()),
            };
            let Some(recording) = recording else { continue };
            // In a thread for blocking work, because it writes a file.
            let written = tokio::task::spawn_blocking(move || self.write(&recording).map(|()| self));
            self = written.await.context("a recording was not written")??;
        }
    }

    /// Writes one recording; says once that there are enough.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&mut self, recording: &Recording) -> anyhow::Result<()> {
        if self.written > RECORDINGS_MAX {
            return Ok(());
        }
        self.written += 1;
        if self.written > RECORDINGS_MAX {
            output::say(&format!(
                "{RECORDINGS_MAX} calls are recorded, and no further one will be; start again to record more"
            ));
            return Ok(());
        }
        self.write_next(recording)
    }

    fn write_next(&mut self, recording: &Recording) -> anyhow::Result<()> {
        self.last = self.last.saturating_add(1);
        let path = self.path.join(format!("{:06}-{}{SUFFIX}", self.last, recording.function));
        let text = output::json(recording)?;
        write_own_file(&path, &self.path, &[text.as_bytes()])
            .with_context(|| format!("the recording {} cannot be written; free space on the disk", path.display()))
    }
}

/// Makes a folder where it is missing. The answers of a cloud are nobody else's.
fn make(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("the folder {} cannot be made; name another folder", path.display()))
}

/// The number of a recording.
fn number(name: &str) -> Option<u32> {
    name.split('-').next()?.parse().ok()
}

/// The names of the recordings in a folder, in order.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        // A name that is not UTF-8 is not one of a recording.
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.ends_with(SUFFIX)));
    }
    names.sort_unstable();
    Ok(names)
}

/// The files of recordings that the command line names, directly or by their folder.
///
/// # Errors
/// A path does not exist, or a folder has no recording.
pub(crate) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let shown = path.display();
        match names(path) {
            Ok(names) if names.is_empty() => match folders(path).as_slice() {
                [] => bail!("{shown} has no recording ({SUFFIX}); name a folder that `skysail call --record` wrote"),
                of => {
                    bail!("{shown} has no recording itself; name the folder of one provider in it: {}", of.join(", "))
                }
            },
            Ok(names) => files.extend(names.into_iter().map(|name| path.join(name))),
            Err(error) if error.kind() == ErrorKind::NotADirectory => files.push(path.clone()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{shown} does not exist; name a recording, or a folder with recordings")
            }
            Err(error) => return Err(error).with_context(|| format!("{shown} cannot be read")),
        }
    }
    Ok(files)
}

/// The names of the folders in a folder, in order: `skysail run --record-failures` makes one for
/// each provider.
fn folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<_> = of.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// Reads one recording.
///
/// # Errors
/// The file cannot be read, or is not a recording that this version can replay.
pub(crate) fn read(path: &Path) -> anyhow::Result<Recording> {
    let shown = path.display();
    let bytes = read_file(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            anyhow!("{shown} is not a recording: it has more than {} MiB; name another file", FILE_BYTES_MAX >> 20)
        }
        _ => anyhow!(error).context(format!("{shown} cannot be read")),
    })?;
    Recording::parse(&bytes).with_context(|| format!("{shown} cannot be replayed"))
}
