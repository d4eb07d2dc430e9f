//! Two providers claim the same class, scheme or node: the older provider keeps it, and a finding
//! reports the conflict.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skysail_controllers::Finding;
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_provider::Instance;

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

/// The manager starts again while the release of the provider cannot be fetched, whose last release
/// described these schemes. A younger provider with the scheme of its nodes serves already.
async fn restarted_while_the_older_one_is_down(remembered: &[&str]) -> World {
    let mut world = serving(Cloud::new("one")).await;
    world.heartbeat("c", "False").await;
    world.forget();
    let world = world
        .restart(|clouds| {
            for older in clouds.iter_mut() {
                older.fake.stop();
                older.remember(remembered);
            }
            clouds.push(Cloud::new("two").describing("one").class("two.example/lb"));
        })
        .await;
    world.add_service("of-two", json!({ "loadBalancerClass": "two.example/lb" })).await;
    world
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
    let world = restarted_while_the_older_one_is_down(&[]).await;
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

/// After a restart the older provider does not serve, for as long as its registry is down. Its
/// object remembers its schemes, so the younger provider does not get the nodes after half a
/// minute, and need not wait either.
#[tokio::test(start_paused = true)]
async fn a_younger_provider_never_gets_the_nodes_of_an_older_one_whose_schemes_are_remembered() {
    let world = restarted_while_the_older_one_is_down(&["one"]).await;
    pass(5 * S).await;
    assert_eq!(world.clouds[1].fake.calls(), ["ensure default/of-two ports=80/TCP nodes="]);
    pass(600 * S).await;
    assert_eq!(world.clouds[1].fake.calls().len(), 1);
    assert!(world.node("c").await.is_some());
    assert_eq!(backends(&world), ["a", "b", "c"]);
    let finding = world.clouds[1].finding(Finding::ClaimTaken).unwrap();
    assert!(finding.contains("the older provider one has the provider-ID scheme \"one\""), "{finding}");
    world.fake().start();
    world.fake().describe_schemes(&["other"]);
    world.clouds[0].releases.send_replace(2);
    pass(60 * S).await;
    let of_two = world.clouds[1].fake.cloud().into_values().flat_map(|lb| lb.nodes).collect::<Vec<_>>();
    assert_eq!(of_two, ["a", "b"], "the machine of c is in no cloud of the scheme's new owner");
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
    // The machine of the node `gone` may belong to the older provider.
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

/// A machine in a cloud without provider IDs.
fn without_provider_id() -> Instance {
    Instance { without_provider_id: true, ..Instance::default() }
}

/// The default provider, with an initialised node without provider ID behind its load balancer: a
/// node that the provider initialised, or (bare) one that never had the taint.
async fn holding(bare: bool) -> World {
    let mut world = World::with(vec![Cloud::new("one").default_of_all()]);
    let labels = json!({ "pool": "x" });
    if bare {
        world.add_bare_node("n", labels).await;
    } else {
        world.fake().set_instance("n", Ok(without_provider_id()));
        world.add_new_node_with("n", labels).await;
    }
    world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    assert_eq!(backends(&world), ["n"]);
    assert_eq!(holder(&world).await, json!("one"));
    world
}

/// The provider that the annotation of the node names.
async fn holder(world: &World) -> Value {
    let node = world.as_user(world.nodes().get("n")).await;
    let annotations = node.metadata.annotations.unwrap_or_default();
    json!(annotations.get("skysail.dev/node-provider"))
}

/// The node has no provider ID, so only labels could say whose it is. An added provider whose
/// selector matches them takes the node neither from the load balancers of the first one nor, when
/// the node is not ready, from the cluster; in the running process and after a restart.
#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_stays_with_its_provider_when_another_one_selects_it() {
    for bare in [false, true] {
        let mut world = holding(bare).await;
        world.edit(|clouds| clouds.push(Cloud::new("two").selects("pool", "x"))).await;
        world.heartbeat("n", "Unknown").await;
        world.fake().set_instance("n", Ok(without_provider_id()));
        for restarted in [false, true] {
            pass(120 * S).await;
            assert_eq!(backends(&world), ["n"], "bare: {bare}, restarted: {restarted}");
            assert_eq!(world.clouds[1].fake.calls(), Vec::<String>::new());
            let finding = world.clouds[1].finding(Finding::NodeOwnershipConflict).unwrap();
            assert!(finding.contains("keep them: 1 with the provider one, such as n. "), "{finding}");
            assert_eq!(world.clouds[0].finding(Finding::NodeOwnershipConflict), None);
            if !restarted {
                world.forget();
                world = world.restart(|_| ()).await;
            }
        }
        world.delete_node("n").await;
        pass(5 * S).await;
        assert_eq!(world.clouds[1].finding(Finding::NodeOwnershipConflict), None);
    }
}

/// The name of the holder cannot be written: the running process knows the holder anyway.
#[tokio::test(start_paused = true)]
async fn a_node_whose_annotation_cannot_be_written_stays_with_its_provider() {
    let mut world = World::with(vec![Cloud::new("one").default_of_all()]).start().await;
    world.disturb(|request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("patch", "nodes") => Fault::Refuse(ApiError::new(403_u16.try_into().unwrap(), "Forbidden", "no")),
        _ => Fault::None,
    });
    world.add_bare_node("n", json!({ "pool": "x" })).await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    world.edit(|clouds| clouds.push(Cloud::new("two").selects("pool", "x"))).await;
    pass(120 * S).await;
    assert_eq!((backends(&world), holder(&world).await), (vec!["n".to_owned()], json!(null)));
    assert_eq!(world.clouds[1].fake.calls(), Vec::<String>::new());
}

