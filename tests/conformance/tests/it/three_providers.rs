//! Several clouds in one cluster: each object is served by its owner in time, whatever the other
//! clouds do; objects without an owner stay unchanged.

use std::{future::pending, time::Duration};

use k8s_openapi::api::core::v1::Node;
use rstest::rstest;
use serde_json::json;
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// Four clouds: `a` (default), `b`, `c` and `d`. Each has an initialised node and a machine for a
/// new node. All but `a` select nodes; `c` and `d` select the same label and share a class.
async fn three() -> World {
    let world = World::with(vec![
        Cloud::new("a").default_of_all().class("a.example/lb"),
        // Pinned: the younger clouds need not wait for its first release to know its schemes.
        Cloud::new("b").pinned(&["b"]).class("b.example/lb").selects("pool", "b"),
        Cloud::new("c").class("c.example/lb").class("shared.example/lb").selects("pool", "c"),
        Cloud::new("d").class("shared.example/lb").selects("pool", "c"),
    ]);
    for cloud in &world.clouds {
        let name = cloud.name();
        cloud.fake.add_instances([&*format!("{name}-old"), &*format!("{name}-new")]);
        world.add_raw_node(&format!("{name}-old"), json!({ "providerID": format!("{name}://{name}-old") })).await;
    }
    world
}

async fn add_new_nodes(world: &World) {
    world.add_new_node("a-new").await;
    world.add_new_node_with("b-new", json!({ "pool": "b" })).await;
}

async fn add_services(world: &World) {
    world.add_service("plain", json!({})).await;
    for class in ["a", "b", "c"] {
        world.add_service(class, json!({ "loadBalancerClass": format!("{class}.example/lb") })).await;
    }
}

/// Adds nodes and a Service without an owner; returns the nodes, which must stay unchanged.
async fn add_foreign_objects(world: &World) -> Vec<Node> {
    world.add_raw_node("foreign", json!({ "providerID": "z://foreign" })).await;
    world.add_raw_node("malformed", json!({ "providerID": "i-0815" })).await;
    // Two providers select this node.
    world.add_new_node_with("contested", json!({ "pool": "c" })).await;
    world.add_service("foreign", json!({ "loadBalancerClass": "metallb.example/lb" })).await;
    let mut foreign = Vec::new();
    for name in ["foreign", "malformed", "contested"] {
        // Not ready: the lifecycle controller would ask about them if they had an owner.
        world.heartbeat(name, "False").await;
        foreign.extend(world.node(name).await);
    }
    foreign
}

async fn assert_untouched(world: &World, foreign: &[Node]) {
    for node in foreign {
        let name = node.metadata.name.as_deref().unwrap();
        assert_eq!(world.node(name).await.as_ref(), Some(node));
    }
    assert_eq!(world.state("foreign").await, "[] []");
    for call in world.clouds.iter().flat_map(|cloud| cloud.fake.calls()) {
        for name in ["foreign", "malformed", "contested"] {
            assert!(!call.contains(name), "{call:?} is about an object without an owner");
        }
    }
}

/// The class of a Service is the letter of the cloud that has to serve it.
async fn assert_served(world: &World, letters: &[&str]) {
    for letter in letters {
        let state = world.state(letter).await;
        assert!(state.contains("203.0.113."), "Service {letter}: {state}");
        let cloud = world.clouds.iter().find(|cloud| cloud.name() == *letter).unwrap();
        let balancers = cloud.fake.cloud();
        let served = balancers.values().find(|lb| lb.service == format!("default/{letter}")).unwrap();
        for node in &served.nodes {
            assert!(node.starts_with(letter), "{node} backs a load balancer of {letter}");
        }
    }
}

fn provider_id(node: Option<Node>) -> Option<String> {
    node?.spec?.provider_id
}

#[tokio::test(start_paused = true)]
async fn mixed_nodes_and_classes_are_served_by_their_owners_and_foreign_objects_stay_unchanged() {
    let world = three().await;
    let foreign = add_foreign_objects(&world).await;
    let mut world = world.start().await;
    add_new_nodes(&world).await;
    add_services(&world).await;
    pass(60 * S).await;
    assert_served(&world, &["a", "b", "c"]).await;
    assert!(world.state("plain").await.contains("203.0.113."));
    assert_eq!(provider_id(world.node("a-new").await).as_deref(), Some("a://a-new"));
    assert_eq!(provider_id(world.node("b-new").await).as_deref(), Some("b://b-new"));
    assert_eq!(world.clouds[1].fake.cloud().values().next().unwrap().nodes, ["b-new", "b-old"]);

    // The machine of the node is removed from the owner's cloud; another cloud has a machine of
    // this name, which does not matter.
    world.clouds[0].fake.add_instances(["b-old"]);
    world.clouds[1].fake.remove_instance("b-old");
    world.heartbeat("b-old", "Unknown").await;
    pass(60 * S).await;
    assert!(world.node("b-old").await.is_none());
    assert_untouched(&world, &foreign).await;
    let transcript = world.transcript().await;
    for said in [
        "event contested Warning ProviderConflict",
        "event malformed Warning InvalidProviderID",
        "The providers c and d both claim this object",
    ] {
        assert!(transcript.contains(said), "{said} is missing:\n{transcript}");
    }
}

