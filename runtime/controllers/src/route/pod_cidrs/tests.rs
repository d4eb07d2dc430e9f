//! Which pod ranges are routed, and which routes are ours to delete.

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
// As upstream: its first or last address is enough.
#[case::a_route_that_begins_in_the_network("10.244.0.0/16", "10.244.0.0/15", true)]
#[case::a_route_that_ends_in_the_network("10.245.0.0/16", "10.244.0.0/15", true)]
#[case::a_route_around_the_network("10.244.0.0/16", "10.0.0.0/8", false)]
#[case::the_second_of_two_networks("10.244.0.0/16,a00::/10", "a00:100::/24", true)]
#[case::no_network("10.244.0.0/16", "0.0.0.0/0", false)]
fn a_route_is_ours_where_it_begins_or_ends_in_the_cluster(
    #[case] cluster: &str,
    #[case] route: &str,
    #[case] responsible: bool,
) {
    assert_eq!(is_responsible(&network(route).unwrap(), &networks(cluster)), responsible);
}

/// For each node, its name and its ranges: what is routed, and what is said.
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
fn ranges_in_the_cluster_are_routed_and_no_range_is_no_complaint() {
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
fn a_range_outside_of_the_cluster_is_told_and_the_others_of_the_node_are_routed() {
    check(
        &[("a", &["10.9.1.0/24", "a00:100::/24"])],
        &[],
        expect![[r#"
        a: a00:100::/24
          the pod range 10.9.1.0/24 lies outside of --cluster-cidr 10.244.0.0/16,a00::/10: no route is made for it. Correct --cluster-cidr, or switch routes off with --configure-cloud-routes=false
    "#]],
    );
}

#[test]
fn what_is_no_network_is_told_and_the_others_of_the_node_are_routed() {
    check(
        &[("a", &["10.244.1.0/24", "pods\n", "10.244.1.0"])],
        &[],
        expect![[r#"
        a: 10.244.1.0/24
          "pods\n" in spec.podCIDRs is no network such as 10.244.3.0/24: no route is made for it
          "10.244.1.0" in spec.podCIDRs is no network such as 10.244.3.0/24: no route is made for it
    "#]],
    );
}

#[test]
fn a_range_that_a_node_names_twice_is_routed_once_and_told() {
    check(
        &[("a", &["10.244.1.0/24", "10.244.1.0/24", "10.244.1.9/24"])],
        &[],
        expect![[r#"
        a: 10.244.1.0/24
          spec.podCIDRs names 10.244.1.0/24 more than once: it gets one route
          spec.podCIDRs names 10.244.1.9/24 more than once: it gets one route
    "#]],
    );
}

#[test]
fn of_two_nodes_with_one_range_the_first_gets_the_route_and_the_other_is_told() {
    check(
        &[("a", &["10.244.1.0/24"]), ("b", &["10.244.1.0/24", "a00:100::/24"])],
        &[],
        expect![[r#"
        a: 10.244.1.0/24
        b: a00:100::/24
          10.244.1.0/24 is the pod range of node a too, which keeps its route: no route is made to this node. Delete one of the nodes, so that it comes back with a range of its own
    "#]],
    );
}

#[test]
fn of_two_nodes_with_one_range_the_one_that_has_the_route_keeps_it() {
    let nodes: &[(&str, &[&str])] = &[("a", &["10.244.1.0/24"]), ("b", &["10.244.1.0/24"]), ("c", &["10.244.1.0/24"])];
    check(
        nodes,
        &[("b", "10.244.1.0/24")],
        expect![[r#"
        a: 
          10.244.1.0/24 is the pod range of node b too, which keeps its route: no route is made to this node. Delete one of the nodes, so that it comes back with a range of its own
        b: 10.244.1.0/24
        c: 
          10.244.1.0/24 is the pod range of node b too, which keeps its route: no route is made to this node. Delete one of the nodes, so that it comes back with a range of its own
    "#]],
    );
    check(
        nodes,
        &[("c", "10.244.1.0/24"), ("b", "10.244.1.0/24")],
        expect![[r#"
        a: 
          10.244.1.0/24 is the pod range of node b too, which keeps its route: no route is made to this node. Delete one of the nodes, so that it comes back with a range of its own
        b: 10.244.1.0/24
        c: 
          10.244.1.0/24 is the pod range of node b too, which keeps its route: no route is made to this node. Delete one of the nodes, so that it comes back with a range of its own
    "#]],
    );
}
