//! Load balancers that need more requests than the host allows one call.

use skysail_guest_sdk::{Error, Protocol, Service};

use super::World;
use crate::fixture::{annotated, machine, service};

/// The host's default.
const REQUESTS_MAX: usize = 64;

fn web(ports: std::ops::Range<u16>, node_port: u16, annotations: &[(&str, &str)]) -> Service {
    let ports: Vec<_> = ports.map(|n| (Protocol::Tcp, 1_000 + n, node_port + n)).collect();
    annotated(annotated(service(&ports), &[("type", "nlb")]), annotations)
}

impl World {
    fn with_machines(count: usize) -> Self {
        let world = Self::new("");
        world.aws.ec2.borrow_mut().machines = (0..count).map(machine).collect();
        world
    }

    /// Repeats the call as the host does, each time with the host's limit; the number of calls.
    fn converged(&self, service: &Service, nodes: usize) -> usize {
        for calls in 1..30 {
            self.aws.limit(Some(REQUESTS_MAX));
            let result = self.ensure(service, nodes);
            self.aws.limit(None);
            match result {
                Ok(_) => return calls,
                Err(Error::RetryAfter(retry)) => assert!(retry.after_ms <= 1_000, "{retry:?}"),
                Err(error) => panic!("call {calls}: {error:?}"),
            }
        }
        panic!("30 calls did not suffice");
    }

    /// The number of targets of all target groups, and that of the listeners.
    fn served(&self) -> (usize, usize) {
        let v2 = self.aws.elb_v2.borrow();
        let targets = v2.groups.iter().filter_map(|group| v2.targets.get(&group.arn));
        (targets.map(Vec::len).sum(), v2.listeners.len())
    }
}

#[test]
fn a_load_balancer_with_many_ports_is_made_in_a_few_calls() {
    for (ports, nodes, most) in [(30, 3, 3), (30, 100, 3), (10, 450, 4), (50, 3, 5)] {
        let world = World::with_machines(nodes);
        let service = web(0..ports, 30_000, &[]);
        let calls = world.converged(&service, nodes);
        assert!(calls <= most, "{ports} ports and {nodes} nodes: {calls} calls");
        assert_eq!(world.served(), (usize::from(ports) * nodes, usize::from(ports)));
        let again = world.writes(|world| assert_eq!(world.converged(&service, nodes), 1, "{ports} ports"));
        assert_eq!(again, [""; 0]);
    }
}

#[test]
fn no_target_is_registered_twice_while_a_load_balancer_is_made_in_several_calls() {
    let world = World::with_machines(100);
    let writes = world.writes(|world| world.converged(&web(0..30, 30_000, &[]), 100));
    assert_eq!(writes.iter().filter(|action| *action == "RegisterTargets").count(), 30);
}

#[test]
fn a_node_joins_and_leaves_a_load_balancer_with_many_ports() {
    let world = World::with_machines(4);
    let attributes = [("target-group-attributes", "preserve_client_ip.enabled=true")];
    for annotations in [&[][..], &attributes] {
        let service = web(0..50, 30_000, annotations);
        world.converged(&service, 3);
        for nodes in [4, 2] {
            let calls = world.converged(&service, nodes);
            assert!(calls <= 8, "{annotations:?}, {nodes} nodes: {calls} calls");
            assert_eq!(world.served(), (50 * nodes, 50));
        }
        assert_eq!(world.writes(|world| world.converged(&service, 2)), [""; 0]);
    }
}

#[test]
fn many_ports_are_replaced_by_others_and_leave_no_target_group() {
    let world = World::with_machines(3);
    world.converged(&web(0..50, 30_000, &[]), 3);
    let other = web(50..80, 31_000, &[]);
    let calls = world.converged(&other, 3);
    assert!(calls <= 8, "{calls} calls");
    assert_eq!(world.served(), (90, 30));
    assert_eq!(world.left()[2], 30);
    world.converged(&web(0..50, 32_000, &[]), 3);
    assert_eq!((world.served(), world.left()[2]), ((150, 50), 50));
}

#[test]
fn ports_that_a_failed_call_with_other_nodes_has_changed_are_looked_at_again() {
    let world = World::with_machines(4);
    let service = web(0..50, 30_000, &[]);
    world.converged(&service, 3);
    world.aws.limit(Some(REQUESTS_MAX));
    assert!(matches!(world.ensure(&service, 4), Err(Error::RetryAfter(_))));
    world.aws.limit(None);
    let (joined, _) = world.served();
    world.aws.die_after(10);
    assert!(matches!(world.ensure(&service, 3), Err(Error::Unavailable(_))));
    world.aws.live();
    assert!(world.served().0 < joined, "{joined} targets");
    world.converged(&service, 4);
    assert_eq!(world.served(), (200, 50));
}
