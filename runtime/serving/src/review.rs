//! Limits the questions to the API server about tokens and permissions.

use tokio::time::timeout;

use crate::{
    limits::{REVIEW_TIMEOUT, REVIEW_WAIT_MAX, REVIEWS},
    peer_address::PeerAddress,
    waiting_places::WaitingPlaces,
};

/// The places of the reviews of one kind.
#[derive(Debug)]
pub(crate) struct ReviewPlaces {
    kind: &'static str,
    places: WaitingPlaces,
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

impl ReviewPlaces {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, places: WaitingPlaces::new(REVIEWS) }
    }

    /// Waits for a place, and then for the answer to the review that a request of this client
    /// needs.
    pub(crate) async fn review<T>(
        &self,
        client: PeerAddress,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ReviewError> {
        let kind = self.kind;
        let Ok(Ok(_place)) = timeout(REVIEW_WAIT_MAX, self.places.place(client)).await else {
            return Err(ReviewError::NoPlace { kind });
        };
        let answer = timeout(REVIEW_TIMEOUT, answer).await.map_err(|_| ReviewError::Timeout { kind })?;
        answer.map_err(|error| ReviewError::Request { kind, source: Box::new(error) })
    }
}
