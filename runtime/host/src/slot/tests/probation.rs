//! Which releases stay, and what happens to those that do not.

use std::time::Duration;

use expect_test::expect;
use skysail_provider::{Call, Clusters as _, Code, ObjectReference};
use skysail_slot::SAMPLE;
use tokio::time;

use super::{check, offer, options, reconfigure, services, until, version};
use crate::{
    Fault, Limits, SandboxOptions,
    slot::{CanaryOptions, Offered, ProbationOptions, RolloutOptions, Slot, SlotOptions, SlotStatus},
    test_guest::{GUEST, Guest, INTERNAL, Master, PICKY, UNAVAILABLE, component},
};

const WATCHED: ProbationOptions = ProbationOptions { calls: 5, time: Duration::from_secs(60) };

fn watched(fuel: u64) -> SlotOptions {
    let SlotOptions { sandbox, .. } = options("");
    let limits = Limits { fuel, ..Limits::default() };
    let rollout = RolloutOptions { probation: Some(WATCHED), ..RolloutOptions::default() };
    SlotOptions { rollout, ..SlotOptions::new(SandboxOptions { limits, ..sandbox }) }
}

fn watched_slot() -> Slot {
    Slot::new(services(), watched(Limits::default().fuel)).unwrap()
}

fn release(version: &'static str, master: Master) -> bytes::Bytes {
    component(&Guest { version, master, ..GUEST })
}

fn sound(version: &'static str) -> bytes::Bytes {
    release(version, Master::Version(0))
}

#[tokio::test]
async fn a_release_that_traps_is_rolled_back_at_once_and_never_loaded_again() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    assert_eq!(slot.status().borrow().probation, None, "there is nothing to go back to");
    let bad = release("2", Master::Trap);
    assert_eq!(offer(&slot, &bad).await, Ok(Offered::Activated));
    assert!(slot.status().borrow().probation.is_some());
    assert_eq!(version(&slot).await, Err(Code::Trapped));
    until(&slot, |status| status.refused.is_some()).await;
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    let status = slot.status().borrow().clone();
    assert_eq!((status.swaps, status.draining, &status.probation), (3, 0, &None));
    check(
        &status.refused.unwrap(),
        expect![
            "ProbationTrap after active: file p.wasm: it was rolled back, and its predecessor (version 1) serves again: clusters.master: the guest trapped: it panicked or aborted; offer a corrected release; this one is tried again only where rollout.retry names its digest"
        ],
    );
    for config in ["", "other"] {
        let settings = SlotOptions {
            sandbox: SandboxOptions { config: config.to_owned(), ..watched(1_000_000).sandbox },
            ..watched(1_000_000)
        };
        reconfigure(&slot, settings).await.unwrap();
        assert_eq!(version(&slot).await, Ok("1".to_owned()));
        assert_eq!(offer(&slot, &bad).await.unwrap_err().code, "ProbationTrap");
    }
    assert_eq!(offer(&slot, &sound("3")).await, Ok(Offered::Activated), "a repaired release becomes active");
}

#[tokio::test]
async fn a_rolled_back_release_is_tried_once_more_if_the_operator_names_its_digest() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    let bad = release("2", Master::Trap);
    offer(&slot, &bad).await.unwrap();
    let trap = || async { assert_eq!(version(&slot).await, Err(Code::Trapped)) };
    trap().await;
    until(&slot, |status| status.refused.is_some()).await;
    let refusal = slot.status().borrow().refused.clone().unwrap();
    assert!(!refusal.retried);
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive), "the operator did not ask for a retry");
    slot.ask_again(Some(format!("sha256:{}", "0".repeat(64)))).await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive), "the operator named another release");

    slot.ask_again(Some(refusal.digest.clone())).await;
    until(&slot, |status| status.probation.is_some()).await;
    trap().await;
    until(&slot, |status| status.refused.is_some()).await;
    let refused = slot.status().borrow().refused.clone().unwrap();
    assert!(
        refused.retried && refused.reason.ends_with("where rollout.retry is removed and written again"),
        "{refused}"
    );
    slot.ask_again(Some(refusal.digest.clone())).await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive), "it is not tried a third time");
    assert_eq!(offer(&slot, &bad).await.unwrap_err().code, "ProbationTrap");
    reconfigure(&slot, SlotOptions { retry: Some(refusal.digest.clone()), ..watched(1_000_000) }).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "the same digest in new settings is no second request");

    // Named again.
    slot.ask_again(None).await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive));
    let retried = slot.status().borrow().refused.as_ref().map(|refused| refused.retried);
    assert_eq!(retried, Some(false), "the next try is reported as another one");
    slot.ask_again(Some(refusal.digest.clone())).await;
    until(&slot, |status| status.probation.is_some()).await;
    // Something newer was offered meanwhile: it stays.
    trap().await;
    until(&slot, |status| status.refused.is_some()).await;
    offer(&slot, &sound("3")).await.unwrap();
    slot.ask_again(None).await;
    slot.ask_again(Some(refusal.digest)).await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive));
    assert_eq!(version(&slot).await, Ok("3".to_owned()));
}

