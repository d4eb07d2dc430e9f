//! Nodes and their machines against an EC2 in memory.

use skysail_guest_sdk::{AddressKind, Detail, Error, Instance, Node, NodeAddress, NodeSet, Result, instances::Turn};

use super::describe;
use crate::{
    fixture::{FakeAws, machine, settings},
    wire::ec2,
};

fn world(machines: impl IntoIterator<Item = ec2::Instance>) -> FakeAws {
    let aws = FakeAws::default();
    aws.ec2.borrow_mut().machines = machines.into_iter().collect();
    aws
}

fn node(name: &str, id: Option<&str>) -> Node {
    Node { provider_id: id.map(|id| format!("aws:///us-east-1a/{id}")), ..Node::new(name) }
}

fn ask(aws: &FakeAws, more: &str, nodes: Vec<Node>, detail: Detail) -> Vec<Result<Instance>> {
    describe(aws, &settings(more), &NodeSet::of(nodes), detail, Turn::of(0)).unwrap()
}

fn state(aws: &FakeAws, nodes: Vec<Node>) -> Vec<Result<Instance>> {
    ask(aws, "", nodes, Detail::State)
}

#[test]
fn a_node_is_found_by_provider_id_by_its_dns_name_and_by_a_name_with_the_machines_id() {
    let aws = world([machine(1), machine(2), machine(3)]);
    let [one, two, three] = [1, 2, 3].map(machine);
    let by_resource = format!("{}.ec2.internal", three.id);
    let nodes = vec![node("a", Some(&one.id)), node(&two.private_dns, None), node(&by_resource, None)];
    // The set is sorted by name: a, i-…, ip-….
    let ids: Vec<_> = state(&aws, nodes).into_iter().map(|instance| instance.unwrap().provider_id).collect();
    assert_eq!(ids, [&one.id, &three.id, &two.id].map(|id| format!("aws:///us-east-1a/{id}")));
    assert_eq!(aws.called(), ["DescribeInstances", "DescribeInstances"], "one question by ID and one by name");
}

#[test]
fn a_page_of_500_nodes_is_one_question() {
    let aws = world((0..500).map(machine));
    let nodes = (0..500).map(|n| node(&format!("node-{n:03}"), Some(&machine(n).id))).collect();
    assert!(state(&aws, nodes).iter().all(Result::is_ok));
    assert_eq!(aws.called(), ["DescribeInstances"]);
}

/// One unknown ID fails the question for all IDs.
#[test]
fn one_deleted_machine_costs_questions_by_filter_and_a_confirmation() {
    let aws = world((0..450).map(machine));
    let nodes = (0..451).map(|n| node(&format!("node-{n:03}"), Some(&machine(n).id))).collect();
    let answers = state(&aws, nodes);
    assert!(answers[..450].iter().all(Result::is_ok));
    assert!(matches!(&answers[450], Err(Error::NotFound(_))), "{:?}", answers[450]);
    // All at once; three filters, whose answers have two, two and one pages; the confirmation.
    assert_eq!(aws.called().len(), 1 + 2 + 2 + 1 + 1);
}

#[test]
fn look_ups_of_one_call_have_a_bound() {
    let aws = world([]);
    let nodes: Vec<_> = (0..100).map(|n| node(&format!("node-{n:03}"), Some(&machine(n).id))).collect();
    let mut reported = [false; 100];
    for turn in 0..40 {
        let nodes = NodeSet::of(nodes.clone());
        let answers = describe(&aws, &settings(""), &nodes, Detail::State, Turn::of(turn)).unwrap();
        let gone: Vec<_> = answers.iter().map(|answer| matches!(answer, Err(Error::NotFound(_)))).collect();
        let later = answers.iter().filter(|answer| matches!(answer, Err(Error::Unavailable(_)))).count();
        assert_eq!((gone.iter().filter(|gone| **gone).count(), later), (20, 80));
        reported.iter_mut().zip(gone).for_each(|(reported, gone)| *reported |= gone);
    }
    assert_eq!(reported, [true; 100]);
}

#[test]
fn a_terminated_machine_is_gone_and_one_that_stops_is_shut_down() {
    let states = ["pending", "running", "shutting-down", "stopping", "stopped", "terminated"];
    let machines =
        states.iter().enumerate().map(|(n, state)| ec2::Instance { state: (*state).to_owned(), ..machine(n) });
    let aws = world(machines);
    let nodes = (0..6).map(|n| node(&format!("node-{n}"), Some(&machine(n).id))).collect();
    let answers = state(&aws, nodes);
    let shutdown: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().ok().map(|instance| instance.shutdown)).collect();
    assert_eq!(shutdown, [Some(false), Some(false), Some(true), Some(true), Some(true), None]);
    assert!(matches!(answers[5], Err(Error::NotFound(_))));
}

#[test]
fn only_machines_of_the_cluster_have_a_nodes_name() {
    let mut foreign = machine(1);
    foreign.tags.clear();
    let aws = world([foreign.clone(), machine(2), ec2::Instance { id: machine(9).id, ..machine(2) }]);
    let answers = state(&aws, vec![node(&foreign.private_dns, None), node(&machine(2).private_dns, None)]);
    assert!(matches!(&answers[0], Err(Error::NotFound(why)) if why.contains("tag of this cluster")), "{answers:?}");
    assert!(matches!(&answers[1], Err(Error::Unavailable(why)) if why.starts_with("2 machines")), "{answers:?}");
}

