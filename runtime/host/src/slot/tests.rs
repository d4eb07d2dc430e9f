//! Releases written by hand, in real slots.

mod canary;
mod memory;
mod panics;
mod probation;
mod refusals;
mod settings;
mod starved;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use expect_test::{Expect, expect};
use skysail_provider::{Call, Clusters, Code, Interface, LoadBalancerInventory, ObjectReference, Provider as _};
use tokio::{runtime, task::JoinSet, time};

use super::{
    EarlierOffers, Offer, Offered, Refusal, Slot, SlotMetrics, SlotOptions, SlotServices, SlotStatus, SourceFailure,
    Stage,
};
use crate::{
    CallRecorder, Engine, Limits, Panics, SandboxError, SandboxOptions,
    credentials::Credentials,
    egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
    http_client::HttpClient,
    jail::Compiler,
    test_guest::{CHOOSY, GUEST, Guest, Instances, Inventory, Master, Needs, PICKY, component},
};

/// Nothing on a working machine takes this long: a test that waits for it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A million turns of a loop.
pub(super) const BUSY: &str = "(local $n i32) (local.set $n (i32.const 1000000)) (loop $again (if (local.get $n) (then \
                               (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $again))))";

pub(super) fn options(config: &str) -> SlotOptions {
    let sandbox =
        SandboxOptions { name: "cloud".to_owned(), limits: Limits::default(), config: config.to_owned(), http: None };
    SlotOptions::new(sandbox)
}

/// Options under which a call may go on for an hour.
pub(super) fn patient_options(config: &str) -> SlotOptions {
    let hour = 3_600_000;
    let limits = Limits { deadline_ms: hour, http_time_ms: hour, cpu_time_ms: hour, ..Limits::default() };
    let SlotOptions { sandbox, .. } = options(config);
    SlotOptions::new(SandboxOptions { limits: Limits { fuel: 1_000_000_000_000, ..limits }, ..sandbox })
}

/// Runs a test on a runtime that checks its timers after each poll. By default a runtime checks
/// them after 61 polls, and one poll of a guest in an endless loop takes 10 ms.
pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().event_interval(1).build().unwrap();
    runtime.block_on(test);
}

pub(super) fn services() -> SlotServices {
    SlotServices {
        engine: Engine::on_demand().unwrap(),
        recorder: CallRecorder::default(),
        compiler: Compiler::in_process_for_trusted_components(),
        metrics: SlotMetrics::default(),
        panics: Panics::default(),
    }
}

pub(super) fn slot(config: &str) -> Slot {
    Slot::new(services(), options(config)).unwrap()
}

pub(super) async fn offer(slot: &Slot, bytes: &Bytes) -> Result<Offered, Refusal> {
    slot.offer(Offer { bytes: bytes.clone(), origin: "file p.wasm".to_owned() }).await
}

pub(super) async fn reconfigure(slot: &Slot, options: SlotOptions) -> Result<(), SandboxError> {
    slot.prepare(options, EarlierOffers::Stand).await?.commit().await;
    // The outcome is in the status, like that of any offer.
    drop(slot.retry().await);
    Ok(())
}

/// Waits until the status is as it should be.
pub(super) async fn until(slot: &Slot, done: impl Fn(&SlotStatus) -> bool) {
    let mut status = slot.status();
    tokio::time::timeout(Duration::from_secs(3600), status.wait_for(|status| done(status))).await.unwrap().unwrap();
}

pub(super) async fn version(slot: &Slot) -> Result<String, Code> {
    slot.master(&Call::default(), "x").await.map_err(|error| error.code)
}

#[track_caller]
pub(super) fn check(refusal: &Refusal, expected: Expect) {
    expected.assert_eq(&format!("{} after {}: {}", refusal.code, refusal.stage.name(), refusal.reason));
}

#[tokio::test]
async fn an_empty_slot_answers_that_nothing_serves_and_an_offer_makes_it_serve() {
    let slot = slot("");
    assert_eq!(version(&slot).await, Err(Code::NotServing));
    assert!(slot.clusters().is_some() && slot.info().is_none());
    assert_eq!(offer(&slot, &component(&GUEST)).await, Ok(Offered::Activated));
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    assert!(slot.clusters().is_some() && slot.routes().is_none());
    let status = slot.status().borrow().clone();
    let active = status.active.unwrap();
    assert_eq!((active.version.as_str(), active.interfaces.as_slice(), active.swap), ("1", &["clusters"][..], 1));
    assert_eq!((status.swaps, status.draining, status.candidate, status.refused), (1, 0, None, None));
    let json = serde_json::to_value(slot.status().borrow().clone()).unwrap();
    assert_eq!(json["active"]["providerIdSchemes"], serde_json::json!([]));
}

