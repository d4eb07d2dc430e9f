//! Routes against an OpenStack in memory.

use serde_json::{Value, json};
use skysail_guest_sdk::{AddressKind, Error, NewRoute, NodeAddress, Result, Route, Target};

use super::{Extensions, Routing, list};
use crate::{fixture::Fake, settings::Api};

const ATOMIC: Extensions = Extensions { atomic: true, address_pairs: true };
const CLASSIC: Extensions = Extensions { atomic: false, address_pairs: true };

fn of(cloud: &Fake, extensions: Extensions) -> Routing<'_, Fake> {
    Routing { cloud, router: "router", extensions }
}

/// The route to the pods of node N.
fn new(n: usize) -> NewRoute {
    NewRoute {
        name_hint: format!("uid-{n}"),
        node: format!("node-{n}"),
        provider_id: None,
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.6.0.{}", n + 10))],
        destination_cidr: format!("10.244.{n}.0/24"),
        extra: Vec::new(),
    }
}

fn routes(cloud: &Fake) -> Vec<(String, String)> {
    let target = |route: Route| match route.target {
        Target::Address(address) => (route.destination_cidr, address),
        other => panic!("{other:?}"),
    };
    list(cloud, "router").unwrap().into_iter().map(target).collect()
}

fn pairs(cloud: &Fake, port: usize) -> Vec<Value> {
    let ports = cloud.all(Api::Network, "ports");
    let port = ports.iter().find(|candidate| candidate["id"] == format!("port-{port}")).unwrap();
    port["allowed_address_pairs"].as_array().unwrap().iter().map(|pair| pair["ip_address"].clone()).collect()
}

fn all_ok(results: Result<Vec<Result<()>>>) {
    assert!(results.as_ref().is_ok_and(|results| results.iter().all(Result::is_ok)), "{results:?}");
}

