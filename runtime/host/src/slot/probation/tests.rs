//! Which releases stay, and what happens to those that do not.

use std::time::Duration;

use expect_test::expect;
use skysail_provider::Code;

use super::{Breach, LONGEST, ProbationOptions, SAMPLE, Verdict, judge};
use crate::{
    Limits, SandboxOptions,
    slot::{
        Offered, Slot, SlotOptions, SlotStatus,
        tests::{check, offer, options, reconfigure, services, version},
    },
    test_guest::{GUEST, Guest, Master, component},
    vitals::{Broken, Counts},
};

const WATCHED: ProbationOptions = ProbationOptions { calls: 5, time: Duration::from_secs(60) };

// === the rule ===

fn counts(ended: u64, failed: u64, broken: u64) -> Counts {
    Counts { ended, failed, broken }
}

fn judged(now: Counts, before: Counts, seconds: u64) -> Verdict {
    let broken = Broken { code: Code::Trapped, account: "f: trapped".to_owned() };
    judge(WATCHED, (now, (now.broken > 0).then_some(broken)), before, Duration::from_secs(seconds))
}

fn is_failed(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Failed(_))
}

#[test]
fn a_release_bears_out_by_calls_and_time_or_by_long_time_alone() {
    let (nothing, sound) = (counts(0, 0, 0), counts(100, 0, 0));
    assert_eq!(judged(counts(1000, 0, 0), sound, 59), Verdict::Open);
    assert_eq!(judged(counts(4, 0, 0), sound, 60), Verdict::Open);
    assert_eq!(judged(counts(5, 0, 0), sound, 60), Verdict::Passed);
    assert_eq!(judged(nothing, sound, 60 * u64::from(LONGEST) - 1), Verdict::Open);
    assert_eq!(judged(nothing, sound, 60 * u64::from(LONGEST)), Verdict::Passed);
}

#[test]
fn one_broken_call_is_enough_where_the_predecessor_had_none() {
    assert!(is_failed(&judged(counts(1, 1, 1), counts(0, 0, 0), 0)));
    assert!(is_failed(&judged(counts(10_000, 1, 1), counts(3, 0, 0), 59)));
}

#[test]
fn a_release_that_breaks_no_oftener_than_twice_its_predecessor_stays() {
    let before = counts(100, 10, 10);
    assert_eq!(judged(counts(1, 1, 1), before, 0), Verdict::Open, "no sample");
    assert_eq!(judged(counts(SAMPLE, 4, 4), before, 0), Verdict::Open);
    assert!(is_failed(&judged(counts(SAMPLE, 5, 5), before, 0)));
}

#[test]
fn errors_count_against_the_predecessors_share() {
    let before = counts(100, 10, 0);
    assert_eq!(judged(counts(SAMPLE, 7, 0), before, 0), Verdict::Open, "a quarter above a tenth");
    let failed = judged(counts(SAMPLE, 8, 0), before, 0);
    assert_eq!(failed, Verdict::Failed(Breach::Errors { share: 0.4, before: 0.1 }));
    assert_eq!(judged(counts(SAMPLE - 1, SAMPLE - 1, 0), before, 0), Verdict::Open, "no sample");
    assert_eq!(
        judged(counts(SAMPLE, SAMPLE, 0), counts(SAMPLE - 1, 0, 0), 0),
        Verdict::Open,
        "nothing to compare with"
    );
}

// === in a slot ===

fn watched(fuel: u64) -> SlotOptions {
    let SlotOptions { sandbox, .. } = options("");
    let limits = Limits { fuel, ..Limits::default() };
    SlotOptions { sandbox: SandboxOptions { limits, ..sandbox }, probation: Some(WATCHED), ..options("") }
}

fn watched_slot() -> Slot {
    Slot::new(services(), watched(Limits::default().fuel)).unwrap()
}

/// Runs `calls` while the slot is guarded, until the status is as it should be.
async fn guarded(slot: &Slot, calls: impl Future<Output = ()>, done: impl Fn(&SlotStatus) -> bool) {
    let mut status = slot.status();
    let story = async {
        calls.await;
        tokio::time::timeout(Duration::from_secs(3600), status.wait_for(|status| done(status))).await.unwrap().unwrap();
    };
    tokio::select! {
        () = slot.guard() => {}
        () = story => {}
    }
}

