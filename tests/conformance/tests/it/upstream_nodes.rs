//! Upstream's cases of the cloud-node controller for providers with the newer interface
//! (`InstancesV2`), and cases that upstream does not test.
//! Lessons: deploy/docs/lessons.md.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use expect_test::expect;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::{Value, json};
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_provider::{AddressKind, Code, Error, Instance, NodeAddress};
use tokio::time::Instant;

use skysail_test_conformance::world::{S, World, machine, pass};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const PERIOD: Duration = Duration::from_mins(5);

/// `H:host I:10.0.0.1 E:192.0.2.1`
fn addresses(text: &str) -> Vec<NodeAddress> {
    let address = |word: &str| {
        let (kind, address) = word.split_once(':').unwrap();
        let kind = match kind {
            "H" => AddressKind::Hostname,
            "I" => AddressKind::InternalIp,
            _ => AddressKind::ExternalIp,
        };
        NodeAddress { kind, address: address.to_owned() }
    };
    text.split_whitespace().map(address).collect()
}

/// The cloud's addresses in upstream's cases.
const A: &str = "H:node0.cloud.internal I:10.0.0.1 E:132.143.154.163";
/// The same addresses without the host name.
const B: &str = "I:10.0.0.1 E:132.143.154.163";

fn instance(provider_id: &str, list: &str) -> Instance {
    Instance { provider_id: provider_id.to_owned(), addresses: addresses(list), ..Instance::default() }
}

fn placed(instance: Instance) -> Instance {
    Instance { zone: "us-west-1a".to_owned(), region: "us-west".to_owned(), ..instance }
}

/// A node as a kubelet registers it.
#[derive(Default)]
struct Kubelet {
    provider_id: Option<&'static str>,
    /// The kubelet's `--node-ip`.
    node_ip: Option<&'static str>,
    labels: Value,
    /// Addresses in the status at the start.
    status: &'static str,
    /// Whether the node has another taint, which must stay.
    other_taint: bool,
    initialized: bool,
}

impl Kubelet {
    fn taints(&self) -> Vec<Value> {
        let taint = |key: &str| json!({ "key": key, "value": "true", "effect": "NoSchedule" });
        let ours = (!self.initialized).then(|| taint(UNINITIALIZED));
        let other = self.other_taint.then(|| taint("ImproveCoverageTaint"));
        ours.into_iter().chain(other).collect()
    }

    async fn register(&self, world: &World, name: &str) {
        let annotations = self.node_ip.map(|ip| json!({ "alpha.kubernetes.io/provided-node-ip": ip }));
        let metadata = json!({ "name": name, "labels": self.labels, "annotations": annotations });
        let spec = json!({ "providerID": self.provider_id, "taints": self.taints() });
        let object = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        world.as_user(world.nodes().create(&PostParams::default(), &object)).await;
        let list: Vec<Value> = addresses(self.status).iter().map(written).collect();
        let status = json!({ "status": { "addresses": list, "conditions": [{ "type": "Ready", "status": "True" }] } });
        world.as_user(world.nodes().patch_status(name, &PatchParams::default(), &Patch::Merge(&status))).await;
    }
}

fn written(address: &NodeAddress) -> Value {
    let kind = match address.kind {
        AddressKind::Hostname => "Hostname",
        AddressKind::InternalIp => "InternalIP",
        _ => "ExternalIP",
    };
    json!({ "type": kind, "address": address.address })
}

/// Prints provider ID, keys of the taints, addresses and all labels of a node.
fn print(node: &Node) -> String {
    let spec = node.spec.clone().unwrap();
    let taints: Vec<String> = spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    let list = node.status.clone().unwrap().addresses.unwrap_or_default();
    let list: Vec<String> = list.iter().map(|a| format!("{}:{}", &a.type_[..1], a.address)).collect();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let labels: String = labels.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    format!("id {:?}\ntaints {taints:?}\naddresses {list:?}\n{labels}", spec.provider_id.unwrap_or_default())
}

