//! A manager that lost its lease: its fence closes during its work.

use expect_test::expect;
use skysail_provider::{Code, Error, Fence};
use skysail_test_conformance::world::{S, World, pass};
use tokio::time::Instant;

/// A manager whose lease expires after 30 s.
async fn with_lease() -> World {
    let begin = Instant::now();
    let world = World::new().fenced(Fence::until(move || begin.elapsed(), S * 30));
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    let mut world = world.start().await;
    pass(S * 5).await;
    drop(world.transcript().await);
    world
}

#[tokio::test(start_paused = true)]
async fn b19_without_the_lease_nothing_is_called_and_nothing_written() {
    let mut world = with_lease().await;
    world.add_service("before", serde_json::json!({})).await;
    pass(S * 10).await;
    assert!(world.transcript().await.contains("provider ensure default/before"), "the manager serves while it leads");
    pass(S * 20).await;
    drop(world.transcript().await);
    let revision = world.server.revision();
    pass(S * 3600).await;
    assert_eq!(world.server.revision(), revision);

    world.add_service("after", serde_json::json!({})).await;
    world.patch_service("before", serde_json::json!({ "spec": { "ports": [{ "port": 81 }] } })).await;
    world.delete_service("before").await;
    world.add_new_node("b").await;
    world.heartbeat("a", "Unknown").await;
    world.fake().remove_instance("a");
    world.after(S * 3600, expect![[""]]).await;
}

/// The provider is called before the lease expires and answers afterwards: the answer is discarded.
#[tokio::test(start_paused = true)]
async fn b19_an_answer_after_the_lease_expired_is_not_written() {
    let mut world = with_lease().await;
    world.fake().on_call(|_| Box::pin(tokio::time::sleep(S * 60)));
    world.add_service("web", serde_json::json!({})).await;
    pass(S * 5).await;
    drop(world.transcript().await);
    world.after(S * 3600, expect![[""]]).await;
    assert_eq!(world.state("web").await, r#"[] ["service.kubernetes.io/load-balancer-cleanup"]"#);
}

/// A closed fence is no Event on the object, and the call is not retried.
#[tokio::test(start_paused = true)]
async fn b19_a_closed_fence_is_no_failure_of_the_object() {
    let mut world = World::new();
    world.fake().fail_always("ensure", Some(Error::new(Code::NotLeading, "this process is no longer the leader")));
    world.add_node("a").await;
    world = world.start().await;
    world.add_service("web", serde_json::json!({})).await;
    pass(S * 600).await;
    let transcript = world.transcript().await;
    assert_eq!(transcript.matches("provider ensure ").count(), 1, "{transcript}");
    assert!(!transcript.contains("Warning"), "{transcript}");
}