fn release(version: &'static str, master: Master) -> bytes::Bytes {
    component(&Guest { version, master, ..GUEST })
}

fn sound(version: &'static str) -> bytes::Bytes {
    release(version, Master::Version(0))
}

#[tokio::test]
async fn a_release_that_traps_is_taken_back_at_once_and_never_taken_again() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    assert_eq!(slot.status().borrow().probation, None, "there is nothing to go back to");
    let bad = release("2", Master::Trap);
    assert_eq!(offer(&slot, &bad).await, Ok(Offered::Activated));
    assert!(slot.status().borrow().probation.is_some());
    let call = async { assert_eq!(version(&slot).await, Err(Code::Trapped)) };
    guarded(&slot, call, |status| status.refused.is_some()).await;
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    let status = slot.status().borrow().clone();
    assert_eq!((status.swaps, status.draining, &status.probation), (3, 0, &None));
    check(
        &status.refused.unwrap(),
        expect![
            "ProbationTrap after active: file p.wasm: it was taken back, and its predecessor (version 1) serves again: clusters.master: the guest trapped: it panicked or aborted: offer a mended release; this one is not taken again"
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
    assert_eq!(offer(&slot, &sound("3")).await, Ok(Offered::Activated), "a mended one is taken");
}

#[tokio::test]
async fn a_release_that_meets_a_limit_or_fails_where_its_predecessor_did_not_is_taken_back() {
    let slot = Slot::new(services(), watched(500_000)).unwrap();
    offer(&slot, &sound("1")).await.unwrap();
    for _ in 0..SAMPLE {
        version(&slot).await.unwrap();
    }
    offer(&slot, &release("2", Master::Version(1_000_000))).await.unwrap();
    let call = async { assert_eq!(version(&slot).await, Err(Code::LimitExceeded)) };
    guarded(&slot, call, |status| status.refused.is_some()).await;
    check(
        &slot.status().borrow().refused.clone().unwrap(),
        expect![
            "ProbationLimit after active: file p.wasm: it was taken back, and its predecessor (version 1) serves again: clusters.master: stopped by a limit of the sandbox: fuel: 500000 of 500000: offer a mended release; this one is not taken again"
        ],
    );

    offer(&slot, &release("3", Master::Denied)).await.unwrap();
    let calls = async {
        for _ in 0..SAMPLE {
            assert_eq!(version(&slot).await, Err(Code::Denied));
        }
    };
    guarded(&slot, calls, |status| status.refused.is_some()).await;
    // Judged beside the calls: one more or less may have been counted by then.
    let mut refused = slot.status().borrow().refused.clone().unwrap();
    refused.reason = refused.reason.replace("90 %", "91 %");
    check(
        &refused,
        expect![
            "ProbationErrors after active: file p.wasm: it was taken back, and its predecessor (version 1) serves again: 91 % of its calls failed, of its predecessor's 0 %: offer a mended release; this one is not taken again"
        ],
    );
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_bears_out_stays_and_its_predecessors_memory_is_given_back() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    let predecessor = std::sync::Arc::downgrade(&slot.active.load_full().unwrap());
    offer(&slot, &sound("2")).await.unwrap();
    assert!(predecessor.strong_count() > 0);
    let calls = async {
        for _ in 0..WATCHED.calls {
            version(&slot).await.unwrap();
        }
    };
    guarded(&slot, calls, |status| status.probation.is_none()).await;
    assert_eq!(predecessor.strong_count(), 0);
    assert_eq!((version(&slot).await, slot.status().borrow().draining), (Ok("2".to_owned()), 0));
}

#[tokio::test]
async fn a_release_is_compared_with_the_last_one_that_bore_out() {
    let slot = watched_slot();
    offer(&slot, &sound("1")).await.unwrap();
    offer(&slot, &sound("2")).await.unwrap();
    offer(&slot, &release("3", Master::Trap)).await.unwrap();
    let call = async { assert_eq!(version(&slot).await, Err(Code::Trapped)) };
    guarded(&slot, call, |status| status.refused.is_some()).await;
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "nobody knows whether 2 would have borne out");
}

/// What was kept has the permissions of its time.
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