#[tokio::test]
async fn a_release_that_needs_an_origin_which_is_not_allowed_is_refused_unless_the_operator_allows_it() {
    let needy = component(&Guest { egress: "https://api.example.com", ..GUEST });
    let http = |origin: &str| {
        let rules = vec![EgressRuleSpec { origins: vec![origin.to_owned()], ..EgressRuleSpec::default() }];
        let policy = EgressPolicy::new(&EgressSpec { rules, ..EgressSpec::default() }).unwrap();
        HttpClient::new(Arc::new(policy), Arc::new(Credentials::none()), &Limits::default().http()).unwrap()
    };
    let with = |http| {
        let SlotOptions { sandbox, .. } = options("");
        SlotOptions::new(SandboxOptions { http, ..sandbox })
    };
    let slot = slot("");
    check(
        &offer(&slot, &needy).await.unwrap_err(),
        expect![
            "EgressNotAllowed after described: file p.wasm: under this cloud-config it requires what the operator has not allowed: no rule allows origin https://api.example.com; add egress rules, correct the cloud-config, or set allowUnmetEgress for this provider"
        ],
    );
    for allowed in ["https://api.example.com", "https://*.example.com"] {
        let slot = Slot::new(services(), with(Some(Arc::new(http(allowed))))).unwrap();
        assert_eq!(offer(&slot, &needy).await, Ok(Offered::Activated));
    }
    for other in ["https://api.example.com:8443", "http://api.example.com", "https://example.com"] {
        let slot = Slot::new(services(), with(Some(Arc::new(http(other))))).unwrap();
        assert_eq!(offer(&slot, &needy).await.unwrap_err().code, "EgressNotAllowed", "{other}");
    }
    let slot = Slot::new(services(), SlotOptions { allow_unmet_egress: true, ..options("") }).unwrap();
    assert_eq!(offer(&slot, &needy).await, Ok(Offered::Activated));
    reconfigure(&slot, options("")).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "what serves goes on with fewer rights");
    let wrong = component(&Guest { egress: "api.example.com", ..GUEST });
    check(
        &offer(&slot, &wrong).await.unwrap_err(),
        expect![[
            r#"OriginsFailed after described: file p.wasm: its identity.origins failed (Internal: the provider's answer is wrong: the origin "api.example.com" has no scheme; write https://HOST or http://HOST); identity.origins must return at most 64 origins for every accepted cloud-config and must send no HTTP request; ask the provider's author"#
        ]],
    );
}

#[tokio::test]
async fn a_component_whose_provider_ids_have_no_scheme_serves_where_the_operator_claims_prefixes() {
    let without = component(&Guest { instances: Instances::WithoutScheme, ..GUEST });
    let slot = slot("");
    assert_eq!(offer(&slot, &without).await.unwrap_err().code, "NoProviderIdScheme");
    reconfigure(&slot, SlotOptions { claims_prefixes: true, ..options("") }).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "the offer was tried again");
}

#[tokio::test]
async fn an_interface_that_the_settings_leave_out_counts_as_not_exported() {
    let using = |interfaces: &[Interface]| SlotOptions {
        interfaces: Some(interfaces.iter().copied().collect()),
        ..options("")
    };
    let bytes = component(&Guest { inventory: Inventory::Name, instances: Instances::NotFound, ..GUEST });
    let slot = Slot::new(services(), using(&[Interface::Instances])).unwrap();
    assert_eq!(offer(&slot, &bytes).await, Ok(Offered::Activated));
    assert!(slot.load_balancer_inventory().is_none() && slot.instances().is_some());
    let listed = LoadBalancerInventory::list(&slot, &Call::default(), "kubernetes").await.unwrap_err();
    assert_eq!(listed.code, Code::NotServing);
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "tools call what they like");
    let used = || slot.status().borrow().active.clone().unwrap().interfaces;
    assert_eq!(used(), ["instances", "clusters"]);
    // Neither more nor fewer interfaces are a loss, nor is one that is left out.
    reconfigure(&slot, options("")).await.unwrap();
    assert_eq!(used(), ["load-balancer-inventory", "instances", "clusters"]);
    reconfigure(&slot, using(&[Interface::Instances])).await.unwrap();
    assert_eq!((used(), slot.status().borrow().refused.clone()), (vec!["instances", "clusters"], None));
    let without = component(&Guest { version: "2", instances: Instances::NotFound, ..GUEST });
    assert_eq!(offer(&slot, &without).await, Ok(Offered::Activated));
    let neither = offer(&slot, &component(&Guest { version: "3", ..GUEST })).await.unwrap_err();
    assert_eq!(neither.code, "InterfaceLost");
}