/// The process began after the rollback.
#[tokio::test]
async fn a_release_that_was_rolled_back_by_another_process_is_tried_again_beside_a_predecessor_only() {
    let bad = release("2", Master::Trap);
    let digest = crate::admission::digest_text(&crate::admission::digest_of(&bad));
    let asking = || SlotOptions { retry: Some(digest.clone()), ..watched(1_000_000) };
    let slot = Slot::new(services(), asking()).unwrap();
    slot.quarantine(digest.clone(), "it trapped".to_owned(), false).await;
    assert_eq!(offer(&slot, &bad).await.unwrap_err().code, "Quarantined", "there is nothing to go back to");
    offer(&slot, &sound("1")).await.unwrap();
    assert_eq!(offer(&slot, &bad).await, Ok(Offered::Activated));

    let slot = Slot::new(services(), asking()).unwrap();
    slot.quarantine(digest.clone(), "it trapped twice".to_owned(), true).await;
    offer(&slot, &sound("1")).await.unwrap();
    assert_eq!(offer(&slot, &bad).await.unwrap_err().reason, "it trapped twice", "the retry was used");
}

/// A rolled-back release stays quarantined, whatever other refusal is reported of it.
#[tokio::test]
async fn a_retry_that_fails_before_the_release_serves_is_not_repeated_and_the_quarantine_stays() {
    let slot = Slot::new(services(), SlotOptions { allow_unmet_egress: true, ..watched(1_000_000) }).unwrap();
    offer(&slot, &sound("1")).await.unwrap();
    let bad = Guest { version: "2", master: Master::Trap, egress: "https://api.example.com", ..GUEST };
    offer(&slot, &component(&bad)).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::Trapped));
    until(&slot, |status| status.refused.is_some()).await;
    let digest = slot.status().borrow().refused.clone().unwrap().digest;
    reconfigure(&slot, SlotOptions { retry: Some(digest.clone()), ..watched(1_000_000) }).await.unwrap();
    assert_eq!(slot.status().borrow().refused.as_ref().map(|refusal| refusal.code), Some("EgressNotAllowed"));
    let settings = SlotOptions { allow_unmet_egress: true, retry: Some(digest), ..watched(1_000_000) };
    reconfigure(&slot, settings).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    assert_eq!(offer(&slot, &component(&bad)).await.unwrap_err().code, "ProbationTrap");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_passes_probation_at_the_second_attempt_leaves_the_quarantine() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    let doubted = sound("2");
    let digest = crate::admission::digest_text(&crate::admission::digest_of(&doubted));
    slot.quarantine(digest.clone(), "the cloud was away".to_owned(), false).await;
    offer(&slot, &doubted).await.unwrap_err();
    slot.ask_again(Some(digest)).await;
    until(&slot, |status| status.probation.is_some()).await;
    for _ in 0..WATCHED.calls {
        version(&slot).await.unwrap();
    }
    until(&slot, |status| status.probation.is_none()).await;
    slot.ask_again(None).await;
    offer(&slot, &sound("1")).await.unwrap();
    assert_eq!(offer(&slot, &doubted).await, Ok(Offered::Activated));
}

/// A rolled-back release is not tried again for settings that the active release refuses.
#[tokio::test]
async fn new_settings_never_bring_back_what_was_rolled_back() {
    let slot = watched_slot();
    offer(&slot, &component(&Guest { check_config: PICKY, ..GUEST })).await.unwrap();
    let bad = release("2", Master::Trap);
    offer(&slot, &bad).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::Trapped));
    until(&slot, |status| status.refused.is_some()).await;
    offer(&slot, &bad).await.unwrap_err();
    let settings = SlotOptions {
        sandbox: SandboxOptions { config: "other".to_owned(), ..watched(1_000_000).sandbox },
        ..watched(1_000_000)
    };
    reconfigure(&slot, settings).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "with its old cloud-config");
}

