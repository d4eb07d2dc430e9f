//! The way from a machine to its zone, and what it costs.

use skysail_guest_sdk::Error;

use super::{Known, LOOKED_UP_MAX, Place, places};
use crate::{
    fixture::{FakeVcenter, machine},
    settings::Labels,
    vim::{Machine, Ref},
};

fn labels() -> Labels {
    Labels { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() }
}

fn cloud(attached: &[(&'static str, &'static str)]) -> FakeVcenter {
    let cloud = FakeVcenter::new(Vec::new());
    *cloud.attached.borrow_mut() = attached.to_vec();
    cloud
}

/// Zone and region of one machine: `a/r`; empty without them.
fn place_of(cloud: &FakeVcenter, machine: &Machine) -> String {
    let places = places(cloud, &mut Known::default(), &labels(), &[machine]).unwrap();
    places[0].as_ref().map(|Place { zone, region }| format!("{zone}/{region}")).unwrap_or_default()
}

#[test]
fn the_nearest_tag_on_the_way_up_counts() {
    let cloud =
        cloud(&[("host-1", "zone:a"), ("domain-c1", "zone:b"), ("datacenter-1", "region:r"), ("host-1", "other:x")]);
    assert_eq!(place_of(&cloud, &machine(1)), "a/r");
}

#[test]
fn the_pool_and_then_the_folders_count_where_the_way_of_the_host_lacks_a_tag() {
    let of_pool = cloud(&[("resgroup-1", "zone:p"), ("resgroup-1", "region:r"), ("vm-1", "zone:v")]);
    assert_eq!(place_of(&of_pool, &machine(1)), "p/r");
    let of_machine = cloud(&[("vm-1", "zone:v"), ("group-v1", "region:f")]);
    assert_eq!(place_of(&of_machine, &machine(1)), "v/f");
    let stopped = Machine { host: None, pool: None, ..machine(1) };
    assert_eq!(place_of(&of_machine, &stopped), "v/f");
}

#[test]
fn one_tag_of_two_is_no_place() {
    assert_eq!(place_of(&cloud(&[("host-1", "zone:a")]), &machine(1)), "");
}

#[test]
fn five_hundred_machines_take_four_requests_and_later_none() {
    let cloud = cloud(&[("domain-c1", "zone:a"), ("datacenter-1", "region:r")]);
    let machines: Vec<_> = (1..=500).map(machine).collect();
    let machines: Vec<_> = machines.iter().collect();
    let mut known = Known::default();
    let found = places(&cloud, &mut known, &labels(), &machines).unwrap();
    assert!(found.iter().all(Option::is_some));
    assert_eq!(cloud.requests(), ["places 1", "attached 3", "tags 2", "categories 2"]);
    places(&cloud, &mut known, &labels(), &machines).unwrap();
    assert_eq!(cloud.requests(), [] as [&str; 0]);
}

#[test]
fn a_missing_tag_is_asked_for_again() {
    let cloud = cloud(&[]);
    let mut known = Known::default();
    let machine = machine(1);
    assert_eq!(places(&cloud, &mut known, &labels(), &[&machine]), Ok(vec![None]));
    *cloud.attached.borrow_mut() = vec![("host-1", "zone:a"), ("host-1", "region:r")];
    assert!(places(&cloud, &mut known, &labels(), &[&machine]).unwrap()[0].is_some());
}

#[test]
fn many_unknown_tags_are_looked_up_over_several_calls() {
    let tags: Vec<String> = (0..30).map(|number| format!("zone:{number:02}")).collect();
    let tags: Vec<&'static str> = tags.into_iter().map(|tag| &*tag.leak()).collect();
    let attached: Vec<_> = tags.iter().map(|tag| ("host-1", *tag)).chain([("host-1", "region:r")]).collect();
    let (cloud, mut known, machine) = (cloud(&attached), Known::default(), machine(1));
    let first = places(&cloud, &mut known, &labels(), &[&machine]);
    assert!(matches!(first, Err(Error::RetryAfter(_))), "{first:?}");
    assert_eq!(known.tags.len(), LOOKED_UP_MAX);
    assert!(places(&cloud, &mut known, &labels(), &[&machine]).unwrap()[0].is_some());
}

#[test]
fn a_circle_above_a_machine_ends() {
    let circle = [(Ref::machine("a"), Some(Ref::machine("b"))), (Ref::machine("b"), Some(Ref::machine("a")))].into();
    assert_eq!(super::way(&circle, &Ref::machine("a")).count(), super::DEPTH_MAX);
}
