//! A release that serves a share of the objects.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use expect_test::expect;
use skysail_provider::{Call, Clusters as _, Code, Detail, Instances as _, Node, NodeSet, ObjectReference};
use skysail_slot::{SETTINGS, is_in_share};

use super::{check, offer, options, reconfigure, services, until, version};
use crate::{
    slot::{CanaryOptions, Offered, ProbationOptions, RolloutOptions, Slot, SlotOptions},
    test_guest::{
        CHOOSY, GUEST, Guest,
        Instances::{NotFound, Trap},
        Master, PICKY, component,
    },
};

const WATCHED: ProbationOptions = ProbationOptions { calls: 5, time: Duration::from_secs(60) };

fn watched() -> SlotOptions {
    let canary = Some(CanaryOptions { percent: 20, watched: WATCHED });
    let rollout = RolloutOptions { canary, probation: Some(WATCHED), ..RolloutOptions::default() };
    SlotOptions { rollout, ..options("") }
}

async fn serving(first: &'static str) -> Slot {
    let slot = Slot::new(services(), watched()).unwrap();
    assert_eq!(offer(&slot, &sound(first)).await, Ok(Offered::Activated), "there is no other release to share with");
    slot
}

fn release(version: &'static str, master: Master) -> bytes::Bytes {
    component(&Guest { version, master, ..GUEST })
}

fn sound(version: &'static str) -> bytes::Bytes {
    release(version, Master::Version(0))
}

async fn version_for(slot: &Slot, uid: &str) -> Result<String, Code> {
    let object =
        ObjectReference { kind: "Service", namespace: "n".to_owned(), name: "s".to_owned(), uid: uid.to_owned() };
    slot.master(&Call { object: Some(object), ..Call::default() }, "x").await.map_err(|error| error.code)
}

/// UIDs in the share and outside.
fn uids() -> (Vec<String>, Vec<String>) {
    (0..100).map(|number| format!("uid-{number}")).partition(|uid| is_in_share(uid, 20))
}

async fn versions(slot: &Slot, uids: &[String]) -> BTreeSet<String> {
    let mut versions = BTreeSet::new();
    for uid in uids {
        versions.insert(version_for(slot, uid).await.unwrap());
    }
    versions
}

fn only(version: &str) -> BTreeSet<String> {
    BTreeSet::from([version.to_owned()])
}

#[test]
fn a_share_is_about_as_large_as_asked_and_grows_without_changing_sides() {
    let count = |percent| (0..10_000).filter(|number: &u32| is_in_share(&number.to_string(), percent)).count();
    assert!((850..1150).contains(&count(10)), "{}", count(10));
    assert!((9850..9950).contains(&count(99)), "{}", count(99));
    for number in 0..1000_u32 {
        let uid = number.to_string();
        assert!(!is_in_share(&uid, 10) || is_in_share(&uid, 30), "{uid} changes sides");
    }
}

#[tokio::test(start_paused = true)]
async fn a_canary_serves_its_share_of_the_objects_until_it_passes_and_then_all_objects() {
    let slot = serving("1").await;
    let (share, rest) = uids();
    let before = slot.status().borrow().generation;
    assert_eq!(offer(&slot, &sound("2")).await, Ok(Offered::Canary));
    let status = slot.status().borrow().clone();
    assert_eq!((status.swaps, status.draining, status.generation), (1, 0, before + 1));
    assert_eq!(status.canary.as_ref().map(|canary| (canary.version.as_str(), canary.percent)), Some(("2", 20)));
    assert_eq!(versions(&slot, &share).await, only("2"));
    assert_eq!(versions(&slot, &rest).await, only("1"));
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "what is about no object stays with the predecessor");
    assert_eq!(offer(&slot, &sound("2")).await, Ok(Offered::AlreadyActive));

    until(&slot, |status| status.canary.is_none()).await;
    let status = slot.status().borrow().clone();
    assert_eq!((status.swaps, status.generation, status.refused), (2, before + 2, None));
    tokio::time::advance(WATCHED.time * 2).await;
    assert!(slot.status().borrow().probation.is_some(), "what it did as a canary counts no more");
    assert_eq!(versions(&slot, &rest).await, only("2"));
    until(&slot, |status| status.probation.is_none()).await;
    assert_eq!(slot.status().borrow().draining, 0);
}

