//! Upstream's cases of `Instances` v1: the SDK's adapter between the test double and the real
//! controllers.
//! Lessons: deploy/docs/lessons.md.

mod double;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use rstest::rstest;
use serde_json::{Value, json};
use skysail_guest_sdk::{
    AddressKind::{ExternalIp, Hostname, InternalIp},
    Detail, Error, Instance, NodeAddress, Result,
    instances_v1::{describe_node, instance_provider_id},
    legacy::Zone,
};

use self::double::{Double, Knobs};
use skysail_test_conformance::world::{Cloud, S, World, pass};

const NODE: &str = "node0";

/// Upstream's cloud addresses without a host name.
fn without_hostname() -> Vec<NodeAddress> {
    vec![NodeAddress::new(InternalIp, "10.0.0.1"), NodeAddress::new(ExternalIp, "132.143.154.163")]
}

/// Upstream's cloud addresses with a host name.
fn with_hostname() -> Vec<NodeAddress> {
    [vec![NodeAddress::new(Hostname, "node0.cloud.internal")], without_hostname()].concat()
}

/// Upstream's defaults of the double; the machine's type is empty.
fn knobs() -> Knobs {
    Knobs {
        addresses: with_hostname(),
        instance_id: Ok("12345".to_owned()),
        instance_type: Ok(String::new()),
        exists: Ok(false),
        shutdown: Ok(false),
        zone: None,
    }
}

fn not_implemented<T>() -> Result<T> {
    Err(Error::Unsupported("unimplemented".to_owned()))
}

fn instance_not_found<T>() -> Result<T> {
    Err(Error::NotFound("instance not found".to_owned()))
}

fn failure<T>() -> Result<T> {
    Err(Error::Internal("failed!".to_owned()))
}

/// A world with a manager and this cloud.
async fn world(name: &str, knobs: Knobs) -> (World, Double) {
    let double = Double::new(name, knobs);
    let cloud = Cloud::new(name).default_of_all().provided_by(Arc::new(double.clone()));
    (World::with(vec![cloud]).start().await, double)
}

/// `node0` as the kubelet registers it.
struct Before {
    provider_id: &'static str,
    node_ip: Option<&'static str>,
    hostname: Option<&'static str>,
    uninitialized: bool,
    other_taint: bool,
}

const NEW: Before = Before { provider_id: "", node_ip: None, hostname: None, uninitialized: true, other_taint: false };

impl Before {
    async fn add_to(self, world: &World) {
        let mut taints = Vec::new();
        if self.other_taint {
            taints.push(json!({ "key": "ImproveCoverageTaint", "value": "true", "effect": "NoSchedule" }));
        }
        if self.uninitialized {
            let key = "node.cloudprovider.kubernetes.io/uninitialized";
            taints.push(json!({ "key": key, "value": "true", "effect": "NoSchedule" }));
        }
        let mut metadata = json!({ "name": NODE });
        if let Some(ip) = self.node_ip {
            metadata["annotations"] = json!({ "alpha.kubernetes.io/provided-node-ip": ip });
        }
        let spec = json!({ "providerID": self.provider_id, "taints": taints });
        let addresses: Vec<Value> =
            self.hostname.map(|name| json!({ "type": "Hostname", "address": name })).into_iter().collect();
        let status = json!({ "addresses": addresses });
        let node: Node =
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap();
        world.as_user(world.nodes().create(&Default::default(), &node)).await;
        world.heartbeat(NODE, "True").await;
    }
}

/// Provider ID, keys of taints, and addresses of `node0`.
async fn outcome(world: &World) -> (String, Vec<String>, Vec<String>) {
    let node = world.node(NODE).await.unwrap();
    let spec = node.spec.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
    let addresses = addresses.into_iter().map(|address| format!("{} {}", address.type_, address.address)).collect();
    (spec.provider_id.unwrap_or_default(), taints, addresses)
}

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const A: &[&str] = &["Hostname node0.cloud.internal", "InternalIP 10.0.0.1", "ExternalIP 132.143.154.163"];
const B: &[&str] = &["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname nodeoverriden"];
const OTHER: &str = "ImproveCoverageTaint";

