//! The fence: whether this process may still write, to the Kubernetes API or to a cloud.
//!
//! Replicas elect a leader, which leads as long as it renews its lease. A process that was frozen
//! or partitioned does not know that its lease expired and that another replica leads: so every
//! write checks the fence at the last moment before the write leaves. The fence is a point in time
//! on a clock that goes on while the process is frozen; each renewal of the lease moves the point.
//! A fence that has expired stays closed.
//!
//! # Caveats
//! Between the question and the system call that sends lie microseconds in which a process can
//! still be frozen. Nothing but a cloud or an API that knows leaders could close that gap; the
//! API's own guard for it is the resourceVersion of a write.

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

/// The lease ran out, or was given up: nothing may be written any more, and the process has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead any more: it sends nothing")]
pub struct FenceClosed;

impl From<FenceClosed> for Error {
    fn from(closed: FenceClosed) -> Self {
        Self::new(Code::NotLeading, closed.to_string())
    }
}

/// Says whether this process may still write; cloning shares it. The default is open for ever: a
/// process that is alone.
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

    /// Leaves it open for longer; what is earlier than before changes nothing.
    ///
    /// # Errors
    /// It is closed: another process may lead.
    pub fn extend(&self, until: Duration) -> Result<(), FenceClosed> {
        let Some(gate) = &self.0 else { return Ok(()) };
        let until = nanoseconds(until);
        let longer = |known: u64| (nanoseconds((gate.now)()) < known).then(|| known.max(until));
        match gate.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer) {
            Ok(_before) => Ok(()),
            Err(_closed) => Err(FenceClosed),
        }
    }

    /// Closes it for ever. One that is open for ever stays so: nobody else could lead.
    pub fn close(&self) {
        if let Some(gate) = &self.0 {
            gate.until.store(0, Ordering::Release);
        }
    }

    /// Whether something may be written now.
    ///
    /// # Errors
    /// It is closed.
    pub fn check(&self) -> Result<(), FenceClosed> {
        match &self.0 {
            Some(gate) if !gate.is_open() => Err(FenceClosed),
            Some(_) | None => Ok(()),
        }
    }

    /// Runs a future that writes. It is asked before each step, so that a process that was frozen
    /// in the middle does not go on: the future is dropped then.
    ///
    /// # Errors
    /// The fence was closed before the future had ended. Some of what it does may be done.
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

/// 584 years fit.
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

    /// A fence that closes at second 10, and its clock's hand.
    fn until_ten() -> (Fence, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&hand);
        let now = move || Duration::from_secs(clock.load(Ordering::SeqCst));
        (Fence::until(now, Duration::from_secs(10)), hand)
    }

    #[test]
    fn it_closes_when_its_time_is_over_and_stays_closed() {
        let (fence, hand) = until_ten();
        assert_eq!(fence.check(), Ok(()));
        hand.store(9, Ordering::SeqCst);
        assert_eq!(fence.extend(Duration::from_secs(19)), Ok(()));
        hand.store(18, Ordering::SeqCst);
        assert_eq!(fence.check(), Ok(()));
        hand.store(19, Ordering::SeqCst);
        assert_eq!(fence.check(), Err(FenceClosed));
        assert_eq!(fence.extend(Duration::from_secs(99)), Err(FenceClosed), "a renewal that came late opens nothing");
        assert_eq!(fence.check(), Err(FenceClosed));
    }

    #[test]
    fn an_earlier_time_shortens_nothing() {
        let (fence, hand) = until_ten();
        assert_eq!(fence.extend(Duration::from_secs(3)), Ok(()));
        hand.store(9, Ordering::SeqCst);
        assert_eq!(fence.check(), Ok(()));
    }

    #[test]
    fn one_that_was_closed_is_closed_for_all_who_share_it() {
        let (fence, _hand) = until_ten();
        let shared = fence.clone();
        fence.close();
        assert_eq!((shared.check(), shared.extend(Duration::from_secs(20))), (Err(FenceClosed), Err(FenceClosed)));
    }

    #[test]
    fn the_default_is_open_for_ever() {
        let fence = Fence::default();
        fence.close();
        assert_eq!((fence.check(), fence.extend(Duration::ZERO)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_guarded_future_takes_no_step_after_the_end() {
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
