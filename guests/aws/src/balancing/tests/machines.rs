//! Machines that stop.

use skysail_guest_sdk::{Error, Protocol, Service};

use super::{World, of_another};
use crate::{
    cloud::Cloud as _,
    fixture::{annotated, machine, service},
    wire::Tags,
};

fn both_kinds() -> [Service; 2] {
    let service = service(&[(Protocol::Tcp, 80, 30_080)]);
    [service.clone(), annotated(service, &[("type", "nlb")])]
}

#[test]
fn a_machine_that_stopped_after_it_was_remembered_delays_a_new_service_by_one_call() {
    for service in both_kinds() {
        let world = World::new("");
        world.made(&service, 2);
        world.aws.ec2.borrow_mut().machines[1].state = "stopped".to_owned();
        let other = of_another(&service);
        assert!(matches!(world.ensure(&other, 2), Err(Error::Unavailable(_))));
        world.made(&other, 2);
    }
}

#[test]
fn machines_that_do_not_run_are_named_in_an_event() {
    for service in both_kinds() {
        let world = World::new("");
        assert_eq!(world.ensure(&service, 3).unwrap().warnings, []);
        world.aws.ec2.borrow_mut().machines[1].state = "stopped".to_owned();
        let other = World::new("");
        *other.aws.ec2.borrow_mut() = std::mem::take(&mut *world.aws.ec2.borrow_mut());
        let warnings = other.ensure(&service, 3).unwrap().warnings;
        let expected = format!(
            "{} get no traffic: EC2 does not run these machines; start them, or remove their nodes",
            machine(1).id
        );
        assert_eq!(warnings, [("MachinesNotRunning", expected)]);
    }
}

#[test]
fn the_event_about_many_stopped_machines_names_some_of_them() {
    let world = World::new("");
    let stopped = |n: usize| crate::wire::ec2::Instance { state: "stopped".to_owned(), ..machine(n) };
    world.aws.ec2.borrow_mut().machines = (0..40).map(stopped).collect();
    for service in both_kinds() {
        let (_, message) = world.ensure(&service, 40).unwrap().warnings.remove(0);
        assert!(message.contains(&format!("{} and 10 others get no traffic", machine(29).id)), "{message}");
        assert!(message.len() < 1_024, "{} bytes", message.len());
    }
}

#[test]
fn the_order_of_a_machines_security_groups_makes_no_difference() {
    let world = World::new("");
    let groups = ["sg-node", "sg-other"].map(str::to_owned);
    let known = |groups: Vec<String>| {
        world.aws.ec2.borrow_mut().machines[0].groups = groups;
        world.aws.forget("machines");
        let [service, _] = both_kinds();
        let nodes = super::node_set(1);
        crate::backends::of_nodes(&world.aws, &world.task(&service).tagging, &nodes, &Tags::new()).unwrap()
    };
    assert_eq!(known(groups.to_vec()), known(groups.into_iter().rev().collect()));
}
