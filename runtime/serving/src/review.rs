//! Limits the questions to the API server about tokens and permissions.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    cache::Cache,
    limits::{REVIEW_TIMEOUT, REVIEW_WAIT_MAX, REVIEWS},
    peer_address::PeerAddress,
    waiting_places::WaitingPlaces,
};

/// The reviews of one kind, and their latest answers.
#[derive(Debug)]
pub(crate) struct Reviews<T> {
    kind: &'static str,
    places: WaitingPlaces,
    known: Cache<T>,
}

/// A review without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error(
        "a {kind} was not sent within {} s: others for this client, its network or all clients wait for the API server; \
         let the client send fewer requests at a time, or find out why the API server is slow",
        REVIEW_WAIT_MAX.as_secs()
    )]
    NoPlace { kind: &'static str },
    #[error("cannot send a {kind} to the API server")]
    Request { kind: &'static str, source: Box<kube::Error> },
    #[error("the API server did not answer a {kind} in time")]
    Timeout { kind: &'static str },
}

impl<T: Clone> Reviews<T> {
    /// Keeps at most `max` answers.
    pub(crate) fn new(kind: &'static str, max: usize) -> Self {
        Self { kind, places: WaitingPlaces::new(REVIEWS), known: Cache::new(max) }
    }

    /// The answer to the question with these parts, which a request of this client needs. `ask`
    /// returns the answer of the API server and how long it is kept.
    pub(crate) async fn review<'a>(
        &self,
        client: PeerAddress,
        parts: impl IntoIterator<Item = &'a str>,
        ask: impl Future<Output = kube::Result<(T, Duration)>>,
    ) -> Result<T, ReviewError> {
        let (kind, key) = (self.kind, self.known.key(parts));
        if let Some(known) = self.known.get(&key) {
            return Ok(known);
        }
        let place = timeout(REVIEW_WAIT_MAX, self.places.place(client)).await;
        // The answer may have come for another request meanwhile.
        if let Some(known) = self.known.get(&key) {
            return Ok(known);
        }
        let Ok(Ok(_place)) = place else { return Err(ReviewError::NoPlace { kind }) };
        let answer = timeout(REVIEW_TIMEOUT, ask).await.map_err(|_| ReviewError::Timeout { kind })?;
        let (answer, ttl) = answer.map_err(|error| ReviewError::Request { kind, source: Box::new(error) })?;
        self.known.insert(key, answer.clone(), ttl);
        Ok(answer)
    }
}
