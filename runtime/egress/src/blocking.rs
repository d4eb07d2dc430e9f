//! Work that holds a thread, with a bound for how much of it is under way. Must not know what the
//! work is.

use std::{io, sync::Arc};

use tokio::{sync::Semaphore, task::spawn_blocking};

/// Places for work that blocks, in the runtime's pool of 512 threads, which all providers share.
#[derive(Debug)]
pub(crate) struct Blocking {
    places: Arc<Semaphore>,
}

impl Blocking {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(at_once)) }
    }

    /// Runs work that blocks. The place is given back when it *returns*: a request that ends
    /// earlier ends the wait, not the work.
    ///
    /// # Cancel safety
    /// Dropping the future leaves work that has begun to its end, and none that has not.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let worked = spawn_blocking(move || {
            let result = work();
            drop(place);
            result
        });
        worked.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::mpsc};

    use futures::{FutureExt as _, poll};

    use super::Blocking;

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_keeps_its_place_until_it_returns() {
        let blocking = Blocking::new(2);
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (end, ended) = mpsc::channel();
            ends.push(end);
            // Polled once, which begins it, and dropped, as when the request's time is over.
            let work = blocking.run(move || Ok(ended.recv().is_ok()));
            assert!(work.now_or_never().is_none());
        }
        assert_eq!(blocking.places.available_permits(), 0);
        let mut next = pin!(blocking.run(|| Ok("done")));
        assert!(poll!(&mut next).is_pending());
        ends.pop().unwrap().send(()).unwrap();
        assert_eq!(next.await.unwrap(), "done");
    }
}