/// Faults of a cloud that must not affect other clouds.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Hangs,
    Fails(Code),
    TooManyRequests,
    IsGone,
}

fn trouble(cloud: &Cloud, trouble: Trouble) {
    let error = match trouble {
        Trouble::Hangs => {
            cloud.fake.on_call(|_| Box::pin(pending()));
            return;
        }
        Trouble::IsGone => {
            cloud.fake.stop();
            return;
        }
        Trouble::Fails(code) => Error::new(code, "it broke"),
        Trouble::TooManyRequests => Error::retry_after(Duration::from_mins(10), "429 Too Many Requests"),
    };
    for operation in ["ensure", "update", "get", "ensure-deleted", "describe", "list-routes", "list-owned"] {
        cloud.fake.fail_always(operation, Some(error.clone()));
    }
}

#[rstest]
#[case::hangs(Trouble::Hangs)]
#[case::traps(Trouble::Fails(Code::Trapped))]
#[case::meets_a_limit(Trouble::Fails(Code::LimitExceeded))]
#[case::is_denied(Trouble::Fails(Code::Denied))]
#[case::says_not_found_to_everything(Trouble::Fails(Code::NotFound))]
#[case::answers_429(Trouble::TooManyRequests)]
#[case::serves_nothing(Trouble::IsGone)]
#[tokio::test(start_paused = true)]
async fn a_faulty_cloud_does_not_delay_objects_of_other_clouds(#[case] kind: Trouble) {
    let world = three().await;
    let foreign = add_foreign_objects(&world).await;
    // The faulty cloud owns most nodes and Services, so a shared queue would delay the others.
    for n in 0..20 {
        world.add_service(&format!("b{n}"), json!({ "loadBalancerClass": "b.example/lb" })).await;
        world.add_raw_node(&format!("b-{n}"), json!({ "providerID": format!("b://b-{n}") })).await;
    }
    trouble(&world.clouds[1], kind);
    let world = world.start().await;
    add_new_nodes(&world).await;
    add_services(&world).await;
    pass(5 * S).await;
    assert_served(&world, &["a", "c"]).await;
    assert!(world.state("plain").await.contains("203.0.113."));
    assert_eq!(provider_id(world.node("a-new").await).as_deref(), Some("a://a-new"));
    // Changes of nodes and Services are still handled in time.
    world.delete_service("c").await;
    world.clouds[0].fake.remove_instance("a-old");
    world.heartbeat("a-old", "Unknown").await;
    for n in 0..20 {
        world.heartbeat(&format!("b-{n}"), "Unknown").await;
    }
    pass(40 * S).await;
    assert_eq!(world.state("c").await, "gone");
    assert!(world.node("a-old").await.is_none());
    assert_eq!(
        world.clouds[0].fake.cloud().values().find(|lb| lb.service == "default/plain").unwrap().nodes,
        ["a-new"]
    );
    // The objects of the faulty cloud are unchanged.
    for n in 0..20 {
        assert!(world.node(&format!("b-{n}")).await.is_some(), "no answer of a faulty cloud deletes a node");
    }
    assert!(!world.state("b").await.contains("203.0.113."));
    assert_untouched(&world, &foreign).await;
}

/// After the fault ends, waiting objects are served without intervention.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_recovers_serves_its_waiting_objects() {
    let world = three().await;
    trouble(&world.clouds[1], Trouble::Fails(Code::Unavailable));
    let world = world.start().await;
    add_new_nodes(&world).await;
    add_services(&world).await;
    pass(60 * S).await;
    assert!(!world.state("b").await.contains("203.0.113."));
    for operation in ["ensure", "update", "get", "ensure-deleted", "describe", "list-routes", "list-owned"] {
        world.clouds[1].fake.fail_always(operation, None);
    }
    // No wait is longer than upstream's cap.
    pass(300 * S).await;
    assert_served(&world, &["b"]).await;
    assert_eq!(provider_id(world.node("b-new").await).as_deref(), Some("b://b-new"));
}
