//! Network Load Balancers.

use skysail_guest_sdk::{Error, Ingress, Protocol, Service, TrafficPolicy};

use super::{NAME, World, deletion_survives_every_crash, node_set, only_its_own_are_touched, survives_every_crash};
use crate::{
    fixture::{annotated, machine, service},
    wire::Tags,
};

const CERT: &str = "arn:aws:acm:us-east-1:1:certificate/1";

fn web(annotations: &[(&str, &str)]) -> Service {
    let service = service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Tcp, 443, 30_443)]);
    annotated(annotated(service, &[("type", "nlb")]), annotations)
}

fn one_port(port: u16, node_port: u16) -> Service {
    annotated(service(&[(Protocol::Tcp, port, node_port)]), &[("type", "nlb")])
}

impl World {
    /// The registered machines of the target group with this port.
    fn targets(&self, port: u16) -> Vec<String> {
        let v2 = self.aws.elb_v2.borrow();
        let group = v2.groups.iter().find(|group| group.port == port).unwrap();
        let mut ids: Vec<_> = v2.targets.get(&group.arn).into_iter().flatten().map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        ids
    }
}

#[test]
fn a_service_gets_a_load_balancer_with_a_listener_and_a_target_group_for_each_port() {
    let world = World::new("");
    assert_eq!(world.made(&web(&[]), 3), format!("{NAME}-1.elb.us-east-1.amazonaws.com"));
    {
        let v2 = world.aws.elb_v2.borrow();
        let tags: Tags = [("kubernetes.io/cluster/k1", "owned"), ("kubernetes.io/service-name", "default/web")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        assert!(v2.tags.values().all(|found| *found == tags), "{:?}", v2.tags);
        assert_eq!(v2.balancers[0].subnets, ["subnet-1", "subnet-2"]);
        let listeners: Vec<_> = v2.listeners.iter().map(|(_, one)| (one.port, one.protocol.as_str())).collect();
        assert_eq!(listeners, [(80, "TCP"), (443, "TCP")]);
        assert!(v2.groups[0].name.starts_with("k8s-default-web-"), "{}", v2.groups[0].name);
    }
    assert_eq!(world.targets(30_443), [0, 1, 2].map(|n| machine(n).id));
    let expected = [
        "icmp 3-4 0.0.0.0/0 kubernetes.io/rule/nlb/mtu".to_owned(),
        format!("tcp 30080 0.0.0.0/0 kubernetes.io/rule/nlb/client={NAME}"),
        format!("tcp 30443 0.0.0.0/0 kubernetes.io/rule/nlb/client={NAME}"),
    ];
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), expected);
    assert_eq!(world.writes(|world| world.made(&web(&[]), 3)), [""; 0]);
}

#[test]
fn calls_are_fewer_than_those_of_the_vendors_manager() {
    let world = World::new("");
    world.made(&one_port(80, 30_080), 3);
    // The vendor's manager: 17 for a new one with one port, 11 without a change.
    assert_eq!(world.aws.called().len(), 13);
    world.made(&one_port(80, 30_080), 3);
    assert_eq!(world.aws.called().len(), 8);
}

#[test]
fn update_changes_the_targets_and_an_absent_load_balancer_is_not_found() {
    let world = World::new("");
    let service = one_port(80, 30_080);
    assert!(matches!(world.task(&service).update(&node_set(1)), Err(Error::NotFound(_))));
    world.made(&service, 2);
    let update = |nodes: usize| world.writes(|world| world.task(&service).update(&node_set(nodes)).unwrap());
    assert_eq!(update(3), ["RegisterTargets"]);
    assert_eq!(update(3), [""; 0]);
    assert_eq!(update(1), ["DeregisterTargets"]);
    assert_eq!(world.targets(30_080), [machine(0).id]);
    assert_eq!(update(0), ["DeregisterTargets", "RevokeSecurityGroupIngress"]);
    assert_eq!(update(0), [""; 0]);
    assert_eq!(update(2), ["RegisterTargets", "AuthorizeSecurityGroupIngress"]);
}

