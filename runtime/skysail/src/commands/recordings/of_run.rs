//! What `skysail run` records: each call, or the last failed ones.

use std::sync::Arc;

use skysail_host::{CallRecord, CallRecorder};
use tokio::sync::broadcast::Receiver;

use super::{Failures, Folder};
use crate::args::RecordingArgs;

/// The recordings of a manager.
#[derive(Debug)]
pub(crate) enum Recordings {
    /// Of each call.
    Each(Folder, Receiver<Arc<CallRecord>>),
    /// Of the last failed calls.
    Failed(Failures),
}

impl Recordings {
    /// Makes the recorder record what the flags ask for; none if they ask for nothing.
    ///
    /// # Errors
    /// A rule is wrong, or the folder cannot be made.
    pub(crate) fn of(args: &RecordingArgs, recorder: &mut CallRecorder) -> anyhow::Result<Option<Self>> {
        if let Some(folder) = Folder::of(args.record.as_ref(), &args.redact, recorder)? {
            return Ok(Some(Self::Each(folder, recorder.subscribe())));
        }
        Ok(Failures::of(args, recorder)?.map(Self::Failed))
    }

    /// Writes until no call can follow, or until the disk takes no more: the providers serve
    /// without recordings.
    pub(crate) async fn run(self) {
        match self {
            Self::Each(folder, calls) => {
                if let Err(error) = folder.write_each(calls).await {
                    tracing::warn!("calls are no longer recorded: {error:#}; restart the manager to record again");
                }
            }
            Self::Failed(failures) => failures.run().await,
        }
    }
}
