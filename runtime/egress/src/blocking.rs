//! Blocking work on the thread pool, with a limit of concurrent jobs. Must not know what the work
//! does.

use std::{io, sync::Arc};

use tokio::{sync::Semaphore, task::spawn_blocking};

/// Limits how many of the 512 threads of tokio's blocking pool, which all providers share, one user
/// may hold.
#[derive(Debug)]
pub(crate) struct Blocking {
    places: Arc<Semaphore>,
}

impl Blocking {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(at_once)) }
    }

    /// Runs blocking work. Its place is free again when the work *returns*, not when the caller
    /// stops waiting.
    ///
    /// # Cancel safety
    /// After the future is dropped, work that has begun runs to its end; other work never begins.
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
    async fn work_whose_caller_has_gone_keeps_its_place_until_it_returns() {
        let blocking = Blocking::new(2);
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (end, ended) = mpsc::channel();
            ends.push(end);
            // The first poll begins the work; the drop is what a timeout of the request does.
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
