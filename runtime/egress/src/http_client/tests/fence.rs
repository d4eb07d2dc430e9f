//! A closed fence: a process that is no longer the leader sends no request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use skysail_provider::{Call, Fence};

use super::{Server, get, local, ok, send_all, sent};
use crate::http_client::{FailureKind, HttpBudget, HttpLimits};

/// A budget with a fence that closes at second 10, and the fence's clock.
fn fenced() -> (HttpBudget, Arc<AtomicU64>) {
    let hand = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&hand);
    let fence = Fence::until(move || Duration::from_secs(clock.load(Ordering::SeqCst)), Duration::from_secs(10));
    (HttpBudget::new(HttpLimits::default(), None, &Call { fence, ..Call::default() }), hand)
}

#[tokio::test]
async fn a_request_of_a_call_that_outlived_the_lease_is_not_sent() {
    let server = Server::start(|_| ok("")).await;
    let client = local(&server);
    let (budget, hand) = fenced();
    sent(&client, &budget, get(server.url("/first"))).await.unwrap();
    hand.store(10, Ordering::SeqCst);
    let failure = sent(&client, &budget, get(server.url("/second"))).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Fenced);
    let answers =
        send_all(&client, &budget, vec![get(server.url("/third")), get(server.url("/fourth"))], 1 << 20).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|failure| failure.kind == FailureKind::Fenced)));
    assert_eq!(server.requests().len(), 1, "{:?}", server.requests());
}
