//! What one call leaves to the next one.

use super::*;
use crate::client::{Call, Cloud as _};

fn two_ports() -> Service {
    service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Tcp, 443, 30_443)])
}

/// Fewer requests than the vendor's manager sends: it reads the pools once more for each pool.
#[test]
fn the_calls_after_the_first_one_read_the_load_balancer_alone() {
    let world = World::new("subnet-id = subnet-1\nfloating-network-id = net-public\n");
    world.ensure(&two_ports(), &nodes(3)).unwrap();
    // Load balancer by two names; then load balancer, listeners, floating IP, security group.
    assert_eq!(world.cloud.read(), 6);
    world.cloud.written();
    world.update(&two_ports(), &nodes(2)).unwrap();
    // Load balancer, listeners, pools, members of both; then the load balancer after each change.
    assert_eq!((world.cloud.read(), world.cloud.written().len()), (7, 2));
    world.update(&two_ports(), &nodes(2)).unwrap();
    assert_eq!(world.cloud.read(), 5, "what is right is read, and nothing was left");
}

/// Octavia has the members of the first pool when the nodes change again.
#[test]
fn what_is_left_is_dropped_when_the_nodes_change() {
    let (world, whole) = (World::new(""), World::new(""));
    world.ensure(&two_ports(), &nodes(3)).unwrap();
    whole.ensure(&two_ports(), &nodes(3)).unwrap();
    assert!(matches!(world.task(&two_ports()).update(&nodes(2)), Err(Error::RetryAfter(_))));
    world.ensure(&two_ports(), &nodes(3)).unwrap();
    assert_eq!(world.contents(), whole.contents());
    // Nothing is left of the first change to two nodes.
    world.update(&two_ports(), &nodes(2)).unwrap();
    whole.update(&two_ports(), &nodes(2)).unwrap();
    assert_eq!(world.contents(), whole.contents());
}

#[test]
fn a_refused_change_of_members_is_read_again() {
    let (world, whole) = (World::new(""), World::new(""));
    world.ensure(&two_ports(), &nodes(3)).unwrap();
    whole.ensure(&two_ports(), &nodes(2)).unwrap();
    assert!(matches!(world.task(&two_ports()).update(&nodes(2)), Err(Error::RetryAfter(_))));
    let second = world.column("pools", "id")[1].as_str().unwrap().to_owned();
    world.cloud.answer_once("PUT", &format!("pools/{second}/members"), 400, r#"{"faultstring": "no"}"#);
    assert!(matches!(world.task(&two_ports()).update(&nodes(2)), Err(Error::Invalid(_))));
    world.cloud.read();
    world.update(&two_ports(), &nodes(2)).unwrap();
    assert!(world.cloud.read() > 5, "everything is read again");
    assert_eq!(world.contents(), whole.contents());
}

/// A driver may show the load balancer before all that is in it.
#[test]
fn a_new_load_balancer_that_lacks_a_listener_is_completed() {
    let (world, whole) = (World::new(""), World::new(""));
    whole.ensure(&two_ports(), &nodes(3)).unwrap();
    assert!(matches!(world.task(&two_ports()).ensure(&nodes(3)), Err(Error::RetryAfter(_))));
    let listener = world.column("listeners", "id")[1].as_str().unwrap().to_owned();
    let pool = world.column("pools", "id")[1].as_str().unwrap().to_owned();
    for path in [["pools", &pool], ["listeners", &listener]] {
        // Each question about the load balancer lets time pass.
        let delete = || world.task(&two_ports()).get().and_then(|_| world.cloud.send(Call::delete(LB, &path)));
        again(delete).unwrap();
    }
    world.ensure(&two_ports(), &nodes(3)).unwrap();
    assert_eq!(world.contents(), whole.contents());
}
