//! Routes against an EC2 in memory.

use skysail_guest_sdk::{Error, NewRoute, Result, Route, Target};

use super::{create, delete, list};
use crate::{
    fixture::{FakeAws, machine, settings},
    wire::{
        Tags,
        ec2::{self, RouteTable},
    },
};

fn to(destination: &str, instance: Option<&str>, gateway: Option<&str>) -> ec2::Route {
    ec2::Route {
        destination: Some(destination.to_owned()),
        instance: instance.map(str::to_owned),
        gateway: gateway.map(str::to_owned),
        is_blackhole: false,
    }
}

/// Three machines, and a table with the routes that every VPC has.
fn world() -> FakeAws {
    let aws = FakeAws::default();
    let table = |id: &str, tags: Tags| RouteTable {
        id: id.to_owned(),
        subnets: Vec::new(),
        is_main: id == "rtb-main",
        routes: vec![to("10.0.0.0/16", None, Some("local")), to("0.0.0.0/0", None, Some("igw-1"))],
        tags,
    };
    let owned = Tags::from([("kubernetes.io/cluster/k1".to_owned(), "owned".to_owned())]);
    aws.ec2.borrow_mut().machines = (0..3).map(machine).collect();
    aws.ec2.borrow_mut().tables = vec![table("rtb-main", Tags::new()), table("rtb-pods", owned)];
    aws
}

fn route(n: usize) -> NewRoute {
    NewRoute {
        name_hint: String::new(),
        node: machine(n).private_dns,
        provider_id: Some(format!("aws:///us-east-1a/{}", machine(n).id)),
        addresses: Vec::new(),
        destination_cidr: format!("10.244.{n}.0/24"),
        extra: Vec::new(),
    }
}

fn make(aws: &FakeAws, routes: &[NewRoute]) -> Vec<Result<()>> {
    create(aws, &settings(""), "k1", routes).unwrap()
}

fn listed(aws: &FakeAws) -> Vec<Route> {
    list(aws, &settings(""), "k1").unwrap()
}

#[test]
fn routes_are_created_once_and_listed_with_their_machines() {
    let aws = world();
    assert_eq!(listed(&aws), [], "routes of the operator are no routes of the cluster");
    assert!(make(&aws, &[route(0), route(1)]).iter().all(Result::is_ok));
    aws.called();
    assert!(make(&aws, &[route(0), route(1)]).iter().all(Result::is_ok));
    assert_eq!(aws.called(), ["DescribeRouteTables", "DescribeInstances"]);
    let found: Vec<_> = listed(&aws).into_iter().map(|route| (route.name, route.target)).collect();
    let target = |n: usize| Target::ProviderId(format!("aws:///us-east-1a/{}", machine(n).id));
    let expected = [("k1-10.244.0.0/24".to_owned(), target(0)), ("k1-10.244.1.0/24".to_owned(), target(1))];
    assert_eq!(found, expected);
    assert!(aws.ec2.borrow().machines[..2].iter().all(|machine| !machine.source_dest_check));
}

#[test]
fn requests_are_fewer_than_those_of_the_vendors_manager() {
    let aws = world();
    make(&aws, &(0..3).map(route).collect::<Vec<_>>());
    // The vendor's manager: four for each route.
    assert_eq!(aws.called().len(), 2 + 3 + 3);
}

#[test]
fn a_machine_with_two_pod_ranges_is_opened_once() {
    let aws = world();
    let second = NewRoute { destination_cidr: "fd00:10:244::/64".to_owned(), ..route(0) };
    assert!(make(&aws, &[route(0), second]).iter().all(Result::is_ok));
    let called = aws.called();
    assert_eq!(called.iter().filter(|action| *action == "ModifyInstanceAttribute").count(), 1, "{called:?}");
    assert_eq!(listed(&aws).len(), 2);
}

#[test]
fn a_node_without_provider_id_is_found_by_its_name() {
    let aws = world();
    assert!(make(&aws, &[NewRoute { provider_id: None, ..route(1) }])[0].is_ok());
    assert_eq!(listed(&aws).len(), 1);
}

#[test]
fn a_route_in_the_way_is_replaced_and_a_route_of_the_operator_is_not() {
    let aws = world();
    let stale = [to("10.244.0.0/24", Some("i-00000000000000fff"), None), to("10.244.1.0/24", None, Some("vgw-1"))];
    aws.ec2.borrow_mut().tables[1].routes.extend(stale);
    aws.ec2.borrow_mut().tables[1].routes[2].is_blackhole = true;
    assert!(listed(&aws)[0].blackhole);
    let answers = make(&aws, &[route(0), route(1), route(2)]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(&answers[1], Err(Error::Invalid(why)) if why.contains("vgw-1")), "{answers:?}");
    assert!(listed(&aws).iter().all(|route| !route.blackhole));
}

#[test]
fn a_missing_machine_fails_its_own_route_only() {
    let aws = world();
    let answers = make(&aws, &[route(7), route(1)]);
    assert!(matches!(answers[0], Err(Error::NotFound(_))) && answers[1].is_ok(), "{answers:?}");
}

#[test]
fn deleting_twice_is_ok_and_leaves_the_routes_of_the_operator() {
    let aws = world();
    make(&aws, &[route(0), route(1)]);
    let all = listed(&aws);
    let internet = Route { destination_cidr: "0.0.0.0/0".to_owned(), ..all[0].clone() };
    for _ in 0..2 {
        let routes = [all[0].clone(), internet.clone()];
        assert!(delete(&aws, &settings(""), "k1", &routes).unwrap().iter().all(Result::is_ok));
    }
    assert_eq!(listed(&aws), all[1..]);
    assert_eq!(aws.ec2.borrow().tables[1].routes.len(), 3);
}

#[test]
fn a_vpc_without_the_clusters_table_says_how_to_name_one() {
    let aws = world();
    let of = |cluster: &str| list(&aws, &crate::fixture::settings_without_id(""), cluster);
    assert!(of("k1").is_ok(), "the cluster's name is its ID");
    let Err(Error::Denied(why)) = of("k2") else { panic!("no table has the tag of k2") };
    assert!(why.contains("RouteTableID"), "{why}");
    let configured = settings("RouteTableID = rtb-main\n");
    assert_eq!(list(&aws, &configured, "k1"), Ok(Vec::new()));
    let tags = aws.ec2.borrow().tables[1].tags.clone();
    aws.ec2.borrow_mut().tables[0].tags = tags;
    assert!(matches!(of("k1"), Err(Error::Denied(why)) if why.contains("more than one")));
}

#[test]
fn a_call_that_ends_after_any_write_is_completed_by_the_next() {
    for writes in 0..8 {
        let aws = world();
        let stale = to("10.244.0.0/24", Some(&machine(2).id), None);
        aws.ec2.borrow_mut().tables[1].routes.push(stale);
        aws.die_after(writes);
        let answers = create(&aws, &settings(""), "k1", &[route(0), route(1)]).unwrap_or_default();
        aws.live();
        assert!(make(&aws, &[route(0), route(1)]).iter().all(Result::is_ok), "after {writes}: {answers:?}");
        assert_eq!(listed(&aws).len(), 2);
    }
}
