//! Drift repair: load balancers that somebody changed behind our back come back.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

const PERIOD: Duration = Duration::from_mins(10);

/// This many Services that are ensured, and drift repair at most this often.
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

/// How often each Service was ensured since the last time.
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
async fn without_a_period_nothing_is_ensured_that_did_not_change() {
    let mut world = World::new().start().await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(world.transcript().await);
    world.fake().lose_load_balancers();
    pass(Duration::from_hours(24)).await;
    assert_eq!(world.transcript().await, "");
}

#[tokio::test(start_paused = true)]
async fn each_load_balancer_is_ensured_once_in_a_period_and_says_nothing_where_nothing_differs() {
    let mut world = with_services(20, 600).await;
    // Turns that were due before the Services were there begin with the first look.
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
async fn a_load_balancer_that_was_deleted_behind_our_back_comes_back() {
    let mut world = with_services(1, 60).await;
    let before = world.state("web-0").await;
    world.fake().lose_load_balancers();
    pass(PERIOD).await;
    assert_eq!(world.fake().cloud().len(), 1);
    assert_ne!(world.state("web-0").await, before, "it has another address now");
    let transcript = world.transcript().await;
    assert!(transcript.contains("event web-0 Normal EnsuredLoadBalancer"), "{transcript}");
}

/// Forty need twenty minutes at two a minute, which is twice the period.
#[tokio::test(start_paused = true)]
async fn the_rate_holds_and_leaves_nobody_out() {
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

/// A cloud that is down is not asked more often for it.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_backoff_goes_on_waiting() {
    let world = with_services(1, 60).await;
    world.fake().fail_always("ensure", Some(Error::new(Code::Invalid, "no such subnet")));
    world.patch_service("web-0", json!({ "metadata": { "annotations": { "a": "b" } } })).await;
    pass(S).await;
    assert_eq!(ensures(&world).values().sum::<usize>(), 1);
    pass(Duration::from_mins(29)).await;
    assert_eq!(ensures(&world).values().sum::<usize>(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_does_is_left_to_it() {
    let world = World::new().set(|settings| settings.drift_repair_period = PERIOD).start().await;
    world.fake().fail_always("ensure", Some(Error::new(Code::ImplementedElsewhere, "not ours")));
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    assert_eq!(world.fake().take_calls().len(), 1);
    pass(3 * PERIOD).await;
    assert!(world.fake().take_calls().is_empty());
}
