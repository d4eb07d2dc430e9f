//! The signals that ask a command for its end.

use anyhow::Context as _;
use futures::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Of a service. SIGHUP is left to the starting process: `nohup` has it ignored.
pub(crate) const OF_A_SERVICE: [(&str, SignalKind); 2] =
    [("SIGINT", SignalKind::interrupt()), ("SIGTERM", SignalKind::terminate())];
/// Of a command that belongs to its terminal.
pub(crate) const OF_A_TERMINAL: [(&str, SignalKind); 3] =
    [("SIGINT", SignalKind::interrupt()), ("SIGTERM", SignalKind::terminate()), ("SIGHUP", SignalKind::hangup())];

/// Listened to from the start of a command, so that none of them ends it where it has something to
/// clean up, or without a word.
pub(crate) struct Signals(Vec<(&'static str, Signal)>);

impl Signals {
    /// From here on these do not end the process.
    ///
    /// # Errors
    /// One of them cannot be listened to.
    pub(crate) fn listen(kinds: &[(&'static str, SignalKind)]) -> anyhow::Result<Self> {
        let listen = |(name, kind): &(&'static str, SignalKind)| {
            let signal = signal(*kind).with_context(|| format!("cannot listen for {name}"))?;
            Ok((*name, signal))
        };
        Ok(Self(kinds.iter().map(listen).collect::<anyhow::Result<_>>()?))
    }

    /// Waits for any of them, and says which.
    pub(crate) async fn end(&mut self) -> &'static str {
        let each = self.0.iter_mut().map(|(name, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *name
            })
        });
        select_all(each).await.0
    }
}
