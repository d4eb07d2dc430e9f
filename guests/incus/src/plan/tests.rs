//! What a Service may ask for, and what becomes of its ports and nodes.

use std::net::IpAddr;

use skysail_guest_sdk::{Error, IpFamily, IpFamilyPolicy, Protocol, SessionAffinity};

use super::{Kind, Listener, Owner, Wanted, families, ignored, ports, targets};
use crate::{fixture, pool::Pool};

fn wanted(kind: Kind, nodes: usize) -> Wanted {
    let service = fixture::service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Udp, 53, 30_080)]);
    let nodes = (0..nodes).map(|n| (format!("node-{n}"), vec![format!("10.88.0.{}", n + 2)])).collect();
    let (targets, _) = targets(nodes, "10.88.0.0/24".parse().ok());
    Wanted { kind, owner: Owner::new("prod", &service), ports: ports(&service).unwrap(), targets, health_check: false }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_load_balancer_has_one_backend_for_each_node_and_node_port() {
    let Listener::LoadBalancer(balancer) = wanted(Kind::LoadBalancer, 2).listener(address("198.51.100.1"), None) else {
        panic!("an OVN network has load balancers");
    };
    let names: Vec<_> = balancer.backends.iter().map(|backend| backend.name.as_str()).collect();
    assert_eq!(names, ["node-0-30080", "node-1-30080"], "TCP and UDP share the node port");
    let ports: Vec<_> =
        balancer.ports.iter().map(|port| (&*port.protocol, &*port.listen_port, port.target_backend.len())).collect();
    assert_eq!(ports, [("tcp", "80", 2), ("udp", "53", 2)]);
}

#[test]
fn without_nodes_a_load_balancer_keeps_its_address_and_has_no_ports() {
    let Listener::LoadBalancer(balancer) = wanted(Kind::LoadBalancer, 0).listener(address("198.51.100.1"), None) else {
        panic!("an OVN network has load balancers");
    };
    assert!(balancer.backends.is_empty() && balancer.ports.is_empty());
}

#[test]
fn a_forward_keeps_its_node_while_the_node_is_there() {
    let three = wanted(Kind::Forward, 3);
    let first = three.listener(address("198.51.100.1"), None);
    let Listener::Forward(forward) = &first else { panic!("a bridge has forwards") };
    let node = forward.ports[0].description.clone();
    assert!(forward.ports.iter().all(|port| port.description == node), "all ports of a Service lead to one node");
    // Another set in which that node still is: nothing moves.
    let mut fewer = wanted(Kind::Forward, 3);
    fewer.targets.retain(|target| target.node == node || target.node == "node-0");
    assert!(fewer.listener(address("198.51.100.1"), Some(&first)).does_the_same_as(&first));
    // Without it the Service moves to a node that is there.
    let mut without = wanted(Kind::Forward, 3);
    without.targets.retain(|target| target.node != node);
    let Listener::Forward(moved) = without.listener(address("198.51.100.1"), Some(&first)) else {
        panic!("a bridge has forwards")
    };
    assert_eq!(moved.ports.len(), 2);
    assert_ne!(moved.ports[0].description, node);
}

#[test]
fn what_incus_cannot_do_is_refused_and_not_left_out() {
    let refused = |change: fn(&mut skysail_guest_sdk::Service)| {
        let mut service = fixture::service(&[(Protocol::Tcp, 80, 30_080)]);
        change(&mut service);
        ports(&service).unwrap_err()
    };
    assert!(matches!(refused(|s| s.source_ranges = vec!["10.0.0.0/8".to_owned()]), Error::Unsupported(_)));
    assert!(matches!(refused(|s| s.source_ranges = vec!["10.0.0.0".to_owned()]), Error::Invalid(_)));
    assert!(matches!(refused(|s| s.ports[0].protocol = Protocol::Sctp), Error::Unsupported(_)));
    assert!(matches!(refused(|s| s.ports[0].node_port = 0), Error::Invalid(_)));
    let mut open = fixture::service(&[(Protocol::Tcp, 80, 30_080)]);
    open.source_ranges = vec!["0.0.0.0/0".to_owned()];
    assert!(ports(&open).is_ok());
    open.session_affinity = SessionAffinity::ClientIp(60);
    assert!(ignored(&open).is_some_and(|(reason, _)| reason == "SessionAffinityIgnored"));
}

#[test]
fn families_follow_the_policy_and_the_pool() {
    let (v4, v6) = (IpFamily::Ipv4, IpFamily::Ipv6);
    let pool: Pool = "198.51.100.0/24".parse().unwrap();
    let both: Pool = "198.51.100.0/24,2001:db8::/64".parse().unwrap();
    let mut service = fixture::service(&[]);
    service.ip_families = vec![v6, v4];
    service.ip_family_policy = Some(IpFamilyPolicy::PreferDualStack);
    assert_eq!(families(&service, &pool).unwrap(), [(v4, None)]);
    assert_eq!(families(&service, &both).unwrap(), [(v6, None), (v4, None)]);
    service.ip_family_policy = Some(IpFamilyPolicy::RequireDualStack);
    assert!(matches!(families(&service, &pool), Err(Error::Invalid(_))));
    service.load_balancer_ip = Some("198.51.100.7".to_owned());
    assert_eq!(families(&service, &both).unwrap(), [(v6, None), (v4, Some(address("198.51.100.7")))]);
}

#[test]
fn a_fixed_address_cannot_leave_the_operators_pool() {
    let pool: Pool = "198.51.100.8/29".parse().unwrap();
    for text in ["198.51.100.1", "::1", "gateway", "198.51.100.16"] {
        let mut service = fixture::service(&[]);
        service.load_balancer_ip = Some(text.to_owned());
        assert!(matches!(families(&service, &pool), Err(Error::Invalid(_))), "{text}");
    }
}

#[test]
fn nodes_outside_the_network_are_named_and_get_nothing() {
    let nodes = vec![
        ("a".to_owned(), vec!["192.168.0.1".to_owned(), "10.88.0.2".to_owned()]),
        ("b".to_owned(), vec!["192.168.0.2".to_owned()]),
        ("c".to_owned(), Vec::new()),
    ];
    let (inside, outside) = targets(nodes, "10.88.0.0/24".parse().ok());
    assert_eq!(inside.iter().map(|target| target.address.to_string()).collect::<Vec<_>>(), ["10.88.0.2"]);
    assert_eq!(outside, ["b", "c"]);
}
