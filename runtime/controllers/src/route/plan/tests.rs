//! The plan of a pass.
//! Lessons: deploy/docs/lessons.md.

use std::{net::IpAddr, sync::Arc};

use expect_test::{Expect, expect};
use ipnet::IpNet;
use skysail_provider::{AddressKind, Node, NodeAddress, Route, Target};

use super::{Creation, Observed, Plan, plan};

fn address(ip: &str) -> NodeAddress {
    NodeAddress { kind: AddressKind::InternalIp, address: ip.to_owned() }
}

/// The provider ID is `p://` and the name.
fn node(name: &str, ip: &str, cidrs: &[&str]) -> Node {
    Node {
        name: name.to_owned(),
        provider_id: Some(format!("p://{name}")),
        addresses: vec![address(ip)],
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
        ..Node::default()
    }
}

/// Name, target and destination. A target is a name, a provider ID, an IP address, or `-` for none.
fn route(name: &str, target: &str, cidr: &str) -> Route {
    let text = target.to_owned();
    let target = match target {
        "-" => Target::None,
        id if id.contains("://") => Target::ProviderId(text),
        ip if ip.parse::<IpAddr>().is_ok() => Target::Address(text),
        _ => Target::Node(text),
    };
    Route { name: name.to_owned(), target, destination_cidr: cidr.to_owned(), ..Route::default() }
}

fn a_and_b() -> [Node; 2] {
    [node("a", "10.0.0.1", &["10.244.1.0/24"]), node("b", "10.0.0.2", &["10.244.2.0/24", "a00:200::/24"])]
}

/// Plans a pass over these routes, with the provider's nodes `a` and `b`, and `elsewhere`, a node
/// of another provider.
#[track_caller]
fn check(routes: &[Route], expected: Expect) {
    check_nodes(&a_and_b(), routes, expected);
}

#[track_caller]
fn check_nodes(nodes: &[Node], routes: &[Route], expected: Expect) {
    let elsewhere = node("elsewhere", "10.0.0.9", &["10.244.10.0/24"]);
    expected.assert_eq(&text(nodes, &planned(nodes, &[elsewhere], routes)));
}

fn planned(nodes: &[Node], others: &[Node], routes: &[Route]) -> Plan {
    let shared = |nodes: &[Node]| -> Vec<Arc<Node>> { nodes.iter().cloned().map(Arc::new).collect() };
    let cluster: Vec<IpNet> = ["10.244.0.0/16", "a00::/10"].map(|text| text.parse().unwrap()).into();
    // While no node is known, no route is deleted.
    let blind = plan(&Observed { routes, nodes: &[], others: &[], cluster: &cluster });
    assert_eq!(blind.deletions, []);
    plan(&Observed { routes, nodes: &shared(nodes), others: &shared(others), cluster: &cluster })
}

fn text(nodes: &[Node], plan: &Plan) -> String {
    let mut text = String::new();
    for route in &plan.deletions {
        text += &format!("delete {:?}, {}, {:?}\n", route.name, route.target, route.destination_cidr);
    }
    for Creation { node, route } in &plan.creations {
        let Node { name, uid, provider_id, addresses, .. } = &nodes[*node];
        assert_eq!((&route.node, &route.name_hint), (name, uid));
        assert_eq!((&route.provider_id, &route.addresses), (provider_id, addresses));
        text += &format!("create {name} {}\n", route.destination_cidr);
    }
    for ((node, has_routes), complaint) in nodes.iter().zip(&plan.has_routes).zip(&plan.complaints) {
        let said = if complaint.is_empty() { "" } else { ", complaint" };
        text += &format!("{}: {has_routes:?}{said}\n", node.name);
    }
    text
}

fn right() -> Vec<Route> {
    vec![route("r1", "a", "10.244.1.0/24"), route("r2", "b", "10.244.2.0/24"), route("r3", "b", "a00:200::/24")]
}

