//! Deletions of load balancers whose Services are gone.

use skysail_guest_sdk::{Error, Protocol, Result, Service};

use super::{NAME, World, nothing_is_left_after_every_crash};
use crate::{
    fixture::{annotated, service},
    inventory,
};

const MANAGED: &str = "NLBSecurityGroupMode = Managed\n";

fn web(annotations: &[(&str, &str)]) -> Service {
    annotated(service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Tcp, 443, 30_443)]), annotations)
}

fn delete(world: &World) -> Result<()> {
    inventory::delete(&world.aws, &world.settings, "k1", NAME)
}

/// Repeats the deletion as the host does; the number of calls.
fn deleted(world: &World) -> usize {
    let calls = (1..10).find(|_| match delete(world) {
        Ok(()) => true,
        Err(Error::RetryAfter(_)) => false,
        Err(error) => panic!("{error:?}"),
    });
    calls.expect("the deletion ends")
}

#[test]
fn an_orphan_whose_target_group_aws_still_uses_leaves_nothing() {
    let world = World::new(MANAGED);
    world.made(&web(&[("type", "nlb")]), 3);
    world.aws.refuse_once("DeleteTargetGroup", "ResourceInUse");
    assert_eq!(deleted(&world), 2);
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn an_orphan_whose_security_group_aws_still_uses_leaves_nothing() {
    for service in [web(&[]), web(&[("type", "nlb")])] {
        let world = World::new(MANAGED);
        world.made(&service, 3);
        let made = |world: &World| {
            let ec2 = world.aws.ec2.borrow();
            ec2.groups.iter().filter(|group| group.name.starts_with("k8s-")).map(|one| one.id.clone()).collect()
        };
        let groups: Vec<_> = made(&world);
        world.aws.ec2.borrow_mut().groups_in_use = groups;
        assert!(matches!(delete(&world), Err(Error::RetryAfter(_))));
        assert_eq!(world.left(), [0, 0, 0, 1, 0]);
        world.aws.ec2.borrow_mut().groups_in_use.clear();
        assert_eq!(deleted(&world), 1);
        assert_eq!(world.left(), [0; 5]);
    }
}

#[test]
fn the_deletion_of_an_orphan_survives_the_end_of_the_process_after_each_write() {
    let made = || {
        let world = World::new(MANAGED);
        world.made(&web(&[("type", "nlb")]), 3);
        world
    };
    nothing_is_left_after_every_crash(30, made, delete);
}

#[test]
fn an_orphan_whose_security_group_nobody_may_tag_keeps_all_that_belongs_to_it() {
    let world = World::new(MANAGED);
    world.made(&web(&[("type", "nlb")]), 3);
    let there = world.left();
    world.aws.refuse_once("CreateTags", "UnauthorizedOperation");
    delete(&world).unwrap_err();
    assert_eq!(world.left(), there);
    delete(&world).unwrap();
    assert_eq!(world.left(), [0; 5]);
}

#[test]
fn an_orphan_that_a_person_protects_keeps_all_that_belongs_to_it() {
    let world = World::new(MANAGED);
    world.made(&web(&[("type", "nlb")]), 3);
    let there = world.left();
    let arn = world.aws.elb_v2.borrow().balancers[0].arn.clone();
    let protection = ("deletion_protection.enabled".to_owned(), "true".to_owned());
    world.aws.elb_v2.borrow_mut().attributes.entry(arn).or_default().extend([protection]);
    let Err(Error::Denied(why)) = delete(&world) else { panic!("a protected load balancer") };
    assert!(why.contains("set its attribute deletion_protection.enabled to false"), "{why}");
    assert_eq!(world.left(), there);
}

#[test]
fn an_orphan_with_fifty_ports_is_deleted_within_the_requests_of_a_few_calls() {
    let ports: Vec<_> = (0..50).map(|n| (Protocol::Tcp, 1_000 + n, 30_000 + n)).collect();
    let world = World::new("");
    world.made(&annotated(service(&ports), &[("type", "nlb")]), 3);
    let calls = (1..10).find(|_| {
        world.aws.limit(Some(64));
        match delete(&world) {
            Ok(()) => true,
            Err(Error::RetryAfter(_)) => false,
            Err(error) => panic!("{error:?}"),
        }
    });
    assert!(calls.is_some_and(|calls| calls <= 4), "{calls:?}");
    assert_eq!(world.left(), [0; 5]);
}
