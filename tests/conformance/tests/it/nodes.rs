//! The node controller.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use std::time::Duration;

use expect_test::expect;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_provider::{Code, Error, Instance};

use skysail_test_conformance::world::{S, World, machine, pass};

/// Without the permission to list Services new nodes are initialised, and nodes without a machine
/// are deleted.
#[tokio::test(start_paused = true)]
async fn nodes_do_not_wait_for_the_list_of_services() {
    let world = World::new();
    world.fake().add_instances(["new"]);
    world.add_node("gone").await;
    world.heartbeat("gone", "Unknown").await;
    world.disturb(|request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("list", "services") => {
            let forbidden = http::StatusCode::FORBIDDEN;
            Fault::Refuse(ApiError::new(forbidden, "Forbidden", "services is forbidden: cannot list"))
        }
        _ => Fault::None,
    });
    let world = world.start().await;
    world.add_new_node("new").await;
    pass(15 * S).await;
    let new = world.node("new").await.unwrap();
    assert_eq!(new.spec.unwrap().provider_id.as_deref(), Some("fake://new"));
    assert!(world.node("gone").await.is_none());
}

/// N1.15, I1: nodes that arrive together share one call.
#[tokio::test(start_paused = true)]
async fn new_nodes_are_initialised_in_one_call() {
    let mut world = World::new().start().await;
    for (n, name) in ["a", "b", "c"].iter().enumerate() {
        world.fake().set_instance(name, Ok(machine(&format!("fake://{name}"), &[&format!("10.0.0.{n}")])));
        world.add_new_node(name).await;
    }
    world
        .after(
            2 * S,
            expect![[r#"
        provider describe metadata nodes=a,b,c
        api patch nodes/status a
        api patch nodes a
        api patch nodes/status b
        api patch nodes b
        api patch nodes/status c
        api patch nodes c
        event a Normal Synced x1: Node synced successfully
        event b Normal Synced x1: Node synced successfully
        event c Normal Synced x1: Node synced successfully
    "#]],
        )
        .await;
    let node = world.node("b").await.unwrap();
    assert_eq!(node.spec.clone().unwrap().provider_id.as_deref(), Some("fake://b"));
    assert_eq!(node.spec.unwrap().taints.unwrap_or_default(), []);
    assert_eq!(node.status.unwrap().addresses.unwrap()[0].address, "10.0.0.1");
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["topology.kubernetes.io/zone"], "z1");
    assert_eq!(labels["failure-domain.beta.kubernetes.io/region"], "r1");
    assert_eq!(labels["beta.kubernetes.io/instance-type"], "small");
}

/// N1.21, N1.22, lesson 27: the taint stays, an Event has the reason, and the other nodes are
/// initialised.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_initialised_gets_an_event_and_delays_no_other_node() {
    let mut world = World::new().start().await;
    world.fake().set_instance("a", Ok(Instance::default()));
    world.fake().set_instance("b", Ok(machine("fake://b", &[])));
    world.fake().set_instance("c", Err(Error::new(Code::Denied, "the token expired")));
    for name in ["a", "b", "c"] {
        world.add_new_node(name).await;
    }
    world.after(2 * S, expect![[r#"
        provider describe metadata nodes=a,b,c
        api patch nodes b
        event a Warning InitializingNodeFailed x1: failed to use instance metadata: the provider returned no provider ID for the node
        event b Normal Synced x1: Node synced successfully
        event c Warning InitializingNodeFailed x1: failed to get instance metadata: the token expired
    "#]]).await;
    world.fake().set_instance("a", Ok(machine("fake://a", &[])));
    world
        .after(
            10 * S,
            expect![[r#"
        provider describe metadata nodes=a
        api patch nodes a
        event a Normal Synced x1: Node synced successfully
    "#]],
        )
        .await;
}

/// N3, lesson 32: one call for all nodes, and a patch only for differences.
#[tokio::test(start_paused = true)]
async fn addresses_are_fetched_in_one_call_each_period_and_written_if_they_differ() {
    let mut world = World::new();
    for name in ["a", "b"] {
        world.fake().set_instance(name, Ok(machine(&format!("fake://{name}"), &["10.0.0.1", "2001:db8::1"])));
    }
    world.add_node("a").await;
    world.add_node("b").await;
    world = world.start().await;
    world
        .after(
            S,
            expect![[r#"
        provider describe metadata nodes=a,b
        api patch nodes/status a
        api patch nodes/status b
    "#]],
        )
        .await;
    pass(Duration::from_mins(5)).await;
    world
        .after(
            S,
            expect![[r#"
        provider describe metadata nodes=a,b
    "#]],
        )
        .await;
    world.fake().set_instance("b", Ok(machine("fake://b", &["2001:db8::1", "10.0.0.1"])));
    pass(Duration::from_mins(5)).await;
    world
        .after(
            S,
            expect![[r#"
        provider describe metadata nodes=a,b
        api patch nodes/status b
    "#]],
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_without_an_owner_is_never_written() {
    let mut world = World::new().start().await;
    let taint = json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule" });
    world.add_raw_node("x", json!({ "providerID": "other://x", "taints": [taint] })).await;
    world.heartbeat("x", "False").await;
    world.after(Duration::from_mins(20), expect![[""]]).await;
}

/// A call about many nodes names no object.
#[tokio::test(start_paused = true)]
async fn an_event_of_a_look_up_of_many_nodes_is_about_the_cluster() {
    let mut world = World::new().start().await;
    world.fake().set_instance("a", Ok(machine("fake://a", &["10.0.0.1"])));
    world.fake().warn_at_describe("this way to list machines ends in May");
    world.add_new_node("a").await;
    pass(2 * S).await;
    let text = world.transcript().await;
    let line = "event kube-system Warning MachinesListed x1: this way to list machines ends in May\n";
    assert!(text.contains(line), "{text}");
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let event = events.iter().find(|event| event.reason.as_deref() == Some("MachinesListed")).unwrap();
    let source = event.source.as_ref().unwrap();
    let about = (event.involved_object.kind.as_deref(), event.involved_object.uid.as_deref());
    assert_eq!((about, source.component.as_deref()), ((Some("Namespace"), None), Some("skysail-provider-fake")));
}

/// N2: as upstream, no Event for a node that was deleted before the write, whichever write comes
/// first.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_during_the_call_gets_no_event() {
    for (ips, write) in [(&["10.0.0.1"][..], "nodes/status"), (&[], "nodes")] {
        let mut world = World::new().start().await;
        world.fake().set_instance("a", Ok(machine("fake://a", ips)));
        let nodes = world.nodes();
        world.fake().on_call(move |_| {
            let nodes = nodes.clone();
            Box::pin(async move {
                nodes.delete("a", &DeleteParams::default()).await.unwrap();
            })
        });
        world.add_new_node("a").await;
        pass(10 * S).await;
        assert_eq!(world.transcript().await, format!("api delete nodes a\napi patch {write} a\n"));
    }
}

/// I1: the page size of the contract.
#[tokio::test(start_paused = true)]
async fn many_nodes_are_described_in_pages() {
    let world = World::new();
    let names: Vec<String> = (0..501).map(|n| format!("n{n:03}")).collect();
    world.fake().add_instances(names.iter().map(String::as_str));
    for name in &names {
        world.add_node(name).await;
    }
    let world = world.start().await;
    pass(60 * S).await;
    let calls = world.fake().take_calls();
    assert_eq!(calls, ["describe metadata nodes=(500 nodes)", "describe metadata nodes=n500"]);
}

/// Kubelets write their nodes every few seconds, and a call may take as long.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_during_the_call_is_initialised_with_its_answer() {
    let world = World::new().start().await;
    world.fake().set_instance("a", Ok(machine("fake://a", &["10.0.0.1"])));
    world.fake().on_call(|_| Box::pin(pass(3 * S)));
    world.add_new_node("a").await;
    pass(S).await;
    world.heartbeat("a", "True").await;
    pass(10 * S).await;
    assert!(world.node("a").await.unwrap().spec.unwrap().provider_id.is_some());
    let asked = world.fake().calls().into_iter().filter(|call| call.starts_with("describe metadata")).count();
    assert_eq!(asked, 1);
}

/// Also if another manager runs the service controller.
#[tokio::test(start_paused = true)]
async fn a_cluster_ip_is_refused_as_a_nodes_address_without_the_service_controller_too() {
    let world = World::new().set(|settings| settings.controllers.service = false).start().await;
    world.add_service("web", json!({ "type": "ClusterIP" })).await;
    pass(S).await;
    let web = world.as_user(world.services().get("web")).await;
    let ip = web.spec.unwrap().cluster_ip.unwrap();
    world.fake().set_instance("a", Ok(machine("fake://a", &[&ip])));
    world.add_new_node("a").await;
    pass(10 * S).await;
    assert_eq!(world.node("a").await.unwrap().spec.unwrap().provider_id, None);
}