/// Runs one sync of `node0`; returns the node before and after, and the transcript.
async fn sync(kubelet: Kubelet, answer: Result<Instance, Error>) -> (Node, Node, String) {
    let mut world = World::new();
    world.fake().set_instance("node0", answer);
    kubelet.register(&world, "node0").await;
    let before = world.node("node0").await.unwrap();
    world = world.start().await;
    pass(2 * S).await;
    let text = world.transcript().await;
    (before, world.node("node0").await.unwrap(), text)
}

/// Upstream reports nothing and retries at the next heartbeat. Here it is an error with an Event
/// and a retry (design: null metadata).
#[tokio::test(start_paused = true)]
async fn n1_7_an_unknown_machine_leaves_the_node_unchanged_and_is_an_event() {
    let kubelet = Kubelet {
        provider_id: Some("fake://12345"),
        node_ip: Some("10.0.0.1"),
        other_taint: true,
        ..Kubelet::default()
    };
    let (before, after, text) = sync(kubelet, Err(Error::new(Code::NotFound, "no machine named node0"))).await;
    assert_eq!(after, before);
    let said = "event node0 Warning InitializingNodeFailed x1: failed to get instance metadata: no machine named node0";
    assert!(text.contains(said), "{text}");
}

#[rstest]
#[case::n1_13_a_present_id_stays(
    Kubelet { provider_id: Some("fake://12345"), ..Kubelet::default() },
    instance("", A),
    expect![[r#"
        id "fake://12345"
        taints []
        addresses ["H:node0.cloud.internal", "I:10.0.0.1", "E:132.143.154.163"]
    "#]]
)]
#[case::n1_15_zone_and_region_in_both_spellings(
    Kubelet::default(),
    placed(instance("fake://12345", A)),
    expect![[r#"
        id "fake://12345"
        taints []
        addresses ["H:node0.cloud.internal", "I:10.0.0.1", "E:132.143.154.163"]
        failure-domain.beta.kubernetes.io/region=us-west
        failure-domain.beta.kubernetes.io/zone=us-west-1a
        topology.kubernetes.io/region=us-west
        topology.kubernetes.io/zone=us-west-1a
    "#]]
)]
#[case::n1_16_another_taint_stays(
    Kubelet { other_taint: true, ..Kubelet::default() },
    instance("fake://12345", A),
    expect![[r#"
        id "fake://12345"
        taints ["ImproveCoverageTaint"]
        addresses ["H:node0.cloud.internal", "I:10.0.0.1", "E:132.143.154.163"]
    "#]]
)]
#[case::n1_17_a_node_ip_and_the_kubelets_host_name(
    Kubelet { provider_id: Some("fake://12345"), node_ip: Some("10.0.0.1"), status: "H:node0", ..Kubelet::default() },
    instance("fake://12345", B),
    expect![[r#"
        id "fake://12345"
        taints []
        addresses ["I:10.0.0.1", "E:132.143.154.163", "H:node0"]
    "#]]
)]
#[case::n1_18_additional_labels(
    Kubelet::default(),
    Instance {
        labels: labels(&[("topology.k8s.cp/zone-id", "az1"), ("my.custom.label/foo", "bar")]),
        ..placed(instance("fake://12345", ""))
    },
    expect![[r#"
        id "fake://12345"
        taints []
        addresses []
        failure-domain.beta.kubernetes.io/region=us-west
        failure-domain.beta.kubernetes.io/zone=us-west-1a
        my.custom.label/foo=bar
        topology.k8s.cp/zone-id=az1
        topology.kubernetes.io/region=us-west
        topology.kubernetes.io/zone=us-west-1a
    "#]]
)]
#[case::n1_19_labels_of_reserved_domains_and_present_labels(
    Kubelet { labels: json!({ "topology.k8s.cp/zone-id": "az1", "my.custom.label/foo": "mine" }), ..Kubelet::default() },
    Instance {
        labels: labels(&[
            ("topology.kubernetes.io/region", "other"),
            ("topology.k8s.io/region", "other"),
            ("kubernetes.io/region", "other"),
            ("k8s.io/region", "other"),
            ("topology.k8s.cp/zone-id", "az1"),
            ("my.custom.label/foo", "theirs"),
            ("app.k8snio/bar", "a"),
            ("k8snio/bar", "b"),
        ]),
        ..placed(instance("fake://12345", ""))
    },
    expect![[r#"
        id "fake://12345"
        taints []
        addresses []
        app.k8snio/bar=a
        failure-domain.beta.kubernetes.io/region=us-west
        failure-domain.beta.kubernetes.io/zone=us-west-1a
        k8snio/bar=b
        my.custom.label/foo=mine
        topology.k8s.cp/zone-id=az1
        topology.kubernetes.io/region=us-west
        topology.kubernetes.io/zone=us-west-1a
    "#]]
)]
#[case::n1_20_an_id_and_another_taint_stay(
    Kubelet { provider_id: Some("fake://12345"), other_taint: true, ..Kubelet::default() },
    instance("", A),
    expect![[r#"
        id "fake://12345"
        taints ["ImproveCoverageTaint"]
        addresses ["H:node0.cloud.internal", "I:10.0.0.1", "E:132.143.154.163"]
    "#]]
)]
#[tokio::test(start_paused = true)]
async fn a_node_is_initialised(
    #[case] kubelet: Kubelet,
    #[case] instance: Instance,
    #[case] expected: expect_test::Expect,
) {
    let (_, after, text) = sync(kubelet, Ok(instance)).await;
    expected.assert_eq(&print(&after));
    assert!(text.contains("event node0 Normal Synced x1: Node synced successfully"), "{text}");
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The periodic pass updates the addresses of such a node; here they are equal.
#[tokio::test(start_paused = true)]
async fn n1_14_a_node_without_the_taint_is_not_initialised() {
    let kubelet = Kubelet { provider_id: Some("fake://12345"), status: B, initialized: true, ..Kubelet::default() };
    let (before, after, text) = sync(kubelet, Ok(placed(instance("fake://12345", B)))).await;
    assert_eq!(after, before);
    assert!(!text.contains("Synced"), "{text}");
}

/// Upstream returns the metadata together with the error. Here no metadata is written.
#[tokio::test(start_paused = true)]
async fn n5_5_a_node_without_any_provider_id_keeps_its_taint_and_gets_no_metadata() {
    let machine = Instance { instance_type: "t1.micro".to_owned(), ..placed(instance("", A)) };
    let (_, after, text) = sync(Kubelet::default(), Ok(machine)).await;
    expect![[r#"
        id ""
        taints ["node.cloudprovider.kubernetes.io/uninitialized"]
        addresses []
    "#]]
    .assert_eq(&print(&after));
    assert!(text.contains("InitializingNodeFailed"), "{text}");
}

#[rstest]
#[case::n1_21_without_any_id(Ok(instance("", A)), "the provider returned no provider ID for the node")]
#[case::n1_22_where_the_call_fails(Err(Error::new(Code::Unavailable, "error 500")), "error 500")]
#[case::of_another_provider(
    Ok(instance("other://1", A)),
    r#"the provider returned the provider ID "other://1", which has none of the schemes and prefixes that the provider claims (fake)"#
)]
#[tokio::test(start_paused = true)]
async fn a_node_keeps_its_taint(#[case] answer: Result<Instance, Error>, #[case] reason: &str) {
    let (before, after, text) = sync(Kubelet::default(), answer).await;
    assert_eq!(after, before);
    assert!(
        text.contains("event node0 Warning InitializingNodeFailed x1: failed to ") && text.contains(reason),
        "{text}"
    );
}

/// Upstream's address update checks the taint; here the provider is not asked about the node at
/// all.
#[tokio::test(start_paused = true)]
async fn n4_2_the_periodic_pass_writes_no_addresses_while_the_node_has_the_taint() {
    let mut world = World::new();
    world.fake().set_instance("node0", Ok(instance("", A)));
    world.fake().set_instance("node1", Ok(instance("fake://node1", "I:10.0.0.9")));
    Kubelet::default().register(&world, "node0").await;
    world.add_node("node1").await;
    world = world.start().await;
    pass(2 * PERIOD).await;
    let text = world.transcript().await;
    assert!(text.contains("api patch nodes/status node1") && !text.contains("api patch nodes/status node0"), "{text}");
    assert_eq!(world.node("node0").await.unwrap().status.unwrap().addresses, None);
}

/// Upstream makes exactly 100 calls for any number of workers. Here one call covers all nodes, and
/// the workers are the concurrent writes.
#[rstest]
#[case::n6_1_one_worker(1)]
#[case::n6_2_five_workers(5)]
#[case::n6_3_ten_workers(10)]
#[case::n6_4_thirty_workers(30)]
#[tokio::test(start_paused = true)]
async fn the_addresses_of_a_hundred_nodes_need_one_call_and_the_workers_write_concurrently(#[case] workers: usize) {
    let mut world = World::new().set(|settings| settings.concurrent_node_status_updates = workers);
    for n in 0..100 {
        let name = format!("node{n}");
        world.fake().set_instance(&name, Ok(machine(&format!("fake://{name}"), &[&format!("10.0.0.{n}")])));
        world.add_node(&name).await;
    }
    world.fake().on_call(|_| Box::pin(pass(Duration::from_millis(10))));
    // Each write takes the same time, so all workers begin their writes at the same moments.
    let begun = Arc::<Mutex<BTreeMap<Instant, usize>>>::default();
    let begins = Arc::clone(&begun);
    world.disturb(move |request: &RequestInfo| {
        if request.verb != "patch" || request.subresource != "status" {
            return Fault::None;
        }
        *begins.lock().unwrap().entry(Instant::now()).or_default() += 1;
        Fault::Latency(S)
    });
    world = world.start().await;
    pass(200 * S).await;
    assert_eq!(world.fake().take_calls(), ["describe metadata nodes=(100 nodes)"]);
    let writes: Vec<usize> = begun.lock().unwrap().values().copied().collect();
    let in_flight: Vec<usize> = (0..100).step_by(workers).map(|written| workers.min(100 - written)).collect();
    assert_eq!(writes, in_flight);
}

fn conflict() -> ApiError {
    ApiError::new(409_u16.try_into().unwrap(), "Conflict", "the object has been modified")
}

/// Upstream re-reads the node from its cache up to 20 times; Skysail retries a moment later with
/// the object from the watch.
#[rstest]
#[case::b12_the_patch_of_the_node("")]
#[case::b12_the_patch_of_its_addresses("status")]
#[tokio::test(start_paused = true)]
async fn a_write_is_retried_after_a_conflict(#[case] subresource: &'static str) {
    let world = World::new().start().await;
    world.fake().set_instance("node0", Ok(instance("fake://12345", A)));
    Kubelet::default().register(&world, "node0").await;
    let left = AtomicUsize::new(2);
    world.disturb(move |request: &RequestInfo| {
        let ours = request.verb == "patch" && request.resource == "nodes" && request.subresource == subresource;
        let fails = ours && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails { Fault::Refuse(conflict()) } else { Fault::None }
    });
    pass(2 * S).await;
    let node = world.node("node0").await.unwrap();
    expect![[r#"
        id "fake://12345"
        taints []
        addresses ["H:node0.cloud.internal", "I:10.0.0.1", "E:132.143.154.163"]
    "#]]
    .assert_eq(&print(&node));
}

/// Upstream panics with null metadata in this pass. A failed look-up of one node must not affect
/// the addresses of other nodes.
#[rstest]
#[case::b13_a_machine_that_is_not_known(Err(Error::new(Code::NotFound, "null")))]
#[case::b13_no_addresses(Ok(instance("fake://node0", "")))]
#[case::b13_a_failed_look_up(Err(Error::new(Code::Denied, "the token expired")))]
#[tokio::test(start_paused = true)]
async fn an_answer_without_addresses_keeps_the_present_ones(#[case] answer: Result<Instance, Error>) {
    let mut world = World::new();
    world.fake().set_instance("node0", answer);
    world.fake().set_instance("node1", Ok(instance("fake://node1", "I:10.0.0.9")));
    let status = "H:node0 I:10.0.0.1 I:fd00::1";
    let kubelet = || Kubelet { provider_id: Some("fake://1"), status, initialized: true, ..Kubelet::default() };
    kubelet().register(&world, "node0").await;
    kubelet().register(&world, "node1").await;
    let before = world.node("node0").await;
    world = world.start().await;
    pass(2 * PERIOD).await;
    assert_eq!(world.node("node0").await, before);
    assert!(print(&world.node("node1").await.unwrap()).contains(r#"["I:10.0.0.9", "H:node0"]"#));
    let text = world.transcript().await;
    assert!(!text.contains("event node0"), "a failure of the cloud is no Event on the node: {text}");
}

/// Lessons 32 and 34: both addresses of a type are written once, in order.
#[tokio::test(start_paused = true)]
async fn b13_a_dual_stack_node_is_written_once() {
    let list = "I:10.0.0.1 I:fd00::1 E:192.0.2.1 E:2001:db8::1 H:node0";
    let mut world = World::new();
    world.fake().set_instance("node0", Ok(instance("fake://node0", list)));
    Kubelet { status: "I:10.9.9.9 H:old", ..Kubelet::default() }.register(&world, "node0").await;
    world = world.start().await;
    pass(3 * PERIOD).await;
    let node = world.node("node0").await.unwrap();
    let expected: Vec<Value> = addresses(list).iter().map(written).collect();
    assert_eq!(json!(node.status.unwrap().addresses), json!(expected));
    assert_eq!(world.transcript().await.matches("api patch nodes/status").count(), 1);
}

/// Lesson 35: a partial answer, and a complete but shorter one.
#[tokio::test(start_paused = true)]
async fn removed_addresses_are_always_reported() {
    let mut world = World::new();
    world.fake().set_instance("node0", Ok(instance("fake://node0", A)));
    Kubelet::default().register(&world, "node0").await;
    world = world.start().await;
    pass(PERIOD).await;
    drop(world.transcript().await);
    world.fake().set_instance("node0", Ok(instance("fake://node0", "E:132.143.154.163")));
    world.after(PERIOD, expect![[r#"
        provider describe metadata nodes=node0
        event node0 Warning UpdatingNodeFailed x1: failed to use instance metadata: the provider returned no InternalIP, but the node has one; the node keeps its addresses until the provider returns an InternalIP
    "#]]).await;
    world.fake().set_instance("node0", Ok(instance("fake://node0", "H:node0.cloud.internal I:10.0.0.1")));
    world.after(PERIOD, expect![[r#"
        provider describe metadata nodes=node0
        api patch nodes/status node0
        event node0 Normal NodeAddressesRemoved x1: The cloud does not return these addresses any more; Skysail removed them from the node: ExternalIP 132.143.154.163
    "#]]).await;
}

/// Upstream sets labels once (`deploy/docs/lessons.md`, 31); `--refresh-node-labels` updates them.
#[rstest]
#[case::by_default(false)]
#[case::if_enabled(true)]
#[tokio::test(start_paused = true)]
async fn labels_follow_the_machine_only_if_enabled(#[case] refresh: bool) {
    let mut world = World::new().set(|settings| settings.refresh_node_labels = refresh);
    let machine = Instance { labels: labels(&[("rack", "6")]), ..placed(instance("fake://12345", A)) };
    world.fake().set_instance("node0", Ok(machine.clone()));
    Kubelet { labels: json!({ "mine": "yes" }), ..Kubelet::default() }.register(&world, "node0").await;
    world = world.start().await;
    pass(S).await;
    let before = world.node("node0").await;
    drop(world.transcript().await);
    let moved =
        Instance { zone: "us-west-1b".to_owned(), labels: labels(&[("rack", "7"), ("k8s.io/x", "y")]), ..machine };
    world.fake().set_instance("node0", Ok(moved));
    pass(2 * PERIOD).await;
    let writes = world.transcript().await.matches("api patch nodes node0").count();
    let after = world.node("node0").await.unwrap();
    if !refresh {
        assert_eq!((Some(after), writes), (before, 0));
        return;
    }
    assert_eq!(writes, 1);
    expect![[r#"
        id "fake://12345"
        taints []
        addresses ["H:node0.cloud.internal", "I:10.0.0.1", "E:132.143.154.163"]
        failure-domain.beta.kubernetes.io/region=us-west
        failure-domain.beta.kubernetes.io/zone=us-west-1b
        mine=yes
        rack=7
        topology.kubernetes.io/region=us-west
        topology.kubernetes.io/zone=us-west-1b
    "#]]
    .assert_eq(&print(&after));
}

/// Registers a node that cannot be initialised and one that can: the first one stays unchanged and
/// gets an Event with the reason, the other one is initialised.
async fn bad_input(kubelet: Kubelet, answer: Instance, reason: &str) {
    let mut world = World::new();
    world.fake().set_instance("node0", Ok(answer));
    world.fake().set_instance("node1", Ok(instance("fake://node1", "I:10.0.0.9")));
    kubelet.register(&world, "node0").await;
    Kubelet::default().register(&world, "node1").await;
    let before = world.node("node0").await;
    world = world.start().await;
    pass(2 * S).await;
    assert_eq!(world.node("node0").await, before, "nothing is partially applied");
    let text = world.transcript().await;
    let said = text.lines().find(|line| line.starts_with("event node0 Warning")).unwrap_or_default();
    assert!(said.contains(reason), "{text}");
    assert!(text.contains("event node1 Normal Synced"), "{text}");
}

fn given(list: Vec<NodeAddress>, pairs: &[(&str, &str)]) -> Instance {
    Instance { addresses: list, labels: labels(pairs), ..placed(instance("fake://12345", "")) }
}

#[rstest]
#[case::bad_input_a_label_key(&[("a//b", "c")], r#"the provider returned the label key "a//b", which is not a valid label key in Kubernetes"#)]
#[case::bad_input_a_label_value(
    &[("ok", "no spaces")],
    r#"the provider returned the value "no spaces" for the label "ok", which is not a valid label value in Kubernetes"#
)]
#[tokio::test(start_paused = true)]
async fn the_error_names_a_label_that_is_not_valid(#[case] pairs: &[(&str, &str)], #[case] reason: &str) {
    bad_input(Kubelet::default(), given(addresses(A), pairs), reason).await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_a_zone_that_is_not_a_valid_label_value() {
    let instance = Instance { zone: "zone one".to_owned(), ..instance("fake://12345", A) };
    let reason = r#"the value "zone one" for the label "topology.kubernetes.io/zone", which is not a valid label value in Kubernetes"#;
    bad_input(Kubelet::default(), instance, reason).await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_ten_thousand_addresses() {
    let list = vec![addresses("I:10.0.0.1").remove(0); 10_000];
    bad_input(Kubelet::default(), given(list, &[]), "the provider returned 10000 addresses; at most 64 are allowed")
        .await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_an_invalid_address() {
    let reason = r#"the provider returned the address "10.0.0.300", which is not valid for its type"#;
    bad_input(Kubelet::default(), given(addresses("I:10.0.0.300"), &[]), reason).await;
}

#[rstest]
#[case::bad_input_an_invalid_node_ip(
    "none",
    r#"annotation alpha.kubernetes.io/provided-node-ip is "none"; set the kubelet's --node-ip to one IP, or to two of different families"#
)]
#[case::bad_input_a_node_ip_that_the_cloud_does_not_know(
    "10.0.0.2",
    "the cloud's addresses of the machine do not include the kubelet's --node-ip 10.0.0.2; correct --node-ip or the machine's addresses"
)]
#[tokio::test(start_paused = true)]
async fn the_event_names_an_invalid_or_unknown_node_ip(#[case] node_ip: &'static str, #[case] reason: &str) {
    bad_input(Kubelet { node_ip: Some(node_ip), ..Kubelet::default() }, given(addresses(A), &[]), reason).await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_a_provider_id_without_a_scheme() {
    let kubelet = Kubelet { provider_id: Some("i-0815"), ..Kubelet::default() };
    let reason = "no provider owns this node, because spec.providerID does not have the form <scheme>://<rest> and no provider claims a prefix of it; claim it in spec.providerIdPrefixes of its provider, or delete the node and register it again with a valid provider ID";
    bad_input(kubelet, given(addresses(A), &[]), reason).await;
}

/// The same in the periodic pass, where upstream only logs it.
#[tokio::test(start_paused = true)]
async fn bad_input_of_an_initialised_node_is_reported_each_period_and_changes_nothing() {
    let mut world = World::new();
    world.fake().set_instance("node0", Ok(instance("fake://12345", A)));
    let (provider_id, node_ip) = (Some("fake://12345"), Some("10.0.0.1,10.0.0.2"));
    Kubelet { provider_id, node_ip, initialized: true, status: B, ..Kubelet::default() }
        .register(&world, "node0")
        .await;
    let before = world.node("node0").await;
    world = world.start().await;
    pass(PERIOD).await;
    let text = world.transcript().await;
    assert!(text.contains(r#"event node0 Warning UpdatingNodeFailed x2: failed to use instance metadata: annotation alpha.kubernetes.io/provided-node-ip is "10.0.0.1,10.0.0.2""#), "{text}");
    assert_eq!(world.node("node0").await, before);
}

/// A node with a long annotation is initialised like any other node.
#[tokio::test(start_paused = true)]
async fn bad_input_an_annotation_of_64_kib_does_not_prevent_initialisation() {
    let world = World::new().start().await;
    for name in ["node0", "node1"] {
        world.fake().add_instances([name]);
        Kubelet::default().register(&world, name).await;
        let patch = json!({ "metadata": { "annotations": { "example.com/note": "x".repeat(64 * 1024) } } });
        world.as_user(world.nodes().patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }
    pass(2 * S).await;
    for name in ["node0", "node1"] {
        assert!(print(&world.node(name).await.unwrap()).contains("taints []"));
    }
}

/// One of 100 nodes in a look-up makes the guest trap: 14 more calls find it, and only this node
/// gets an Event.
#[rstest]
#[case::bad_input_the_first("node00")]
#[case::bad_input_one_in_the_middle("node63")]
#[case::bad_input_the_last("node99")]
#[tokio::test(start_paused = true)]
async fn a_node_that_makes_the_guest_trap_does_not_affect_other_nodes(#[case] poison: &str) {
    let mut world = World::new().set(|settings| settings.controllers.service = false).start().await;
    world.fake().poison(poison, Error::new(Code::Trapped, "unreachable"));
    for n in 0..100 {
        let name = format!("node{n:02}");
        world.fake().add_instances([&*name]);
        world.add_raw_node(&name, json!({ "taints": [{ "key": UNINITIALIZED, "effect": "NoSchedule" }] })).await;
    }
    pass(4 * S).await;
    let text = world.transcript().await;
    assert_eq!(text.matches("Normal Synced").count(), 99);
    let failed: Vec<&str> = text.lines().filter(|line| line.contains(" Warning ")).collect();
    let expected =
        format!("event {poison} Warning InitializingNodeFailed x1: failed to get instance metadata: unreachable");
    assert_eq!(failed, [expected]);
    let calls = world.fake().calls();
    assert!(calls.len() <= 15 + 1, "at most one additional batch: {calls:#?}");
}

/// A guest that always traps is called three times, not a thousand times.
#[tokio::test(start_paused = true)]
async fn a_guest_that_always_traps_is_not_called_for_each_node() {
    let world = World::new();
    world.fake().fail_always("describe", Some(Error::new(Code::Trapped, "unreachable")));
    for n in 0..100 {
        world.add_node(&format!("node{n}")).await;
    }
    let world = world.start().await;
    assert_eq!(
        world.fake().calls(),
        [
            "describe metadata nodes=(100 nodes)",
            "describe metadata nodes=(50 nodes)",
            "describe metadata nodes=(50 nodes)"
        ]
    );
}