#[tokio::test]
async fn a_canary_that_traps_is_rolled_back_and_the_other_objects_never_met_it() {
    let slot = serving("1").await;
    let (share, rest) = uids();
    assert_eq!(offer(&slot, &release("2", Master::Trap)).await, Ok(Offered::Canary));
    assert_eq!(versions(&slot, &rest).await, only("1"));
    assert_eq!(version_for(&slot, &share[0]).await, Err(Code::Trapped));
    until(&slot, |status| status.canary.is_none()).await;
    assert_eq!(versions(&slot, &share).await, only("1"));
    let status = slot.status().borrow().clone();
    assert_eq!((status.swaps, status.draining), (1, 0));
    check(
        &status.refused.unwrap(),
        expect![
            "ProbationTrap after canary: file p.wasm: it was rolled back, and the active release serves its 20 % again: clusters.master: the guest trapped: it panicked or aborted; offer a corrected release; this one is tried again only where rollout.retry names its digest"
        ],
    );
    check(
        &offer(&slot, &release("2", Master::Trap)).await.unwrap_err(),
        expect![
            "ProbationTrap after canary: file p.wasm: it was rolled back, and the active release serves its 20 % again: clusters.master: the guest trapped: it panicked or aborted; offer a corrected release; this one is tried again only where rollout.retry names its digest"
        ],
    );
}

/// Nearly every page holds nodes of the share.
#[tokio::test]
async fn a_page_of_nodes_whose_canary_fails_is_answered_for_all_other_nodes() {
    let serving = |instances| component(&Guest { version: "1", instances, ..GUEST });
    let (share, rest) = uids();
    let node = |name: &str, uid: &String| Arc::new(Node { name: name.to_owned(), uid: uid.clone(), ..Node::default() });
    let page = [node("a", &rest[0]), node("b", &share[0])];
    for [active, canary, of_rest, of_share] in [[NotFound, Trap, NotFound, Trap], [Trap, NotFound, Trap, NotFound]] {
        let slot = Slot::new(services(), watched()).unwrap();
        offer(&slot, &serving(active)).await.unwrap();
        let next = component(&Guest { version: "2", instances: canary, ..GUEST });
        assert_eq!(offer(&slot, &next).await, Ok(Offered::Canary));
        let answers = slot.describe(&Call::default(), &NodeSet::new(page.clone()), Detail::State).await.unwrap();
        let codes: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_err().code).collect();
        let code = |instances| if instances == Trap { Code::Trapped } else { Code::NotFound };
        assert_eq!(codes, [code(of_rest), code(of_share)]);
        // The failure ended the canary.
        until(&slot, |status| status.canary.is_none() || canary != Trap).await;
        offer(&slot, &component(&Guest { version: "3", instances: canary, ..GUEST })).await.unwrap();
        let alone = NodeSet::new([Arc::clone(&page[usize::from(canary == Trap)])]);
        let error = slot.describe(&Call::default(), &alone, Detail::State).await.unwrap_err();
        assert_eq!(error.code, Code::Trapped, "a page without any answer fails");
    }
}