#[test]
fn an_id_of_another_cloud_or_form_is_invalid_and_deletes_no_node() {
    let aws = world([machine(1)]);
    let foreign = Node { provider_id: Some("gce:///zone/i-1".to_owned()), ..Node::new("a") };
    let answers = state(&aws, vec![foreign, node("b", Some("i-kwok")), node("c", Some(&machine(1).id))]);
    assert!(matches!(answers[0], Err(Error::Invalid(_))));
    assert!(matches!(answers[1], Err(Error::Invalid(_))));
    assert!(answers[2].is_ok());
}

#[test]
fn addresses_have_the_order_of_the_vendors_manager() {
    let mut one = machine(1);
    one.public_ip = "203.0.113.9".to_owned();
    one.public_dns = "ec2-203-0-113-9.compute-1.amazonaws.com".to_owned();
    one.interfaces[0].ipv6 = vec!["2600:1f18::1".to_owned(), "2600:1f18::2".to_owned()];
    let second = ec2::Interface {
        device_index: Some(1),
        ipv4: vec!["10.0.9.1".to_owned(), "10.0.9.2".to_owned()],
        ..one.interfaces[0].clone()
    };
    let unused = ec2::Interface { status: "available".to_owned(), ipv4: vec!["10.0.8.1".to_owned()], ..second.clone() };
    one.interfaces = vec![second, unused, one.interfaces[0].clone()];
    let id = one.id.clone();
    let aws = world([one]);
    let addresses = |more: &str| {
        let answer = ask(&aws, more, vec![node("a", Some(&id))], Detail::State).remove(0).unwrap();
        answer.addresses
    };
    let internal = |text: &str| NodeAddress::new(AddressKind::InternalIp, text);
    let v4 = [
        internal("10.0.0.5"),
        internal("10.0.9.1"),
        internal("10.0.9.2"),
        NodeAddress::new(AddressKind::ExternalIp, "203.0.113.9"),
        NodeAddress::new(AddressKind::InternalDns, "ip-10-0-0-5.ec2.internal"),
        NodeAddress::new(AddressKind::Hostname, "ip-10-0-0-5.ec2.internal"),
        NodeAddress::new(AddressKind::ExternalDns, "ec2-203-0-113-9.compute-1.amazonaws.com"),
    ];
    assert_eq!(addresses(""), v4);
    let dual = addresses("NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\n");
    assert_eq!((&dual[0], &dual[1..]), (&internal("2600:1f18::1"), &v4[..]));
}

#[test]
fn metadata_has_type_zone_region_and_the_labels_that_the_node_lacks() {
    let aws = world([machine(1)]);
    aws.ec2.borrow_mut().topology.insert(machine(1).id, vec!["nn-1".to_owned(), "nn-2".to_owned()]);
    let ask = |node| ask(&aws, "", vec![node], Detail::Metadata).remove(0).unwrap();
    let found = ask(node("a", Some(&machine(1).id)));
    assert_eq!((&*found.instance_type, &*found.zone, &*found.region), ("t3.small", "us-east-1a", "us-east-1"));
    let labels: Vec<_> = found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        labels,
        [
            "topology.k8s.aws/zone-id=use1-aza",
            "topology.k8s.aws/network-node-layer-1=nn-1",
            "topology.k8s.aws/network-node-layer-2=nn-2"
        ]
    );
    assert_eq!(aws.called(), ["DescribeInstances", "DescribeAvailabilityZones", "DescribeInstanceTopology"]);
    let labels = ["topology.k8s.aws/zone-id", "topology.k8s.aws/network-node-layer-1"];
    let labels = labels.map(|key| (key.to_owned(), "x".to_owned())).to_vec();
    assert_eq!(ask(Node { labels, ..node("a", Some(&machine(1).id)) }).labels, []);
    assert_eq!(aws.called(), ["DescribeInstances"], "nothing is asked about labels that are there");
}

#[test]
fn a_missing_topology_is_remembered_and_delays_only_machines_that_always_have_one() {
    let mut large = machine(2);
    large.instance_type = "p5.48xlarge".to_owned();
    let aws = world([machine(1), large]);
    let nodes = || vec![node("a", Some(&machine(1).id)), node("b", Some(&machine(2).id))];
    let ask = || ask(&aws, "", nodes(), Detail::Metadata);
    aws.ec2.borrow_mut().topology_refusal = Some("RequestLimitExceeded");
    let answers = ask();
    assert!(answers[0].is_ok() && answers[1].is_err(), "{answers:?}");
    aws.ec2.borrow_mut().topology_refusal = None;
    assert!(ask().iter().all(Result::is_ok));
    aws.called();
    assert!(ask().iter().all(Result::is_ok));
    assert_eq!(aws.called(), ["DescribeInstances"], "the type and the machine are known to have no place");
}

#[test]
fn a_region_without_topologies_is_not_asked_again() {
    let aws = world([machine(1)]);
    aws.ec2.borrow_mut().topology_refusal = Some("UnauthorizedOperation");
    for asked in [1, 0] {
        assert!(ask(&aws, "", vec![node("a", Some(&machine(1).id))], Detail::Metadata)[0].is_ok());
        let called = aws.called();
        assert_eq!(called.iter().filter(|action| *action == "DescribeInstanceTopology").count(), asked);
    }
}
