//! Classic Load Balancers.

use skysail_guest_sdk::{Error, Protocol, Service};

use super::{
    NAME, World, deletion_survives_every_crash, granted, node_set, only_its_own_are_touched, survives_every_crash,
};
use crate::{
    fixture::{annotated, machine, service},
    wire::elb::LoadBalancer,
};

const CERT: &str = "arn:aws:acm:us-east-1:1:certificate/1";

fn web(annotations: &[(&str, &str)]) -> Service {
    annotated(service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Tcp, 443, 30_443)]), annotations)
}

fn one_port(port: u16, node_port: u16) -> Service {
    service(&[(Protocol::Tcp, port, node_port)])
}

impl World {
    fn classic(&self) -> LoadBalancer {
        self.aws.elb.borrow().balancers[0].clone()
    }

    fn group(&self) -> String {
        format!("k8s-elb-{NAME}")
    }

    /// Ensures, and once more without a write; the writes of the first time.
    fn settled(&self, service: &Service) -> Vec<String> {
        let writes = self.writes(|world| world.made(service, 3));
        assert_eq!(self.writes(|world| world.made(service, 3)), [""; 0]);
        writes
    }
}

#[test]
fn a_service_gets_a_load_balancer_with_a_security_group_of_its_own() {
    let world = World::new("");
    assert_eq!(world.made(&web(&[]), 3), format!("{NAME}-1.us-east-1.elb.amazonaws.com"));
    let found = world.classic();
    assert_eq!((found.subnets, found.instances.len()), (vec!["subnet-1".to_owned(), "subnet-2".to_owned()], 3));
    assert_eq!(found.health_check.unwrap().target, "TCP:30080");
    let ec2 = world.aws.ec2.borrow();
    assert_eq!(ec2.rules(&world.group()), ["icmp 3-4 0.0.0.0/0", "tcp 443 0.0.0.0/0", "tcp 80 0.0.0.0/0"]);
    assert_eq!(ec2.rules("sg-node"), [granted(&found.security_groups[0])]);
    drop(ec2);
    assert_eq!(world.writes(|world| world.made(&web(&[]), 3)), [""; 0]);
}

#[test]
fn calls_are_fewer_than_those_of_the_vendors_manager() {
    let world = World::new("");
    world.made(&one_port(80, 30_080), 3);
    // The vendor's manager: 18 for a new one, 8 without a change, 4 for a changed node.
    assert_eq!(world.aws.called().len(), 13);
    world.made(&one_port(80, 30_080), 3);
    assert_eq!(world.aws.called().len(), 6);
    world.task(&one_port(80, 30_080)).update(&node_set(2)).unwrap();
    assert_eq!(world.aws.called().len(), 4);
}

#[test]
fn update_changes_the_machines_and_an_absent_load_balancer_is_not_found() {
    let world = World::new("");
    let service = one_port(80, 30_080);
    assert!(matches!(world.task(&service).update(&node_set(1)), Err(Error::NotFound(_))));
    world.made(&service, 2);
    let update = |nodes: usize| world.writes(|world| world.task(&service).update(&node_set(nodes)).unwrap());
    assert_eq!(update(3), ["RegisterInstancesWithLoadBalancer"]);
    assert_eq!(update(3), [""; 0]);
    assert_eq!(update(0), ["RevokeSecurityGroupIngress", "DeregisterInstancesFromLoadBalancer"]);
    assert_eq!(update(1), ["AuthorizeSecurityGroupIngress", "RegisterInstancesWithLoadBalancer"]);
    assert_eq!(world.classic().instances, [machine(0).id]);
}

#[test]
fn listeners_follow_the_ports_and_the_certificate() {
    let world = World::new("");
    world.settled(&web(&[]));
    world.settled(&web(&[("ssl-cert", CERT), ("ssl-ports", "443"), ("backend-protocol", "http")]));
    let mut found: Vec<_> = world.classic().listeners.into_iter().map(|(one, _)| (one.port, one.protocol)).collect();
    found.sort_unstable();
    assert_eq!(found, [(80, "HTTP".to_owned()), (443, "HTTPS".to_owned())]);
    world.settled(&one_port(80, 31_080));
    assert_eq!(world.classic().listeners.len(), 1);
    assert_eq!(world.aws.ec2.borrow().rules(&world.group()), ["icmp 3-4 0.0.0.0/0", "tcp 80 0.0.0.0/0"]);
}