#[test]
fn ports_come_and_go_with_their_target_groups() {
    let world = World::new("");
    world.made(&web(&[]), 3);
    world.made(&one_port(80, 30_080), 3);
    assert_eq!(world.left(), [1, 1, 1, 0, 2]);
    world.made(&one_port(80, 31_080), 3);
    assert_eq!(world.left(), [1, 1, 1, 0, 2]);
    assert_eq!(world.targets(31_080).len(), 3);
    // Two ports that exchange their node ports exchange their target groups.
    let pair = |ports: [(u16, u16); 2]| {
        annotated(service(&ports.map(|(port, node_port)| (Protocol::Tcp, port, node_port))), &[("type", "nlb")])
    };
    world.made(&pair([(80, 31_080), (81, 31_081)]), 3);
    world.made(&pair([(80, 31_081), (81, 31_080)]), 3);
    let v2 = world.aws.elb_v2.borrow();
    for (_, listener) in &v2.listeners {
        let group = v2.groups.iter().find(|group| Some(&group.arn) == listener.target_group.as_ref()).unwrap();
        assert_eq!(group.port, if listener.port == 80 { 31_081 } else { 31_080 });
    }
}

#[test]
fn encryption_is_added_changed_and_removed_without_another_listener() {
    let world = World::new("");
    let ensure = |annotations: &[(&str, &str)]| {
        let writes = world.writes(|world| world.made(&web(annotations), 3));
        let again = world.writes(|world| world.made(&web(annotations), 3));
        assert_eq!(again, [""; 0], "{annotations:?}");
        writes
    };
    ensure(&[]);
    assert_eq!(ensure(&[("ssl-cert", CERT), ("ssl-ports", "443")]), ["ModifyListener"]);
    assert_eq!(ensure(&[("ssl-cert", "arn:2"), ("ssl-ports", "443")]), ["ModifyListener"]);
    let policy = [("ssl-cert", "arn:2"), ("ssl-ports", "443"), ("ssl-negotiation-policy", "ELBSecurityPolicy-2016-08")];
    assert_eq!(ensure(&policy), ["ModifyListener"]);
    assert_eq!(ensure(&[]), ["ModifyListener"]);
    let protocols = world.aws.elb_v2.borrow().listeners.iter().map(|(_, one)| one.protocol.clone()).collect::<Vec<_>>();
    assert_eq!(protocols, ["TCP", "TCP"]);
}

#[test]
fn a_protocol_of_another_kind_replaces_the_listener() {
    let world = World::new("");
    world.made(&one_port(53, 30_053), 2);
    let udp = annotated(service(&[(Protocol::Udp, 53, 30_053)]), &[("type", "nlb")]);
    world.made(&udp, 2);
    assert_eq!(world.aws.elb_v2.borrow().listeners[0].1.protocol, "UDP");
    let expected = [
        "icmp 3-4 0.0.0.0/0 kubernetes.io/rule/nlb/mtu".to_owned(),
        format!("tcp 30053 10.0.1.0/24 kubernetes.io/rule/nlb/health={NAME}"),
        format!("tcp 30053 10.0.2.0/24 kubernetes.io/rule/nlb/health={NAME}"),
        format!("udp 30053 0.0.0.0/0 kubernetes.io/rule/nlb/client={NAME}"),
    ];
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), expected);
}

#[test]
fn source_ranges_and_local_traffic_decide_the_rules_of_the_nodes() {
    let world = World::new("");
    let service = Service {
        source_ranges: vec!["192.0.2.0/24".to_owned(), "2001:db8::/32".to_owned()],
        external_traffic_policy: TrafficPolicy::Local,
        health_check_node_port: 32_000,
        ..one_port(80, 30_080)
    };
    world.made(&service, 3);
    let expected = [
        "icmp 3-4 192.0.2.0/24 kubernetes.io/rule/nlb/mtu".to_owned(),
        format!("tcp 30080 192.0.2.0/24 kubernetes.io/rule/nlb/client={NAME}"),
        format!("tcp 30080 2001:db8::/32 kubernetes.io/rule/nlb/client={NAME}"),
        format!("tcp 32000 10.0.1.0/24 kubernetes.io/rule/nlb/health={NAME}"),
        format!("tcp 32000 10.0.2.0/24 kubernetes.io/rule/nlb/health={NAME}"),
    ];
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), expected);
    assert_eq!(world.writes(|world| world.made(&service, 3)), [""; 0]);
    // Another Service keeps the rule for its own clients.
    let other = super::of_another(&Service { source_ranges: vec!["192.0.2.0/24".to_owned()], ..one_port(81, 30_081) });
    world.made(&other, 3);
    world.task(&service).ensure_deleted().unwrap();
    let rules = world.aws.ec2.borrow().rules("sg-node");
    assert!(
        rules[0].starts_with("icmp 3-4 192.0.2.0/24") && rules[1..].iter().all(|rule| rule.contains("=affffffff")),
        "{rules:?}"
    );
}

