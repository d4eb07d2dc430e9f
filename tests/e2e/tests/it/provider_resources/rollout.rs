//! The rollout of a release: comparison with its predecessor (shadow), canary, rollback and a
//! retry on request.

use std::{cell::RefCell, collections::BTreeSet};

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use skysail_test_e2e::timeline::{Bar, Timeline};
use tokio::time::Instant;

use super::*;

/// Enough Services that a share of 50 % is neither none nor all of them.
const SERVICES: u16 = 12;

/// First port of the Services.
const PORT: u16 = 8100;

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_release_is_rolled_back_or_refused_before_it_serves_all_objects() -> Result<()> {
    let world = World::new().await?;
    world.write_secrets()?;
    let (good, bad) = (component("simcloud")?, component("probe-regression")?);
    let first = world.push(&good)?;
    world.apply(&world.provider()?)?;
    world.until_serving(&first).await?;
    register_node(&world.client, "a").await?;
    eventually("the node is initialised", 60, || initialized(&world.client, "a")).await?;
    for number in 0..SERVICES {
        create_service(&world.client, &format!("web-{number}"), PORT + number, NODE_PORT + number).await?;
    }
    for number in 0..SERVICES {
        let name = format!("web-{number}");
        eventually("the Service gets an address", 60, || address_of(&world.client, &name)).await?;
    }
    rolled_back_from_its_share(&world, &bad, &first).await.context("a canary that traps")?;
    tried_again(&world, &first).await.context("a retry on request")?;
    compared(&world, &bad, &first).await.context("a release that is compared")?;
    grows(&world, &good).await.context("a good canary")?;
    let status = world.manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

/// Only Services of the canary's share failed.
async fn rolled_back_from_its_share(world: &World, bad: &Path, serving: &str) -> Result<()> {
    world.patch(&json!({ "spec": { "rollout": { "canary": { "percent": 50, "calls": 1000, "time": "1h" } } } }))?;
    in_force(world).await?;
    let digest = world.push(bad)?;
    let status = world.until("the release is rolled back", |status| at(status, "/refused/digest") == digest).await?;
    ensure!(at(&status, "/refused/stage") == "canary" && at(&status, "/refused/code") == "ProbationTrap", "{status:#}");
    ensure!(at(&status, "/active/digest") == serving && status.get("canary").is_none(), "{status:#}");
    world.until_event("RolledBack").await?;
    let met: BTreeSet<String> = failed(world)?;
    let share = share(world).await?;
    ensure!(!share.is_empty() && share.len() < usize::from(SERVICES), "the share is {share:?}");
    ensure!(!met.is_empty() && met.is_subset(&share), "{met:?} met it, of the share {share:?}");
    Ok(())
}

/// Waits until the status is about the newest spec.
async fn in_force(world: &World) -> Result<()> {
    eventually("the settings are in force", PATIENCE, || {
        let observed = world.object().and_then(|object| {
            let [spec, status] = ["/metadata/generation", "/status/observedGeneration"].map(|at| object.pointer(at));
            ensure!(spec.is_some() && spec == status, "{object:#}");
            Ok(())
        });
        std::future::ready(observed)
    })
    .await
}

/// Names of the Services whose load balancer failed.
fn failed(world: &World) -> Result<BTreeSet<String>> {
    let about = "reason=SyncLoadBalancerFailed";
    let names = "custom-columns=:.involvedObject.name";
    let names = world.server.kubectl(&["get", "events", "--field-selector", about, "--no-headers", "-o", names])?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// By the rule of `canary.rs` in the host: the first two bytes of the UID's SHA-256, modulo a
/// hundred.
async fn share(world: &World) -> Result<BTreeSet<String>> {
    let services: Api<Service> = Api::default_namespaced(world.client.clone());
    let mut share = BTreeSet::new();
    for service in services.list(&kube::api::ListParams::default()).await? {
        let (name, uid) = (service.metadata.name.context("no name")?, service.metadata.uid.context("no UID")?);
        let file = world.folder.path().join("uid");
        fs::write(&file, uid)?;
        let digest = digest_of(&file)?;
        let start = digest.get("sha256:".len().."sha256:".len() + 4).context("no digest")?;
        if name.starts_with("web-") && u32::from_str_radix(start, 16)? % 100 < 50 {
            share.insert(name);
        }
    }
    Ok(share)
}

async fn tried_again(world: &World, serving: &str) -> Result<()> {
    let object = world.object()?;
    let digest = at(&object, "/status/refused/digest");
    world.patch(&json!({ "spec": { "rollout": { "retry": digest } } }))?;
    let retried = |status: &Value| status.pointer("/refused/retried") == Some(&json!(true));
    let status = world.until("the release is tried and rolled back again", retried).await?;
    ensure!(at(&status, "/refused/digest") == digest && at(&status, "/active/digest") == serving, "{status:#}");
    Ok(())
}

/// The release also traps in functions that only read, so the comparison refuses it.
async fn compared(world: &World, bad: &Path, serving: &str) -> Result<()> {
    world.patch(&json!({ "spec": { "rollout": { "shadow": { "onDifference": "Refuse" }, "retry": null } } }))?;
    in_force(world).await?;
    // The comparison repeats calls that were made after this point.
    set_port(&world.client, "web-0", PORT + SERVICES, NODE_PORT).await?;
    let address = eventually("the Service has an address", 60, || address_of(&world.client, "web-0")).await?;
    wait_for_answers(&address, PORT + SERVICES, &["a"]).await?;
    let swaps = |status: &Value| status.get("swaps").cloned();
    let before = world.object()?.pointer("/status/swaps").cloned();
    let digest = world.push_marked(bad, 2)?;
    let status = world.until("it is refused", |status| at(status, "/refused/digest") == digest).await?;
    ensure!(at(&status, "/refused/code") == "ShadowBroken", "{status:#}");
    ensure!(at(&status, "/active/digest") == serving && swaps(&status) == before, "{status:#}");
    Ok(())
}

async fn grows(world: &World, good: &Path) -> Result<()> {
    // So long that a busy machine looks at the status at least once meanwhile.
    world.patch(&json!({ "spec": { "rollout": { "canary": { "calls": 1, "time": "30s" } } } }))?;
    in_force(world).await?;
    let digest = world.push_marked(good, 3)?;
    let stages = Stages::begin();
    world
        .until("the canary serves a share", |status| {
            let stage = at(status, "/candidate/stage");
            stages.note(stage);
            stage == "canary"
        })
        .await?;
    let table = world.server.kubectl(&["get", "providers"])?;
    ensure!(table.contains("CANDIDATE") && table.contains(&digest), "{table}");
    let status = world.until_serving(&digest).await?;
    stages.note("probation");
    // A canary that is rolled back at its first call may never appear in the status; this one
    // served long enough.
    world.until_event("CanaryStarted").await?;
    let (asked, differing) = (status.pointer("/shadow/asked"), status.pointer("/shadow/differing"));
    ensure!(asked.and_then(Value::as_u64).is_some_and(|asked| asked > 0), "{status:#}");
    ensure!(differing == Some(&json!(0)), "{status:#}");
    world
        .until("the rollout is complete", |status| {
            is(status, "Progressing", "False") && is(status, "Degraded", "False")
        })
        .await?;
    stages.timeline().draw("release.svg")
}

/// The stages of a release, each with the time at which the status showed it first.
struct Stages {
    start: Instant,
    seen: RefCell<Vec<(String, Instant)>>,
}

impl Stages {
    fn begin() -> Self {
        Self { start: Instant::now(), seen: RefCell::default() }
    }

    fn note(&self, stage: &str) {
        let mut seen = self.seen.borrow_mut();
        if !stage.is_empty() && seen.iter().all(|(known, _)| known != stage) {
            seen.push((stage.to_owned(), Instant::now()));
        }
    }

    /// Each stage until the next one, the last one until now.
    fn timeline(&self) -> Timeline {
        let seen = self.seen.borrow();
        let ends = seen.iter().skip(1).map(|(_, at)| *at).chain([Instant::now()]);
        let since = |time: Instant| time.duration_since(self.start);
        let bars = seen.iter().zip(ends).map(|((stage, start), end)| Bar {
            depth: 0,
            label: stage.clone(),
            start: since(*start),
            end: since(end),
        });
        Timeline { title: "A new release, by the stage that the status shows".to_owned(), bars: bars.collect() }
    }
}
