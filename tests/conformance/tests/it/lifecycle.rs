//! The node lifecycle controller, beside `upstream_lifecycle.rs`.
//! IDs: tests/conformance/README.md.

use expect_test::expect;
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

async fn with_nodes() -> World {
    let mut world = World::new();
    world.fake().add_instances(["a", "b"]);
    world.add_node("a").await;
    world.add_node("b").await;
    world = world.start().await;
    pass(10 * S).await;
    drop(world.transcript().await);
    world
}

/// L2.1, L2.2, L2.6.
#[tokio::test(start_paused = true)]
async fn a_node_is_deleted_only_if_its_machine_is_not_found() {
    let mut world = with_nodes().await;
    world.fake().remove_instance("a");
    world.after(20 * S, expect![[""]]).await;
    world.fake().fail_always("describe", Some(Error::new(Code::Denied, "the token expired")));
    world.heartbeat("a", "Unknown").await;
    world
        .after(
            12 * S,
            expect![[r#"
        provider describe state nodes=a
        provider describe state nodes=a
    "#]],
        )
        .await;
    assert!(world.node("a").await.is_some());
    world.fake().fail_always("describe", None);
    world
        .after(
            11 * S,
            expect![[r#"
        provider describe state nodes=a
        provider describe state nodes=a
        api delete nodes a
        event a Normal DeletingNode x1: Deleting node because it does not exist in the cloud provider
    "#]],
        )
        .await;
    assert!(world.node("a").await.is_none());
}

/// L1.2: a failed look-up says nothing about a single machine, whatever its code.
#[tokio::test(start_paused = true)]
async fn a_failed_look_up_deletes_no_node_even_if_its_code_is_not_found() {
    let world = with_nodes().await;
    for code in Code::ALL {
        world.fake().fail_always("describe", Some(Error::new(code, "the whole call")));
        world.heartbeat("a", "False").await;
        world.heartbeat("b", "Unknown").await;
        pass(11 * S).await;
        assert!(world.node("a").await.is_some() && world.node("b").await.is_some(), "{code:?}");
    }
}