/// Provider ID, taints, addresses.
type Expected = (&'static str, &'static [&'static str], &'static [&'static str]);

const fn after(id: &'static str, taints: &'static [&'static str], addresses: &'static [&'static str]) -> Expected {
    (id, taints, addresses)
}

#[rstest]
#[case::n1_1_addresses_replace_the_kubelets(
    Before { hostname: Some("nodeoverriden"), ..NEW }, knobs(), after("fake://12345", &[], A)
)]
#[case::n1_2_a_host_name_that_the_cloud_does_not_have_stays(
    Before { hostname: Some("nodeoverriden"), ..NEW }, Knobs { addresses: without_hostname(), ..knobs() }, after("fake://12345", &[], B)
)]
#[case::n1_3_a_node_without_addresses_gets_them(NEW, knobs(), after("fake://12345", &[], A))]
#[case::n1_6_only_the_uninitialized_taint_is_removed(
    Before { other_taint: true, ..NEW }, knobs(), after("fake://12345", &[OTHER], A)
)]
#[case::n1_8_the_kubelets_address_comes_first(
    Before { provider_id: "fake://abc", node_ip: Some("10.0.0.1"), hostname: Some("nodeoverriden"), ..NEW },
    Knobs { addresses: without_hostname(), ..knobs() }, after("fake://abc", &[], B)
)]
#[case::n1_9_an_annotation_that_is_no_address_keeps_the_taint(
    Before { node_ip: Some("abc"), hostname: Some("nodeoverriden"), ..NEW }, knobs(), after("", &[UNINITIALIZED], &["Hostname nodeoverriden"])
)]
#[case::n1_10_an_annotation_that_the_cloud_does_not_know_keeps_the_taint(
    Before { node_ip: Some("10.0.0.2"), ..NEW }, Knobs { addresses: without_hostname(), ..knobs() }, after("", &[UNINITIALIZED], &[])
)]
#[case::n1_11_a_present_provider_id_stays(
    Before { provider_id: "fake://test-provider-id", other_taint: true, ..NEW }, knobs(), after("fake://test-provider-id", &[OTHER], A)
)]
// Upstream initialises it; here an ID without a scheme has no owner, and a node without an owner is
// never written.
#[case::n1_11_a_provider_id_without_a_scheme_has_no_owner(
    Before { provider_id: "test-provider-id", other_taint: true, ..NEW }, knobs(), after("test-provider-id", &[OTHER, UNINITIALIZED], &[])
)]
#[case::n1_12_a_cloud_without_ids_initialises_without_one(
    NEW, Knobs { addresses: Vec::new(), instance_id: not_implemented(), ..knobs() }, after("", &[], &[])
)]
#[tokio::test(start_paused = true)]
async fn a_new_node_gets_the_data_of_its_machine(
    #[case] before: Before,
    #[case] knobs: Knobs,
    #[case] expected: Expected,
) {
    let (world, _) = world("fake", knobs).await;
    before.add_to(&world).await;
    pass(5 * S).await;
    let (id, taints, addresses) = outcome(&world).await;
    assert_eq!(
        (&*id, taints, addresses),
        (
            expected.0,
            expected.1.iter().map(ToString::to_string).collect(),
            expected.2.iter().map(ToString::to_string).collect()
        )
    );
    let labels = world.node(NODE).await.unwrap().metadata.labels.unwrap_or_default();
    assert!(!labels.contains_key("node.kubernetes.io/instance-type"), "{labels:?}");
}