/// The younger provider holds the node, and then the older one selects it too. Age does not matter.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_younger_provider_holds_stays_in_its_load_balancers_after_a_restart() {
    let mut world =
        World::with(vec![Cloud::new("one"), Cloud::new("two").class("two.example/lb").selects("pool", "x")]);
    world.clouds[1].fake.set_instance("n", Ok(without_provider_id()));
    world.add_new_node_with("n", json!({ "pool": "x" })).await;
    world = world.start().await;
    world.add_service("web", json!({ "loadBalancerClass": "two.example/lb" })).await;
    pass(5 * S).await;
    let of_two = |world: &World| world.clouds[1].fake.cloud().into_values().flat_map(|lb| lb.nodes).collect::<Vec<_>>();
    assert_eq!(of_two(&world), ["n"]);
    world.edit(|clouds| clouds[0].select("pool", "x")).await;
    pass(120 * S).await;
    world.forget();
    let world = world.restart(|_| ()).await;
    pass(120 * S).await;
    assert_eq!(of_two(&world), ["n"]);
    assert_eq!(world.fake().calls(), Vec::<String>::new());
    assert!(
        world.clouds[0].finding(Finding::NodeOwnershipConflict).unwrap().contains("1 with the provider two, such as n")
    );
}

/// Two providers select a node that neither ever held: neither acts on it. It backs the load
/// balancers of the older provider, which would be the owner without the younger one.
#[tokio::test(start_paused = true)]
async fn a_node_that_no_provider_holds_is_contested_and_backs_the_load_balancers_of_the_older_provider() {
    let clouds = ["one", "two"].map(|name| Cloud::new(name).class(&format!("{name}.example/lb")).selects("pool", "x"));
    let mut world = World::with(clouds.into()).start().await;
    world.add_bare_node("n", json!({ "pool": "x" })).await;
    for name in ["one", "two"] {
        world.add_service(name, json!({ "loadBalancerClass": format!("{name}.example/lb") })).await;
    }
    world.heartbeat("n", "Unknown").await;
    for restarted in [false, true] {
        pass(120 * S).await;
        let backends = |index: usize| world.clouds[index].fake.cloud().into_values().flat_map(|lb| lb.nodes).count();
        assert_eq!((backends(0), backends(1), holder(&world).await), (1, 0, json!(null)));
        for (index, other) in [(0, "two"), (1, "one")] {
            let calls = world.clouds[index].fake.calls();
            assert!(calls.iter().all(|call| !call.starts_with("describe")), "{calls:?}");
            let finding = world.clouds[index].finding(Finding::NodeOwnershipConflict).unwrap();
            assert!(finding.contains(&format!("acts on them: 1 with the provider {other}, such as n. ")), "{finding}");
        }
        if !restarted {
            world.forget();
            world = world.restart(|_| ()).await;
        }
    }
}