#[test]
fn routes_are_created_at_once_and_again_without_a_write() {
    for extensions in [ATOMIC, CLASSIC] {
        let cloud = Fake::new();
        all_ok(of(&cloud, extensions).create(&[new(0), new(1)]));
        let expected = [("10.244.0.0/24", "10.6.0.10"), ("10.244.1.0/24", "10.6.0.11")];
        assert_eq!(routes(&cloud), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(pairs(&cloud, 0), ["10.244.0.0/24"]);
        assert_eq!(cloud.written().len(), 3, "the router and two ports");
        cloud.read();
        all_ok(of(&cloud, extensions).create(&[new(0), new(1)]));
        assert_eq!((cloud.written(), cloud.read()), (Vec::new(), 3));
    }
}

#[test]
fn a_route_to_another_node_is_replaced() {
    let cloud = Fake::new();
    all_ok(of(&cloud, ATOMIC).create(&[new(0)]));
    let moved = NewRoute { destination_cidr: "10.244.0.0/24".to_owned(), ..new(2) };
    all_ok(of(&cloud, ATOMIC).create(&[moved]));
    assert_eq!(routes(&cloud), [("10.244.0.0/24".to_owned(), "10.6.0.12".to_owned())]);
}

#[test]
fn routes_of_others_stay() {
    let cloud = Fake::new();
    let foreign = json!({"destination": "172.16.0.0/12", "nexthop": "10.6.0.1"});
    cloud.edit(Api::Network, "routers", "router", |router| router["routes"] = json!([foreign]));
    for extensions in [ATOMIC, CLASSIC] {
        all_ok(of(&cloud, extensions).create(&[new(0)]));
        let ours = list(&cloud, "router").unwrap().into_iter().filter(|route| route.name == "10.244.0.0/24");
        all_ok(of(&cloud, extensions).delete(&ours.collect::<Vec<_>>()));
        assert_eq!(routes(&cloud), [("172.16.0.0/12".to_owned(), "10.6.0.1".to_owned())]);
        assert_eq!(pairs(&cloud, 0), [""; 0]);
    }
}

#[test]
fn deleting_twice_and_what_never_was_is_ok() {
    let cloud = Fake::new();
    all_ok(of(&cloud, ATOMIC).create(&[new(0), new(1)]));
    let listed = list(&cloud, "router").unwrap();
    for _ in 0..2 {
        all_ok(of(&cloud, ATOMIC).delete(&listed));
        assert_eq!(routes(&cloud), []);
    }
    // The port went with its server: there is nothing to forbid.
    all_ok(of(&cloud, ATOMIC).create(&[new(1)]));
    cloud.remove(Api::Network, "ports", |port| port["id"] == "port-1");
    all_ok(of(&cloud, ATOMIC).delete(&list(&cloud, "router").unwrap()));
    assert_eq!(routes(&cloud), []);
}

#[test]
fn one_wrong_route_does_not_keep_the_others_out() {
    let cloud = Fake::new();
    let outside = NewRoute { addresses: vec![NodeAddress::new(AddressKind::InternalIp, "192.0.2.1")], ..new(1) };
    let without = NewRoute { addresses: Vec::new(), ..new(2) };
    let results = of(&cloud, ATOMIC).create(&[new(0), outside, without]).unwrap();
    assert!(results[0].is_ok());
    assert!(matches!(&results[1], Err(Error::Invalid(text)) if text.contains("nexthop")), "{results:?}");
    assert!(matches!(&results[2], Err(Error::Unavailable(text)) if text.contains("node-2")), "{results:?}");
    assert_eq!(routes(&cloud).len(), 1);
}

#[test]
fn a_node_without_a_port_on_the_router_is_not_found() {
    let cloud = Fake::new();
    cloud.remove(Api::Network, "ports", |port| port["id"] == "port-0");
    let results = of(&cloud, ATOMIC).create(&[new(0)]).unwrap();
    assert!(matches!(&results[0], Err(Error::NotFound(text)) if text.contains("10.6.0.10")), "{results:?}");
}

#[test]
fn a_death_after_any_write_is_repaired_by_the_next_call() {
    for writes in 1..=3 {
        let cloud = Fake::new();
        cloud.crash_after(writes);
        drop(of(&cloud, ATOMIC).create(&[new(0), new(1)]));
        assert!(cloud.revive());
        all_ok(of(&cloud, ATOMIC).create(&[new(0), new(1)]));
        let listed = list(&cloud, "router").unwrap();
        assert_eq!((listed.len(), pairs(&cloud, 0).len(), pairs(&cloud, 1).len()), (2, 1, 1));
        cloud.crash_after(writes);
        drop(of(&cloud, ATOMIC).delete(&listed));
        assert!(cloud.revive());
        // The host deletes what the next list shows.
        all_ok(of(&cloud, ATOMIC).delete(&list(&cloud, "router").unwrap()));
        assert_eq!((routes(&cloud).len(), pairs(&cloud, 0).len(), pairs(&cloud, 1).len()), (0, 0, 0));
    }
}

#[test]
fn a_route_stays_while_the_change_of_its_port_is_in_doubt() {
    let cloud = Fake::new();
    all_ok(of(&cloud, ATOMIC).create(&[new(0)]));
    let listed = list(&cloud, "router").unwrap();
    cloud.swallowed.set("ports");
    let results = of(&cloud, ATOMIC).delete(&listed).unwrap();
    assert!(results[0].is_err(), "{results:?}");
    assert_eq!((list(&cloud, "router").unwrap().len(), pairs(&cloud, 0).len()), (1, 1));
    cloud.swallowed.set("");
    all_ok(of(&cloud, ATOMIC).delete(&list(&cloud, "router").unwrap()));
    assert_eq!((routes(&cloud).len(), pairs(&cloud, 0).len()), (0, 0));
}

#[test]
fn ports_without_port_security_and_clouds_without_address_pairs_need_no_pairs() {
    let cloud = Fake::new();
    cloud.edit(Api::Network, "ports", "port-0", |port| port["port_security_enabled"] = json!(false));
    all_ok(of(&cloud, ATOMIC).create(&[new(0)]));
    assert_eq!(pairs(&cloud, 0), [""; 0]);
    cloud.read();
    all_ok(of(&cloud, Extensions { atomic: true, address_pairs: false }).create(&[new(1)]));
    assert_eq!((pairs(&cloud, 1), cloud.read()), (Vec::new(), 1));
}

#[test]
fn a_router_that_the_account_does_not_see_is_denied() {
    let error = list(&Fake::new(), "elsewhere").unwrap_err();
    assert!(matches!(&error, Error::Denied(text) if text.contains("router-id")), "{error:?}");
}

#[test]
fn extensions_are_read_from_the_list() {
    let cloud = Fake::new();
    assert!(matches!(Extensions::of(&cloud), Err(Error::Unsupported(_))));
    for alias in ["extraroute", "extraroute-atomic", "allowed-address-pairs"] {
        cloud.put(Api::Network, "extensions", json!({"id": alias, "alias": alias}));
    }
    assert_eq!(Extensions::of(&cloud), Ok(ATOMIC));
}
