//! Every way of the table is walked by a release in a real slot, and no other.

use std::time::Duration;

use bytes::Bytes;
use skysail_provider::{Call, Clusters as _, LoadBalancerInventory, ObjectReference};
use tempfile::TempDir;

use super::{EDGES, Stage, Step};
use crate::{
    Limits, SandboxOptions,
    jail::{
        Compiler, JailCommand,
        stand_in::{Said, saying},
    },
    slot::{
        CanaryOptions, OnDifference, ProbationOptions, RolloutOptions, ShadowOptions, Slot, SlotOptions, SlotServices,
        tests::{guarded, offer, options, services},
        trial::SAMPLE,
    },
    test_guest::{CHOOSY, GUEST, Guest, INTERNAL, Instances, Inventory, Master, component},
};

const WATCHED: ProbationOptions = ProbationOptions { calls: 100, time: Duration::from_secs(60) };

#[test]
fn the_table_leads_from_offered_to_active_through_every_stage_once_and_never_back() {
    let way: Vec<_> = std::iter::successors(Some(Stage::Offered), |stage| stage.next()).collect();
    assert_eq!(way.len(), 9);
    assert!(way.is_sorted() && way.last() == Some(&Stage::Active));
    for (from, step) in EDGES {
        assert!(!matches!(step, Step::To(to) if to <= from), "{from:?} leads back to {step:?}");
        assert_eq!(EDGES.iter().filter(|edge| **edge == (from, step)).count(), 1, "{from:?} {step:?} is there twice");
    }
}

/// Offers a slot had, and all the steps that followed.
struct Walk {
    walked: Vec<(Stage, Step)>,
}

impl Walk {
    /// Nothing serves yet.
    async fn offers(&mut self, services: SlotServices, options: SlotOptions, releases: &[Bytes]) -> Slot {
        let slot = Slot::new(services, options).unwrap();
        for release in releases {
            drop(offer(&slot, release).await);
        }
        self.take(&slot);
        slot
    }

    /// A release serves and was asked; then this one comes and is called until something is said of
    /// it.
    async fn watched(&mut self, options: SlotOptions, next: &Guest) {
        let slot = self.offers(services(), options, &[component(&GUEST)]).await;
        for _ in 0..SAMPLE {
            call(&slot).await;
        }
        drop(offer(&slot, &component(next)).await);
        let calls = async {
            for _ in 0..SAMPLE {
                call(&slot).await;
            }
        };
        guarded(&slot, calls, |status| status.refused.is_some()).await;
        self.take(&slot);
    }

    fn take(&mut self, slot: &Slot) {
        self.walked.append(&mut slot.shared.walked.lock().unwrap());
    }
}

/// About an object that every share of 99 % has.
async fn call(slot: &Slot) {
    let object =
        ObjectReference { kind: "Service", namespace: String::new(), name: String::new(), uid: "1".to_owned() };
    drop(slot.master(&Call { object: Some(object), ..Call::default() }, "x").await);
}

fn jailed(compiler: Compiler) -> SlotServices {
    SlotServices { compiler, ..services() }
}

fn rollout(rollout: RolloutOptions, limits: Limits) -> SlotOptions {
    let SlotOptions { sandbox, .. } = options("");
    SlotOptions { rollout, ..SlotOptions::new(SandboxOptions { limits, ..sandbox }) }
}

async fn compile_edges(walk: &mut Walk) {
    let sound = || [component(&GUEST)];
    let nowhere = JailCommand { program: "/nowhere/to/be/found".into(), args: Vec::new() };
    walk.offers(jailed(Compiler::jailed(nowhere)), options(""), &sound()).await;
    let engine = Slot::new(services(), options("")).unwrap().work.lock().await.sandbox.wasmtime().clone();
    for answers in [
        &[Said::OutOfTime][..],
        &[Said::Refused],
        &[Said::Admitted, Said::OutOfTime],
        &[Said::Admitted, Said::Refused],
        &[Said::Admitted, Said::OfAnotherBuild],
        &[Said::Admitted, Said::Nonsense],
    ] {
        let folder = TempDir::new().unwrap();
        walk.offers(jailed(saying(folder.path(), &engine, answers)), options(""), &sound()).await;
    }
}

async fn identity_edges(walk: &mut Walk) {
    let other = |guest: Guest| component(&Guest { version: "2", ..guest });
    let releases = [
        component(&GUEST),
        Bytes::from_static(b"not wasm"),
        other(Guest { describe: "unreachable", ..GUEST }),
        other(Guest { instances: Instances::WithoutScheme, ..GUEST }),
        other(Guest { egress: "https://api.example.com", ..GUEST }),
        other(Guest { has_clusters: false, ..GUEST }),
        other(Guest { name: "q", ..GUEST }),
        other(Guest { check_config: "unreachable", ..GUEST }),
        other(Guest { check_config: CHOOSY, ..GUEST }),
    ];
    walk.offers(services(), options(""), &releases).await;
}

async fn shadow_edges(walk: &mut Walk) {
    let shadow = Some(ShadowOptions { on_difference: OnDifference::Refuse });
    let options = rollout(RolloutOptions { shadow, ..RolloutOptions::default() }, Limits::default());
    let listing = |version, inventory| component(&Guest { version, inventory, ..GUEST });
    let slot = walk.offers(services(), options, &[listing("1", Inventory::Version)]).await;
    drop(LoadBalancerInventory::list(&slot, &Call::default(), "kubernetes").await);
    for release in [listing("2", Inventory::Trap), listing("3", Inventory::Version)] {
        drop(offer(&slot, &release).await);
    }
    walk.take(&slot);
}

async fn trial_edges(walk: &mut Walk) {
    let canary = Some(CanaryOptions { percent: 99, watched: WATCHED });
    let of_share = RolloutOptions { canary, ..RolloutOptions::default() };
    let of_all = RolloutOptions { probation: Some(WATCHED), ..RolloutOptions::default() };
    for options in [of_share.clone(), of_all] {
        let broken = |master| Guest { version: "2", master, ..GUEST };
        walk.watched(rollout(options.clone(), Limits::default()), &broken(Master::Trap)).await;
        walk.watched(rollout(options.clone(), Limits::default()), &broken(Master::Error(INTERNAL))).await;
        let tight = Limits { fuel: 500_000, ..Limits::default() };
        walk.watched(rollout(options, tight), &broken(Master::Version(1_000_000))).await;
    }
    let brief = CanaryOptions { percent: 99, watched: ProbationOptions { calls: 0, time: Duration::from_millis(1) } };
    let options = rollout(RolloutOptions { canary: Some(brief), ..of_share }, Limits::default());
    let releases = ["1", "2"].map(|version| component(&Guest { version, ..GUEST }));
    let slot = walk.offers(services(), options, &releases).await;
    guarded(&slot, async {}, |status| status.canary.is_none()).await;
    walk.take(&slot);
}

#[tokio::test]
async fn every_way_of_the_table_is_walked() {
    let mut walk = Walk { walked: Vec::new() };
    compile_edges(&mut walk).await;
    identity_edges(&mut walk).await;
    shadow_edges(&mut walk).await;
    trial_edges(&mut walk).await;
    // Each step was held to the table when it was taken.
    let walked = |edge: &(Stage, Step)| walk.walked.iter().any(|(from, step)| *from == edge.0 && edge.1.is(*step));
    let missing: Vec<_> = EDGES.iter().filter(|edge| !walked(edge)).collect();
    assert_eq!(missing, [] as [&(Stage, Step); 0]);
}
