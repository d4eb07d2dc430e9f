//! What is decided before the cloud is asked.

use skysail_guest_sdk::{AddressKind, Error, IpFamily, Node, NodeAddress, NodeSet, Protocol, Service, ServicePort};

use super::{backends, check, sources};

fn service(protocol: Protocol, node_port: u16) -> Service {
    let port = ServicePort::new(protocol, 80, node_port);
    Service { ports: vec![port], ..Service::new("default", "web", "0a1b") }
}

#[test]
fn what_the_cloud_cannot_carry_is_refused_by_its_kind() {
    assert_eq!(check(&service(Protocol::Tcp, 30_080)), Ok(vec![(80, 30_080)]));
    assert!(matches!(check(&service(Protocol::Udp, 30_080)), Err(Error::Unsupported(_))));
    assert!(matches!(check(&service(Protocol::Sctp, 30_080)), Err(Error::Unsupported(_))));
    assert!(matches!(check(&service(Protocol::Tcp, 0)), Err(Error::Invalid(_))));
    let six = Service { ip_families: vec![IpFamily::Ipv6], ..service(Protocol::Tcp, 30_080) };
    assert!(matches!(check(&six), Err(Error::Unsupported(_))));
}

#[test]
fn sources_that_close_every_door_are_refused_and_never_become_an_open_one() {
    let ranges = |texts: &[&str]| {
        let source_ranges = texts.iter().map(|text| (*text).to_owned()).collect();
        sources(&Service { source_ranges, ..service(Protocol::Tcp, 30_080) })
    };
    assert_eq!(ranges(&[]), Ok(Vec::new()));
    assert_eq!(ranges(&["0.0.0.0/0", "10.0.0.0/8"]), Ok(Vec::new()));
    assert_eq!(ranges(&["10.1.0.0/8", "fd00::/8"]), Ok(vec!["10.0.0.0/8".to_owned()]));
    assert!(matches!(ranges(&["fd00::/8"]), Err(Error::Unsupported(_))));
    assert!(matches!(ranges(&["everywhere"]), Err(Error::Invalid(_))));
}

#[test]
fn backends_are_in_the_order_of_their_addresses() {
    let node = |name: &str, ip: &str| Node {
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, ip)],
        ..Node::new(name)
    };
    let nodes = NodeSet::of(vec![node("a", "127.89.0.10"), node("b", "127.89.0.9"), node("c", "127.89.0.10")]);
    let order: Vec<_> = backends(&nodes).into_iter().map(|backend| backend.address.to_string()).collect();
    assert_eq!(order, ["127.89.0.9", "127.89.0.10"]);
}