#[tokio::test]
async fn a_newer_release_takes_the_canarys_place_and_the_share_stays_the_same() {
    let slot = serving("1").await;
    let (share, rest) = uids();
    for newer in ["2", "3"] {
        assert_eq!(offer(&slot, &sound(newer)).await, Ok(Offered::Canary));
        assert_eq!(versions(&slot, &share).await, only(newer));
        assert_eq!(versions(&slot, &rest).await, only("1"));
    }
    assert_eq!(slot.status().borrow().draining, 0);
    // The source goes back.
    assert_eq!(offer(&slot, &sound("1")).await, Ok(Offered::AlreadyActive));
    assert_eq!(versions(&slot, &share).await, only("1"));
    let status = slot.status().borrow().clone();
    assert_eq!((status.canary, status.draining), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_canary_beside_a_release_on_probation_is_compared_with_the_last_that_passed_probation() {
    let slot = serving("1").await;
    let (share, rest) = uids();
    offer(&slot, &release("2", Master::Trap)).await.unwrap();
    // The canary receives no call, so it serves all objects in the end.
    until(&slot, |status| status.canary.is_none()).await;
    assert_eq!(offer(&slot, &sound("3")).await, Ok(Offered::Canary));
    assert_eq!(version_for(&slot, &rest[0]).await, Err(Code::Trapped));
    until(&slot, |status| !status.quarantine.is_empty()).await;
    assert_eq!(versions(&slot, &rest).await, only("1"), "back to the one that passed probation");
    assert_eq!(versions(&slot, &share).await, only("3"), "the canary is another matter");
    let status = slot.status().borrow().clone();
    assert_eq!(status.refused, None, "the newest offer is the canary");
    slot.ask_again(Some(status.quarantine[0].digest.clone())).await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive), "and what was offered last");
    assert_eq!(slot.status().borrow().draining, 0);
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_passes_leaves_the_refusal_of_a_newer_offer_in_the_status() {
    let slot = serving("1").await;
    offer(&slot, &sound("2")).await.unwrap();
    offer(&slot, &bytes::Bytes::from_static(b"not wasm")).await.unwrap_err();
    until(&slot, |status| status.canary.is_none()).await;
    let status = slot.status().borrow().clone();
    assert_eq!((status.active.unwrap().version.as_str(), status.refused.unwrap().code), ("2", "Text"));
}

#[tokio::test]
async fn new_settings_restart_a_canary() {
    let slot = serving("1").await;
    let (share, rest) = uids();
    offer(&slot, &sound("2")).await.unwrap();
    let SlotOptions { rollout, .. } = watched();
    let canary = Some(CanaryOptions { percent: 99, watched: WATCHED });
    let settings = SlotOptions { rollout: RolloutOptions { canary, ..rollout }, ..watched() };
    reconfigure(&slot, settings).await.unwrap();
    assert_eq!(versions(&slot, &share).await, only("2"));
    assert_eq!(versions(&slot, &rest[..10]).await, only("2"));
    let status = slot.status().borrow().clone();
    assert_eq!((status.canary.map(|canary| canary.percent), status.draining), (Some(99), 0));
    // Without a canary in the settings, the release serves all objects at once.
    reconfigure(&slot, options("")).await.unwrap();
    assert_eq!(versions(&slot, &rest).await, only("2"));
    assert_eq!(slot.status().borrow().canary, None);
}

#[tokio::test]
async fn a_release_that_may_have_another_name_serves_all_objects_at_once() {
    let slot = Slot::new(services(), SlotOptions { allow_identity_change: true, ..watched() }).unwrap();
    offer(&slot, &sound("1")).await.unwrap();
    let other = component(&Guest { version: "2", name: "q", ..GUEST });
    assert_eq!(offer(&slot, &other).await, Ok(Offered::Activated));
}

/// All other releases have the old settings, whose calls are cancelled within seconds.
#[tokio::test]
async fn a_release_that_brings_waiting_settings_into_force_serves_all_objects_at_once() {
    let slot = Slot::new(services(), watched()).unwrap();
    offer(&slot, &component(&Guest { check_config: PICKY, ..GUEST })).await.unwrap();
    let settings = SlotOptions { rollout: watched().rollout, ..options("new") };
    reconfigure(&slot, settings).await.unwrap();
    assert!(slot.status().borrow().refused.is_some(), "the release refuses the new cloud-config");
    let next = component(&Guest { version: "2", check_config: CHOOSY, ..GUEST });
    assert_eq!(offer(&slot, &next).await, Ok(Offered::Activated));
    tokio::time::pause();
    tokio::time::advance(SETTINGS * 2).await;
    let (share, rest) = uids();
    assert_eq!(versions(&slot, &[share, rest].concat()).await, only("2"));
    let status = slot.status().borrow().clone();
    assert_eq!((status.probation, status.canary, status.draining), (None, None, 0));
}