/// The guest requires its origin only under a cloud-config.
#[tokio::test]
async fn a_new_cloud_config_that_needs_an_origin_which_is_not_allowed_is_refused_and_the_old_one_stays() {
    let needy = component(&Guest { egress: "https://api.example.com", needs_origin: Needs::WithConfig, ..GUEST });
    let slot = slot("");
    assert_eq!(offer(&slot, &needy).await, Ok(Offered::Activated));
    reconfigure(&slot, options("cloud = elsewhere")).await.unwrap();
    let refused = slot.status().borrow().refused.clone().unwrap();
    assert_eq!((refused.code, refused.lasting), ("EgressNotAllowed", true));
    assert_eq!(slot.serving().unwrap().sandbox().config(), "");
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    // With the operator's leave it comes into force.
    reconfigure(&slot, SlotOptions { allow_unmet_egress: true, ..options("cloud = elsewhere") }).await.unwrap();
    assert_eq!(slot.serving().unwrap().sandbox().config(), "cloud = elsewhere");
    assert_eq!(slot.status().borrow().refused, None);
    // Rights that are taken back later stop nothing.
    reconfigure(&slot, options("cloud = elsewhere")).await.unwrap();
    assert_eq!(slot.serving().unwrap().sandbox().config(), "cloud = elsewhere");
}

#[tokio::test]
async fn the_same_digest_again_changes_nothing() {
    let slot = slot("");
    let bytes = component(&GUEST);
    offer(&slot, &bytes).await.unwrap();
    let mut status = slot.status();
    status.mark_unchanged();
    let before = status.borrow().clone();
    assert_eq!(offer(&slot, &bytes).await, Ok(Offered::AlreadyActive));
    assert_eq!(*status.borrow(), before);
}

