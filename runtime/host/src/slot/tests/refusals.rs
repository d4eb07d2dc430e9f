//! Every reason for a refusal, met by a release in a real slot at the stage where it belongs.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use expect_test::expect;
use skysail_provider::{Call, Clusters as _, LoadBalancerInventory, ObjectReference};
use skysail_slot::SAMPLE;
use tempfile::TempDir;

use super::{offer, options, services, until};
use crate::{
    Limits, SandboxOptions,
    jail::{
        Compiler, JailCommand,
        stand_in::{Said, saying},
    },
    slot::{
        CanaryOptions, OnDifference, ProbationOptions, Refusal, RolloutOptions, Settings, ShadowOptions, Slot,
        SlotOptions, SlotServices,
    },
    test_guest::{CHOOSY, GUEST, Guest, INTERNAL, Instances, Inventory, Master, component},
};

const WATCHED: ProbationOptions = ProbationOptions { calls: 100, time: Duration::from_secs(60) };

/// The stage and the code of each refusal.
#[derive(Default)]
struct Walk(BTreeSet<String>);

impl Walk {
    async fn offers(&mut self, services: SlotServices, options: SlotOptions, releases: &[Bytes]) -> Slot {
        let slot = Slot::new(services, options).unwrap();
        for release in releases {
            self.offer(&slot, release).await;
        }
        slot
    }

    async fn offer(&mut self, slot: &Slot, release: &Bytes) {
        if let Err(refusal) = offer(slot, release).await {
            self.note(&refusal);
        }
    }

    /// A release serves and was asked; then this one comes and is called until it is rolled back.
    async fn watched(&mut self, options: SlotOptions, next: &Guest) {
        let slot = self.offers(services(), options, &[component(&GUEST)]).await;
        for _ in 0..SAMPLE {
            call(&slot).await;
        }
        self.offer(&slot, &component(next)).await;
        for _ in 0..SAMPLE {
            call(&slot).await;
        }
        until(&slot, |status| status.refused.is_some()).await;
        self.note(slot.status().borrow().refused.as_ref().unwrap());
    }

    fn note(&mut self, refusal: &Refusal) {
        let lasting = if refusal.lasting { "" } else { ", tried again" };
        self.0.insert(format!("{} {}{lasting}", refusal.stage.name(), refusal.code));
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

async fn compile_refusals(walk: &mut Walk) {
    let sound = || [component(&GUEST)];
    let nowhere = JailCommand { program: "/nowhere/to/be/found".into(), args: Vec::new() };
    walk.offers(jailed(Compiler::jailed(nowhere)), options(""), &sound()).await;
    let engine = Settings::new(&services(), options("")).unwrap().sandbox.wasmtime().clone();
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

async fn identity_refusals(walk: &mut Walk) {
    let other = |guest: Guest| component(&Guest { version: "2", ..guest });
    let releases = [
        component(&GUEST),
        Bytes::from_static(b"not wasm"),
        other(Guest { describe: "unreachable", ..GUEST }),
        other(Guest { instances: Instances::WithoutScheme, ..GUEST }),
        other(Guest { egress: "https://api.example.com", ..GUEST }),
        other(Guest { egress: "api.example.com", ..GUEST }),
        other(Guest { has_clusters: false, ..GUEST }),
        other(Guest { name: "q", ..GUEST }),
        other(Guest { check_config: "unreachable", ..GUEST }),
        other(Guest { check_config: CHOOSY, ..GUEST }),
    ];
    walk.offers(services(), options(""), &releases).await;
}

async fn shadow_refusals(walk: &mut Walk) {
    let shadow = Some(ShadowOptions { on_difference: OnDifference::Refuse });
    let options = rollout(RolloutOptions { shadow, ..RolloutOptions::default() }, Limits::default());
    let listing = |version, inventory| component(&Guest { version, inventory, ..GUEST });
    let slot = walk.offers(services(), options, &[listing("1", Inventory::Version)]).await;
    drop(LoadBalancerInventory::list(&slot, &Call::default(), "kubernetes").await);
    for release in [listing("2", Inventory::Trap), listing("3", Inventory::Version)] {
        walk.offer(&slot, &release).await;
    }
}

async fn trial_refusals(walk: &mut Walk) {
    let canary = Some(CanaryOptions { percent: 99, watched: WATCHED });
    let of_share = RolloutOptions { canary, ..RolloutOptions::default() };
    let of_all = RolloutOptions { probation: Some(WATCHED), ..RolloutOptions::default() };
    for options in [of_share, of_all] {
        let broken = |master| Guest { version: "2", master, ..GUEST };
        walk.watched(rollout(options.clone(), Limits::default()), &broken(Master::Trap)).await;
        walk.watched(rollout(options.clone(), Limits::default()), &broken(Master::Error(INTERNAL))).await;
        let tight = Limits { fuel: 500_000, ..Limits::default() };
        walk.watched(rollout(options, tight), &broken(Master::Version(1_000_000))).await;
    }
}

#[tokio::test]
async fn every_reason_refuses_a_release_at_its_stage() {
    let mut walk = Walk::default();
    compile_refusals(&mut walk).await;
    identity_refusals(&mut walk).await;
    shadow_refusals(&mut walk).await;
    trial_refusals(&mut walk).await;
    let refusals: Vec<_> = walk.0.into_iter().collect();
    expect![[r#"
        active ProbationErrors
        active ProbationLimit
        active ProbationTrap
        canary ProbationErrors
        canary ProbationLimit
        canary ProbationTrap
        compiled LinkFailed, tried again
        configChecked ShadowBroken
        configChecked ShadowDiffers
        described CheckConfigFailed
        described ConfigRefused
        described EgressNotAllowed
        described OriginsFailed
        linked DescribeFailed
        linked IdentityChanged
        linked InterfaceLost
        linked NoProviderIdScheme
        offered CompileFailed
        offered CompileLimit
        offered CompileUnavailable, tried again
        offered Text
        verified CompileFailed
        verified CompileLimit
        verified CompileUnavailable, tried again"#]]
    .assert_eq(&refusals.join("\n"));
}
