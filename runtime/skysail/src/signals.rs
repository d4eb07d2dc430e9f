//! The signals that ask a command to stop.

use anyhow::Context as _;
use futures::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a service. SIGHUP keeps the disposition of the parent process: `nohup`
/// ignores it.
pub(crate) const OF_A_SERVICE: [(&str, SignalKind); 2] =
    [("SIGINT", SignalKind::interrupt()), ("SIGTERM", SignalKind::terminate())];

/// Listens for signals from the start of a command, so that no signal ends the process before the
/// command has cleaned up and printed a message.
pub(crate) struct Signals(Vec<(&'static str, Signal)>);

impl Signals {
    /// Starts to listen; from now on these signals do not end the process.
    ///
    /// # Errors
    /// The process cannot listen for one of the signals.
    pub(crate) fn listen(kinds: &[(&'static str, SignalKind)]) -> anyhow::Result<Self> {
        let listen = |(name, kind): &(&'static str, SignalKind)| {
            let signal = signal(*kind).with_context(|| format!("cannot listen for {name}"))?;
            Ok((*name, signal))
        };
        Ok(Self(kinds.iter().map(listen).collect::<anyhow::Result<_>>()?))
    }

    /// Waits for any of the signals and returns its name.
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
