//! The node lifecycle controller.

use expect_test::expect;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use skysail_provider::{Code, Error, Instance};

use skysail_test_conformance::world::{S, World, pass};

async fn with_nodes() -> World {
    with_confirmations(2).await
}

async fn with_confirmations(passes: u32) -> World {
    let mut world = World::new().set(|settings| settings.node_deletion_confirmations = passes);
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
async fn only_a_machine_that_is_gone_for_certain_takes_its_node_with_it() {
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

/// L3.1, L3.8, 4.9 item 16.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_taints_its_node_until_it_is_ready_again() {
    let mut world = with_nodes().await;
    let provider_id = "fake://a".to_owned();
    world.fake().set_instance("a", Ok(Instance { provider_id, shutdown: true, ..Instance::default() }));
    world.heartbeat("a", "False").await;
    world
        .after(
            6 * S,
            expect![[r#"
        provider describe state nodes=a
        api patch nodes a
    "#]],
        )
        .await;
    world
        .after(
            6 * S,
            expect![[r#"
        provider describe state nodes=a
    "#]],
        )
        .await;
    world.heartbeat("a", "True").await;
    world
        .after(
            6 * S,
            expect![[r#"
        api patch nodes a
    "#]],
        )
        .await;
}

/// 4.9 item 17: the cloud was asked about a node that has since been made anew.
#[tokio::test(start_paused = true)]
async fn a_node_created_anew_under_the_name_is_not_deleted() {
    let world = with_confirmations(1).await;
    world.fake().remove_instance("a");
    let client = world.client.clone();
    world.fake().on_call(move |_| {
        let api: Api<Node> = Api::all(client.clone());
        Box::pin(async move {
            api.delete("a", &DeleteParams::default()).await.unwrap();
            let object = json!({ "metadata": { "name": "a" }, "spec": { "providerID": "fake://new" } });
            api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        })
    });
    world.heartbeat("a", "False").await;
    pass(S * 5).await;
    assert_eq!(world.node("a").await.unwrap().spec.unwrap().provider_id.as_deref(), Some("fake://new"));
    let refused = |r: &skysail_dev::api::Request| r.info.verb == "delete" && r.status.as_u16() == 409;
    assert!(world.server.requests().recent().iter().any(refused), "the controller tried, and the precondition held");
}

/// 4.9 item 15.
#[tokio::test(start_paused = true)]
async fn a_new_node_that_the_cloud_does_not_know_yet_has_five_minutes() {
    let world = World::new().start().await;
    world.add_new_node("n").await;
    world.heartbeat("n", "False").await;
    pass(290 * S).await;
    assert!(world.node("n").await.is_some());
    pass(20 * S).await;
    assert!(world.node("n").await.is_none());
}

/// L1.2: a look-up that fails as a whole says nothing about any one machine, whatever its code.
#[tokio::test(start_paused = true)]
async fn a_failed_look_up_deletes_nobody_even_where_it_says_not_found() {
    let world = with_nodes().await;
    for code in Code::ALL {
        world.fake().fail_always("describe", Some(Error::new(code, "the whole call")));
        world.heartbeat("a", "False").await;
        world.heartbeat("b", "Unknown").await;
        pass(11 * S).await;
        assert!(world.node("a").await.is_some() && world.node("b").await.is_some(), "{code:?}");
    }
}