#[track_caller]
fn check_with_correct_routes(further: &[Route], expected: Expect) {
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

/// The routes that the cloud lists decide, not the memory of earlier passes.
#[test]
fn missing_routes_are_created_and_routes_to_no_node_are_deleted() {
    check(
        &[route("r1", "a", "10.244.1.0/24"), route("r9", "gone", "10.244.9.0/24")],
        expect![[r#"
        delete "r9", the node "gone", "10.244.9.0/24"
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
    check_with_correct_routes(
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
    check_with_correct_routes(
        &[vec![blackhole, route("r8", "gone", "0.0.0.0/0")], nonsense.to_vec()].concat(),
        expect![[r#"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Upstream deletes both.
#[test]
fn of_the_routes_without_a_known_target_only_blackholes_are_deleted() {
    let blackhole = Route { blackhole: true, ..route("r9", "-", "10.244.9.0/24") };
    let lost = Route { blackhole: true, ..route("r6", "10.0.0.77", "10.244.2.0/24") };
    check_with_correct_routes(
        &[blackhole, route("r8", "-", "10.244.8.0/24"), lost],
        expect![[r#"
        delete "r9", no known target, "10.244.9.0/24"
        delete "r6", the address "10.0.0.77", "10.244.2.0/24"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// The routes of `right`, with this target for each node.
fn right_by(target: impl Fn(&str) -> String) -> Vec<Route> {
    let renamed = |known: Route| {
        let Target::Node(node) = &known.target else { return known };
        route(&known.name, &target(node), &known.destination_cidr)
    };
    right().into_iter().map(renamed).collect()
}

fn ip_of(node: &str) -> String {
    let ip = match node {
        "a" => "10.0.0.1",
        "b" => "10.0.0.2",
        _ => "10.0.0.9",
    };
    ip.to_owned()
}

#[test]
fn a_target_is_found_by_its_name_its_provider_id_or_its_address() {
    let ways: [fn(&str) -> String; 3] = [str::to_owned, |node| format!("p://{node}"), ip_of];
    for way in ways {
        let further = [
            // The node needs no such route.
            route("r9", &way("a"), "10.244.9.0/24"),
            // A node of another provider: none of this provider's business.
            route("r8", &way("elsewhere"), "10.244.8.0/24"),
        ];
        let nodes = a_and_b();
        let elsewhere = node("elsewhere", "10.0.0.9", &["10.244.10.0/24"]);
        let plan = planned(&nodes, &[elsewhere], &[right_by(way), further.to_vec()].concat());
        assert_eq!((plan.deletions, plan.creations), (further[..1].to_vec(), vec![]), "{}", way("a"));
        assert_eq!(plan.has_routes, [Some(true), Some(true)]);
    }
}

/// A cloud may spell a provider ID in another way than the node's object, and may use an address
/// that the object does not list.
#[test]
fn a_route_to_a_pod_cidr_is_never_deleted_because_no_node_has_its_target() {
    for target in ["p:///zone/a", "10.99.0.1", "not an address://"] {
        let destinations = ["10.244.1.0/24", "10.244.1.128/25", "10.244.0.0/16", "a00:200::/24", "10.244.10.0/24"];
        let live = destinations.map(|cidr| route(cidr, target, cidr));
        check(
            &live,
            expect![[r#"
            create a 10.244.1.0/24
            create b 10.244.2.0/24
            create b a00:200::/24
            a: Some(true)
            b: Some(true)
        "#]],
        );
        let dead = route("r9", target, "10.244.9.0/24");
        let plan = planned(&a_and_b(), &[], std::slice::from_ref(&dead));
        assert_eq!(plan.deletions, [dead]);
    }
}

/// The object of a machine that registered again.
#[test]
fn while_a_node_without_a_pod_cidr_lacks_a_provider_id_or_addresses_it_may_be_the_target() {
    let fresh = Node { name: "fresh".to_owned(), ..Node::default() };
    let dead = [route("r9", "p://gone", "10.244.9.0/24"), route("r8", "10.99.0.1", "10.244.8.0/24")];
    let named = route("r7", "gone", "10.244.7.0/24");
    let deleted = |own: &[Node], others: &[Node]| -> Vec<String> {
        let plan = planned(own, others, &[right(), dead.to_vec(), vec![named.clone()]].concat());
        plan.deletions.into_iter().map(|route| route.name).collect()
    };
    let [a, b] = a_and_b();
    assert_eq!(deleted(&[a.clone(), b.clone()], &[]), ["r9", "r8", "r7"]);
    assert_eq!(deleted(&[a.clone(), b.clone()], std::slice::from_ref(&fresh)), ["r7"], "every node has a name");
    assert_eq!(deleted(&[a.clone(), b.clone(), fresh.clone()], &[]), ["r7"]);
    let addressed = Node { addresses: vec![address("10.0.0.3")], ..fresh.clone() };
    assert_eq!(deleted(&[a.clone(), b.clone(), addressed], &[]), ["r8", "r7"]);
    let identified = Node { provider_id: Some("p://fresh".to_owned()), ..fresh.clone() };
    assert_eq!(deleted(&[a.clone(), b.clone(), identified], &[]), ["r9", "r7"]);
    // A route to a node with a pod CIDR would have that CIDR as its destination.
    let placed = Node { pod_cidrs: vec!["10.244.3.0/24".to_owned()], ..fresh };
    assert_eq!(deleted(&[a, b], &[placed]), ["r9", "r8", "r7"]);
}

#[test]
fn an_address_or_a_provider_id_of_two_nodes_is_that_of_neither() {
    let twins = [
        node("a", "10.0.0.1", &[]),
        Node { provider_id: Some("p://a".to_owned()), ..node("twin", "10.0.0.1", &["10.244.2.0/24"]) },
    ];
    check_nodes(
        &twins,
        &[route("r1", "p://a", "10.244.1.0/24"), route("r2", "10.0.0.1", "10.244.8.0/24")],
        expect![[r#"
        create twin 10.244.2.0/24
        a: None
        twin: Some(true)
    "#]],
    );
}

#[test]
fn an_address_is_compared_as_an_address() {
    let nodes = [node("a", "fd00:0::1", &["10.244.1.0/24"])];
    check_nodes(
        &nodes,
        &[route("r1", "fd00::1", "10.244.1.0/24")],
        expect![[r#"
        a: Some(true)
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
        delete "r1", the node "a", "10.244.1.0/24"
        create a 10.244.1.0/24
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Upstream never deletes it.
#[test]
fn a_second_route_for_the_same_range_of_a_node_is_deleted() {
    check_with_correct_routes(
        &[route("r1b", "a", "10.244.1.0/24")],
        expect![[r#"
        delete "r1b", the node "a", "10.244.1.0/24"
        a: Some(true)
        b: Some(true)
    "#]],
    );
}

/// Overlapping pages list a route twice, or all names are equal: deleting one would delete both.
#[test]
fn a_second_route_of_the_same_name_is_the_same_route() {
    check_with_correct_routes(
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
        delete "r1", the node "a", "10.244.1.0/24"
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
        delete "r1", the node "a", "10.244.1.0/24"
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
        delete "r1", the node "a", "10.244.1.0/24"
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

#[test]
fn while_the_provider_is_paused_nothing_changes_and_a_node_without_its_route_lacks_it() {
    let nodes = a_and_b();
    let routes = [route("r1", "a", "10.244.1.0/24"), route("old", "a", "10.244.9.0/24")];
    let planned = planned(&nodes, &[], &routes);
    assert_eq!((planned.deletions.len(), planned.creations.len()), (1, 2));
    expect![[r#"
        a: Some(true)
        b: Some(false)
    "#]]
    .assert_eq(&text(&nodes, &planned.paused()));
}
