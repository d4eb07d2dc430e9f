//! Routes of several providers in one cluster, and with faulty providers or caches.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use expect_test::expect;
use serde_json::json;
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error, Route};
use skysail_test_conformance::{
    routes::{routes, routes_of},
    world::{Cloud, S, World, pass},
};

/// The node `a` of provider one, the node `b` of provider two, a node without an owner, and a node
/// with a malformed provider ID.
async fn two() -> World {
    let world = World::routing(vec![Cloud::new("one").default_of_all(), Cloud::new("two")]);
    world.add_node_of("one", "a", ("10.0.0.1", "10.120.1.0/24")).await;
    world.add_node_of("two", "b", ("10.0.0.2", "10.120.2.0/24")).await;
    world.add_node_of("elsewhere", "foreign", ("10.0.0.3", "10.120.3.0/24")).await;
    world.add_raw_node("malformed", json!({ "providerID": "i-123", "podCIDR": "10.120.4.0/24" })).await;
    world
}

#[tokio::test(start_paused = true)]
async fn each_provider_routes_only_its_own_nodes() {
    let world = two().await.start().await;
    assert_eq!(routes_of(&world.clouds[0]), ["a 10.120.1.0/24 10.0.0.1"]);
    assert_eq!(routes_of(&world.clouds[1]), ["b 10.120.2.0/24 10.0.0.2"]);
    let mut said = Vec::new();
    for node in ["a", "b", "foreign", "malformed"] {
        said.push(world.network_unavailable(node).await);
    }
    assert_eq!(said, ["False RouteCreated", "False RouteCreated", "-", "-"]);
}

