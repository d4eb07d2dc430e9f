//! The fence: whether this process may still write, to the Kubernetes API or to a cloud.
//!
//! Replicas elect a leader, which leads as long as it renews its lease. A process that was frozen
//! or partitioned does not know that its lease expired and that another replica leads: so every
//! write checks the fence immediately before it is sent. The fence is a deadline on a clock that
//! keeps running while the process is frozen; each renewal of the lease extends the deadline. A
//! fence that has expired stays closed.
//!
//! # Caveats
//! A process can still be frozen in the microseconds between the check and the system call that
//! sends. Only a cloud or an API that verifies the leader could close this gap; in the Kubernetes
//! API, the resourceVersion of a write does.

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use crate::{Code, Error};

/// The lease expired or was released: the process must not write any more and has to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process is no longer the leader and sends no more requests")]
pub struct FenceClosed;

impl From<FenceClosed> for Error {
    fn from(closed: FenceClosed) -> Self {
        Self::new(Code::NotLeading, closed.to_string())
    }
}

/// Tells whether this process may still write; clones share the state. The default is always open:
/// a process without leader election.
#[derive(Clone, Default)]
pub struct Fence(Option<Arc<Gate>>);

struct Gate {
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    /// Nanoseconds on that clock; 0 is closed.
    until: AtomicU64,
}

impl Gate {
    fn is_open(&self) -> bool {
        nanoseconds((self.now)()) < self.until.load(Ordering::Acquire)
    }
}

impl Fence {
    /// A fence that is open until the clock `now` reads `until`. The clock never goes back, and
    /// goes on while the process is frozen and while the machine sleeps.
    #[must_use]
    pub fn until(now: impl Fn() -> Duration + Send + Sync + 'static, until: Duration) -> Self {
        Self(Some(Arc::new(Gate { now: Box::new(now), until: AtomicU64::new(nanoseconds(until)) })))
    }

    /// Extends the deadline; an earlier deadline changes nothing.
    ///
    /// # Errors
    /// The fence is closed: another replica may be the leader.
    pub fn extend(&self, until: Duration) -> Result<(), FenceClosed> {
        let Some(gate) = &self.0 else { return Ok(()) };
        let until = nanoseconds(until);
        let longer = |known: u64| (nanoseconds((gate.now)()) < known).then(|| known.max(until));
        match gate.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer) {
            Ok(_before) => Ok(()),
            Err(_closed) => Err(FenceClosed),
        }
    }

    /// Closes the fence permanently. A default fence stays open, because there is no other replica.
    pub fn close(&self) {
        if let Some(gate) = &self.0 {
            gate.until.store(0, Ordering::Release);
        }
    }

    /// Fails if the process must not write now.
    ///
    /// # Errors
    /// The fence is closed.
    pub fn check(&self) -> Result<(), FenceClosed> {
        match &self.0 {
            Some(gate) if !gate.is_open() => Err(FenceClosed),
            Some(_) | None => Ok(()),
        }
    }

    /// Runs a future that writes. The fence is checked before each poll, so that a process that was
    /// frozen in the middle does not continue: the future is then dropped.
    ///
    /// # Errors
    /// The fence closed before the future completed. The future may have done a part of its work.
    ///
    /// # Cancel safety
    /// That of the future.
    pub async fn guard<F: Future>(&self, future: F) -> Result<F::Output, FenceClosed> {
        let mut future = pin!(future);
        poll_fn(|context| match self.check() {
            Ok(()) => future.as_mut().poll(context).map(Ok),
            Err(closed) => Poll::Ready(Err(closed)),
        })
        .await
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&if self.check().is_ok() { "open" } else { "closed" }).finish()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        task::{Context, Poll, Waker},
        time::Duration,
    };

    use super::{Fence, FenceClosed};

    /// A fence that closes at second 10, and the seconds of its clock.
    fn until_ten() -> (Fence, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&hand);
        let now = move || Duration::from_secs(clock.load(Ordering::SeqCst));
        (Fence::until(now, Duration::from_secs(10)), hand)
    }

    #[test]
    fn a_fence_closes_at_its_deadline_and_stays_closed() {
        let (fence, hand) = until_ten();
        assert_eq!(fence.check(), Ok(()));
        hand.store(9, Ordering::SeqCst);
        assert_eq!(fence.extend(Duration::from_secs(19)), Ok(()));
        hand.store(18, Ordering::SeqCst);
        assert_eq!(fence.check(), Ok(()));
        hand.store(19, Ordering::SeqCst);
        assert_eq!(fence.check(), Err(FenceClosed));
        assert_eq!(fence.extend(Duration::from_secs(99)), Err(FenceClosed), "a late renewal must not reopen the fence");
        assert_eq!(fence.check(), Err(FenceClosed));
    }

    #[test]
    fn an_earlier_deadline_does_not_shorten_the_fence() {
        let (fence, hand) = until_ten();
        assert_eq!(fence.extend(Duration::from_secs(3)), Ok(()));
        hand.store(9, Ordering::SeqCst);
        assert_eq!(fence.check(), Ok(()));
    }

    #[test]
    fn closing_a_fence_closes_all_its_clones() {
        let (fence, _hand) = until_ten();
        let shared = fence.clone();
        fence.close();
        assert_eq!((shared.check(), shared.extend(Duration::from_secs(20))), (Err(FenceClosed), Err(FenceClosed)));
    }

    #[test]
    fn the_default_fence_never_closes() {
        let fence = Fence::default();
        fence.close();
        assert_eq!((fence.check(), fence.extend(Duration::ZERO)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_guarded_future_is_not_polled_after_the_fence_closed() {
        let (fence, hand) = until_ten();
        let mut steps = 0;
        let work = std::future::poll_fn(|_| {
            steps += 1;
            Poll::<()>::Pending
        });
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut guarded = pin!(fence.guard(work));
            assert!(guarded.as_mut().poll(&mut context).is_pending());
            hand.store(10, Ordering::SeqCst);
            assert_eq!(guarded.as_mut().poll(&mut context), Poll::Ready(Err(FenceClosed)));
        }
        assert_eq!(steps, 1);
    }
}