#[tokio::test]
async fn each_bad_release_leaves_the_active_one_serving_and_says_why() {
    let slot = slot("");
    offer(&slot, &component(&GUEST)).await.unwrap();
    let trap = component(&Guest { version: "2", describe: "unreachable", ..GUEST });
    check(
        &offer(&slot, &trap).await.unwrap_err(),
        expect![
            "DescribeFailed after linked: file p.wasm: its identity.describe failed (Trapped: the guest trapped: it panicked or aborted); identity.describe must return the same answer each time and must send no HTTP request; ask the provider's author"
        ],
    );
    let spin = component(&Guest { version: "3", describe: "(loop $for_ever (br $for_ever))", ..GUEST });
    check(
        &offer(&slot, &spin).await.unwrap_err(),
        expect![
            "DescribeFailed after linked: file p.wasm: its identity.describe failed (LimitExceeded: stopped by a limit of the sandbox: fuel: 1000000000 of 1000000000); identity.describe must return the same answer each time and must send no HTTP request; ask the provider's author"
        ],
    );
    let trap = component(&Guest { version: "4", check_config: "unreachable", ..GUEST });
    check(
        &offer(&slot, &trap).await.unwrap_err(),
        expect![
            "CheckConfigFailed after described: file p.wasm: its identity.check-config failed (Trapped: the guest trapped: it panicked or aborted); identity.check-config must return a list of problems for every text; ask the provider's author"
        ],
    );
    let less = component(&Guest { version: "5", has_clusters: false, ..GUEST });
    check(
        &offer(&slot, &less).await.unwrap_err(),
        expect![
            "InterfaceLost after linked: file p.wasm: it lacks clusters, which the release that serves (version 1) has: what was made through it would be left alone; export it, or set allowInterfaceLoss for this provider"
        ],
    );
    let other = component(&Guest { version: "6", name: "q", ..GUEST });
    check(
        &offer(&slot, &other).await.unwrap_err(),
        expect![[
            r#"IdentityChanged after linked: file p.wasm: it calls itself "q" with provider-ID schemes [], and the release that serves is "p" with []: nodes and load balancers would no longer be known as this provider's; keep name and schemes, or set allowIdentityChange for this provider"#
        ]],
    );
    check(
        &offer(&slot, &Bytes::from_static(b"not wasm")).await.unwrap_err(),
        expect![[
            r#"Text after offered: file p.wasm: the file is text, not a component; it begins with "not wasm"; give the .wasm file that your build makes"#
        ]],
    );
    let status = slot.status().borrow().clone();
    assert_eq!(status.refused.unwrap().stage, Stage::Offered);
    assert_eq!((status.swaps, status.candidate), (1, None));
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

#[tokio::test]
async fn the_operator_can_allow_a_release_to_lose_an_interface_and_to_change_its_name() {
    let options = SlotOptions { allow_interface_loss: true, allow_identity_change: true, ..options("") };
    let slot = Slot::new(services(), options).unwrap();
    offer(&slot, &component(&GUEST)).await.unwrap();
    let other = component(&Guest { name: "q", has_clusters: false, ..GUEST });
    assert_eq!(offer(&slot, &other).await, Ok(Offered::Activated));
    assert!(slot.clusters().is_none());
    assert_eq!(version(&slot).await, Err(Code::NotServing));
}

#[tokio::test]
async fn a_refused_digest_is_not_judged_again_until_the_settings_change_and_then_by_itself() {
    let slot = slot("region = nowhere");
    let picky = component(&Guest { version: "2", check_config: PICKY, ..GUEST });
    let refusal = offer(&slot, &picky).await.unwrap_err();
    check(
        &refusal,
        expect![
            "ConfigRefused after described: file p.wasm: it refuses the cloud-config: line 7, key region: is unknown!; correct the cloud-config"
        ],
    );
    let mut records = slot.services.recorder.subscribe();
    assert_eq!(offer(&slot, &picky).await.unwrap_err(), refusal);
    assert!(records.try_recv().is_err(), "no call was made");
    reconfigure(&slot, options("")).await.unwrap();
    assert_eq!(version(&slot).await, Ok("2".to_owned()), "the newest offer is tried again");
}

pub(super) fn limited(config: &str, fuel: u64) -> SlotOptions {
    let limits = Limits { fuel, ..Limits::default() };
    SlotOptions { sandbox: SandboxOptions { limits, ..options(config).sandbox }, ..options(config) }
}

#[tokio::test]
async fn settings_that_are_wrong_in_themselves_change_nothing() {
    let slot = slot("");
    offer(&slot, &component(&GUEST)).await.unwrap();
    let before = slot.status().borrow().clone();
    assert!(reconfigure(&slot, limited("other", 0)).await.is_err());
    assert_eq!(*slot.status().borrow(), before);
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

/// A release must not keep revoked permissions by refusing the cloud-config that comes with the
/// revocation.
#[tokio::test]
async fn a_config_that_the_release_refuses_keeps_the_old_config_and_nothing_else() {
    let slot = slot("");
    let picky = component(&Guest { check_config: PICKY, master: Master::Version(1_000_000), ..GUEST });
    offer(&slot, &picky).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    reconfigure(&slot, limited("wrong", 500_000)).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::LimitExceeded), "the new limit is in force");
    assert_eq!(slot.serving().unwrap().sandbox().config(), "");
    let refusal = slot.status().borrow().refused.clone().unwrap();
    check(
        &refusal,
        expect![
            "ConfigRefused after described: file p.wasm: it refuses the cloud-config: line 7, key region: is unknown!; correct the cloud-config"
        ],
    );
    // The source reads its file again after each change.
    assert_eq!(offer(&slot, &picky).await, Ok(Offered::AlreadyActive));
    assert_eq!(slot.status().borrow().refused, Some(refusal), "it is still so");
    reconfigure(&slot, options("")).await.unwrap();
    assert_eq!((version(&slot).await, slot.status().borrow().refused.clone()), (Ok("1".to_owned()), None));
}

