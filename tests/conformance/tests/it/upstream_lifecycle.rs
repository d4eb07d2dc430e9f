//! Upstream's cases of the node lifecycle controller for providers with the newer interface
//! (`InstancesV2`), and cases that upstream does not test.
//! Lessons: deploy/docs/lessons.md.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use prometheus_client::encoding::text::encode;
use rstest::rstest;
use serde_json::json;
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_provider::{Call, Code, Detail, Error, Info, Instance, Instances, NodeSet, Provider, fake::FakeProvider};

use skysail_test_conformance::world::{Cloud, S, World, pass};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

fn machine(shutdown: bool) -> Result<Instance, Error> {
    Ok(Instance { provider_id: "fake://node0".to_owned(), shutdown, ..Instance::default() })
}

fn error(code: Code) -> Result<Instance, Error> {
    Err(Error::new(code, "the cloud's error"))
}

/// A world with `node0` with this condition, a healthy node, and the cloud's answer about the
/// machine of `node0`.
async fn world(ready: &str, answer: Result<Instance, Error>) -> World {
    let world = World::new().set(|settings| settings.controllers.service = false);
    world.fake().set_instance("node0", answer);
    world.fake().add_instances(["node1"]);
    world.add_node("node0").await;
    world.add_node("node1").await;
    world.heartbeat("node0", ready).await;
    world.start().await
}

/// Upstream deletes at the first answer, Skysail at the second consecutive one.
#[rstest]
#[case::l2_1_not_ready_and_gone("False", error(Code::NotFound), false)]
#[case::l2_2_not_ready_and_an_error("False", error(Code::Unavailable), true)]
#[case::l2_3_not_ready_and_there("False", machine(false), true)]
#[case::l2_4_unknown_and_gone("Unknown", error(Code::NotFound), false)]
#[case::l2_5_unknown_and_there("Unknown", machine(false), true)]
#[case::l2_6_ready_and_gone("True", error(Code::NotFound), true)]
#[tokio::test(start_paused = true)]
async fn a_node_is_deleted_or_kept(#[case] ready: &str, #[case] answer: Result<Instance, Error>, #[case] kept: bool) {
    let mut world = world(ready, answer).await;
    let before = world.node("node0").await;
    pass(20 * S).await;
    assert_eq!(world.node("node0").await, before.filter(|_| kept), "unchanged or deleted");
    let text = world.transcript().await;
    assert_eq!(text.contains("event node0 Normal DeletingNode x1: Deleting node because it"), !kept, "{text}");
    if ready == "True" {
        assert!(!text.contains("describe state"), "no call about a ready node: {text}");
    }
}

/// A provider that records the name and the provider ID of each node that it is asked about.
#[derive(Debug)]
struct Asked {
    fake: FakeProvider,
    nodes: Mutex<BTreeSet<(String, Option<String>)>>,
}

