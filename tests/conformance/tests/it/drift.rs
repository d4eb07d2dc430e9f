//! Drift repair: restores load balancers that were changed in the cloud.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

const PERIOD: Duration = Duration::from_mins(10);

/// A world with this many ensured Services and this rate of drift repair.
async fn with_services(count: usize, per_minute: u32) -> World {
    let world = World::new().set(|settings| {
        settings.drift_repair_period = PERIOD;
        settings.drift_repairs_per_minute = per_minute;
    });
    let mut world = world.start().await;
    world.add_node("a").await;
    pass(10 * S).await;
    for n in 0..count {
        world.add_service(&format!("web-{n}"), json!({})).await;
    }
    pass(10 * S).await;
    drop(world.transcript().await);
    drop(world.fake().take_calls());
    world
}

/// The number of `ensure` calls for each Service since the last call.
fn ensures(world: &World) -> BTreeMap<String, usize> {
    let calls = world.fake().take_calls();
    let mut ensures = BTreeMap::new();
    for service in calls.iter().filter_map(|line| line.strip_prefix("ensure default/")?.split(' ').next()) {
        *ensures.entry(service.to_owned()).or_default() += 1;
    }
    assert!(!calls.iter().any(|line| line.starts_with("update") || line.starts_with("get")), "{calls:?}");
    ensures
}

#[tokio::test(start_paused = true)]
async fn without_a_period_an_unchanged_service_is_not_ensured_again() {
    let mut world = World::new().start().await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(world.transcript().await);
    world.fake().lose_load_balancers();
    pass(Duration::from_hours(24)).await;
    assert_eq!(world.transcript().await, "");
}

#[tokio::test(start_paused = true)]
async fn each_load_balancer_is_ensured_once_in_a_period_without_an_event_if_nothing_changed() {
    let mut world = with_services(20, 600).await;
    // Turns that were due before the Services existed begin with the first check.
    pass(PERIOD).await;
    assert_eq!(ensures(&world).len(), 20);
    for _ in 0..3 {
        pass(PERIOD).await;
        let ensures = ensures(&world);
        assert_eq!((ensures.len(), ensures.values().max()), (20, Some(&1)), "{ensures:?}");
    }
    let transcript = world.transcript().await;
    assert!(!transcript.contains("event") && !transcript.contains("api"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn turns_are_spread_over_the_period() {
    let world = with_services(40, 600).await;
    let mut most = 0;
    for _ in 0..10 {
        pass(PERIOD / 10).await;
        most = most.max(ensures(&world).len());
    }
    assert!(most < 15, "{most} of 40 in a tenth of the period");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_was_deleted_in_the_cloud_is_restored() {
    let mut world = with_services(1, 60).await;
    let before = world.state("web-0").await;
    world.fake().lose_load_balancers();
    pass(PERIOD).await;
    assert_eq!(world.fake().cloud().len(), 1);
    assert_ne!(world.state("web-0").await, before, "the restored load balancer has another address");
    let transcript = world.transcript().await;
    assert!(transcript.contains("event web-0 Normal EnsuredLoadBalancer"), "{transcript}");
}

/// Forty Services need twenty minutes at two a minute, which is twice the period.
#[tokio::test(start_paused = true)]
async fn the_rate_is_kept_and_no_service_is_skipped() {
    let world = with_services(40, 2).await;
    for _ in 0..10 {
        pass(60 * S).await;
        let count: usize = ensures(&world).values().sum();
        assert!(count <= 2, "{count} in a minute");
    }
    let mut seen = BTreeMap::new();
    for _ in 0..8 {
        pass(PERIOD).await;
        for (service, count) in ensures(&world) {
            *seen.entry(service).or_insert(0) += count;
        }
    }
    assert_eq!(seen.len(), 40);
    assert!(seen.values().all(|count| (3..=5).contains(count)), "{seen:?}");
}

/// Drift repair does not increase the calls to a failing cloud.
#[tokio::test(start_paused = true)]
async fn drift_repair_does_not_shorten_a_backoff() {
    let world = with_services(1, 60).await;
    world.fake().fail_always("ensure", Some(Error::new(Code::Invalid, "no such subnet")));
    world.patch_service("web-0", json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    pass(S).await;
    assert_eq!(ensures(&world).values().sum::<usize>(), 1);
    pass(Duration::from_mins(29)).await;
    assert_eq!(ensures(&world).values().sum::<usize>(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_of_another_controller_gets_no_drift_repair() {
    let world = World::new().set(|settings| settings.drift_repair_period = PERIOD).start().await;
    world.fake().fail_always("ensure", Some(Error::new(Code::ImplementedElsewhere, "not ours")));
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    assert_eq!(world.fake().take_calls().len(), 1);
    pass(3 * PERIOD).await;
    assert!(world.fake().take_calls().is_empty());
}
