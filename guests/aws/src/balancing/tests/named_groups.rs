//! Security groups that several Services name.

use skysail_guest_sdk::{Protocol, Service};

use super::{World, granted, nothing_is_left_after_every_crash, of_another};
use crate::{
    fixture::{annotated, service},
    wire::ec2::{Rule, SecurityGroup, Source, Traffic},
};

fn naming(groups: &str, pool: &str) -> Service {
    let service = service(&[(Protocol::Tcp, 80, 30_080)]);
    annotated(service, &[("security-groups", groups), ("target-node-labels", pool)])
}

impl World {
    /// A world with the load balancer of this Service.
    fn with(service: &Service) -> Self {
        let world = Self::new("");
        world.made(service, 3);
        world
    }

    /// The same as an older version of this provider would have left it.
    fn of_older_version(self) -> Self {
        for rule in &mut self.aws.ec2.borrow_mut().groups[0].rules {
            rule.description.clear();
        }
        self
    }

    /// The same after a user has let all traffic from a group reach the nodes.
    fn with_foreign_rule(self, source: &str) -> Self {
        let traffic = Traffic { protocol: "-1".to_owned(), ports: None };
        let rule = Rule { traffic, source: Source::Group(source.to_owned()), description: String::new() };
        self.aws.ec2.borrow_mut().groups[0].rules.push(rule);
        self
    }

    fn node_rules(&self) -> Vec<String> {
        self.aws.ec2.borrow().rules("sg-node")
    }

    /// The rules of the nodes, and the groups of the load balancer, sorted.
    fn opened(&self) -> (Vec<String>, Vec<String>) {
        let mut groups = self.aws.elb.borrow().balancers[0].security_groups.clone();
        groups.sort_unstable();
        (self.node_rules(), groups)
    }
}

/// Every way in which `ensure` can end before it has finished: the next one leaves what an
/// undisturbed one leaves, which is the answer, and a third one makes no write.
fn after_every_crash(before: impl Fn() -> World, moved: &Service) -> (Vec<String>, Vec<String>) {
    let undisturbed = before();
    undisturbed.made(moved, 3);
    for writes in 0..20 {
        let world = before();
        world.aws.die_after(writes);
        let completed = world.ensure(moved, 3).is_ok();
        world.aws.live();
        world.made(moved, 3);
        assert_eq!(world.opened(), undisturbed.opened(), "after {writes} writes");
        assert_eq!(world.writes(|world| world.made(moved, 3)), [""; 0], "after {writes} writes");
        if completed {
            return undisturbed.opened();
        }
    }
    panic!("the call makes more than 20 writes");
}

#[test]
fn a_named_group_reaches_the_nodes_until_the_last_load_balancer_with_it_is_gone() {
    let world = World::new("");
    let mine = naming("sg-mine", "pool=");
    let other = of_another(&mine);
    world.made(&mine, 3);
    world.made(&other, 3);
    world.task(&mine).ensure_deleted().unwrap();
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), [granted("sg-mine")]);
    world.task(&other).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn services_with_other_nodes_leave_each_other_the_rule_of_a_group_that_both_name() {
    let world = World::new("");
    let first = world.aws.ec2.borrow().groups[0].clone();
    let second = SecurityGroup { id: "sg-node2".to_owned(), name: "sg-node2".to_owned(), ..first };
    world.aws.ec2.borrow_mut().groups.push(second);
    world.aws.ec2.borrow_mut().machines[1].groups = vec!["sg-node2".to_owned()];
    let (mine, other) = (naming("sg-mine", "pool=p0"), of_another(&naming("sg-mine", "pool=p1")));
    world.made(&mine, 3);
    world.made(&other, 3);
    for service in [&mine, &other] {
        assert_eq!(world.writes(|world| world.made(service, 3)), [""; 0]);
    }
    let rules = |group: &str| world.aws.ec2.borrow().rules(group);
    assert_eq!([rules("sg-node"), rules("sg-node2")].concat(), [granted("sg-mine"), granted("sg-mine")]);
    // The only load balancer with a group closes the groups that its nodes have left.
    world.task(&other).ensure_deleted().unwrap();
    world.made(&mine, 3);
    world.made(&naming("sg-mine", "pool=p1"), 3);
    assert_eq!([rules("sg-node"), rules("sg-node2")].concat(), [granted("sg-mine")]);
}

#[test]
fn a_deletion_that_failed_after_the_load_balancer_was_gone_has_ended_the_rule_of_the_named_group() {
    let mine = naming("sg-mine", "pool=");
    nothing_is_left_after_every_crash(4, || World::with(&mine), |world| world.task(&mine).ensure_deleted());
}

#[test]
fn a_rule_of_the_user_about_a_named_group_stays() {
    let world = World::new("");
    let traffic = Traffic { protocol: "tcp".to_owned(), ports: Some((9_100, 9_100)) };
    let rule = Rule { traffic, source: Source::Group("sg-mine".to_owned()), description: String::new() };
    world.aws.ec2.borrow_mut().groups[0].rules.push(rule);
    world.made(&naming("sg-mine", "pool="), 3);
    world.task(&naming("sg-mine", "pool=")).ensure_deleted().unwrap();
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), ["tcp 9100 sg-mine"]);
}