impl Provider for Asked {
    fn info(&self) -> Option<Arc<Info>> {
        self.fake.info()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Asked {
    async fn describe(
        &self,
        call: &Call,
        nodes: &NodeSet,
        detail: Detail,
    ) -> Result<Vec<Result<Instance, Error>>, Error> {
        let asked = nodes.as_slice().iter();
        let asked = asked.map(|node| (node.name.clone(), node.provider_id.as_deref().map(str::to_owned)));
        self.nodes.lock().unwrap().extend(asked);
        self.fake.instances().unwrap().describe(call, nodes, detail).await
    }
}

/// Upstream looks up the ID for its call. Here the provider receives the node, with or without an
/// ID. The ID in the cloud's answer is not written; only the initialisation of a node writes it.
#[rstest]
#[case::l4_2_the_node_has_an_id(Some("fake://node0"), "fake://node0")]
#[case::l4_4_the_machine_has_an_id(None, "fake://12345")]
#[case::l4_5_the_machine_has_none(None, "")]
#[tokio::test(start_paused = true)]
async fn a_provider_is_asked_with_the_id_of_the_node(#[case] node_has: Option<&str>, #[case] cloud_has: &str) {
    let cloud = Cloud::new("fake");
    let asked = Arc::new(Asked { fake: cloud.fake.clone(), nodes: Mutex::default() });
    let world = World::with(vec![cloud.default_of_all().provided_by(Arc::clone(&asked) as Arc<_>)]).start().await;
    let off = Instance { provider_id: cloud_has.to_owned(), shutdown: true, ..Instance::default() };
    world.fake().set_instance("node0", Ok(off));
    world.add_raw_node("node0", json!({ "providerID": node_has })).await;
    world.heartbeat("node0", "False").await;
    pass(10 * S).await;
    assert_eq!(taints(&world).await, [SHUTDOWN]);
    assert_eq!(*asked.nodes.lock().unwrap(), BTreeSet::from([("node0".to_owned(), node_has.map(str::to_owned))]));
    assert_eq!(world.node("node0").await.unwrap().spec.unwrap().provider_id.as_deref(), node_has);
}

async fn taints(world: &World) -> Vec<String> {
    let spec = world.node("node0").await.unwrap().spec.unwrap();
    spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect()
}

/// Since 1.37 a failed check of the power state ends upstream's pass of that node. Here one look-up
/// answers both questions, so its failure answers neither.
#[tokio::test(start_paused = true)]
async fn a_failed_look_up_neither_taints_nor_untaints_nor_deletes() {
    let world = world("False", machine(true)).await;
    pass(10 * S).await;
    assert_eq!(taints(&world).await, [SHUTDOWN]);
    let before = world.node("node0").await;
    for code in Code::ALL.into_iter().filter(|code| *code != Code::NotFound) {
        world.fake().set_instance("node0", error(code));
        pass(20 * S).await;
        assert_eq!(world.node("node0").await, before, "{code:?}");
    }
}

/// Upstream treats the error `InstanceNotFound` of this call as a failure and keeps the node for
/// ever (lesson 41); here there is only one code for it.
#[tokio::test(start_paused = true)]
async fn b14_not_found_deletes_the_node() {
    let world = world("False", error(Code::NotFound)).await;
    pass(20 * S).await;
    assert!(world.node("node0").await.is_none() && world.node("node1").await.is_some());
}

/// Upstream deletes it within seconds (lesson 38).
#[tokio::test(start_paused = true)]
async fn b15_a_new_node_that_the_cloud_does_not_list_yet_is_kept_for_five_minutes() {
    let mut world = World::new().start().await;
    world.add_new_node("node0").await;
    world.heartbeat("node0", "False").await;
    pass(290 * S).await;
    assert!(world.node("node0").await.is_some());
    assert!(!world.transcript().await.contains("DeletingNode"));
    pass(20 * S).await;
    assert!(world.node("node0").await.is_none());
}

/// Lessons 40 and 43: a machine that is shut down still exists.
#[tokio::test(start_paused = true)]
async fn b16_the_shutdown_taint_is_removed_when_the_node_is_ready() {
    let mut world = world("False", machine(true)).await;
    pass(10 * S).await;
    assert_eq!(taints(&world).await, [SHUTDOWN]);
    let taint = world.node("node0").await.unwrap().spec.unwrap().taints.unwrap().remove(0);
    assert_eq!((taint.effect.as_str(), taint.value), ("NoSchedule", None));
    world.fake().set_instance("node0", machine(false));
    pass(20 * S).await;
    assert_eq!(taints(&world).await, [SHUTDOWN], "the machine runs again, but its kubelet is not ready yet");
    drop(world.transcript().await);
    world.heartbeat("node0", "True").await;
    pass(10 * S).await;
    assert_eq!(taints(&world).await, [""; 0]);
    assert_eq!(world.transcript().await, "api patch nodes node0\n", "no call was made");
}

/// Upstream deletes the object that has the name at that time.
#[tokio::test(start_paused = true)]
async fn b17_a_node_created_again_between_look_up_and_delete_is_kept() {
    let world = world("False", machine(false)).await;
    world.fake().set_instance("node0", error(Code::NotFound));
    pass(5 * S).await;
    world.disturb(|request: &RequestInfo| match request.verb {
        "delete" => Fault::Latency(2 * S),
        _ => Fault::None,
    });
    // The second pass, which sends the deletion.
    pass(6 * S).await;
    let api: Api<Node> = Api::all(world.client.clone());
    world.as_user(api.delete("node0", &DeleteParams::default())).await;
    let object = json!({ "metadata": { "name": "node0" }, "spec": { "providerID": "fake://new" } });
    world.as_user(api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())).await;
    pass(3 * S).await;
    let refused = |r: &skysail_dev::api::Request| r.info.verb == "delete" && r.status.as_u16() == 409;
    assert!(
        world.server.requests().recent().iter().any(refused),
        "the API server rejected the deletion because of its precondition"
    );
    assert_eq!(world.node("node0").await.unwrap().spec.unwrap().provider_id.as_deref(), Some("fake://new"));
}

/// Lesson 42, restricted permissions: upstream's Event, and the other nodes are handled.
#[tokio::test(start_paused = true)]
async fn a_forbidden_deletion_is_an_event_on_the_node() {
    let mut world = world("False", error(Code::NotFound)).await;
    world.disturb(|request: &RequestInfo| {
        let forbidden = || ApiError::new(403_u16.try_into().unwrap(), "Forbidden", "nodes is forbidden: no delete");
        if request.verb == "delete" { Fault::Refuse(forbidden()) } else { Fault::None }
    });
    pass(10 * S).await;
    let text = world.transcript().await;
    assert!(
        text.contains(
            "event node0 Warning DeletingNodeFailed x2: failed to delete node: nodes is forbidden: no delete"
        ),
        "{text}"
    );
    assert!(world.node("node0").await.is_some());
    world.disturb(|_: &RequestInfo| Fault::None);
    pass(5 * S).await;
    assert!(world.node("node0").await.is_none(), "the deletion is allowed again");
}

/// `--concurrent-node-lifecycle-syncs` of 1.37: the duration of a pass in which every write takes a
/// second, and its histogram.
#[rstest]
#[case::one_at_a_time(1, 6.0)]
#[case::three_at_a_time(3, 2.0)]
#[case::zero_is_one(0, 6.0)]
#[tokio::test(start_paused = true)]
async fn a_pass_writes_the_configured_number_of_nodes_at_once(#[case] at_once: usize, #[case] seconds: f64) {
    let world = World::new().set(|settings| {
        settings.controllers.service = false;
        settings.controllers.cloud_node = false;
        settings.concurrent_node_lifecycle_syncs = at_once;
        // Only one pass.
        settings.node_monitor_period = Duration::from_hours(1);
    });
    for n in 0..6 {
        let name = format!("node{n}");
        world.fake().set_instance(&name, machine(true));
        world.add_node(&name).await;
        world.heartbeat(&name, "False").await;
    }
    world.disturb(|request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("patch", "nodes") => Fault::Latency(S),
        _ => Fault::None,
    });
    let world = world.start().await;
    pass(60 * S).await;
    let mut text = String::new();
    encode(&mut text, &world.registry).unwrap();
    let name = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds";
    let sum = text.lines().find_map(|line| line.strip_prefix(&format!("{name}_sum "))).unwrap();
    assert!((sum.parse::<f64>().unwrap() - seconds).abs() < 0.5, "{sum}");
    assert!(text.contains(&format!("{name}_count 1\n")));
    assert!(
        text.contains(&format!("{name}_bucket{{le=\"0.001\"}} 0\n"))
            && text.contains(&format!("{name}_bucket{{le=\"16.384\"}} 1\n")),
        "upstream's buckets"
    );
}

/// `--node-monitor-period`, counted from the end of a pass.
#[tokio::test(start_paused = true)]
async fn the_next_pass_begins_a_period_after_the_end_of_the_last() {
    let world = world("False", machine(false)).await;
    world.fake().on_call(|_| Box::pin(pass(3 * S)));
    drop(world.fake().take_calls());
    pass(40 * S).await;
    let calls = world.fake().take_calls().len();
    assert_eq!(calls, 5, "passes of eight seconds");
}
