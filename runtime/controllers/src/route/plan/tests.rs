//! The plan of a pass.

use std::sync::Arc;

use expect_test::{Expect, expect};
use ipnet::IpNet;
use skysail_provider::{AddressKind, Node, NodeAddress, Route};

use super::{Observed, plan};

fn address(ip: &str) -> NodeAddress {
    NodeAddress { kind: AddressKind::InternalIp, address: ip.to_owned() }
}

fn node(name: &str, ip: &str, cidrs: &[&str]) -> Node {
    Node {
        name: name.to_owned(),
        addresses: vec![address(ip)],
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
        ..Node::default()
    }
}

/// Name, target (`-` for none) and destination.
fn route(name: &str, target: &str, cidr: &str) -> Route {
    let target_node = (target != "-").then(|| target.to_owned());
    Route { name: name.to_owned(), target_node, destination_cidr: cidr.to_owned(), ..Route::default() }
}

/// Plans a pass over these routes, with the provider's nodes `a` and `b`, and `elsewhere`, a node
/// of another provider.
#[track_caller]
fn check(routes: &[Route], expected: Expect) {
    let nodes = [node("a", "10.0.0.1", &["10.244.1.0/24"]), node("b", "10.0.0.2", &["10.244.2.0/24", "a00:200::/24"])];
    check_nodes(&nodes, routes, expected);
}

#[track_caller]
fn check_nodes(nodes: &[Node], routes: &[Route], expected: Expect) {
    let nodes: Vec<Arc<Node>> = nodes.iter().cloned().map(Arc::new).collect();
    let cluster: Vec<IpNet> = ["10.244.0.0/16", "a00::/10"].map(|text| text.parse().unwrap()).into();
    let observed = Observed { routes, nodes: &nodes, cluster: &cluster, may_delete: true };
    let is_known = |name: &str| name == "elsewhere" || nodes.iter().any(|node| node.name == name);
    let made = plan(&observed, is_known);
    let mut text = String::new();
    for route in &made.deletions {
        text += &format!("delete {:?} {:?} {:?}\n", route.name, route.target_node, route.destination_cidr);
    }
    for creation in &made.creations {
        assert_eq!(creation.route.target_node.as_deref(), Some(nodes[creation.node].name.as_str()));
        text += &format!("create {} {}\n", nodes[creation.node].name, creation.route.destination_cidr);
    }
    for ((node, has_routes), complaint) in nodes.iter().zip(&made.has_routes).zip(&made.complaints) {
        let said = if complaint.is_empty() { "" } else { ", complaint" };
        text += &format!("{}: {has_routes:?}{said}\n", node.name);
    }
    expected.assert_eq(&text);
    // While no node is known, no route is deleted.
    let blind = plan(&Observed { routes, nodes: &[], cluster: &cluster, may_delete: false }, |_| false);
    assert_eq!(blind.deletions, []);
}

fn right() -> Vec<Route> {
    vec![route("r1", "a", "10.244.1.0/24"), route("r2", "b", "10.244.2.0/24"), route("r3", "b", "a00:200::/24")]
}

#[track_caller]
fn check_beside_right(further: &[Route], expected: Expect) {
    check(&[right(), further.to_vec()].concat(), expected);
}

