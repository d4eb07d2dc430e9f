//! A machine that gives the guests of a release no CPU time: their calls miss the deadline.

use std::time::Duration;

use skysail_provider::{Call, Code, ObjectReference};
use skysail_slot::{LONGEST, SAMPLE};
use tokio::time;

use super::{offer, options, services, until, version};
use crate::{
    Fault, SandboxOptions,
    slot::{CanaryOptions, Offered, ProbationOptions, RolloutOptions, Slot, SlotOptions, SlotStatus},
    test_guest::{GUEST, Guest, Master, component, only_a_deadline, overdue},
};

/// No trial ends by time while the calls below miss their deadlines.
const WATCHED: ProbationOptions = ProbationOptions { calls: 5, time: Duration::from_hours(24) };
/// A guest that begins and is starved then has used much less CPU time than half of this.
const LONG: Duration = Duration::from_mins(10);
/// So short that a guest computes for all of it.
const SHORT: Duration = Duration::from_millis(20);

/// A slot whose calls have this deadline, and no other limit of time.
fn slot(deadline: Duration, rollout: RolloutOptions) -> Slot {
    let limits = only_a_deadline(deadline);
    let SlotOptions { sandbox, .. } = options("");
    let options = SlotOptions { rollout, ..SlotOptions::new(SandboxOptions { limits, ..sandbox }) };
    Slot::new(services(), options).unwrap()
}

fn endless() -> bytes::Bytes {
    component(&Guest { version: "2", master: Master::Endless, ..GUEST })
}

/// A slot whose release answered enough calls to be compared with.
async fn serving(deadline: Duration, rollout: RolloutOptions) -> Slot {
    let slot = slot(deadline, rollout);
    offer(&slot, &component(&GUEST)).await.unwrap();
    is_sampled(&slot).await;
    slot
}

/// The active release answers enough calls to be compared with. They are about no object, so that a
/// canary does not get them.
async fn is_sampled(slot: &Slot) {
    for _ in 0..SAMPLE {
        assert_eq!(version(slot).await, Ok("1".to_owned()));
    }
}

/// A call about an object in the share of a canary.
fn call() -> Call {
    let object =
        ObjectReference { kind: "Service", namespace: String::new(), name: String::new(), uid: "1".to_owned() };
    Call { object: Some(object), ..Call::default() }
}

/// As many calls as a comparison needs miss their deadline by this fault, each after its guest has
/// computed for this long.
async fn all_are_overdue(slot: &Slot, (computes, deadline): (Duration, Duration), fault: Fault) {
    let mut records = slot.services.recorder.subscribe();
    for _ in 0..SAMPLE {
        let error = overdue(slot, &call(), computes, deadline).await;
        assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
        let record = records.recv().await.unwrap();
        assert!(record.fuel > 0, "the guest began: {record:?}");
        assert_eq!(record.fault, Some(fault), "{record:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_gives_a_guest_no_cpu_time_costs_no_canary_and_no_release_on_probation_its_place() {
    let canary = Some(CanaryOptions { percent: 99, watched: WATCHED });
    let rollout = RolloutOptions { canary, probation: Some(WATCHED), ..RolloutOptions::default() };
    let slot = serving(LONG, rollout).await;
    assert_eq!(offer(&slot, &endless()).await, Ok(Offered::Canary));
    let in_trial: [fn(&SlotStatus) -> bool; 2] =
        [|status| status.canary.is_some(), |status| status.probation.is_some()];
    for in_trial in in_trial {
        assert!(in_trial(&slot.status().borrow()));
        all_are_overdue(&slot, (Duration::ZERO, LONG), Fault::Machine).await;
        let status = slot.status().borrow().clone();
        assert!(in_trial(&status) && status.refused.is_none(), "{status:?}");
        time::advance(WATCHED.time * LONGEST).await;
        until(&slot, |status| !in_trial(status)).await;
        assert_eq!(slot.status().borrow().refused, None);
    }
    // The release has passed both trials, and serves all objects.
    all_are_overdue(&slot, (Duration::ZERO, LONG), Fault::Machine).await;
    let status = slot.status().borrow().clone();
    assert_eq!((status.active.unwrap().version.as_str(), status.refused), ("2", None));
    assert!(status.quarantine.is_empty());
}

/// The same guest, on a machine that gives it CPU time.
#[tokio::test(start_paused = true)]
async fn a_release_whose_guest_computes_until_its_deadline_is_rolled_back() {
    let canary = Some(CanaryOptions { percent: 99, watched: WATCHED });
    for (canary, offered) in [(canary, Offered::Canary), (None, Offered::Activated)] {
        let rollout = RolloutOptions { canary, probation: Some(WATCHED), ..RolloutOptions::default() };
        let slot = serving(SHORT, rollout).await;
        assert_eq!(offer(&slot, &endless()).await, Ok(offered));
        if offered == Offered::Canary {
            // A canary is compared with what the release beside it does meanwhile.
            is_sampled(&slot).await;
        }
        all_are_overdue(&slot, (SHORT * 2, SHORT), Fault::Release).await;
        until(&slot, |status| status.refused.is_some()).await;
        assert_eq!(slot.status().borrow().refused.as_ref().map(|refused| refused.code), Some("ProbationErrors"));
        assert_eq!(version(&slot).await, Ok("1".to_owned()));
    }
}
