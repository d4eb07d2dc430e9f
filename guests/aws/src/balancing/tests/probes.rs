//! Health checks that kube-proxy answers for all load balancers.

use skysail_guest_sdk::{Protocol, Service, TrafficPolicy};

use super::{World, of_another};
use crate::fixture::{annotated, service};

const SHARED: &str = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n";

fn web(node_port: u16) -> Service {
    annotated(service(&[(Protocol::Tcp, 80, node_port)]), &[("type", "nlb")])
}

/// The rules for the port of kube-proxy.
fn probes(world: &World) -> usize {
    world.aws.ec2.borrow().rules("sg-node").iter().filter(|rule| rule.starts_with("tcp 10256 ")).count()
}

#[test]
fn the_rules_for_the_shared_health_check_stay_until_the_last_load_balancer_is_gone() {
    let world = World::new(SHARED);
    let (first, second) = (web(30_080), of_another(&web(30_081)));
    world.made(&first, 3);
    world.made(&second, 3);
    assert_eq!(probes(&world), 2);
    world.task(&first).ensure_deleted().unwrap();
    assert_eq!(probes(&world), 2);
    assert_eq!(world.writes(|world| world.made(&second, 3)), [""; 0]);
    world.task(&second).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn a_service_with_a_health_check_of_its_own_leaves_the_shared_one_to_the_others() {
    let world = World::new(SHARED);
    world.made(&web(30_080), 3);
    let other = of_another(&web(30_081));
    world.made(&other, 3);
    let local =
        Service { external_traffic_policy: TrafficPolicy::Local, health_check_node_port: 32_000, ..web(30_080) };
    world.made(&local, 3);
    assert_eq!(probes(&world), 2);
    world.task(&other).ensure_deleted().unwrap();
    world.task(&local).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}
