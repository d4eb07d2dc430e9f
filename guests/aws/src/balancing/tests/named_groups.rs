//! Security groups that several Services name.

use skysail_guest_sdk::{Protocol, Service};

use super::{World, of_another};
use crate::{
    fixture::{annotated, service},
    wire::ec2::{Rule, SecurityGroup, Source, Traffic},
};

fn naming(groups: &str, pool: &str) -> Service {
    let service = service(&[(Protocol::Tcp, 80, 30_080)]);
    annotated(service, &[("security-groups", groups), ("target-node-labels", pool)])
}

#[test]
fn a_named_group_reaches_the_nodes_until_the_last_load_balancer_with_it_is_gone() {
    let world = World::new("");
    let mine = naming("sg-mine", "pool=");
    let other = of_another(&mine);
    world.made(&mine, 3);
    world.made(&other, 3);
    world.task(&mine).ensure_deleted().unwrap();
    assert_eq!(world.aws.ec2.borrow().rules("sg-node"), ["-1 sg-mine"]);
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
    assert_eq!([rules("sg-node"), rules("sg-node2")].concat(), ["-1 sg-mine", "-1 sg-mine"]);
    // The only load balancer with a group closes the groups that its nodes have left.
    world.task(&other).ensure_deleted().unwrap();
    world.made(&mine, 3);
    world.made(&naming("sg-mine", "pool=p1"), 3);
    assert_eq!([rules("sg-node"), rules("sg-node2")].concat(), ["-1 sg-mine"]);
}

#[test]
fn another_named_group_ends_the_rule_of_the_former_one_whenever_the_process_ends() {
    for writes in 0..10 {
        let world = World::new("");
        world.made(&naming("sg-mine", "pool="), 3);
        let moved = naming("sg-other", "pool=");
        world.aws.die_after(writes);
        let completed = world.ensure(&moved, 3).is_ok();
        world.aws.live();
        world.made(&moved, 3);
        assert_eq!(world.aws.ec2.borrow().rules("sg-node"), ["-1 sg-other"], "after {writes} writes");
        assert_eq!(world.aws.elb.borrow().balancers[0].security_groups, ["sg-other"], "after {writes} writes");
        assert_eq!(world.writes(|world| world.made(&moved, 3)), [""; 0], "after {writes} writes");
        if completed {
            return;
        }
    }
    panic!("the call makes more than 10 writes");
}

#[test]
fn a_deletion_that_failed_after_the_load_balancer_was_gone_has_ended_the_rule_of_the_named_group() {
    for writes in 0..4 {
        let world = World::new("");
        let mine = naming("sg-mine", "pool=");
        world.made(&mine, 3);
        world.aws.die_after(writes);
        let completed = world.task(&mine).ensure_deleted().is_ok();
        world.aws.live();
        world.task(&mine).ensure_deleted().unwrap();
        assert_eq!(world.left(), [0; 5], "after {writes} writes");
        if completed {
            return;
        }
    }
    panic!("the deletion makes more than 4 writes");
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