#[tokio::test]
async fn a_config_that_waited_for_its_release_comes_in_with_it() {
    let slot = slot("");
    offer(&slot, &component(&Guest { check_config: PICKY, ..GUEST })).await.unwrap();
    reconfigure(&slot, options("new")).await.unwrap();
    assert!(slot.status().borrow().refused.is_some());
    assert_eq!(
        offer(&slot, &component(&Guest { version: "2", check_config: PICKY, ..GUEST })).await,
        Ok(Offered::Activated)
    );
    assert_eq!(slot.serving().unwrap().sandbox().config(), "");
    assert!(slot.status().borrow().refused.is_some(), "this one refuses it, too");
    offer(&slot, &component(&Guest { version: "3", check_config: CHOOSY, ..GUEST })).await.unwrap();
    assert_eq!(slot.serving().unwrap().sandbox().config(), "new");
    assert_eq!(slot.status().borrow().refused, None);
}

/// Tighter limits are in force even if `describe` of the release fails under them.
#[tokio::test]
async fn a_release_that_cannot_be_loaded_under_new_settings_stops_and_says_why() {
    let slot = slot("");
    offer(&slot, &component(&Guest { describe: BUSY, ..GUEST })).await.unwrap();
    reconfigure(&slot, limited("", 500_000)).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::NotServing));
    let status = slot.status().borrow().clone();
    assert_eq!((status.active, status.draining), (None, 0));
    let refusal = status.refused.unwrap();
    assert_eq!(refusal.code, "DescribeFailed");
    assert!(refusal.reason.contains("fuel: 500000 of 500000"), "{refusal}");
    reconfigure(&slot, options("")).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "mended, it serves again");
}

/// A slot that serves version 1, and to which version 2 is offered while its settings change: it
/// has to be put off for them.
async fn put_off(earlier: EarlierOffers) -> Slot {
    let slot = slot("");
    offer(&slot, &component(&GUEST)).await.unwrap();
    // The compiler has no free place, so the load of version 2 does not end.
    let places = slot.services.compiler.clone().occupied().await;
    let next = component(&Guest { version: "2", ..GUEST });
    let change = async {
        let mut status = slot.status();
        status.wait_for(|status| status.candidate.is_some()).await.unwrap();
        slot.prepare(limited("", 500_000_000), earlier).await.unwrap().commit().await;
    };
    let (offered, ()) = tokio::join!(offer(&slot, &next), change);
    assert_eq!(offered, Ok(Offered::PutOff));
    drop(places);
    slot
}

/// New settings that replace a registry must not load a component which that registry had offered.
#[tokio::test]
async fn an_offer_of_a_former_source_is_not_tried_again() {
    let slot = put_off(EarlierOffers::Forgotten).await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive));
    assert_eq!(version(&slot).await, Ok("1".to_owned()));

    let slot = put_off(EarlierOffers::Stand).await;
    drop(slot.prepare(options("other"), EarlierOffers::Forgotten).await.unwrap());
    assert_eq!(slot.retry().await, Ok(Offered::Activated), "what is prepared and dropped forgets nothing");
    slot.forget_offers().await;
    assert_eq!(slot.retry().await, Ok(Offered::AlreadyActive));

    offer(&slot, &Bytes::from_static(b"junk")).await.unwrap_err();
    slot.forget_offers().await;
    assert_eq!(slot.status().borrow().refused, None, "what was said of it goes with it");
}

