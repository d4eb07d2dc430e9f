//! Provider-ID schemes that the operator pins to a provider.

use serde_json::json;

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// Another component describes the scheme, and the owner's component does not serve: no node is
/// deleted or written.
#[tokio::test(start_paused = true)]
async fn an_owner_that_does_not_serve_at_the_start_loses_no_node() {
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
    let finding = "ClaimTaken x1: The provider thief claims what an older provider has: the older provider mine has the provider-ID scheme \"mine\"";
    assert!(transcript.contains(finding), "{transcript}");
    assert!(world.node("n").await.is_some());
    world.clouds[0].fake.start();
    world.clouds[0].fake.add_instances(["n"]);
    world.clouds[0].releases.send_replace(2);
    pass(10 * S).await;
    assert!(world.transcript().await.contains("provider mine describe"), "it owns the node again");
}
