//! Provider-ID schemes that the operator pins to a provider.

use serde_json::json;

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// Another component declares the scheme while the owner's component does not serve: no node is
/// deleted or written.
#[tokio::test(start_paused = true)]
async fn a_provider_without_a_serving_release_at_the_start_keeps_its_nodes() {
    let world = World::with(vec![Cloud::new("mine").pinned(&["mine"]), Cloud::new("thief").default_of_all()]);
    world.clouds[0].fake.stop();
    world.clouds[1].fake.describe_schemes(&["thief", "mine"]);
    world.add_raw_node("n", json!({ "providerID": "mine://n" })).await;
    world.heartbeat("n", "False").await;
    let mut world = world.start().await;
    pass(600 * S).await;
    let transcript = world.transcript().await;
    let acted = |line: &str| line.starts_with("provider thief ") || line.starts_with("api ");
    assert!(!transcript.lines().any(acted), "{transcript}");
    let finding = "ClaimTaken x1: The provider thief claims classes, schemes or prefixes that an older provider has: the older provider mine has the provider-ID scheme \"mine\"";
    assert!(transcript.contains(finding), "{transcript}");
    assert!(world.node("n").await.is_some());
    world.clouds[0].fake.start();
    world.clouds[0].fake.add_instances(["n"]);
    world.clouds[0].releases.send_replace(2);
    pass(10 * S).await;
    assert!(world.transcript().await.contains("provider mine describe"), "the owner serves its node again");
}

/// Two regions of one cloud with the same component, and a cloud whose provider IDs have no scheme.
#[tokio::test(start_paused = true)]
async fn provider_ids_belong_to_the_provider_with_their_longest_prefix() {
    let clouds = vec![
        Cloud::new("west").describing("cloud"),
        Cloud::new("east").describing("cloud").prefixed(&["cloud://east/"]),
        Cloud::new("bare").prefixed(&["cn-hangzhou."]),
    ];
    let world = World::with(clouds);
    for (name, id) in [("w", "cloud://west/w"), ("e", "cloud://east/e"), ("b", "cn-hangzhou.i-b"), ("s", "cn-x.i-s")] {
        world.add_raw_node(name, json!({ "providerID": id })).await;
        world.heartbeat(name, "False").await;
    }
    let mut world = world.start().await;
    pass(60 * S).await;
    // Each provider is asked about its own node only.
    for (index, own) in ["w", "e", "b"].into_iter().enumerate() {
        let calls = world.clouds[index].fake.calls();
        let asked: Vec<_> = calls.iter().filter(|call| call.starts_with("describe")).collect();
        assert!(!asked.is_empty() && asked.iter().all(|call| call.ends_with(&format!("nodes={own}"))), "{asked:?}");
    }
    let transcript = world.transcript().await;
    assert!(transcript.contains("event s Warning InvalidProviderID"), "{transcript}");
    assert!(!transcript.contains("ClaimTaken"), "{transcript}");
}
