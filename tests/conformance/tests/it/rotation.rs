//! A rotated credential: only denied objects are retried at once.

use std::time::Duration;

use serde_json::json;
use skysail_provider::{Code, Error};
use skysail_test_conformance::world::{S, World, pass};

use crate::upstream_services::{calls, with_web};

fn rotate(world: &World) {
    world.clouds[0].rotations.send_modify(|count| *count += 1);
}

fn denied() -> Error {
    Error::new(Code::Denied, "the token expired")
}

/// A denied Service does not wait for its backoff.
#[tokio::test(start_paused = true)]
async fn a_denied_service_is_tried_again_when_a_credential_is_rotated() {
    let world = with_web(&["a"]).await;
    world.fake().fail_always("ensure", Some(denied()));
    world.add_service("denied", json!({})).await;
    pass(Duration::from_mins(5)).await;
    world.fake().fail_always("ensure", Some(Error::retry_after(Duration::from_mins(30), "being built")));
    world.add_service("slow", json!({})).await;
    pass(5 * S).await;
    world.fake().fail_always("ensure", None);
    drop(calls(&world));
    rotate(&world);
    pass(5 * S).await;
    assert_eq!(calls(&world), ["ensure default/denied ports=80/TCP nodes=a"], "only the denied Service");
}

/// The call began with the old credential and is denied after the rotation.
#[tokio::test(start_paused = true)]
async fn a_service_whose_call_runs_during_the_rotation_is_tried_again() {
    let world = with_web(&["a"]).await;
    world.fake().fail_next("ensure", denied());
    crate::services::slow(&world, "ensure");
    world.add_service("denied", json!({})).await;
    pass(2 * S).await;
    rotate(&world);
    pass(10 * S).await;
    assert_eq!(calls(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_denied_node_is_tried_again_when_a_credential_is_rotated() {
    let world = World::new().start().await;
    world.fake().add_instances(["a"]);
    world.fake().fail_always("describe", Some(denied()));
    world.add_new_node("a").await;
    pass(Duration::from_mins(5)).await;
    world.fake().fail_always("describe", None);
    rotate(&world);
    pass(S).await;
    assert!(world.node("a").await.unwrap().spec.unwrap().taints.unwrap_or_default().is_empty());
}

/// The pass over the addresses of initialised nodes has a period of minutes.
#[tokio::test(start_paused = true)]
async fn denied_addresses_are_read_again_when_a_credential_is_rotated() {
    let world = World::new();
    world.add_node("a").await;
    world.fake().fail_always("describe", Some(denied()));
    let world = world.start().await;
    pass(5 * S).await;
    drop(world.fake().take_calls());
    world.fake().fail_always("describe", None);
    for expected in [&["describe metadata nodes=a"][..], &[]] {
        rotate(&world);
        pass(5 * S).await;
        assert_eq!(world.fake().take_calls(), expected, "only after a denial");
    }
}

/// The pass over routes waits for its backoff, not for its period.
#[tokio::test(start_paused = true)]
async fn denied_routes_are_tried_again_when_a_credential_is_rotated() {
    for watch_based in [false, true] {
        let clouds = vec![skysail_test_conformance::world::Cloud::new("fake").default_of_all()];
        let world = World::routing(clouds).set(|settings| settings.watch_based_routes = watch_based).start().await;
        world.fake().fail_always("list-routes", Some(denied()));
        world.add_routed("a 10.0.0.1 10.120.0.0/24").await;
        pass(Duration::from_mins(5)).await;
        world.fake().fail_always("list-routes", None);
        rotate(&world);
        pass(S).await;
        assert_eq!(world.routes().len(), 1, "watch-based: {watch_based}");
    }
}