#[tokio::test]
async fn a_release_that_meets_a_limit_or_fails_where_its_predecessor_did_not_is_rolled_back() {
    let slot = Slot::new(services(), watched(500_000)).unwrap();
    offer(&slot, &sound("1")).await.unwrap();
    for _ in 0..SAMPLE {
        version(&slot).await.unwrap();
    }
    offer(&slot, &release("2", Master::Version(1_000_000))).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::LimitExceeded));
    until(&slot, |status| status.refused.is_some()).await;
    check(
        &slot.status().borrow().refused.clone().unwrap(),
        expect![
            "ProbationLimit after active: file p.wasm: it was rolled back, and its predecessor (version 1) serves again: clusters.master: stopped by a limit of the sandbox: fuel: 500000 of 500000; offer a corrected release; this one is tried again only where rollout.retry names its digest"
        ],
    );

    offer(&slot, &release("3", Master::Error(INTERNAL))).await.unwrap();
    for _ in 0..SAMPLE {
        assert_eq!(version(&slot).await, Err(Code::Internal));
    }
    until(&slot, |status| status.refused.is_some()).await;
    check(
        &slot.status().borrow().refused.clone().unwrap(),
        expect![
            "ProbationErrors after active: file p.wasm: it was rolled back, and its predecessor (version 1) serves again: 100 % of its calls failed, of its predecessor's 0 %; offer a corrected release; this one is tried again only where rollout.retry names its digest"
        ],
    );
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

/// Every call fails for five minutes, of a canary and then of a release on probation.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_away_costs_no_release_its_place() {
    let canary = Some(CanaryOptions { percent: 99, watched: WATCHED });
    let rollout = RolloutOptions { canary, probation: Some(WATCHED), ..RolloutOptions::default() };
    let slot = Slot::new(services(), SlotOptions { rollout, ..options("") }).unwrap();
    offer(&slot, &sound("1")).await.unwrap();
    for _ in 0..SAMPLE {
        version(&slot).await.unwrap();
    }
    let object =
        ObjectReference { kind: "Service", namespace: String::new(), name: String::new(), uid: "1".to_owned() };
    let call = Call { object: Some(object), ..Call::default() };
    assert_eq!(offer(&slot, &release("2", Master::Error(UNAVAILABLE))).await, Ok(Offered::Canary));
    for ended in [|status: &SlotStatus| status.canary.is_none(), |status: &SlotStatus| status.probation.is_none()] {
        for _ in 0..60 {
            assert_eq!(slot.master(&call, "x").await.unwrap_err().code, Code::Unavailable);
            time::advance(Duration::from_secs(5)).await;
        }
        until(&slot, ended).await;
        assert_eq!(slot.status().borrow().refused, None);
    }
    assert_eq!(slot.status().borrow().active.as_ref().unwrap().version, "2");
}

/// A predecessor that failed an hour ago and serves well now is no excuse, and one that served well
/// an hour ago and fails now is one.
#[tokio::test(start_paused = true)]
async fn a_release_is_compared_with_what_its_predecessor_did_in_the_last_minutes() {
    for (fails_now, stays) in [(false, false), (true, true)] {
        let slot = watched_slot();
        offer(&slot, &sound("1")).await.unwrap();
        let before = slot.routing.load().active.clone().unwrap();
        let note = |fails: bool| {
            let (result, fault) =
                if fails { (Err((Code::Internal, "")), Some(Fault::Release)) } else { (Ok(()), None) };
            before.provider.release().call_history().note("f", result, fault);
        };
        (0..10 * SAMPLE).for_each(|_| note(!fails_now));
        time::advance(WATCHED.time * 60).await;
        (0..SAMPLE).for_each(|_| note(fails_now));
        offer(&slot, &release("2", Master::Error(INTERNAL))).await.unwrap();
        for _ in 0..SAMPLE {
            assert_eq!(version(&slot).await, Err(Code::Internal));
        }
        until(&slot, |status| status.probation.is_none()).await;
        assert_eq!(slot.status().borrow().refused.is_none(), stays);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_passes_probation_stays_and_its_predecessors_memory_is_freed() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    let predecessor = std::sync::Arc::downgrade(&slot.routing.load().active.clone().unwrap());
    offer(&slot, &sound("2")).await.unwrap();
    assert!(predecessor.strong_count() > 0);
    for _ in 0..WATCHED.calls {
        version(&slot).await.unwrap();
    }
    until(&slot, |status| status.probation.is_none()).await;
    assert_eq!(predecessor.strong_count(), 0);
    assert_eq!((version(&slot).await, slot.status().borrow().draining), (Ok("2".to_owned()), 0));
}

#[tokio::test]
async fn a_release_is_compared_with_the_last_release_that_passed_probation() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    offer(&slot, &sound("2")).await.unwrap();
    offer(&slot, &release("3", Master::Trap)).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::Trapped));
    until(&slot, |status| status.refused.is_some()).await;
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "it is unknown whether 2 would have passed");
}

/// The kept predecessor has the old settings, so it may have rights that the new settings withdraw.
#[tokio::test]
async fn new_settings_end_a_probation() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    offer(&slot, &release("2", Master::Trap)).await.unwrap();
    reconfigure(&slot, watched(1_000_000)).await.unwrap();
    assert_eq!(slot.status().borrow().probation, None);
    assert_eq!(version(&slot).await, Err(Code::Trapped));
    assert_eq!(slot.status().borrow().draining, 0);
}
