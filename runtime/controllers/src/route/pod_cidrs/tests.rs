//! Which pod CIDRs are routed, and which routes we may delete.
//! Lessons: deploy/docs/lessons.md.

use expect_test::{Expect, expect};
use ipnet::IpNet;
use rstest::rstest;
use skysail_provider::Node;

use super::{is_responsible, judge, network};

fn networks(texts: &str) -> Vec<IpNet> {
    texts.split(',').map(|text| network(text).unwrap()).collect()
}

#[rstest]
#[case::r1_1_first("10.244.0.0/16", "10.244.0.0/24", true)]
#[case::r1_2_middle("10.244.0.0/16", "10.244.10.0/24", true)]
#[case::r1_3_last("10.244.0.0/16", "10.244.255.0/24", true)]
#[case::r1_4_first_of_several_octets("10.244.0.0/14", "10.244.0.0/24", true)]
#[case::r1_5_last_of_several_octets("10.244.0.0/14", "10.247.255.0/24", true)]
#[case::r1_6_ipv6("a00:100::/10", "a00:100::/24", true)]
#[case::r1_7_before("10.244.0.0/16", "10.224.0.0/24", false)]
#[case::r1_8_far_before("10.244.0.0/16", "10.0.10.0/24", false)]
#[case::r1_9_behind("10.244.0.0/16", "10.255.255.0/24", false)]
#[case::r1_10_right_behind("10.244.0.0/14", "10.248.0.0/24", false)]
#[case::r1_11_right_before("10.244.0.0/14", "10.243.255.0/24", false)]
#[case::r1_12_ipv6_behind("a00:100::/10", "b00:100::/24", false)]
// As upstream: the first or the last address in the network is sufficient.
#[case::a_route_that_begins_in_the_network("10.244.0.0/16", "10.244.0.0/15", true)]
#[case::a_route_that_ends_in_the_network("10.245.0.0/16", "10.244.0.0/15", true)]
#[case::a_route_around_the_network("10.244.0.0/16", "10.0.0.0/8", false)]
#[case::the_second_of_two_networks("10.244.0.0/16,a00::/10", "a00:100::/24", true)]
#[case::no_network("10.244.0.0/16", "0.0.0.0/0", false)]
fn a_route_is_ours_if_it_begins_or_ends_in_the_cluster(
    #[case] cluster: &str,
    #[case] route: &str,
    #[case] responsible: bool,
) {
    assert_eq!(is_responsible(&network(route).unwrap(), &networks(cluster)), responsible);
}

/// `nodes` has the name and the pod CIDRs of each node. Prints the routed pod CIDRs and the
/// problems.
#[track_caller]
fn check(nodes: &[(&str, &[&str])], with_route: &[(&str, &str)], expected: Expect) {
    let node = |(name, cidrs): &(&str, &[&str])| Node {
        name: (*name).to_owned(),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
        ..Node::default()
    };
    let nodes: Vec<Node> = nodes.iter().map(node).collect();
    let references: Vec<&Node> = nodes.iter().collect();
    let has_route =
        |name: &str, range: &IpNet| with_route.iter().any(|(n, r)| *n == name && network(r) == Some(*range));
    let mut text = String::new();
    for (node, ranges) in nodes.iter().zip(judge(&references, &networks("10.244.0.0/16,a00::/10"), has_route)) {
        let routed: Vec<&str> = ranges.routed.iter().map(|range| range.text.as_str()).collect();
        text += &format!("{}: {}\n", node.name, routed.join(" "));
        for complaint in ranges.complaints {
            text += &format!("  {complaint}\n");
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn pod_cidrs_in_the_cluster_are_routed_and_a_missing_one_is_not_reported() {
    check(
        &[("a", &["10.244.1.0/24", "a00:100::/24"]), ("b", &[]), ("c", &[""])],
        &[],
        expect![[r#"
            a: 10.244.1.0/24 a00:100::/24
            b: 
            c: 
        "#]],
    );
}

/// Lesson 50.
#[test]
fn a_pod_cidr_outside_of_the_cluster_is_reported_and_the_others_are_routed() {
    check(
        &[("a", &["10.9.1.0/24", "a00:100::/24"])],
        &[],
        expect![[r#"
        a: a00:100::/24
          no route for the pod CIDR 10.9.1.0/24: it lies outside of --cluster-cidr 10.244.0.0/16,a00::/10. Correct --cluster-cidr, or disable routes with --configure-cloud-routes=false
    "#]],
    );
}

#[test]
fn an_invalid_pod_cidr_is_reported_and_the_others_are_routed() {
    check(
        &[("a", &["10.244.1.0/24", "pods\n", "10.244.1.0"])],
        &[],
        expect![[r#"
        a: 10.244.1.0/24
          no route for "pods\n" in spec.podCIDRs: it is not a CIDR such as 10.244.3.0/24
          no route for "10.244.1.0" in spec.podCIDRs: it is not a CIDR such as 10.244.3.0/24
    "#]],
    );
}

#[test]
fn a_repeated_pod_cidr_is_routed_once_and_reported() {
    check(
        &[("a", &["10.244.1.0/24", "10.244.1.0/24", "10.244.1.9/24"])],
        &[],
        expect![[r#"
        a: 10.244.1.0/24
          spec.podCIDRs contains 10.244.1.0/24 more than once; it gets one route
          spec.podCIDRs contains 10.244.1.9/24 more than once; it gets one route
    "#]],
    );
}

#[test]
fn of_two_nodes_with_one_pod_cidr_the_first_gets_the_route_and_the_other_is_reported() {
    check(
        &[("a", &["10.244.1.0/24"]), ("b", &["10.244.1.0/24", "a00:100::/24"])],
        &[],
        expect![[r#"
        a: 10.244.1.0/24
        b: a00:100::/24
          no route for 10.244.1.0/24: the node a has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR
    "#]],
    );
}

#[test]
fn of_two_nodes_with_one_pod_cidr_the_one_with_the_route_keeps_it() {
    let nodes: &[(&str, &[&str])] = &[("a", &["10.244.1.0/24"]), ("b", &["10.244.1.0/24"]), ("c", &["10.244.1.0/24"])];
    check(
        nodes,
        &[("b", "10.244.1.0/24")],
        expect![[r#"
        a: 
          no route for 10.244.1.0/24: the node b has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR
        b: 10.244.1.0/24
        c: 
          no route for 10.244.1.0/24: the node b has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR
    "#]],
    );
    check(
        nodes,
        &[("c", "10.244.1.0/24"), ("b", "10.244.1.0/24")],
        expect![[r#"
        a: 
          no route for 10.244.1.0/24: the node b has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR
        b: 10.244.1.0/24
        c: 
          no route for 10.244.1.0/24: the node b has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR
    "#]],
    );
}
