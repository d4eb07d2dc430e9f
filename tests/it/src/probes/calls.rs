//! Concurrent calls, and cancelled calls.

use std::{sync::Arc, time::Duration};

use skysail_host::{CallOutcome, Limits};
use skysail_provider::{Call, Clusters as _, Code, Limit, LimitHit};
use tokio::{sync::Notify, task::JoinSet, time::timeout};

use super::{Attacked, LONG};

/// How long a call waits for a place: far longer than a task of a busy machine waits for CPU.
const WAIT: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn concurrent_calls_wait_and_are_refused_at_their_deadline() {
    // Long beside the time in which a busy machine starts five tasks: a call that waited for less
    // than half of its time would be said to have run.
    let limits = Limits { concurrent_calls: 2, deadline_ms: 3_000, http_time_ms: 3_000, ..Limits::default() };
    let mut attacked = Attacked::new("concurrent-calls", limits).await;
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let probe = attacked.probe.clone();
        tasks.spawn(async move { probe.master(&Call::default(), "attack").await.unwrap_err() });
    }
    let mut errors = Vec::new();
    while let Some(error) = tasks.join_next().await {
        errors.push(error.unwrap());
    }
    // Two ran until their deadline; three waited until theirs.
    let (ran, waited): (Vec<_>, Vec<_>) = errors.into_iter().partition(|error| error.code == Code::DeadlineExceeded);
    assert_eq!((ran.len(), waited.len()), (2, 3));
    for error in waited {
        let hit = error.limit.unwrap();
        assert_eq!((hit.limit, hit.max), (Limit::ConcurrentCalls, 2));
        assert!((3..=5).contains(&hit.used), "{hit}");
        assert!(error.message.contains("concurrentCalls"), "{error}");
    }
    for _ in 0..5 {
        attacked.record().await;
    }
    assert_eq!(attacked.good().await, Ok("good".to_owned()));
    attacked.comes_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_for_a_place_gets_one_when_another_ends() {
    let limits = Limits { concurrent_calls: 1, ..Limits::default() };
    let mut attacked = Attacked::new("concurrent-calls", limits).await;
    let probe = attacked.probe.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { probe.master(&Call::default(), "attack").await });
    while attacked.engine.live().unwrap().component_instances == 0 {
        tokio::task::yield_now().await;
    }
    let waiting = attacked.probe.clone();
    let (mut waits, began) = (JoinSet::new(), Arc::new(Notify::new()));
    let begins = Arc::clone(&began);
    waits.spawn(async move {
        begins.notify_one();
        waiting.master(&Call::default(), "good").await
    });
    began.notified().await;
    assert!(timeout(WAIT, waits.join_next()).await.is_err(), "there is one place only");
    tasks.shutdown().await;
    let answer = timeout(LONG, waits.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(answer, Ok("good".to_owned()));
    let (cancelled, good) = (attacked.record().await, attacked.record().await);
    assert_eq!(cancelled.outcome, CallOutcome::Cancelled);
    assert_eq!(good.outcome, CallOutcome::Ok);
    // A call that finds a place waits for microseconds.
    assert!(good.waited >= WAIT / 5 && good.wall >= good.waited, "{:?}", good.waited);
    attacked.comes_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_is_cancelled_and_frees_its_resources() {
    let limits = Limits { fuel: 1_000_000_000_000, ..Limits::default() };
    let mut attacked = Attacked::new("fuel", limits).await;
    let call = Call::default();
    let spin = attacked.probe.master(&call, "attack");
    // Within this time the guest begins to compute, also on a busy machine.
    assert!(timeout(WAIT, spin).await.is_err());
    let record = attacked.record().await;
    assert_eq!(record.outcome, CallOutcome::Cancelled);
    assert!(record.fuel > 0 && !record.guest.is_zero(), "{record:?}");
    assert_eq!(record.limits_hit, Vec::<LimitHit>::new());
    attacked.comes_back().await;
    assert_eq!(attacked.good().await, Ok("good".to_owned()));
}
