//! Two providers claim the same class, scheme or node: the older provider keeps it, and a finding
//! reports the conflict.

use serde_json::json;
use skysail_controllers::Finding;

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// A cloud with three nodes behind one load balancer.
async fn serving(cloud: Cloud) -> World {
    let world = World::with(vec![cloud.default_of_all().class("one.example/lb")]);
    world.fake().add_instances(["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        world.add_node(name).await;
    }
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    assert_eq!(backends(&world), ["a", "b", "c"]);
    drop(world.fake().take_calls());
    world
}

/// The backends of the only load balancer of the first cloud.
fn backends(world: &World) -> Vec<String> {
    world.fake().cloud().into_values().flat_map(|load_balancer| load_balancer.nodes).collect()
}

/// Two accounts of one cloud, without `providerIdSchemes` in either provider.
#[tokio::test(start_paused = true)]
async fn a_second_provider_of_the_same_scheme_removes_no_backend_of_the_first() {
    let mut world = serving(Cloud::new("one")).await;
    world.edit(|clouds| clouds.push(Cloud::new("two").describing("one"))).await;
    pass(120 * S).await;
    let calls = world.fake().take_calls();
    assert!(calls.iter().all(|call| !call.contains("web") || call.ends_with("nodes=a,b,c")), "{calls:?}");
    assert_eq!(backends(&world), ["a", "b", "c"]);
    assert_eq!(world.clouds[1].fake.calls(), Vec::<String>::new());
    let finding = world.clouds[1].finding(Finding::ClaimTaken).unwrap();
    assert!(finding.contains("the older provider one has the provider-ID scheme \"one\""), "{finding}");
    assert_eq!(world.clouds[0].finding(Finding::ClaimTaken), None);
    let transcript = world.transcript().await;
    assert!(transcript.contains("event kube-system Warning ClaimTaken x1: The provider two claims"), "{transcript}");
}

/// After a restart the younger provider's release serves first. Its cloud has none of the nodes, so
/// it would delete those that are not ready.
#[tokio::test(start_paused = true)]
async fn a_younger_provider_that_serves_first_takes_no_node_of_the_older_provider() {
    let mut world = serving(Cloud::new("one")).await;
    world.heartbeat("c", "False").await;
    world.forget();
    let world = world
        .restart(|clouds| {
            clouds[0].fake.stop();
            clouds.push(Cloud::new("two").describing("one").class("two.example/lb"));
        })
        .await;
    world.add_service("of-two", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(20 * S).await;
    assert_eq!(world.clouds[1].fake.calls(), Vec::<String>::new());
    assert!(world.node("c").await.is_some());
    world.clouds[0].fake.start();
    world.clouds[0].releases.send_replace(2);
    pass(5 * S).await;
    assert_eq!(backends(&world), ["a", "b", "c"]);
    let finding = world.clouds[1].finding(Finding::ClaimTaken).unwrap();
    assert!(finding.contains("the older provider one has the provider-ID scheme \"one\""), "{finding}");
    let served = world.clouds[1].fake.calls();
    assert!(served.iter().any(|call| call.starts_with("ensure default/of-two")), "{served:?}");
    assert!(served.iter().all(|call| call.contains("of-two") && !call.contains("nodes=a")), "{served:?}");
}

/// A component that cannot be fetched must not stop the provider beside it.
#[tokio::test(start_paused = true)]
async fn a_younger_provider_waits_half_a_minute_for_an_older_one_that_never_serves() {
    let clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let mut world = World::with(clouds);
    world.fake().stop();
    world.clouds[1].fake.add_instances(["a", "b", "c"]);
    for name in ["a", "b", "c", "gone"] {
        world.add_raw_node(name, json!({ "providerID": format!("two://{name}") })).await;
    }
    world.heartbeat("gone", "Unknown").await;
    world.launch();
    world.add_service("of-two", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(29 * S).await;
    assert_eq!(world.clouds[1].fake.calls(), Vec::<String>::new());
    pass(2 * S).await;
    let backends = world.clouds[1].fake.cloud().into_values().flat_map(|balancer| balancer.nodes).collect::<Vec<_>>();
    assert_eq!(backends, ["a", "b", "c", "gone"]);
    // Its machine may be one of the older provider.
    pass(600 * S).await;
    assert!(world.node("gone").await.is_some());
    let finding = world.clouds[1].finding(Finding::NodesHeld).unwrap();
    assert!(finding.contains("1 nodes that are not ready, such as gone, are neither deleted nor tainted"), "{finding}");
    world.fake().start();
    world.clouds[0].releases.send_replace(2);
    pass(60 * S).await;
    assert!(world.node("gone").await.is_none());
    assert_eq!(world.clouds[1].finding(Finding::NodesHeld), None);
}

/// The finding is cleared with its cause.
#[tokio::test(start_paused = true)]
async fn a_claim_that_the_older_provider_drops_passes_to_the_younger_provider() {
    let mut world = serving(Cloud::new("one")).await;
    world.edit(|clouds| clouds.push(Cloud::new("two").describing("one").class("one.example/lb"))).await;
    pass(5 * S).await;
    assert!(world.clouds[1].finding(Finding::ClaimTaken).is_some());
    let edit = |clouds: &mut Vec<Cloud>| {
        clouds[0].fake.describe_schemes(&["other"]);
        drop(clouds[0].give_up_class());
    };
    world.edit(edit).await;
    pass(5 * S).await;
    assert_eq!(world.clouds[1].finding(Finding::ClaimTaken), None);
}

/// The older provider serves the class, also for new Services.
#[tokio::test(start_paused = true)]
async fn of_two_providers_of_one_class_the_older_provider_serves_new_services() {
    let mut world = serving(Cloud::new("one")).await;
    world.edit(|clouds| clouds.push(Cloud::new("two").class("one.example/lb"))).await;
    world.add_service("new", json!({ "loadBalancerClass": "one.example/lb" })).await;
    pass(5 * S).await;
    assert!(world.state("new").await.contains("203.0.113."));
    assert_eq!(world.clouds[1].fake.calls(), Vec::<String>::new());
    let finding = world.clouds[1].finding(Finding::ClaimTaken).unwrap();
    assert!(finding.contains("the older provider one has the class \"one.example/lb\""), "{finding}");
}

/// A node without provider ID is assigned by a label. Another provider that selects the same label
/// must not remove the node from the load balancer, neither in the running process nor after a
/// restart.
#[tokio::test(start_paused = true)]
async fn a_node_that_two_providers_select_stays_in_its_load_balancer() {
    let mut world = World::with(vec![Cloud::new("one").default_of_all().selects("pool", "x")]);
    world.fake().add_instances(["n"]);
    world.add_new_node_with("n", json!({ "pool": "x" })).await;
    let instance = skysail_provider::Instance { without_provider_id: true, ..skysail_provider::Instance::default() };
    world.fake().set_instance("n", Ok(instance));
    world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    assert_eq!(backends(&world), ["n"]);
    world.edit(|clouds| clouds.push(Cloud::new("two").selects("pool", "x"))).await;
    pass(120 * S).await;
    assert_eq!(backends(&world), ["n"]);
    world.forget();
    let world = world.restart(|_| ()).await;
    pass(120 * S).await;
    assert_eq!(backends(&world), ["n"]);
    for (index, other) in [(0, "two"), (1, "one")] {
        let finding = world.clouds[index].finding(Finding::NodesContested).unwrap();
        assert!(finding.contains(&format!("1 with the provider {other}, such as n")), "{finding}");
    }
    world.delete_node("n").await;
    pass(5 * S).await;
    assert_eq!(world.clouds[0].finding(Finding::NodesContested), None);
}