/// The release that serves refuses the new settings, and the one that another source had offered
/// would take them.
#[tokio::test]
async fn an_offer_of_a_former_source_does_not_become_active_with_new_settings() {
    let slot = slot("");
    offer(&slot, &component(&Guest { check_config: PICKY, ..GUEST })).await.unwrap();
    let next = component(&Guest { version: "2", check_config: CHOOSY, ..GUEST });
    assert_eq!(offer(&slot, &next).await.unwrap_err().code, "ConfigRefused");
    slot.prepare(options("new"), EarlierOffers::Forgotten).await.unwrap().commit().await;
    drop(slot.retry().await);
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

/// A component that is judged and compiled for a minute must not delay a revocation by one.
#[tokio::test]
async fn new_settings_do_not_wait_for_an_offer_that_is_under_way() {
    let slot = put_off(EarlierOffers::Stand).await;
    assert_eq!(slot.retry().await, Ok(Offered::Activated));
    assert_eq!(version(&slot).await, Ok("2".to_owned()));
}

/// A bad release may compile for minutes, and be compared for another one.
#[tokio::test]
async fn a_fix_does_not_wait_for_the_offer_before_it() {
    let slot = Arc::new(slot(""));
    let places = slot.services.compiler.clone().occupied().await;
    let [slow, fix] = ["1", "2"].map(|version| component(&Guest { version, ..GUEST }));
    let mut offers = JoinSet::new();
    let offered = |offers: &mut JoinSet<_>, bytes: &Bytes| {
        let (slot, bytes) = (Arc::clone(&slot), bytes.clone());
        offers.spawn(async move { offer(&slot, &bytes).await });
    };
    offered(&mut offers, &slow);
    slot.status().wait_for(|status| status.candidate.is_some()).await.unwrap();
    offered(&mut offers, &fix);
    assert_eq!(offers.join_next().await.unwrap().unwrap(), Ok(Offered::Overtaken));
    slot.status().wait_for(|status| status.candidate.is_some()).await.unwrap();
    // The source reads its file once more.
    offered(&mut offers, &fix);
    tokio::task::yield_now().await;
    drop(places);
    let outcomes = offers.join_all().await;
    assert!(outcomes.contains(&Ok(Offered::Activated)), "{outcomes:?}");
    assert!(outcomes.contains(&Ok(Offered::AlreadyActive)), "{outcomes:?}");
    assert_eq!(version(&slot).await, Ok("2".to_owned()));
}

/// The cloud hangs, and all calls with it.
#[tokio::test(start_paused = true)]
async fn a_good_release_is_taken_while_every_place_for_calls_is_taken() {
    let slot = slot("");
    offer(&slot, &component(&GUEST)).await.unwrap();
    let serving = slot.serving().unwrap();
    let all = u32::try_from(Limits::default().concurrent_calls).unwrap();
    let _calls = serving.sandbox().places().acquire_many(all).await.unwrap();
    assert_eq!(offer(&slot, &component(&Guest { version: "2", ..GUEST })).await, Ok(Offered::Activated));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_the_machine_could_not_ask_is_tried_again() {
    let slot = slot("");
    offer(&slot, &component(&GUEST)).await.unwrap();
    let serving = slot.serving().unwrap();
    let place = serving.sandbox().place_for_admission().acquire().await.unwrap();
    let next = component(&Guest { version: "2", ..GUEST });
    let refusal = offer(&slot, &next).await.unwrap_err();
    assert_eq!((refusal.code, refusal.lasting), ("DescribeFailed", false), "{refusal}");
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    drop(place);
    assert_eq!(slot.retry().await, Ok(Offered::Activated));
}

/// The guest has no CPU time until its deadline has passed.
#[tokio::test]
async fn new_settings_that_a_starved_machine_cannot_judge_do_not_stop_what_serves() {
    /// The deadline, in milliseconds: so long that the CPU time that the guest does get is little.
    const DEADLINE: u64 = 600_000;
    let patient = |config| {
        let SlotOptions { sandbox, .. } = options(config);
        let limits =
            Limits { fuel: 1_000_000_000_000, cpu_time_ms: DEADLINE, deadline_ms: DEADLINE, ..Limits::default() };
        SlotOptions::new(SandboxOptions { limits, ..sandbox })
    };
    let check_config = "(if (local.get 1) (then (loop $for_ever (br $for_ever)))) (i32.const 512)";
    let slot = Slot::new(services(), patient("")).unwrap();
    offer(&slot, &component(&Guest { check_config, ..GUEST })).await.unwrap();
    time::pause();
    let mut status = slot.status();
    let starve = async {
        let checked = |status: &SlotStatus| status.candidate.as_ref().is_some_and(|c| c.stage == Stage::Described);
        status.wait_for(checked).await.unwrap();
        time::advance(Duration::from_millis(2 * DEADLINE)).await;
    };
    let (changed, ()) = tokio::join!(reconfigure(&slot, patient("new")), starve);
    changed.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    assert_eq!(slot.serving().unwrap().sandbox().config(), "new");
}

/// Several slots change together: what one of them refuses must not have changed another.
#[tokio::test]
async fn settings_that_were_prepared_and_dropped_change_nothing() {
    let slot = slot("");
    offer(&slot, &component(&GUEST)).await.unwrap();
    let before = slot.status().borrow().clone();
    drop(slot.prepare(options("other"), EarlierOffers::Stand).await.unwrap());
    assert_eq!(slot.serving().unwrap().sandbox().config(), "");
    assert_eq!(*slot.status().borrow(), before);
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

/// A release that came with its settings: the one that serves refuses those, and it refused the old
/// ones.
#[tokio::test]
async fn a_release_and_the_settings_that_only_it_understands_come_in_together() {
    let slot = slot("");
    offer(&slot, &component(&Guest { check_config: PICKY, ..GUEST })).await.unwrap();
    let next = component(&Guest { version: "2", check_config: CHOOSY, ..GUEST });
    assert_eq!(offer(&slot, &next).await.unwrap_err().code, "ConfigRefused");
    reconfigure(&slot, options("new")).await.unwrap();
    assert_eq!(version(&slot).await, Ok("2".to_owned()));
    assert_eq!(slot.status().borrow().refused, None);
}

#[tokio::test]
async fn a_source_that_fails_is_in_the_status_until_the_next_offer() {
    let slot = slot("");
    let failure = SourceFailure { code: "SourceEmpty", reason: "file p.wasm is empty".to_owned() };
    slot.source_failed(failure.clone()).await;
    assert_eq!(slot.status().borrow().source_failure, Some(failure.clone()));
    let error = slot.master(&Call::default(), "x").await.unwrap_err();
    expect!["provider cloud has no release that serves: file p.wasm is empty"].assert_eq(&error.message);
    let bytes = component(&GUEST);
    offer(&slot, &bytes).await.unwrap();
    assert_eq!(slot.status().borrow().source_failure, None);
    slot.source_failed(failure).await;
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "what serves, serves on");
    assert_eq!(offer(&slot, &bytes).await, Ok(Offered::AlreadyActive));
    assert_eq!(slot.status().borrow().source_failure, None);
}

#[tokio::test]
async fn changed_limits_hold_for_the_next_call() {
    let slot = slot("");
    offer(&slot, &component(&Guest { master: Master::Version(1_000_000), ..GUEST })).await.unwrap();
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    let limits = Limits { fuel: 500_000, ..Limits::default() };
    let tight = SlotOptions { sandbox: SandboxOptions { limits, ..options("").sandbox }, ..options("") };
    reconfigure(&slot, tight).await.unwrap();
    assert_eq!(version(&slot).await, Err(Code::LimitExceeded));
}

#[tokio::test]
async fn the_newest_of_many_offers_wins_and_the_ones_between_are_not_even_judged() {
    let slot = Arc::new(slot(""));
    let versions = ["1", "2", "3", "4", "5", "6"];
    let mut offers = JoinSet::new();
    for version in versions {
        let (slot, bytes) = (Arc::clone(&slot), component(&Guest { version, ..GUEST }));
        offers.spawn(async move { offer(&slot, &bytes).await.unwrap() });
    }
    let outcomes = offers.join_all().await;
    // One thread: the first is under way when the others come, and the last is the newest.
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Offered::Overtaken).count(), 5, "{outcomes:?}");
    assert_eq!(version(&slot).await, Ok("6".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_on_the_release_it_began_on_and_then_its_memory_is_given_back() {
    let slot = Arc::new(slot(""));
    // Tens of milliseconds: several turns of the epoch, in which the swap happens.
    offer(&slot, &component(&Guest { master: Master::Version(50_000_000), ..GUEST })).await.unwrap();
    let old: Weak<super::Active> = Arc::downgrade(&slot.routing.load().active.clone().unwrap());
    let next = component(&Guest { version: "2", ..GUEST });
    let mut call = JoinSet::new();
    let begun = call.spawn({
        let slot = Arc::clone(&slot);
        async move { version(&slot).await }
    });
    time::timeout(PATIENCE, async {
        // On a busy machine this thread may sleep for as long as the whole call takes.
        while old.strong_count() < 2 && !begun.is_finished() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the call must begin");
    offer(&slot, &next).await.unwrap();
    assert_eq!(version(&slot).await, Ok("2".to_owned()), "a new call goes to the new release at once");
    assert_eq!(call.join_next().await.unwrap().unwrap(), Ok("1".to_owned()));
    let mut status = slot.status();
    time::timeout(PATIENCE, status.wait_for(|status| status.draining == 0)).await.expect("it must drain").unwrap();
    assert!(old.upgrade().is_none(), "no reference to the old release is left");
}

/// One slot, two releases that answer differently, 1,000 swaps, and meanwhile always some calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_swaps_under_load_fail_no_call_and_each_call_ends_on_the_release_it_began_on() {
    const SWAPS: u64 = 1000;
    /// Calls at once: fewer than have a place, so that none waits too long on a slow machine.
    const CALLS: usize = 4;
    let slot = Arc::new(slot(""));
    let mut records = slot.services.recorder.subscribe();
    let releases = ["1", "2"].map(|version| component(&Guest { version, master: Master::Version(10_000), ..GUEST }));
    let version_of: BTreeMap<String, &str> = releases
        .iter()
        .map(|bytes| crate::admission::digest_text(&crate::admission::digest_of(bytes)))
        .zip(["1", "2"])
        .collect();
    offer(&slot, &releases[0]).await.unwrap();
    // Not a task of its own: no record is lost where this thread sleeps.
    let mut swaps = Box::pin(async {
        for bytes in releases.iter().cycle().skip(1).take(usize::try_from(SWAPS).unwrap()) {
            assert_eq!(offer(&slot, bytes).await, Ok(Offered::Activated));
        }
    });
    let (mut calls, mut swapped) = (JoinSet::new(), false);
    let (mut began, mut answers) = (0_u64, BTreeMap::new());
    let mut releases_of_calls = BTreeMap::new();
    while !swapped || !calls.is_empty() || releases_of_calls.len() as u64 != began {
        while !swapped && calls.len() < CALLS {
            began += 1;
            let (slot, uid) = (Arc::clone(&slot), began.to_string());
            let object =
                ObjectReference { kind: "Service", namespace: String::new(), name: String::new(), uid: uid.clone() };
            calls.spawn(async move {
                let call = Call { object: Some(object), ..Call::default() };
                (uid, slot.master(&call, "x").await)
            });
        }
        tokio::select! {
            () = &mut swaps, if !swapped => swapped = true,
            Some(answer) = calls.join_next() => {
                let (uid, answer) = answer.unwrap();
                answers.insert(uid, answer.expect("no call may fail because of a swap"));
            }
            record = records.recv() => {
                let record = record.unwrap();
                if let Some(object) = &record.object {
                    releases_of_calls.insert(object.uid.clone(), record.digest.to_string());
                }
            }
        }
    }
    assert_eq!(slot.status().borrow().swaps, SWAPS + 1);
    assert!(began > 100, "{began} calls");
    for (uid, answer) in &answers {
        assert_eq!(version_of[&releases_of_calls[uid]], answer, "call {uid}");
    }
    assert_eq!(answers.values().collect::<std::collections::BTreeSet<_>>().len(), 2, "both releases answered");
    let mut status = slot.status();
    time::timeout(PATIENCE, status.wait_for(|status| status.draining == 0)).await.expect("all must drain").unwrap();
}

#[tokio::test]
async fn a_return_to_the_previous_release_does_not_compile_again() {
    let services = services();
    let slot = Slot::new(services.clone(), options("")).unwrap();
    let releases = ["1", "2"].map(|version| component(&Guest { version, ..GUEST }));
    for bytes in &releases {
        offer(&slot, bytes).await.unwrap();
    }
    let engine = slot.serving().unwrap().sandbox().wasmtime().clone();
    let limits = (&Limits::default()).into();
    let digest = crate::admission::digest_of(&releases[0]);
    assert!(services.compiler.compile(&engine, (releases[0].clone(), digest), limits, || {}).await.unwrap().cached);
    assert_eq!(offer(&slot, &releases[0]).await, Ok(Offered::Activated));
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

#[tokio::test]
async fn a_release_never_meets_what_another_one_cached_not_even_in_a_call_that_ends_after_the_swap() {
    let slot = slot("");
    let [first, second] = ["1", "2"].map(|version| component(&Guest { version, master: Master::Cached, ..GUEST }));
    offer(&slot, &first).await.unwrap();
    assert_eq!(version(&slot).await, Ok(String::new()));
    assert_eq!(version(&slot).await, Ok("1".to_owned()), "calls of one release share it");
    let draining = slot.serving().unwrap();
    offer(&slot, &second).await.unwrap();
    assert_eq!(draining.master(&Call::default(), "x").await.unwrap(), "1", "the call has its own release's cache");
    assert_eq!(version(&slot).await, Ok(String::new()), "empty after a swap");
    assert_eq!(version(&slot).await, Ok("2".to_owned()));
    assert_eq!(draining.master(&Call::default(), "x").await.unwrap(), "1");
}
