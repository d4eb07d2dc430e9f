//! The CPU time of one call: of the guest, and of the host functions that it calls on the same
//! thread.
//!
//! Fuel counts the guest's instructions, but some of them take wasmtime much longer than an
//! ordinary instruction: growing a memory by zero pages, creating and dropping a handle, copying
//! strings between nested components. So there is a limit on CPU time in addition to fuel. It is
//! checked whenever a call yields its thread: at each tick of the epoch, and when the call waits.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use skysail_provider::{Limit, LimitHit};

/// The CPU time that a call has used so far.
#[derive(Debug)]
pub(crate) struct CpuTime {
    used_ns: AtomicU64,
    max: Duration,
}

impl CpuTime {
    pub(crate) const fn new(max: Duration) -> Self {
        Self { used_ns: AtomicU64::new(0), max }
    }

    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.used_ns.load(Ordering::Relaxed))
    }

    /// Runs a call until it ends or its CPU time is used up.
    ///
    /// # Cancel safety
    /// Dropping the future ends the call.
    pub(crate) async fn within<T>(&self, call: impl Future<Output = T>) -> Result<T, LimitHit> {
        let mut call = pin!(call);
        poll_fn(|context| {
            let began = clock(ClockId::ThreadCPUTime);
            let polled = call.as_mut().poll(context);
            let took = clock(ClockId::ThreadCPUTime).saturating_sub(began);
            self.used_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            match polled {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending if self.used() > self.max => Poll::Ready(Err(self.hit())),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn hit(&self) -> LimitHit {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        LimitHit { limit: Limit::CpuTime, used: millis(self.used()), max: millis(self.max) }
    }
}

/// Reads a clock of CPU time.
pub(crate) fn clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::time::ClockId;
    use skysail_provider::Limit;

    use super::{CpuTime, clock};

    fn spin(time: Duration) {
        let end = clock(ClockId::ThreadCPUTime) + time;
        while clock(ClockId::ThreadCPUTime) < end {}
    }

    #[tokio::test]
    async fn a_call_ends_when_it_yields_after_its_cpu_time_is_used_up() {
        let cpu = CpuTime::new(Duration::from_millis(20));
        let computing = async {
            loop {
                spin(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        };
        let hit = cpu.within::<()>(computing).await.unwrap_err();
        assert_eq!((hit.limit, hit.max), (Limit::CpuTime, 20));
        assert!(hit.used >= 20 && cpu.used() > Duration::from_millis(20), "{hit}");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_takes_no_cpu_time() {
        let cpu = CpuTime::new(Duration::from_millis(100));
        let waiting = tokio::time::sleep(Duration::from_secs(3600));
        assert_eq!(cpu.within(waiting).await, Ok(()));
    }
}