#[test]
fn a_load_balancer_without_its_service_leaves_no_rule_of_a_named_group() {
    let world = World::new("");
    let mine = naming("sg-mine", "pool=");
    world.made(&mine, 3);
    crate::inventory::delete(&world.aws, &world.settings, "k1", super::NAME).unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn other_groups_end_the_rule_of_the_former_one_whenever_the_process_ends() {
    let named = || World::with(&naming("sg-mine", "pool="));
    let own = "sg-made3".to_owned();
    for (groups, first) in [("sg-other", "sg-other".to_owned()), ("", own)] {
        let moved = naming(groups, "pool=");
        let opened = (vec![granted(&first)], vec![first]);
        assert_eq!(after_every_crash(named, &moved), opened);
        assert_eq!(after_every_crash(|| named().of_older_version(), &moved), opened, "an older version");
    }
    let both = || World::with(&naming("sg-mine,sg-other", "pool="));
    let (rules, groups) = after_every_crash(both, &naming("sg-other,sg-mine", "pool="));
    assert_eq!(rules, [granted("sg-other")]);
    assert_eq!(groups, ["sg-mine", "sg-other"]);
}

#[test]
fn as_many_groups_as_aws_attaches_are_replaced_by_as_many_others() {
    let full = || World::with(&naming("sg-a,sg-b,sg-c,sg-d,sg-e", "pool="));
    let (rules, groups) = after_every_crash(full, &naming("sg-v,sg-w,sg-x,sg-y,sg-z", "pool="));
    assert_eq!(rules, [granted("sg-v")]);
    assert_eq!(groups, ["sg-v", "sg-w", "sg-x", "sg-y", "sg-z"]);
}

#[test]
fn a_refused_listener_does_not_delay_the_end_of_the_rule_of_the_former_group() {
    let world = World::with(&naming("sg-mine", "pool="));
    let moved = naming("", "pool=");
    let moved = Service { ports: service(&[(Protocol::Tcp, 81, 30_081)]).ports, ..moved };
    world.aws.refuse_once("CreateLoadBalancerListeners", "CertificateNotFound");
    world.ensure(&moved, 3).unwrap_err();
    assert_eq!(world.opened(), (vec![granted("sg-made3")], vec!["sg-made3".to_owned()]));
}

#[test]
fn a_rule_of_an_older_version_counts_as_present_and_ends_with_the_load_balancer() {
    let named = naming("sg-mine,sg-other", "pool=");
    let world = World::with(&named).of_older_version();
    assert_eq!(world.writes(|world| world.made(&named, 3)), [""; 0]);
    world.task(&named).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
    let world = World::with(&named).of_older_version();
    crate::inventory::delete(&world.aws, &world.settings, "k1", super::NAME).unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn all_traffic_that_the_user_allowed_from_another_named_group_stays() {
    let two = naming("sg-mine,sg-other", "pool=");
    let extra = annotated(naming("sg-mine", "pool="), &[("extra-security-groups", "sg-other")]);
    let one = naming("sg-mine", "pool=");
    for service in [&two, &extra] {
        let made = || World::with(service).with_foreign_rule("sg-other");
        let world = made();
        world.made(&one, 3);
        assert_eq!(world.node_rules(), ["-1 sg-mine skysail.dev/rule/classic", "-1 sg-other"]);
        let world = made();
        world.task(service).ensure_deleted().unwrap();
        assert_eq!(world.node_rules(), ["-1 sg-other"]);
        let world = made();
        crate::inventory::delete(&world.aws, &world.settings, "k1", super::NAME).unwrap();
        assert_eq!(world.node_rules(), ["-1 sg-other"], "a load balancer without its Service");
    }
}

#[test]
fn the_rule_of_a_second_group_stays_while_another_load_balancer_has_the_group() {
    let mine = naming("sg-mine,sg-other", "pool=");
    let other = of_another(&naming("sg-other", "pool="));
    let world = World::with(&mine);
    world.made(&other, 3);
    world.task(&mine).ensure_deleted().unwrap();
    assert_eq!(world.node_rules(), [granted("sg-other")]);
    world.task(&other).ensure_deleted().unwrap();
    assert_eq!(world.left(), [0; 5]);
}

/// The load balancer has its former group only, until it has both.
#[test]
fn a_rule_of_an_older_version_is_described_in_place() {
    let world = World::with(&naming("sg-old", "")).of_older_version();
    let writes = world.writes(|world| world.made(&naming("sg-new", ""), 3));
    let at = |action: &str| writes.iter().position(|write| write == action).unwrap();
    assert_eq!(at("UpdateSecurityGroupRuleDescriptionsIngress"), 0, "{writes:?}");
    assert!(at("ApplySecurityGroupsToLoadBalancer") < at("RevokeSecurityGroupIngress"), "{writes:?}");
    assert_eq!(world.node_rules(), [granted("sg-new")]);
}

#[test]
fn listeners_follow_though_the_groups_of_a_machine_are_ambiguous() {
    let service = |port: u16| service(&[(Protocol::Tcp, port, 30_080)]);
    let world = World::with(&service(80));
    {
        let mut ec2 = world.aws.ec2.borrow_mut();
        let twin = SecurityGroup { id: "sg-twin".to_owned(), name: "twin".to_owned(), ..ec2.groups[0].clone() };
        ec2.groups.push(twin);
        ec2.machines[0].groups.push("sg-twin".to_owned());
    }
    // Another process has no machines in its cache.
    let fresh = World::new("");
    fresh.aws.ec2.swap(&world.aws.ec2);
    fresh.aws.elb.swap(&world.aws.elb);
    assert!(fresh.ensure(&service(81), 3).is_err());
    let ports: Vec<_> = fresh.aws.elb.borrow().balancers[0].listeners.iter().map(|(one, _)| one.port).collect();
    assert_eq!(ports, [81]);
}