/// Two providers of one cloud see each other's routes.
#[tokio::test(start_paused = true)]
async fn a_provider_never_deletes_routes_to_nodes_of_another_provider_or_without_an_owner() {
    let world = two().await;
    let all =
        ["a 10.120.1.0/24", "b 10.120.2.0/24", "b 10.120.9.0/24", "foreign 10.120.3.0/24", "malformed 10.120.8.0/24"];
    let hole = Route { blackhole: true, name: "hole".to_owned(), ..routes(&["b 10.120.10.0/24"]).remove(0) };
    for cloud in &world.clouds {
        cloud.fake.set_routes([routes(&all), vec![hole.clone()]].concat());
    }
    let world = world.start().await;
    pass(60 * S).await;
    let calls = |index: usize| -> Vec<String> {
        world.clouds[index].fake.calls().into_iter().filter(|call| call != "list-routes").collect()
    };
    assert_eq!(calls(0), Vec::<String>::new());
    assert_eq!(
        calls(1),
        ["delete-routes b=10.120.9.0/24,b=10.120.10.0/24"],
        "the provider's own node does not need them"
    );
    // After the deletion of the node its routes have no target.
    world.delete_node("b").await;
    pass(10 * S).await;
    assert_eq!(routes_of(&world.clouds[0]), ["a 10.120.1.0/24", "foreign 10.120.3.0/24", "malformed 10.120.8.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_delays_only_its_own_routes() {
    let world = two().await;
    world.clouds[0].fake.on_call(|_| Box::pin(pending()));
    let world = world.start().await;
    pass(60 * S).await;
    assert_eq!(world.clouds[0].fake.calls(), ["list-routes"]);
    assert_eq!(routes_of(&world.clouds[1]), ["b 10.120.2.0/24 10.0.0.2"]);
    assert_eq!(world.network_unavailable("a").await, "-");
    world.add_node_of("two", "c", ("10.0.0.5", "10.120.5.0/24")).await;
    pass(10 * S).await;
    assert_eq!(world.network_unavailable("c").await, "False RouteCreated");
}

/// After a rejected credential or a trap nothing is deleted and no condition is written; the other
/// provider continues.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_denied_or_traps_delays_only_its_own_routes() {
    for (code, calls) in [(Code::Denied, 3), (Code::Trapped, 6), (Code::NotServing, 6)] {
        let world = two().await;
        world.clouds[0].fake.set_routes(routes(&["gone 10.120.9.0/24"]));
        world.clouds[0].fake.fail_always("list-routes", Some(Error::new(code, "no")));
        let world = world.start().await;
        pass(200 * S).await;
        assert_eq!(world.clouds[0].fake.calls().len(), calls, "{code:?}: the backoff of its code");
        assert_eq!(routes_of(&world.clouds[0]), ["gone 10.120.9.0/24"], "{code:?}");
        assert_eq!(world.network_unavailable("a").await, "-", "{code:?}");
        assert_eq!(world.clouds[1].fake.calls().len(), 22, "{code:?}");
        assert_eq!(world.network_unavailable("b").await, "False RouteCreated", "{code:?}");
    }
}

/// No page follows a page with a retry-after.
#[tokio::test(start_paused = true)]
async fn a_retry_after_stops_all_further_calls_of_the_pass() {
    let world = two().await;
    let stale: Vec<String> = (0..100).map(|n| format!("gone 10.120.{}.0/24", 100 + n)).collect();
    world.clouds[0].fake.set_routes(routes(&stale.iter().map(String::as_str).collect::<Vec<_>>()));
    world.clouds[0].fake.fail_next("delete-routes", Error::retry_after(45 * S, "slow down"));
    let world = world.start().await;
    pass(40 * S).await;
    assert_eq!(
        world.clouds[0].fake.take_calls(),
        ["list-routes", "delete-routes (25 routes)", "create-routes a=10.120.1.0/24"]
    );
    pass(10 * S).await;
    let calls = world.clouds[0].fake.take_calls();
    assert_eq!(calls, [&["list-routes"][..], &["delete-routes (25 routes)"; 4]].concat());
}

/// A retry-after of a creation emits no Event.
#[tokio::test(start_paused = true)]
async fn a_route_that_takes_time_emits_no_event() {
    let world = two().await;
    world.clouds[0].fake.fail_next("create-routes", Error::retry_after(5 * S, "the route is being made"));
    let mut world = world.start().await;
    assert_eq!(world.network_unavailable("a").await, "True NoRouteCreated");
    assert!(!world.transcript().await.contains("FailedToCreateRoute"));
    pass(10 * S).await;
    assert_eq!(world.network_unavailable("a").await, "False RouteCreated");
}

/// The cache may be empty by mistake.
#[tokio::test(start_paused = true)]
async fn while_no_node_is_known_no_route_is_deleted() {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    world.fake().set_routes(routes(&["a 10.120.1.0/24", "b 10.120.2.0/24"]));
    let mut world = world.start().await;
    world
        .after(
            30 * S,
            expect![[r#"
                provider list-routes
                provider list-routes
                provider list-routes
                provider list-routes
            "#]],
        )
        .await;
    world.add_routed_node("b", "10.0.0.2", "10.120.2.0/24").await;
    pass(10 * S).await;
    assert_eq!(world.routes(), ["b 10.120.2.0/24"]);
    world.delete_node("b").await;
    pass(60 * S).await;
    assert_eq!(world.routes(), ["b 10.120.2.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn before_the_first_list_of_nodes_nothing_is_called() {
    let mut world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    world.fake().set_routes(routes(&["a 10.120.1.0/24"]));
    world.server.set_faults(Some(Arc::new(|_: &RequestInfo| Fault::unavailable())));
    world.launch();
    pass(60 * S).await;
    assert_eq!(world.fake().calls(), Vec::<String>::new());
    world.server.set_faults(None);
    pass(60 * S).await;
    assert_eq!(world.fake().calls()[0], "list-routes");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_routes_are_planned_at_once_and_deleted_in_pages() {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    world.add_routed_node("a", "10.0.0.1", "10.120.1.0/24").await;
    let mut many = routes(&vec!["gone a00:100::/24"; 1_000]);
    many.extend(routes(&vec!["elsewhere 192.168.0.0/24"; 9_000]));
    for (index, route) in many.iter_mut().enumerate() {
        route.name = format!("r{index}");
    }
    world.fake().set_routes(many);
    let world = world.start().await;
    let calls = world.fake().take_calls();
    let deletions = calls.iter().filter(|call| *call == "delete-routes (25 routes)").count();
    assert_eq!((calls.len(), deletions), (42, 40), "one list, 1,000 routes in pages of 25, one creation");
    assert_eq!(world.fake().cloud_routes().len(), 9_001);
}

/// One page of nodes traps: this page fails, and no other.
#[tokio::test(start_paused = true)]
async fn routes_are_created_in_pages_and_a_page_that_fails_delays_no_other() {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    for n in 0..60 {
        world.add_routed_node(&format!("n{n:02}"), "10.0.0.1", &format!("10.120.{n}.0/24")).await;
    }
    world.fake().fail_next("create-routes", Error::new(Code::Trapped, "unreachable"));
    let world = world.start().await;
    assert_eq!(
        world.fake().take_calls()[1..],
        ["create-routes (25 routes)", "create-routes (25 routes)", "create-routes (10 routes)"]
    );
    assert_eq!(world.network_unavailable("n00").await, "True NoRouteCreated");
    assert_eq!(world.network_unavailable("n25").await, "False RouteCreated");
    pass(10 * S).await;
    assert_eq!(world.network_unavailable("n00").await, "False RouteCreated");
    assert_eq!(world.routes().len(), 60);
}

/// A new release may succeed where its predecessor failed.
#[tokio::test(start_paused = true)]
async fn a_release_that_becomes_active_is_called_at_once() {
    for watch_based in [false, true] {
        let world = two().await.set(|settings| settings.watch_based_routes = watch_based);
        world.clouds[0].fake.fail_next("list-routes", Error::new(Code::Denied, "no token"));
        let world = world.start().await;
        pass(30 * S).await;
        assert_eq!(world.clouds[0].fake.take_calls(), ["list-routes"]);
        world.clouds[0].releases.send_replace(2);
        pass(S).await;
        assert_eq!(
            world.clouds[0].fake.take_calls(),
            ["list-routes", "create-routes a=10.120.1.0/24"],
            "{watch_based}"
        );
    }
}

/// With the feature gate: a change of a node does not shorten the cloud's retry-after.
#[tokio::test(start_paused = true)]
async fn with_the_gate_a_new_node_does_not_shorten_a_retry_after() {
    let world = two().await.set(|settings| settings.watch_based_routes = true);
    world.clouds[0].fake.fail_next("list-routes", Error::retry_after(300 * S, "later"));
    let world = world.start().await;
    world.add_node_of("one", "c", ("10.0.0.5", "10.120.5.0/24")).await;
    pass(290 * S).await;
    assert_eq!(world.clouds[0].fake.take_calls(), ["list-routes"]);
    pass(20 * S).await;
    assert_eq!(world.network_unavailable("c").await, "False RouteCreated");
}

/// Found by the simulation: with the feature gate, the list of the only pass after the deletion of
/// a node lacks the node's route.
#[tokio::test(start_paused = true)]
async fn with_the_gate_a_route_that_a_list_lacked_is_deleted_by_a_repeated_pass() {
    let world = two().await.set(|settings| settings.watch_based_routes = true).start().await;
    pass(300 * S).await;
    let all = routes_of(&world.clouds[0]);
    assert_eq!(all, ["a 10.120.1.0/24 10.0.0.1"]);
    world.clouds[0].fake.set_routes(Vec::new());
    world.delete_node("a").await;
    pass(60 * S).await;
    world.clouds[0].fake.set_routes(routes(&["a 10.120.1.0/24"]));
    drop(world.clouds[0].fake.take_calls());
    pass(120 * S).await;
    assert_eq!(world.clouds[0].fake.take_calls(), ["list-routes", "delete-routes a=10.120.1.0/24"]);
    // The pass after a change is repeated, too.
    pass(3600 * S).await;
    assert_eq!(world.clouds[0].fake.take_calls(), ["list-routes"]);
}

/// Found by the simulation: with the feature gate, the first node of an empty cluster triggers a
/// pass of every provider.
#[tokio::test(start_paused = true)]
async fn with_the_gate_a_leftover_route_of_an_empty_cluster_is_deleted_with_the_first_node() {
    let world = World::routing(vec![Cloud::new("one").default_of_all(), Cloud::new("two")])
        .set(|settings| settings.watch_based_routes = true);
    world.clouds[0].fake.set_routes(routes(&["gone 10.120.1.0/24"]));
    let world = world.start().await;
    pass(60 * S).await;
    assert_eq!(routes_of(&world.clouds[0]), ["gone 10.120.1.0/24"]);
    world.add_node_of("two", "b", ("10.0.0.2", "10.120.2.0/24")).await;
    pass(20 * S).await;
    assert_eq!(routes_of(&world.clouds[0]), [""; 0]);
}

/// A node that is created again under its name during the creation of its routes is another node.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_created_again_meanwhile_gets_its_condition_with_the_next_pass() {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    world.add_routed_node("a", "10.0.0.1", "10.120.1.0/24").await;
    let nodes = world.nodes();
    let calls = Arc::new(AtomicUsize::new(0));
    world.fake().on_call(move |line| {
        let (nodes, first) = (nodes.clone(), line.starts_with("create") && calls.fetch_add(1, Ordering::Relaxed) == 0);
        Box::pin(async move {
            if first {
                let old = nodes.get("a").await.unwrap();
                nodes.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
                let mut new = old;
                new.metadata.uid = None;
                new.metadata.resource_version = None;
                nodes.create(&kube::api::PostParams::default(), &new).await.unwrap();
                pass(S / 10).await;
            }
        })
    });
    let world = world.start().await;
    assert_eq!(world.network_unavailable("a").await, "-");
    pass(10 * S).await;
    assert_eq!(world.network_unavailable("a").await, "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_begins_no_further_page_and_writes_no_condition() {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    for n in 0..60 {
        world.add_routed_node(&format!("n{n:02}"), "10.0.0.1", &format!("10.120.{n}.0/24")).await;
    }
    world.fake().on_call(|line| if line.starts_with("create") { Box::pin(pass(3 * S)) } else { Box::pin(async {}) });
    let mut world = world.start().await;
    drop(world.transcript().await);
    world.stop.cancel();
    world.running.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(world.fake().calls(), ["list-routes", "create-routes (25 routes)"]);
    assert_eq!(world.network_unavailable("n00").await, "-");
}

/// Otherwise a provider that needs most of its deadline for each page fails `/livez`, and the
/// kubelet restarts the manager of all providers.
#[tokio::test(start_paused = true)]
async fn each_page_of_routes_is_progress() {
    let world = two().await;
    let stale: Vec<String> = (0..250).map(|n| format!("gone 10.120.{n}.128/25")).collect();
    world.clouds[0].fake.set_routes(routes(&stale.iter().map(String::as_str).collect::<Vec<_>>()));
    world.clouds[0].fake.on_call(|_| Box::pin(pass(29 * S)));
    let world = world.start().await;
    let mut calls = Vec::new();
    while !calls.iter().any(|call: &String| call.starts_with("create-routes")) {
        pass(S).await;
        assert_eq!(world.progress.check(|_| 30 * S), Ok(()), "{calls:?}");
        calls.extend(world.clouds[0].fake.take_calls());
    }
    let deletions = calls.iter().filter(|call| *call == "delete-routes (25 routes)").count();
    assert_eq!(deletions, 10, "{calls:?}");
}
