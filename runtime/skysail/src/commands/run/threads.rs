//! Two tokio runtimes: the work runtime, and the control runtime with a single thread.
//!
//! The control runtime renews the Lease, answers probes and receives signals. A component, or a
//! library that parses a cloud's answer, may keep all threads of the work runtime busy; the leader
//! must not lose its Lease by that, and probes must still be answered.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, interval},
};

use crate::signals::{OF_A_SERVICE, Signals};

/// Period of the heartbeat of the work runtime.
const BEAT: Duration = Duration::from_secs(1);
/// Longest time without a heartbeat before the liveness check fails. A compilation in parallel
/// delays a heartbeat by seconds only.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// The control runtime, which listens for the signals that stop the manager.
pub(crate) struct Control {
    pub(super) runtime: Runtime,
    pub(super) signals: Signals,
}

impl Control {
    /// Starts the control runtime. Until then a signal ends the process as signals do by default,
    /// so that the parent sees no clean end.
    ///
    /// # Errors
    /// The system has no thread, or the process cannot listen for a signal.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let control = Builder::new_multi_thread().worker_threads(1).thread_name("control").enable_all().build();
        let runtime = control.context("cannot start tokio's control thread")?;
        let signals = {
            let _entered = runtime.enter();
            Signals::listen(&OF_A_SERVICE)?
        };
        Ok(Self { runtime, signals })
    }
}

/// Both runtimes.
pub(super) struct Threads {
    pub(super) work: Runtime,
    pub(super) control: Runtime,
}

impl Threads {
    /// Starts the work runtime beside the control runtime.
    ///
    /// # Errors
    /// The system has no threads for it.
    pub(super) fn beside(control: Runtime) -> anyhow::Result<Self> {
        let work = Runtime::new().context("cannot start tokio")?;
        Ok(Self { work, control })
    }
}

/// Polls a future within this runtime, so that its tasks, sockets and timers belong to it, even if
/// another runtime awaits it.
pub(super) async fn within<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// The heartbeat of a runtime: it shows that the runtime still runs tasks.
#[derive(Clone)]
pub(super) struct Beats {
    start: Instant,
    /// Milliseconds from the start to the last beat.
    last: Arc<AtomicU64>,
}

impl Beats {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: Arc::default() }
    }

    /// Records heartbeats without end, on the runtime that polls this.
    pub(super) async fn run(self) {
        let mut period = interval(BEAT);
        loop {
            period.tick().await;
            self.last.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Checks the age of the last heartbeat.
    ///
    /// # Errors
    /// The last heartbeat is older than [`SILENCE_MAX`].
    pub(super) fn check(&self) -> Result<(), String> {
        let silence = Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed)));
        if silence > SILENCE_MAX {
            return Err(format!("the threads of the controllers have run no task for {} s", silence.as_secs()));
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