#[test]
fn the_operator_can_keep_the_rules_of_the_nodes() {
    let world = World::new("DisableSecurityGroupIngress = true\n");
    world.made(&web(&[]), 3);
    world.task(&web(&[])).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn addresses_are_given_one_for_each_subnet() {
    let world = World::new("");
    let eips = ("eip-allocations", "eipalloc-1, eipalloc-2");
    world.made(&web(&[eips, ("private-ipv4-addresses", "10.0.1.9,10.0.2.9"), ("subnets", "subnet-1,subnet-2")]), 1);
    let created = world.aws.elb_v2.borrow().created.clone();
    let mapping = |n: usize, key: &str| created[&format!("SubnetMappings.member.{n}.{key}")].clone();
    assert_eq!([mapping(1, "AllocationId"), mapping(2, "AllocationId")], ["eipalloc-1", "eipalloc-2"]);
    assert_eq!(mapping(2, "PrivateIPv4Address"), "10.0.2.9");
    let world = World::new("");
    let Err(Error::Invalid(why)) = world.ensure(&web(&[eips, ("subnets", "subnet-1")]), 1) else {
        panic!("one subnet")
    };
    assert!(why.contains("eip-allocations: 2 entries for 1 subnets"), "{why}");
}

#[test]
fn subnets_are_chosen_by_zone_role_and_route() {
    let subnets = |world: &World, annotations: &[(&str, &str)]| {
        world.made(&web(annotations), 1);
        let mut subnets = world.aws.elb_v2.borrow().balancers[0].subnets.clone();
        subnets.sort_unstable();
        subnets
    };
    assert_eq!(subnets(&World::new(""), &[("internal", "true")]), ["subnet-1", "subnet-2"]);
    let role = |world: &World| {
        world.aws.ec2.borrow_mut().subnets[2].tags.insert("kubernetes.io/role/internal-elb".to_owned(), "1".to_owned());
    };
    let world = World::new("");
    role(&world);
    assert_eq!(subnets(&world, &[("internal", "true")]), ["subnet-1", "subnet-3"]);
    let world = World::new("");
    role(&world);
    assert_eq!(subnets(&world, &[]), ["subnet-1", "subnet-2"], "subnet-3 has no route to the internet");
    let world = World::new("");
    world.aws.ec2.borrow_mut().subnets[2].tags.insert("Name".to_owned(), "private-b".to_owned());
    assert_eq!(subnets(&world, &[("subnets", "private-b,subnet-1")]), ["subnet-1", "subnet-3"]);
    let world = World::new("");
    let Err(Error::Invalid(why)) = world.ensure(&web(&[("subnets", "nowhere")]), 1) else { panic!("no such subnet") };
    assert!(why.contains("aws-load-balancer-subnets: \"nowhere\""), "{why}");
    let world = World::new("");
    world.aws.ec2.borrow_mut().tables[1].routes.pop();
    let Err(Error::Invalid(why)) = world.ensure(&web(&[]), 1) else { panic!("no public subnet") };
    assert!(why.contains("no public subnet"), "{why}");
    let world = World::new("SubnetID = subnet-2\n");
    for subnet in &mut world.aws.ec2.borrow_mut().subnets {
        subnet.tags = Tags::from([("kubernetes.io/cluster/k2".to_owned(), "owned".to_owned())]);
    }
    assert_eq!(subnets(&world, &[]), ["subnet-2"]);
}

#[test]
fn attributes_are_set_and_changed() {
    let world = World::new("");
    let logs = [
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "logs"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("target-group-attributes", "proxy_protocol_v2.enabled=true"),
    ];
    world.made(&web(&[]), 1);
    let writes = world.writes(|world| world.made(&web(&logs), 1));
    assert_eq!(writes, ["ModifyTargetGroupAttributes", "ModifyTargetGroupAttributes", "ModifyLoadBalancerAttributes"]);
    assert_eq!(world.writes(|world| world.made(&web(&logs), 1)), [""; 0]);
    assert_eq!(world.writes(|world| world.made(&web(&[]), 1)), ["ModifyLoadBalancerAttributes"]);
}

#[test]
fn health_checks_are_modified_or_their_target_groups_are_replaced() {
    let world = World::new("");
    let ensure = |annotations: &[(&str, &str)]| world.writes(|world| world.made(&web(annotations), 1)).len();
    ensure(&[("healthcheck-protocol", "http")]);
    let arns = || world.aws.elb_v2.borrow().groups.iter().map(|group| group.arn.clone()).collect::<Vec<_>>();
    let before = arns();
    let path =
        [("healthcheck-protocol", "http"), ("healthcheck-path", "/ready"), ("healthcheck-healthy-threshold", "4")];
    assert_eq!((ensure(&path), ensure(&path)), (2, 0));
    assert_eq!(arns(), before);
    let slow = [("healthcheck-protocol", "http"), ("healthcheck-path", "/ready"), ("healthcheck-interval", "60")];
    assert!(ensure(&slow) > 2 && ensure(&slow) == 0);
    assert!(arns().iter().all(|arn| !before.contains(arn)) && arns().len() == 2);
}

#[test]
fn tags_are_added_and_a_changed_scheme_is_an_event() {
    let world = World::new("");
    world.made(&web(&[]), 1);
    let tagged = web(&[("additional-resource-tags", "team=net"), ("internal", "true")]);
    assert_eq!(world.writes(|world| world.made(&tagged, 1)), ["AddTags"]);
    let warnings = world.ensure(&tagged, 1).unwrap().warnings;
    assert_eq!(warnings[0].0, "SchemeNotChanged");
}

#[test]
fn a_managed_security_group_has_exactly_the_rules_of_the_service() {
    let managed = "NLBSecurityGroupMode = Managed\n";
    let world = World::new(managed);
    let service = Service { source_ranges: vec!["192.0.2.0/24".to_owned()], ..one_port(80, 30_080) };
    world.made(&service, 1);
    let name = crate::deletion::network_group("prod", &service);
    assert!(name.starts_with("k8s-default-web-") && name.len() == 26, "{name}");
    assert_eq!(world.aws.ec2.borrow().rules(&name), ["icmp 3-4 192.0.2.0/24", "tcp 80 192.0.2.0/24"]);
    assert_eq!(world.writes(|world| world.made(&service, 1)), [""; 0]);
    world.made(&one_port(81, 30_080), 1);
    assert_eq!(world.aws.ec2.borrow().rules(&name), ["icmp 3-4 0.0.0.0/0", "tcp 81 0.0.0.0/0"]);
    // The user's groups replace it.
    let mine = annotated(one_port(81, 30_080), &[("security-groups", "sg-mine")]);
    world.made(&mine, 1);
    assert_eq!(world.aws.elb_v2.borrow().balancers[0].security_groups, ["sg-mine"]);
    assert_eq!(world.left()[3], 0);
    world.task(&mine).ensure_deleted().unwrap();
    assert!(world.aws.ec2.borrow().groups.iter().any(|group| group.id == "sg-mine"));
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn a_load_balancer_that_was_made_without_security_groups_stays_without() {
    let world = World::new("");
    world.made(&web(&[]), 1);
    let managed = World { settings: crate::fixture::settings("NLBSecurityGroupMode = Managed\n"), ..world };
    assert_eq!(managed.writes(|world| world.made(&web(&[]), 1)), [""; 0]);
}

#[test]
fn a_security_group_that_aws_still_uses_delays_the_end_of_the_deletion() {
    let world = World::new("NLBSecurityGroupMode = Managed\n");
    world.made(&web(&[]), 1);
    let id = world.aws.elb_v2.borrow().balancers[0].security_groups[0].clone();
    world.aws.ec2.borrow_mut().groups_in_use = vec![id];
    assert!(matches!(world.task(&web(&[])).ensure_deleted(), Err(Error::RetryAfter(_))));
    world.aws.ec2.borrow_mut().groups_in_use.clear();
    world.task(&web(&[])).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn only_machines_that_run_are_registered_and_none_that_stops_is_removed() {
    let world = World::new("");
    let state = |state: &str| world.aws.ec2.borrow_mut().machines[1].state = state.to_owned();
    state("stopped");
    world.made(&one_port(80, 30_080), 2);
    assert_eq!(world.targets(30_080), [machine(0).id]);
    state("running");
    assert_eq!(world.writes(|world| world.made(&one_port(80, 30_080), 2)), ["RegisterTargets"]);
    state("stopped");
    assert_eq!(world.writes(|world| world.made(&one_port(80, 30_080), 2)), [""; 0]);
}

#[test]
fn nodes_are_chosen_by_labels_and_nodes_without_a_machine_are_an_event() {
    let world = World::new("");
    let service = annotated(one_port(80, 30_080), &[("target-node-labels", "pool=p1")]);
    world.made(&service, 3);
    assert_eq!(world.targets(30_080), [machine(1).id]);
    let warnings = world.ensure(&one_port(80, 30_080), 5).unwrap().warnings;
    assert!(warnings[0].1.starts_with("2 node(s) get no traffic, among them node-3"), "{warnings:?}");
}

#[test]
fn machines_with_two_security_groups_need_one_tag() {
    let world = World::new("");
    world.aws.ec2.borrow_mut().machines[0].groups.push("sg-other".to_owned());
    world.made(&web(&[]), 3);
    let tags = world.aws.ec2.borrow().groups[0].tags.clone();
    world.aws.ec2.borrow_mut().groups[1].tags = tags;
    let world = World { settings: crate::fixture::settings(""), ..world };
    let fresh = World::new("");
    *fresh.aws.ec2.borrow_mut() = std::mem::take(&mut *world.aws.ec2.borrow_mut());
    let Err(Error::Invalid(why)) = fresh.ensure(&web(&[]), 3) else { panic!("two groups have the tag") };
    assert!(why.contains("tag exactly one"), "{why}");
}

#[test]
fn a_service_keeps_its_kind_of_load_balancer() {
    let world = World::new("");
    let mut service = web(&[]);
    service.status.ingress = vec![Ingress::hostname(format!("{NAME}-1.us-east-1.elb.amazonaws.com"))];
    assert!(matches!(world.ensure(&service, 1), Err(Error::Invalid(_))));
    let external = annotated(crate::fixture::service(&[(Protocol::Tcp, 80, 30_080)]), &[("type", "external")]);
    assert!(matches!(world.ensure(&external, 1), Err(Error::ImplementedElsewhere(_))));
    assert!(world.task(&external).ensure_deleted().is_ok());
    assert_eq!(world.aws.called(), ["DescribeLoadBalancers"]);
}

#[test]
fn a_failed_load_balancer_is_an_error_and_not_a_status() {
    let world = World::new("");
    world.made(&web(&[]), 1);
    world.aws.elb_v2.borrow_mut().balancers[0].state = "failed".to_owned();
    assert!(matches!(world.ensure(&web(&[]), 1), Err(Error::Unavailable(_))));
}

#[test]
fn only_load_balancers_of_the_service_and_cluster_are_touched() {
    only_its_own_are_touched(&web(&[]));
}

#[test]
fn ensure_survives_the_end_of_the_process_after_each_write() {
    survives_every_crash("", None, &web(&[]));
    survives_every_crash("NLBSecurityGroupMode = Managed\n", None, &web(&[("ssl-cert", CERT)]));
}

#[test]
fn a_change_survives_the_end_of_the_process_after_each_write() {
    let before = one_port(80, 31_000);
    let after = web(&[("healthcheck-protocol", "http"), ("cross-zone-load-balancing-enabled", "true")]);
    survives_every_crash("", Some(&before), &after);
}

#[test]
fn a_deletion_survives_the_end_of_the_process_after_each_write() {
    deletion_survives_every_crash("NLBSecurityGroupMode = Managed\n", &web(&[]));
}
