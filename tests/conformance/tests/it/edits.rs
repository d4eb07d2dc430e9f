//! An operator edits the providers while the manager runs: an edit affects only the concerned
//! objects and restarts nothing.

use std::time::Duration;

use serde_json::json;
use skysail_controllers::Finding;

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// Number of Services of each provider.
const SERVICES: usize = 100;

/// Two clouds with a hundred ensured Services each, and no recorded call.
async fn serving() -> World {
    let mut world = World::with(vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")])
        .set(|settings| {
            settings.concurrent_service_syncs = 10;
            // Only an edit causes a pass over the addresses of nodes.
            settings.node_status_update_frequency = Duration::from_hours(24);
        });
    world.add_node("a").await;
    world.add_raw_node("b", json!({ "providerID": "two://b" })).await;
    world = world.start().await;
    for n in 0..SERVICES {
        world.add_service(&format!("one-{n}"), json!({})).await;
        world.add_service(&format!("two-{n}"), json!({ "loadBalancerClass": "two.example/lb" })).await;
    }
    pass(10 * S).await;
    for cloud in &world.clouds {
        assert_eq!(cloud.fake.cloud().len(), SERVICES);
    }
    drop(calls(&world));
    world
}

/// The number of all calls since the last time, by provider.
fn calls(world: &World) -> Vec<usize> {
    world.clouds.iter().map(|cloud| cloud.fake.take_calls().len()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_one_provider_makes_no_call_at_the_other() {
    let mut world = serving().await;
    world.edit(|clouds| clouds[1].claim_class("new.example/lb".to_owned())).await;
    pass(120 * S).await;
    assert_eq!(calls(&world), [0, 0], "an additional class affects no Service");

    world.edit(|clouds| clouds[1].allow_load_balancers(&["203.0.113.0/24"])).await;
    pass(120 * S).await;
    assert_eq!(
        calls(&world),
        [0, SERVICES],
        "each load balancer of the provider is ensured, which checks its addresses"
    );

    world.edit(|clouds| clouds[1].allow(&["203.0.113.0/24"], &["10.0.0.0/8"])).await;
    pass(120 * S).await;
    assert_eq!(world.clouds[0].fake.take_calls(), Vec::<String>::new());
    assert_eq!(world.clouds[1].fake.take_calls(), ["describe metadata nodes=b"], "only its nodes have other addresses");

    world.edit(|clouds| clouds.push(Cloud::new("three").class("three.example/lb"))).await;
    pass(120 * S).await;
    assert_eq!(calls(&world), [0, 0, 0], "an additional provider affects no Service");
    world.add_service("three", json!({ "loadBalancerClass": "three.example/lb" })).await;
    pass(5 * S).await;
    assert_eq!(calls(&world), [0, 0, 1], "the new provider serves the Service");

    world.edit(|clouds| drop(clouds.pop())).await;
    world.edit(|clouds| drop(clouds[1].give_up_class())).await;
    pass(120 * S).await;
    assert_eq!(calls(&world), [0, 0], "load balancers without a claim stay unchanged");
    for cloud in &world.clouds {
        assert_eq!(cloud.fake.cloud().len(), SERVICES);
    }
}

/// An edit of a provider must not allow a malicious guest to delete another third of the nodes.
#[tokio::test(start_paused = true)]
async fn the_memory_of_the_breaker_survives_an_edit() {
    let mut world = World::new();
    let name = |n: usize| format!("n{n}");
    for n in 0..9 {
        world.fake().add_instances([&*name(n)]);
        world.add_node(&name(n)).await;
    }
    world = world.start().await;
    for lost in [0..3, 3..5] {
        for n in lost {
            world.fake().remove_instance(&name(n));
            world.heartbeat(&name(n), "Unknown").await;
        }
        pass(Duration::from_mins(1)).await;
        world.edit(|clouds| clouds[0].claim_class("new.example/lb".to_owned())).await;
    }
    pass(Duration::from_mins(1)).await;
    assert!(world.node("n2").await.is_none(), "a third of nine may be deleted");
    assert!(world.node("n3").await.is_some() && world.node("n4").await.is_some(), "two more may not be deleted");
    assert!(world.clouds[0].finding(Finding::NodesHeld).is_some());
}

/// A provider that is removed and added again under its name is another provider: only its own load
/// balancers are ensured.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_removed_and_added_again_serves_its_services_again() {
    let mut world = serving().await;
    let mut removed = None;
    world.edit(|clouds| removed = clouds.pop()).await;
    pass(120 * S).await;
    assert_eq!(calls(&world), [0]);
    world.add_service("late", json!({ "loadBalancerClass": "two.example/lb" })).await;
    world.edit(|clouds| clouds.extend(removed)).await;
    pass(120 * S).await;
    assert!(world.state("late").await.contains("203.0.113."));
    assert_eq!(world.clouds[1].fake.cloud().len(), SERVICES + 1);
    assert_eq!(calls(&world)[0], 0);
}

/// The call of the removed provider ends after the new one has begun; its answer says nothing about
/// the other account.
#[tokio::test(start_paused = true)]
async fn the_late_answer_of_a_removed_provider_does_not_count_for_its_successor() {
    let mut world = serving().await;
    let removed = world.clouds[1].fake.clone();
    removed.on_call(|line| {
        let slow = line.starts_with("ensure default/late");
        Box::pin(async move {
            if slow {
                pass(20 * S).await;
            }
        })
    });
    world.add_service("late", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(5 * S).await;
    world.edit(|clouds| drop(clouds.pop())).await;
    world.edit(|clouds| clouds.push(Cloud::new("two").class("two.example/lb"))).await;
    pass(120 * S).await;
    assert_eq!(removed.cloud().len(), SERVICES + 1, "the removed provider's call ran to its end");
    assert_eq!(world.clouds[1].fake.cloud().len(), SERVICES + 1);
}

/// Names of providers come and go, and a series that stays takes memory and a place in every
/// scrape.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_removed_has_no_metric_series_any_more() {
    let mut world = serving().await;
    let series = |world: &World, provider: &str| world.metrics(&format!("provider=\"{provider}\""));
    let before = series(&world, "two");
    for family in ["skysail_reconciles", "skysail_node_set_size", "workqueue_adds", "workqueue_depth"] {
        assert!(before.iter().any(|line| line.starts_with(family)), "{family} of {before:#?}");
    }
    world.edit(|clouds| drop(clouds.pop())).await;
    pass(120 * S).await;
    assert_eq!(series(&world, "two"), [""; 0]);
    assert!(series(&world, "one").len() >= before.len());
}
