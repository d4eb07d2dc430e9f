//! Two runtimes: one for all work, and one of a single thread for what must go on when that work
//! blocks every thread.
//!
//! The control runtime renews the lease, answers probes and receives signals. A component, or a
//! library that parses what a cloud sent, may keep all threads of the other runtime busy: the
//! leader must not lose its lease by that, and a probe must still be answered.

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

/// How often the threads of the work runtime show that they run.
const BEAT: Duration = Duration::from_secs(1);
/// Threads that ran nothing for so long do not come back. A compilation beside them delays a beat
/// by seconds.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Both runtimes.
pub(super) struct Threads {
    pub(super) work: Runtime,
    pub(super) control: Runtime,
}

impl Threads {
    /// Starts both.
    ///
    /// # Errors
    /// The system has no threads for them.
    pub(super) fn start() -> anyhow::Result<Self> {
        let control = Builder::new_multi_thread().worker_threads(1).thread_name("control").enable_all().build();
        let work = Runtime::new().context("cannot start tokio")?;
        Ok(Self { work, control: control.context("cannot start tokio's control thread")? })
    }
}

/// Lets a future start its tasks, sockets and timers on this runtime, whichever runtime waits for
/// it.
pub(super) async fn within<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// Whether the threads of a runtime still run what is ready.
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

    /// Beats for ever, on the runtime that polls this.
    pub(super) async fn run(self) {
        let mut period = interval(BEAT);
        loop {
            period.tick().await;
            self.last.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Good unless the last beat is too long ago.
    ///
    /// # Errors
    /// How long ago it is.
    pub(super) fn check(&self) -> Result<(), String> {
        let silence = Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed)));
        if silence > SILENCE_MAX {
            return Err(format!("the threads of the controllers have run nothing for {} s", silence.as_secs()));
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