#[test]
fn the_proxy_protocol_is_set_for_each_node_port_and_removed() {
    let world = World::new("");
    let on = [("proxy-protocol", "*")];
    let writes = world.settled(&web(&on));
    assert_eq!(writes.iter().filter(|action| action.contains("Polic")).count(), 3, "{writes:?}");
    let moved = annotated(one_port(80, 31_080), &on);
    world.settled(&moved);
    let has = |world: &World| {
        let mut ports: Vec<_> = world
            .classic()
            .backends
            .into_iter()
            .filter(|(_, policies)| !policies.is_empty())
            .map(|(port, _)| port)
            .collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!(has(&world), [31_080]);
    world.settled(&one_port(80, 31_080));
    assert_eq!(has(&world), [0_u16; 0]);
}

#[test]
fn the_ssl_policy_is_set_for_encrypted_listeners() {
    let world = World::new("");
    let policy =
        [("ssl-cert", CERT), ("ssl-ports", "443"), ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01")];
    world.settled(&web(&policy));
    let policies: Vec<_> = world.classic().listeners.into_iter().map(|(one, policies)| (one.port, policies)).collect();
    let name = "k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01".to_owned();
    assert_eq!(policies, [(80, Vec::new()), (443, vec![name])]);
}

#[test]
fn a_replaced_listener_gets_the_ssl_policy_again() {
    let world = World::new("");
    let web = |certificate: &str, backend: &str, node_port: u16| {
        let policy = ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
        annotated(one_port(443, node_port), &[("ssl-cert", certificate), ("backend-protocol", backend), policy])
    };
    let name = "k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01";
    for service in [
        web(CERT, "tcp", 30_443),
        web(CERT, "tcp", 31_443),
        web("arn:aws:acm:us-east-1:1:certificate/2", "tcp", 31_443),
        web("arn:aws:acm:us-east-1:1:certificate/2", "ssl", 31_443),
    ] {
        world.settled(&service);
        assert_eq!(world.classic().listeners[0].1, [name]);
    }
}

#[test]
fn attributes_and_health_checks_are_set_and_changed() {
    let world = World::new("");
    world.settled(&web(&[]));
    let all = [
        ("connection-draining-enabled", "true"),
        ("connection-idle-timeout", "120"),
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "logs"),
        ("healthcheck-path", "/ready"),
        ("healthcheck-protocol", "http"),
    ];
    assert_eq!(world.settled(&web(&all)), ["ModifyLoadBalancerAttributes", "ConfigureHealthCheck"]);
    let attributes = world.aws.elb.borrow().attributes[NAME].clone();
    assert_eq!((attributes.idle_timeout, attributes.draining_timeout), (Some(120), Some(300)));
    assert_eq!(world.classic().health_check.unwrap().target, "HTTP:30080/ready");
}

#[test]
fn subnets_follow_the_annotation() {
    let world = World::new("");
    world.settled(&web(&[]));
    let writes = world.settled(&web(&[("subnets", "subnet-1")]));
    assert_eq!(writes, ["DetachLoadBalancerFromSubnets"]);
    world.settled(&web(&[]));
    assert_eq!(world.classic().subnets.len(), 2);
}

#[test]
fn named_groups_replace_the_own_one_and_stay_after_the_deletion() {
    let world = World::new("");
    world.settled(&web(&[("extra-security-groups", "sg-other")]));
    assert_eq!(world.classic().security_groups.len(), 2);
    let mine = web(&[("security-groups", "sg-mine"), ("extra-security-groups", "sg-other")]);
    world.settled(&mine);
    assert_eq!(world.classic().security_groups, ["sg-mine", "sg-other"]);
    assert_eq!(world.left()[3], 0, "the own group is gone");
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), [granted("sg-mine")]);
    world.task(&mine).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
    assert_eq!(world.aws.ec2.borrow().groups.len(), 3);
}

#[test]
fn a_configured_group_is_shared_by_all_services() {
    let world = World::new("ElbSecurityGroup = sg-mine\n");
    let other = super::of_another(&web(&[]));
    world.settled(&web(&[]));
    world.made(&other, 3);
    assert_eq!(world.left()[3], 0);
    world.task(&web(&[])).ensure_deleted().unwrap();
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), [granted("sg-mine")], "the other Service needs the rule");
    assert!(world.aws.ec2.borrow().rules("sg-mine").is_empty(), "its rules are the operator's");
}

#[test]
fn only_load_balancers_of_the_service_and_cluster_are_touched() {
    only_its_own_are_touched(&web(&[]));
}

#[test]
fn a_service_that_had_another_kind_before_loses_both() {
    let world = World::new("");
    world.made(&web(&[]), 2);
    world.task(&annotated(web(&[]), &[("type", "nlb")])).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn ensure_survives_the_end_of_the_process_after_each_write() {
    survives_every_crash("", None, &web(&[("proxy-protocol", "*"), ("connection-idle-timeout", "90")]));
    let policy = [("ssl-cert", CERT), ("ssl-negotiation-policy", "P"), ("extra-security-groups", "sg-other")];
    survives_every_crash("", Some(&web(&[])), &web(&policy));
}

#[test]
fn a_deletion_survives_the_end_of_the_process_after_each_write() {
    deletion_survives_every_crash("", &web(&[]));
}
