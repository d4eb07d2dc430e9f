//! New settings and a guest that does not answer about them.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::{JoinSet, yield_now},
    time,
};

use super::{
    super::{EarlierOffers, Offered, Slot, SlotOptions, Stage},
    offer, patient_options, run, services, until, version,
};
use crate::test_guest::{GUEST, Guest, PICKY, component};

/// Never returns unless the cloud-config is empty.
const SILENT: &str = "(if (local.get 1) (then (loop $again (br $again)))) (i32.const 512)";

/// Otherwise a guest keeps the rights that its operator takes away for as long as it likes.
#[test]
fn a_guest_that_does_not_answer_delays_new_settings_by_seconds_only() {
    run(an_active_release_serves_unasked_under(patient_options("new")));
}

/// Settings with another stack size have another engine, as have settings for which the pool of
/// guests has no place: the machine code has to be linked again.
#[test]
fn a_guest_that_does_not_answer_delays_settings_with_another_engine_by_seconds_only() {
    let mut options = patient_options("new");
    options.sandbox.limits.stack_bytes *= 2;
    run(an_active_release_serves_unasked_under(options));
}

/// The active release refuses the settings, and the newer one waits for the compilation of others.
#[tokio::test]
async fn a_newer_release_that_is_not_compiled_yet_delays_new_settings_by_seconds_only() {
    let slot = Arc::new(Slot::new(services(), patient_options("")).unwrap());
    let picky = component(&Guest { check_config: PICKY, ..GUEST });
    assert_eq!(offer(&slot, &picky).await, Ok(Offered::Activated));
    let _places = slot.services.compiler.clone().occupied().await;
    let mut offering = JoinSet::new();
    let newer = Arc::clone(&slot);
    offering.spawn(async move { offer(&newer, &component(&GUEST)).await });
    until(&slot, |status| status.candidate.is_some()).await;
    time::pause();
    let judging = slot.prepare(patient_options("new"), EarlierOffers::Stand);
    let prepared = time::timeout(Duration::from_secs(20), judging).await.expect("within seconds").unwrap();
    prepared.commit().await;
    assert_eq!(slot.serving().unwrap().sandbox().config(), "", "the refused cloud-config is not in force");
}

async fn an_active_release_serves_unasked_under(options: SlotOptions) {
    let slot = Arc::new(Slot::new(services(), patient_options("")).unwrap());
    let silent = component(&Guest { check_config: SILENT, ..GUEST });
    assert_eq!(offer(&slot, &silent).await, Ok(Offered::Activated));
    let session = || "session".to_owned();
    slot.serving().unwrap().release().cache().set(session(), b"token".to_vec(), Duration::from_secs(3600)).unwrap();
    let mut preparing = JoinSet::new();
    let asked = Arc::clone(&slot);
    preparing.spawn(async move { asked.prepare(options, EarlierOffers::Stand).await.unwrap() });
    let (status, mut paused) = (slot.status(), false);
    let prepared = loop {
        yield_now().await;
        if let Some(prepared) = preparing.try_join_next() {
            break prepared.unwrap();
        }
        let stage = status.borrow().candidate.as_ref().map(|candidate| candidate.stage);
        if stage == Some(Stage::Described) && !paused {
            // The guest spins, so the time stands still unless the test advances it.
            paused = true;
            time::pause();
            time::advance(Duration::from_secs(6)).await;
        }
    };
    prepared.commit().await;
    let serving = slot.serving().unwrap();
    assert_eq!(serving.sandbox().config(), "new");
    assert_eq!(serving.release().cache().get(&session()), None, "it is of the old settings and credentials");
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}
