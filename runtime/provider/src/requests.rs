//! The requests to the cloud of one call: so that a call can be cancelled between two requests and
//! not in the middle of one that changes the cloud.

use std::{
    future::{self, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

#[derive(Debug, Default)]
struct State {
    /// No request may begin.
    stopped: bool,
    /// The requests in flight that may change the cloud.
    writes: u32,
    /// Who waits for the end of the last of them.
    waiting: Vec<Waker>,
}

/// The requests of one attempt of a call; clones share the state. The default has begun none.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<State>>);

/// A request in flight. A drop ends the request.
#[derive(Debug)]
#[must_use]
pub struct RequestInFlight(Option<Requests>);

impl Requests {
    /// Begins a request. Once [`Self::finish`] has begun, no request begins: the call is about to
    /// be cancelled, and waits here until then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn begin(&self, writes: bool) -> RequestInFlight {
        let stopped = {
            let mut state = self.state();
            if writes && !state.stopped {
                state.writes = state.writes.saturating_add(1);
            }
            state.stopped
        };
        if stopped {
            future::pending::<()>().await;
        }
        RequestInFlight(writes.then(|| self.clone()))
    }

    /// Lets no further request begin, and waits until no request is in flight that may change the
    /// cloud. The cloud would carry out a request whose client is gone, while the next attempt of
    /// the call does not see its effect yet.
    pub async fn finish(&self) {
        self.state().stopped = true;
        poll_fn(|context| {
            let mut state = self.state();
            if state.writes == 0 {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let Some(requests) = &self.0 else { return };
        let ended = {
            let mut state = requests.state();
            state.writes = state.writes.saturating_sub(1);
            if state.writes == 0 { std::mem::take(&mut state.waiting) } else { Vec::new() }
        };
        ended.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::{RequestInFlight, Requests};

    fn begun(requests: &Requests, writes: bool) -> Option<RequestInFlight> {
        match pin!(requests.begin(writes)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(request) => Some(request),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_call_is_finished_when_its_last_write_has_ended_and_begins_no_other_request() {
        let requests = Requests::default();
        let (read, first, second) = (begun(&requests, false), begun(&requests, true), begun(&requests, true));
        let mut context = Context::from_waker(Waker::noop());
        let mut finished = pin!(requests.finish());
        assert!(finished.as_mut().poll(&mut context).is_pending());
        assert!(begun(&requests, false).is_none() && begun(&requests, true).is_none());
        drop(first);
        assert!(finished.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(finished.as_mut().poll(&mut context).is_ready(), "a read in flight may be cut off");
        drop(read);
        assert!(begun(&requests, true).is_none());
    }

    #[test]
    fn a_call_without_a_write_in_flight_is_finished_at_once() {
        let requests = Requests::default();
        drop(begun(&requests, true).unwrap());
        let _read = begun(&requests, false).unwrap();
        assert!(pin!(requests.finish()).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
