//! The pure cases of N5 and N1: the patch of a node from the description of its machine.
//! IDs: tests/conformance/README.md.

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use skysail_provider::Instance;

use super::{Claim, InitializeError, initialize};

fn node(provider_id: Option<&str>) -> Node {
    let taint = |key: &str| Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let taints = Some(vec![taint("node.cloudprovider.kubernetes.io/uninitialized"), taint("other")]);
    let spec = NodeSpec { provider_id: provider_id.map(str::to_owned), taints, ..NodeSpec::default() };
    Node { spec: Some(spec), ..Node::default() }
}

/// The provider, and one with the prefix of a region.
fn claims() -> [Claim; 2] {
    let region = Claim { lane: 1, prefixes: vec!["fake://east/".to_owned()], ..Claim::default() };
    [Claim { schemes: vec!["fake".to_owned()], ..Claim::default() }, region]
}

fn instance(provider_id: &str) -> Instance {
    Instance { provider_id: provider_id.to_owned(), ..Instance::default() }
}

fn provider_id(node_has: Option<&str>, cloud_has: &str) -> Result<Option<String>, InitializeError> {
    initialize(&node(node_has), &instance(cloud_has), (&claims(), 0)).map(|plan| plan.provider_id)
}

#[test]
fn n5_4_the_node_gets_the_provider_id_of_its_machine() {
    assert_eq!(provider_id(None, "fake://12345"), Ok(Some("fake://12345".to_owned())));
}

/// N5.5, N1.21.
#[test]
fn a_node_without_any_provider_id_is_an_error() {
    assert_eq!(provider_id(None, ""), Err(InitializeError::NoProviderId));
}

/// N1.12, N5.2: what upstream's older `Instances` may say with `NotImplemented`.
#[test]
fn a_cloud_without_ids_leaves_the_node_without_one() {
    let instance = Instance { without_provider_id: true, ..Instance::default() };
    let plan = initialize(&node(None), &instance, (&claims(), 0)).unwrap();
    assert_eq!((plan.provider_id, plan.taints.len()), (None, 1));
}

#[test]
fn n5_6_the_nodes_own_id_is_kept_and_its_machine_has_the_type() {
    let machine = Instance { instance_type: "t1.micro".to_owned(), ..Instance::default() };
    let plan = initialize(&node(Some("fake://12345")), &machine, (&claims(), 0)).unwrap();
    assert_eq!((plan.provider_id, &*plan.labels["node.kubernetes.io/instance-type"]), (None, "t1.micro"));
    assert_eq!(provider_id(Some("fake://old"), "fake://12345"), Ok(None), "spec.providerID is immutable");
}

#[test]
fn a_provider_id_with_a_foreign_scheme_or_prefix_is_refused() {
    for id in ["other://1", "no-scheme", "fake://", "fake://east/1"] {
        let error = InitializeError::ForeignProviderId(id.to_owned(), "fake".to_owned());
        assert_eq!(provider_id(None, id), Err(error));
    }
}

/// N1.16.
#[test]
fn only_the_uninitialized_taint_is_removed() {
    let plan = initialize(&node(None), &instance("fake://1"), (&claims(), 0)).unwrap();
    assert_eq!(plan.taints.into_iter().map(|taint| taint.key).collect::<Vec<_>>(), ["other"]);
}