#[tokio::test(start_paused = true)]
async fn n1_4_a_node_without_the_taint_is_not_initialised() {
    let (world, double) = world("fake", Knobs { addresses: Vec::new(), ..knobs() }).await;
    Before { uninitialized: false, provider_id: "fake://1", hostname: Some("h"), ..NEW }.add_to(&world).await;
    let before = world.node(NODE).await;
    pass(5 * S).await;
    assert_eq!(world.node(NODE).await, before);
    assert_eq!(double.take_calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn n1_5_zone_and_region_have_both_spellings() {
    let zone = Zone { failure_domain: "us-west-1a".to_owned(), region: "us-west".to_owned() };
    let (world, double) = world("aws", Knobs { zone: Some(zone), ..knobs() }).await;
    NEW.add_to(&world).await;
    pass(5 * S).await;
    let (id, taints, addresses) = outcome(&world).await;
    assert_eq!((&*id, taints.len(), addresses), ("aws://12345", 0, A.iter().map(ToString::to_string).collect()));
    let node = world.node(NODE).await.unwrap();
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [
        ("topology.kubernetes.io/zone", "us-west-1a"),
        ("failure-domain.beta.kubernetes.io/zone", "us-west-1a"),
        ("topology.kubernetes.io/region", "us-west"),
        ("failure-domain.beta.kubernetes.io/region", "us-west"),
    ] {
        assert_eq!(labels[key], value);
    }
    let conditions = node.status.unwrap().conditions.unwrap();
    assert_eq!((conditions.len(), &*conditions[0].type_, &*conditions[0].status), (1, "Ready", "True"));
    let calls =
        ["instance-id", "node-addresses-by-provider-id", "instance-type-by-provider-id", "get-zone-by-provider-id"];
    assert_eq!(double.take_calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn n4_1_a_node_that_cannot_be_initialised_keeps_its_addresses() {
    let (world, double) = world("fake", Knobs { instance_type: failure(), ..knobs() }).await;
    Before { hostname: Some("nodeoverriden"), ..NEW }.add_to(&world).await;
    pass(Duration::from_mins(11)).await;
    assert!(double.take_calls().len() > 4, "the cloud was asked at least once at first and in two periods");
    let (_, taints, addresses) = outcome(&world).await;
    assert_eq!((taints, addresses), (vec![UNINITIALIZED.to_owned()], vec!["Hostname nodeoverriden".to_owned()]));
}

fn described(knobs: Knobs, provider_id: Option<&str>) -> Result<Instance> {
    describe_node(&Double::new("fake", knobs), NODE, provider_id, Detail::Metadata)
}

#[test]
fn n5_1_the_id_of_the_instance_becomes_the_provider_id() {
    let instance = described(knobs(), None).unwrap();
    assert_eq!(
        (&*instance.provider_id, instance.addresses, &*instance.instance_type),
        ("fake://12345", with_hostname(), "")
    );
}

#[test]
fn n5_2_a_cloud_without_ids_still_has_addresses() {
    let instance = described(Knobs { instance_id: not_implemented(), ..knobs() }, None).unwrap();
    assert_eq!((&*instance.provider_id, instance.addresses), ("", with_hostname()));
}

#[test]
fn n5_3_the_id_of_the_node_comes_before_the_clouds() {
    let instance = described(Knobs { instance_id: not_implemented(), ..knobs() }, Some("fake://asdasd")).unwrap();
    assert_eq!((&*instance.provider_id, instance.addresses), ("fake://asdasd", with_hostname()));
}

/// The state of the node after a pass.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Tainted,
    Deleted,
}

#[rstest]
#[case::l1_1_a_machine_that_is_gone("False", "fake://12345", knobs(), Fate::Deleted)]
#[case::l1_2_a_question_that_failed("False", "fake://12345", Knobs { exists: failure(), ..knobs() }, Fate::Kept)]
#[case::l1_3_a_machine_that_runs("False", "fake://12345", Knobs { exists: Ok(true), ..knobs() }, Fate::Kept)]
#[case::l1_4_a_silent_node_without_machine("Unknown", "fake://12345", knobs(), Fate::Deleted)]
#[case::l1_5_a_silent_node_with_machine("Unknown", "fake://12345", Knobs { exists: Ok(true), ..knobs() }, Fate::Kept)]
#[case::l1_6_a_ready_node("True", "fake://12345", knobs(), Fate::Kept)]
#[case::l3_1_a_machine_that_is_off("False", "fake://12345", Knobs { exists: Ok(true), shutdown: Ok(true), ..knobs() }, Fate::Tainted)]
#[case::l3_2_the_id_is_looked_up("False", "", Knobs { exists: Ok(true), shutdown: Ok(true), ..knobs() }, Fate::Tainted)]
#[case::l3_3_an_empty_id_that_does_not_exist(
    "False", "", Knobs { instance_id: Ok(String::new()), shutdown: Ok(true), ..knobs() }, Fate::Deleted
)]
#[case::l3_4_an_id_that_cannot_be_looked_up("False", "", Knobs { instance_id: failure(), ..knobs() }, Fate::Kept)]
#[case::l3_5_a_node_without_instance("False", "", Knobs { instance_id: instance_not_found(), ..knobs() }, Fate::Deleted)]
#[case::l3_6_whether_a_gone_machine_is_off_is_not_asked("False", "fake://12345", Knobs { shutdown: failure(), ..knobs() }, Fate::Deleted)]
#[case::l3_7_a_gone_machine_that_is_not_off("False", "fake://12345", knobs(), Fate::Deleted)]
#[case::l3_8_a_ready_node_whose_machine_is_off("True", "fake://12345", Knobs { exists: Ok(true), shutdown: Ok(true), ..knobs() }, Fate::Kept)]
#[case::l3_9_off_and_gone_is_gone("Unknown", "fake://12345", Knobs { shutdown: Ok(true), ..knobs() }, Fate::Deleted)]
#[tokio::test(start_paused = true)]
async fn the_provider_is_asked_about_a_node_that_is_not_ready(
    #[case] ready: &str,
    #[case] provider_id: &'static str,
    #[case] knobs: Knobs,
    #[case] fate: Fate,
) {
    let addresses = Vec::new();
    let (mut world, double) = world("fake", Knobs { addresses, ..knobs }).await;
    Before { uninitialized: false, provider_id, ..NEW }.add_to(&world).await;
    world.heartbeat(NODE, ready).await;
    // Two passes: a machine has to be missing in two consecutive passes.
    pass(12 * S).await;
    let calls = double.take_calls();
    let found = match world.node(NODE).await {
        None => Fate::Deleted,
        Some(node) => match &*node.spec.unwrap().taints.unwrap_or_default() {
            [] => Fate::Kept,
            [taint] => {
                let taint = (&*taint.key, &*taint.effect, taint.value.as_deref());
                assert_eq!(taint, ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule", None));
                Fate::Tainted
            }
            more => panic!("{more:?}"),
        },
    };
    assert_eq!(found, fate);
    let shutdown_asked = calls.iter().any(|call| call == "instance-shutdown-by-provider-id");
    match ready {
        "True" => assert_eq!(calls, Vec::<String>::new(), "no call about a ready node"),
        _ if fate == Fate::Deleted => {
            assert!(!shutdown_asked, "{calls:?}");
            let deleting = format!("event {NODE} Normal DeletingNode x1: ");
            assert!(world.transcript().await.contains(&deleting));
        }
        _ => {}
    }
}

#[test]
fn l4_1_the_id_of_the_node() {
    let double = Double::new("fake", Knobs { exists: Ok(true), ..knobs() });
    let instance = describe_node(&double, NODE, Some("fake://node-id"), Detail::State).unwrap();
    assert_eq!(instance.provider_id, "fake://node-id");
    assert!(!double.take_calls().contains(&"instance-id".to_owned()));
}

#[test]
fn l4_3_the_id_of_the_instance() {
    let double = Double::new("fake", knobs());
    assert_eq!(instance_provider_id(&double, NODE), Ok("fake://12345".to_owned()));
}

#[test]
fn l4_6_not_found_is_not_wrapped() {
    let double = Double::new("fake", Knobs { instance_id: instance_not_found(), ..knobs() });
    assert_eq!(instance_provider_id(&double, NODE), Err(Error::NotFound("instance not found".to_owned())));
}

#[test]
fn l4_7_any_other_error_has_upstreams_text() {
    let double = Double::new("fake", Knobs { instance_id: failure(), ..knobs() });
    let text = "failed to get instance ID from cloud provider: failed!";
    assert_eq!(instance_provider_id(&double, NODE), Err(Error::Internal(text.to_owned())));
}

/// Lesson 41: a missing machine is distinguished from other errors, also in the older interface.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_machine_that_vanishes_is_deleted() {
    let (world, double) = world("fake", Knobs { exists: Ok(true), ..knobs() }).await;
    NEW.add_to(&world).await;
    pass(2 * S).await;
    world.heartbeat(NODE, "Unknown").await;
    pass(6 * S).await;
    assert!(world.node(NODE).await.is_some());
    double.knobs.lock().unwrap().exists = Ok(false);
    pass(12 * S).await;
    assert!(world.node(NODE).await.is_none());
}