#[test]
fn correct_routes_stay_unchanged() {
    check(
        &right(),
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Lesson 24 of the routes: the list decides, not the memory of earlier passes.
#[test]
fn missing_routes_are_created_and_routes_to_no_node_are_deleted() {
    check(
        &[route("r1", "a", "10.244.1.0/24"), route("r9", "gone", "10.244.9.0/24")],
        expect![[r#"
        delete "r9" Some("gone") "10.244.9.0/24"
        create b 10.244.2.0/24
        create b a00:200::/24
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

#[test]
fn another_spelling_of_a_network_is_the_same_network() {
    let same = route("r3", "b", "0a00:0200:0:0:0:0:0:0/24");
    check(
        &[right()[..2].to_vec(), vec![same]].concat(),
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

#[test]
fn routes_to_a_node_of_another_provider_stay_unchanged() {
    let blackhole = Route { blackhole: true, ..route("r9", "elsewhere", "10.244.9.0/24") };
    let taken = route("r8", "elsewhere", "10.244.1.0/24");
    check_beside_right(
        &[taken, blackhole],
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

#[test]
fn routes_outside_of_the_cluster_or_without_a_valid_network_stay_unchanged() {
    let blackhole = Route { blackhole: true, ..route("r9", "-", "10.9.9.0/24") };
    let nonsense = ["", "10.244.9.0", "pods\u{7}", "10.244.9.0/99"].map(|cidr| route("x", "gone", cidr));
    check_beside_right(
        &[vec![blackhole, route("r8", "gone", "0.0.0.0/0")], nonsense.to_vec()].concat(),
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

#[test]
fn a_route_without_target_is_deleted_whether_it_is_a_blackhole_or_not() {
    let blackhole = Route { blackhole: true, ..route("r9", "-", "10.244.9.0/24") };
    check_beside_right(
        &[blackhole, route("r8", "-", "10.244.8.0/24"), route("r7", "", "10.244.7.0/24")],
        expect![[r#"
        delete "r9" None "10.244.9.0/24"
        delete "r8" None "10.244.8.0/24"
        delete "r7" Some("") "10.244.7.0/24"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Upstream deletes the blackhole but counts it as the node's route, so the node has no route until
/// the next pass.
#[test]
fn a_blackhole_of_a_node_is_deleted_and_its_route_made_in_the_same_pass() {
    let blackhole = Route { blackhole: true, ..route("r1", "a", "10.244.1.0/24") };
    check(
        &[vec![blackhole], right()[1..].to_vec()].concat(),
        expect![[r#"
        delete "r1" Some("a") "10.244.1.0/24"
        create a 10.244.1.0/24
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Upstream never deletes it.
#[test]
fn a_second_route_for_the_same_range_of_a_node_is_deleted() {
    check_beside_right(
        &[route("r1b", "a", "10.244.1.0/24")],
        expect![[r#"
        delete "r1b" Some("a") "10.244.1.0/24"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Overlapping pages list a route twice, or all names are equal: deleting one would delete both.
#[test]
fn a_second_route_of_the_same_name_is_the_same_route() {
    check_beside_right(
        &[route("r1", "a", "10.244.1.0/24")],
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

#[test]
fn addresses_are_compared_only_if_the_provider_enables_it() {
    let stale = |enable_node_addresses| Route {
        target_addresses: vec![address("10.0.0.99")],
        enable_node_addresses,
        ..route("r1", "a", "10.244.1.0/24")
    };
    check(
        &[vec![stale(false)], right()[1..].to_vec()].concat(),
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
    check(
        &[vec![stale(true)], right()[1..].to_vec()].concat(),
        expect![[r#"
        delete "r1" Some("a") "10.244.1.0/24"
        create a 10.244.1.0/24
        a: Some(true)
        b: Some(true)
    "#]],
    );
    let fresh = Route { target_addresses: vec![address("10.0.0.1")], ..stale(true) };
    check(
        &[vec![fresh.clone()], right()[1..].to_vec()].concat(),
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
    // The second route is right, so the first one is deleted.
    let second = Route { name: "r1b".to_owned(), ..fresh };
    check(
        &[vec![stale(true), second], right()[1..].to_vec()].concat(),
        expect![[r#"
        delete "r1" Some("a") "10.244.1.0/24"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

#[test]
fn a_node_without_pod_cidr_is_unavailable_only_if_it_has_a_route() {
    let nodes = [node("a", "10.0.0.1", &[]), node("b", "10.0.0.2", &[])];
    check_nodes(
        &nodes,
        &[route("r1", "a", "10.244.1.0/24")],
        expect![[r#"
        delete "r1" Some("a") "10.244.1.0/24"
        a: Some(false)
        b: None
    "#]],
    );
}

/// Lesson 50: a wrong `--cluster-cidr` deletes no route and taints no node.
#[test]
fn pod_cidrs_outside_of_the_cluster_are_reported_and_their_routes_stay() {
    let nodes = [node("a", "10.0.0.1", &["10.9.1.0/24"]), node("b", "10.0.0.2", &["10.9.2.0/24", "10.244.2.0/24"])];
    let routes = [route("r1", "a", "10.9.1.0/24"), route("r2", "b", "10.9.2.0/24")];
    check_nodes(
        &nodes,
        &routes,
        expect![[r#"
        create b 10.244.2.0/24
        a: None, complaint
        b: Some(true), complaint
    "#]],
    );
}

#[test]
fn routes_to_a_pod_cidr_of_two_nodes_stay_unchanged() {
    let nodes = [node("a", "10.0.0.1", &["10.244.1.0/24"]), node("b", "10.0.0.2", &["10.244.1.0/24"])];
    let both = [route("r1", "a", "10.244.1.0/24"), route("r2", "b", "10.244.1.0/24")];
    check_nodes(
        &nodes,
        &both,
        expect![[r#"
        a: Some(true)
        b: None, complaint
    "#]],
    );
    check_nodes(
        &nodes,
        &both[1..],
        expect![[r#"
        a: None, complaint
        b: Some(true)
    "#]],
    );
}
