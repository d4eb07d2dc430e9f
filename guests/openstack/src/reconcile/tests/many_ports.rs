//! Services with many ports, within the host's limit of requests for each call.

use super::*;

const PORTS: u16 = 70;

fn many(ports: u16, monitored: &str, policy: TrafficPolicy) -> Service {
    let ports: Vec<_> = (0..ports).map(|n| (Protocol::Tcp, 1_000 + n, 31_000 + n)).collect();
    Service {
        ports: service(&ports).ports,
        external_traffic_policy: policy,
        health_check_node_port: if policy == TrafficPolicy::Local { 32_000 } else { 0 },
        ..annotated(&[("enable-health-monitor", monitored)])
    }
}

#[test]
fn a_service_with_many_ports_that_is_right_costs_few_requests() {
    let world = World::new("");
    for (monitored, requests) in [("false", 6), ("true", 7)] {
        let service = many(PORTS, monitored, TrafficPolicy::Cluster);
        world.ensure(&service, &nodes(3)).unwrap();
        for ports in [PORTS, 30] {
            let service = Service { ports: service.ports[..usize::from(ports)].to_vec(), ..service.clone() };
            world.ensure(&service, &nodes(3)).unwrap();
            world.cloud.read();
            world.ensure(&service, &nodes(3)).unwrap();
            assert_eq!(world.cloud.read(), requests, "{ports} {monitored}");
        }
    }
}

/// The fake refuses the 65th request of a call, as the host does by default.
#[test]
fn many_ports_are_made_changed_and_deleted_in_several_calls() {
    for config in [
        "",
        "cascade-delete = false\n",
        "manage-security-groups = true\n",
        "provider-requires-serial-api-calls = true\n",
        "lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n",
    ] {
        for ports in if config.is_empty() { &[30, PORTS][..] } else { &[30] } {
            let ports = *ports;
            let one = many(1, "false", TrafficPolicy::Cluster);
            let cluster = many(ports, "true", TrafficPolicy::Cluster);
            let local = many(ports, "true", TrafficPolicy::Local);
            let world = World::new(config);
            for service in [&one, &local, &cluster, &local, &one, &cluster] {
                world.ensure(service, &nodes(2)).unwrap();
                world.update(service, &nodes(3)).unwrap();
                world.cloud.written();
                world.ensure(service, &nodes(3)).unwrap();
                assert_eq!(world.cloud.written(), [""; 0], "{config} {ports}");
                let whole = World::new(config);
                whole.ensure(service, &nodes(3)).unwrap();
                assert_eq!(world.members(), whole.members(), "{config} {ports}");
            }
            world.delete(&local).unwrap();
            assert_eq!(world.count(), 0, "{config} {ports}");
        }
    }
}

/// The change is begun, and its call ends while Octavia works.
#[test]
fn a_change_that_was_begun_and_taken_back_at_once_leaves_no_wrong_member() {
    let world = World::new("");
    let service = many(5, "true", TrafficPolicy::Local);
    world.ensure(&service, &nodes(3)).unwrap();
    world.ensure(&service, &nodes(3)).unwrap();
    world.cloud.pending_reads.set(2);
    assert!(matches!(world.task(&service).update(&nodes(2)), Err(Error::RetryAfter(_))));
    world.ensure(&service, &nodes(3)).unwrap();
    let whole = World::new("");
    whole.ensure(&service, &nodes(3)).unwrap();
    assert_eq!(world.members(), whole.members());
}

/// The tree of so many members would be larger than the response that the host takes.
#[test]
fn very_many_members_are_read_pool_by_pool_and_not_again_at_once() {
    let world = World::new("");
    let (service, nodes) = (many(5, "false", TrafficPolicy::Cluster), nodes(2_001));
    world.ensure(&service, &nodes).unwrap();
    world.cloud.written();
    world.cloud.pass_a_minute();
    for requests in [5, 0] {
        world.cloud.read();
        world.ensure(&service, &nodes).unwrap();
        assert_eq!(world.cloud.read(), 5 + requests);
    }
    assert_eq!(world.cloud.written(), [""; 0]);
}

impl World {
    /// Address, port and port of the health check of all members.
    fn members(&self) -> Vec<String> {
        let all = self.cloud.all(LB, "members").into_iter();
        let text =
            |member: Value| format!("{} {} {}", member["address"], member["protocol_port"], member["monitor_port"]);
        let mut all: Vec<String> = all.map(text).collect();
        all.sort_unstable();
        all
    }
}