/// An operator gives a node to another provider with the annotation.
#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_goes_to_the_provider_that_an_operator_writes_on_it() {
    let mut world = holding(true).await;
    world.edit(|clouds| clouds.push(Cloud::new("two").class("two.example/lb"))).await;
    world.add_service("of-two", json!({ "loadBalancerClass": "two.example/lb" })).await;
    let named = json!({ "metadata": { "annotations": { "skysail.dev/node-provider": "two" } } });
    world.as_user(world.nodes().patch("n", &PatchParams::default(), &Patch::Merge(&named))).await;
    pass(60 * S).await;
    assert_eq!(backends(&world), [""; 0]);
    let of_two = world.clouds[1].fake.cloud().into_values().flat_map(|lb| lb.nodes).collect::<Vec<_>>();
    assert_eq!(of_two, ["n"]);
    // Without its holder the node is assigned by the claims, and the new holder is written.
    world.edit(|clouds| drop(clouds.pop())).await;
    pass(60 * S).await;
    assert_eq!((backends(&world), holder(&world).await), (vec!["n".to_owned()], json!("one")));
}

/// Lets the calls of the first provider that begin with `call` take ten seconds.
fn slow(world: &World, call: &'static str) {
    world.fake().on_call(move |line| {
        let slow = line.starts_with(call);
        Box::pin(async move {
            if slow {
                pass(10 * S).await;
            }
        })
    });
}

/// Waits until the first provider has been asked this often.
async fn until_asked(world: &World, call: &str, times: usize) {
    while world.fake().calls().iter().filter(|line| line.starts_with(call)).count() < times {
        pass(S).await;
    }
}

/// An edit of claims does not change the node, so the API server would accept the deletion.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_another_owner_during_the_look_up_is_not_deleted_by_the_former_one() {
    let mut world = serving(Cloud::new("one")).await;
    world.fake().remove_instance("c");
    slow(&world, "describe state");
    world.heartbeat("c", "Unknown").await;
    until_asked(&world, "describe state", 2).await;
    let two = Cloud::new("two").prefixed(&["one://c"]);
    two.fake.add_instances(["c"]);
    world.edit(|clouds| clouds.push(two)).await;
    pass(60 * S).await;
    assert!(world.node("c").await.is_some(), "{:?}", world.fake().calls());
}

/// A provider ID is immutable.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_another_owner_during_the_look_up_is_not_initialised_by_the_former_one() {
    let mut world = serving(Cloud::new("one")).await;
    world.fake().add_instances(["new"]);
    slow(&world, "describe metadata nodes=new");
    world.add_new_node_with("new", json!({ "account": "two" })).await;
    until_asked(&world, "describe metadata nodes=new", 1).await;
    let two = Cloud::new("two").selects("account", "two");
    two.fake.add_instances(["new"]);
    // The former owner's call ends first.
    two.fake.on_call(|_| Box::pin(pass(20 * S)));
    world.edit(|clouds| clouds.push(two)).await;
    pass(60 * S).await;
    let node = world.node("new").await.unwrap();
    assert_eq!(node.spec.unwrap().provider_id.as_deref(), Some("two://new"));
}
