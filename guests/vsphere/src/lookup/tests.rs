//! The look-up of machines against an in-memory vCenter.

use skysail_guest_sdk::{Error, Result, instances::Turn};

use super::{Found, Index, LOOKED_UP_MAX, Wanted, find};
use crate::{
    fixture::{FakeVcenter, machine, readable, uuid},
    soap::Fault,
    vim::{Entity, Machine, Ref, object::Permission},
};

/// A node with a provider ID.
fn node(number: usize) -> Wanted {
    Wanted::new(&format!("node-{number}"), Some(&format!("vsphere://{}", uuid(number))), None).unwrap()
}

fn named(name: &str, system_uuid: Option<&str>) -> Wanted {
    Wanted::new(name, None, system_uuid).unwrap()
}

fn ids(found: &[Result<Found>]) -> Vec<&str> {
    found.iter().map(|found| found.as_ref().map_or_else(Error::message, |found| &found.machine.id)).collect()
}

fn ask(cloud: &FakeVcenter, index: &mut Index, wanted: &[Wanted]) -> Vec<Result<Found>> {
    let (clouds, mut indexes) = (std::slice::from_ref(cloud), [std::mem::take(index)]);
    let found = ask_all(clouds, &mut indexes, wanted).unwrap();
    let [after] = indexes;
    *index = after;
    found
}

fn ask_all(clouds: &[FakeVcenter], indexes: &mut [Index], wanted: &[Wanted]) -> Result<Vec<Result<Found>>> {
    find(clouds, indexes, wanted, Machine::POWER, Turn::of(0))
}

/// Two vCenters: the first one has a copy of a machine of the second one.
fn copy_and_original() -> [FakeVcenter; 2] {
    let copy = Machine { id: "vm-9".to_owned(), host_name: "copy".to_owned(), ..machine(1) };
    let originals = (1..=20).map(machine).collect();
    [FakeVcenter::named("https://east", vec![copy]), FakeVcenter::named("https://west", originals)]
}

/// The answer for a machine that no search finds, where this is above machines.
#[track_caller]
fn judge(above: Vec<Entity>) -> Error {
    let cloud = FakeVcenter::new(vec![machine(1)]);
    *cloud.above.borrow_mut() = above;
    let found = find(&[cloud], &mut [Index::new()], &[node(1), node(2)], Machine::POWER, Turn::of(0));
    found.unwrap().remove(1).unwrap_err()
}

fn datacenter() -> Entity {
    Entity { machines: Some(Ref::new("Folder", "group-v1")), ..readable("Datacenter", "datacenter-1") }
}

fn folder() -> Entity {
    readable("Folder", "group-v1")
}

#[test]
fn a_page_is_one_list_at_first_and_one_request_from_then_on() {
    let cloud = FakeVcenter::new((1..=600).map(machine).collect());
    let wanted: Vec<_> = (1..=500).map(node).collect();
    let mut index = Index::new();
    let found = ask(&cloud, &mut index, &wanted);
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(ids(&found)[499], "vm-500");
    assert_eq!(cloud.requests(), ["list", "read 500"]);
    assert!(ask(&cloud, &mut index, &wanted).iter().all(Result::is_ok));
    assert_eq!(cloud.requests(), ["read 500"]);
}

#[test]
fn a_few_machines_are_searched_and_not_listed() {
    let cloud = FakeVcenter::new((1..=3).map(machine).collect());
    let found = ask(&cloud, &mut Index::new(), &[node(2), node(3)]);
    assert_eq!(ids(&found), ["vm-2", "vm-3"]);
    assert_eq!(cloud.requests(), ["search 2", "read 2"]);
}

#[test]
fn a_deleted_machine_is_gone_after_a_search_in_both_byte_orders() {
    let cloud = FakeVcenter::new(vec![machine(1), machine(2)]);
    let mut index = Index::new();
    ask(&cloud, &mut index, &[node(1), node(2)]);
    cloud.requests();
    cloud.machines.borrow_mut().remove(1);
    let found = ask(&cloud, &mut index, &[node(1), node(2)]);
    assert_eq!(ids(&found)[0], "vm-1");
    assert!(
        matches!(&found[1], Err(Error::NotFound(text)) if text.contains("42000000-1111-2222-3333-000000000002")),
        "{found:?}"
    );
    assert_eq!(cloud.requests(), ["read 2", "search 1", "search 1", "roles", "list"]);
}

#[test]
fn a_machine_that_was_registered_again_is_found_under_its_new_id() {
    let cloud = FakeVcenter::new(vec![machine(1)]);
    let mut index = Index::new();
    ask(&cloud, &mut index, &[node(1)]);
    cloud.machines.borrow_mut()[0].id = "vm-77".to_owned();
    assert_eq!(ids(&ask(&cloud, &mut index, &[node(1)])), ["vm-77"]);
    assert_eq!(index.get(&uuid(1)).map(String::as_str), Some("vm-77"));
}

#[test]
fn an_account_that_lost_its_role_finds_nothing_and_nothing_is_gone() {
    let lost = |entity: Entity| Entity { roles: vec![-3], ..entity };
    for (above, name) in [
        (vec![lost(datacenter()), folder()], "datacenter-1"),
        (vec![datacenter(), lost(folder())], "group-v1"),
        (vec![datacenter(), folder(), lost(readable("Folder", "group-v2"))], "group-v2"),
        (vec![datacenter(), folder(), lost(readable("VirtualApp", "resgroup-v3"))], "resgroup-v3"),
    ] {
        let error = judge(above);
        assert!(
            matches!(&error, Error::Denied(text) if text.contains(name) && text.contains("Propagate")),
            "{error:?}"
        );
    }
    assert!(matches!(judge(vec![datacenter(), folder()]), Error::NotFound(_)));
    // No machine was found at all.
    let cloud = FakeVcenter::new(Vec::new());
    cloud.above.borrow_mut().clear();
    assert!(matches!(ask_all(&[cloud], &mut [Index::new()], &[node(1)]), Err(Error::Denied(_))));
}

#[test]
fn an_object_above_machines_that_vcenter_does_not_show_may_hide_them() {
    let other = Entity { machines: Some(Ref::new("Folder", "group-v5")), ..readable("Datacenter", "datacenter-5") };
    let fault = Fault { kind: "NoPermission".to_owned(), ..Fault::default() };
    for (above, name) in [
        (vec![other, readable("Folder", "group-v5")], "Datacenter datacenter-1"),
        (vec![datacenter()], "Folder group-v1"),
        (vec![readable("Datacenter", "datacenter-1")], "no datacenter"),
        (vec![datacenter(), Entity { refused: Some(fault), ..folder() }], "NoPermission"),
    ] {
        let error = judge(above);
        assert!(matches!(&error, Error::Denied(text) if text.contains(name)), "{name}: {error:?}");
    }
}

#[test]
fn a_permission_that_does_not_propagate_hides_machines() {
    let given = |role, propagates| Permission { principal: "VC\\skysail".to_owned(), role, propagates };
    let with = |entity: Entity, permission| Entity { permissions: vec![permission], ..entity };
    for above in [
        vec![with(datacenter(), given(-2, false)), folder()],
        vec![datacenter(), with(folder(), given(-2, false))],
        vec![datacenter(), folder(), with(readable("Folder", "group-v2"), given(-2, false))],
    ] {
        let error = judge(above);
        let names = |text: &str| text.contains("VC\\skysail") && text.contains("propagate");
        assert!(matches!(&error, Error::Denied(text) if names(text)), "{error:?}");
    }
    // A role that the account does not have is that of another account.
    for permission in [given(-2, true), given(-1, false)] {
        assert!(matches!(judge(vec![with(datacenter(), permission), folder()]), Error::NotFound(_)));
    }
}

#[test]
fn a_vcenter_that_fails_hides_its_machines_and_those_of_others_are_found() {
    let (east, west) = (FakeVcenter::new(vec![machine(1)]), FakeVcenter::new(vec![machine(2)]));
    *west.failure.borrow_mut() = Some(Error::Unavailable("503".to_owned()));
    let clouds = [east, west];
    let found = ask_all(&clouds, &mut [Index::new(), Index::new()], &[node(1), node(2)]).unwrap();
    assert_eq!(ids(&found), ["vm-1", "503"]);
    // A gateway whose vCenter is away answers 404, too.
    *clouds[1].failure.borrow_mut() = Some(Error::NotFound("404".to_owned()));
    let found = ask_all(&clouds, &mut [Index::new(), Index::new()], &[node(1), node(2)]).unwrap();
    assert!(matches!(&found[1], Err(Error::Unavailable(why)) if why.ends_with("404")), "{found:?}");
    *clouds[0].failure.borrow_mut() = Some(Error::Denied("401".to_owned()));
    let found = ask_all(&clouds, &mut [Index::new(), Index::new()], &[node(1), node(2)]);
    assert!(matches!(found, Err(Error::Denied(_))), "nothing is known: {found:?}");
}

#[test]
fn a_known_machine_of_the_second_vcenter_is_not_searched_in_the_first_one() {
    let clouds = [FakeVcenter::new(vec![machine(1)]), FakeVcenter::new(vec![machine(2)])];
    let mut indexes = [Index::new(), Index::new()];
    ask_all(&clouds, &mut indexes, &[node(1), node(2)]).unwrap();
    clouds.iter().for_each(|cloud| drop(cloud.requests()));
    let found = ask_all(&clouds, &mut indexes, &[node(1), node(2)]).unwrap();
    assert_eq!(found.iter().flatten().map(|found| found.vcenter).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(clouds.each_ref().map(FakeVcenter::requests), [["read 1"], ["read 1"]]);
}

#[test]
fn a_copy_in_the_first_vcenter_does_not_stand_for_the_original_in_the_second_one() {
    // Looked up one by one, and in the lists.
    for count in [1, 20] {
        let (clouds, mut indexes) = (copy_and_original(), [Index::new(), Index::new()]);
        let wanted: Vec<_> = (1..=count).map(node).collect();
        let found = ask_all(&clouds, &mut indexes, &wanted).unwrap();
        assert!(found.iter().flatten().all(|found| found.vcenter == 1), "{found:?}");
        assert_eq!((ids(&found)[0], indexes[0].len(), indexes[1].len()), ("vm-1", 0, count));
        // Without a host name neither is the original for certain.
        clouds[1].machines.borrow_mut()[0].host_name.clear();
        let found = ask_all(&clouds, &mut [Index::new(), Index::new()], &wanted).unwrap();
        let names = |text: &str| text.contains("vm-9 of https://east, vm-1 of https://west");
        assert!(matches!(&found[0], Err(Error::Unavailable(text)) if names(text)), "{found:?}");
    }
}

#[test]
fn a_vcenter_that_two_sections_of_the_cloud_config_name_has_each_machine_once() {
    let clouds = [FakeVcenter::new(vec![machine(1)]), FakeVcenter::new(vec![machine(1)])];
    assert_eq!(ids(&ask_all(&clouds, &mut [Index::new(), Index::new()], &[node(1)]).unwrap()), ["vm-1"]);
}

#[test]
fn a_machine_of_another_name_is_not_chosen_while_a_vcenter_that_may_have_the_original_fails() {
    let (clouds, mut indexes) = (copy_and_original(), [Index::new(), Index::new()]);
    *clouds[1].failure.borrow_mut() = Some(Error::Unavailable("503".to_owned()));
    let found = ask_all(&clouds, &mut indexes, &[node(1)]).unwrap();
    assert_eq!(ids(&found), ["503"]);
    assert_eq!(indexes, [Index::new(), Index::new()], "the copy is learned");
    // A machine that was known before the failure is none that a search found instead.
    indexes[0].insert(uuid(1), "vm-9".to_owned());
    assert_eq!(ids(&ask_all(&clouds, &mut indexes, &[node(1)]).unwrap()), ["vm-9"]);
}

#[test]
fn many_missing_machines_are_looked_up_a_few_in_each_call() {
    let cloud = FakeVcenter::new(Vec::new());
    let wanted: Vec<_> = (1..=40).map(node).collect();
    let found = ask(&cloud, &mut Index::new(), &wanted);
    let gone = found.iter().filter(|found| matches!(found, Err(Error::NotFound(_)))).count();
    let later = found.iter().filter(|found| matches!(found, Err(Error::Unavailable(_)))).count();
    assert_eq!((gone, later), (LOOKED_UP_MAX, 40 - LOOKED_UP_MAX));
    assert_eq!(cloud.requests(), ["list", "search 12", "search 12", "roles"]);
}

#[test]
fn missing_machines_that_keep_their_nodes_do_not_keep_others_from_being_reported() {
    let (cloud, wanted) = (FakeVcenter::new(Vec::new()), (1..=40).map(node).collect::<Vec<_>>());
    let mut reported = [false; 40];
    for turn in 0..40 {
        let clouds = std::slice::from_ref(&cloud);
        let found = find(clouds, &mut [Index::new()], &wanted, Machine::POWER, Turn::of(turn)).unwrap();
        let gone: Vec<_> = found.iter().map(|found| matches!(found, Err(Error::NotFound(_)))).collect();
        assert_eq!(gone.iter().filter(|gone| **gone).count(), LOOKED_UP_MAX);
        reported.iter_mut().zip(gone).for_each(|(reported, gone)| *reported |= gone);
    }
    assert_eq!(reported, [true; 40]);
}

#[test]
fn a_machine_whose_uuid_cannot_be_read_exists() {
    let unreadable = || Machine { uuid: String::new(), host_name: String::new(), ..machine(1) };
    let cloud = FakeVcenter::new(vec![unreadable()]);
    let mut index = Index::from([(uuid(1), "vm-1".to_owned())]);
    assert_eq!(ids(&ask(&cloud, &mut index, &[node(1)])), ["vm-1"]);
    assert_eq!(index.len(), 1);
}

/// The machine's files are out of reach, and the cache has forgotten the machine's ID.
#[test]
fn while_a_machine_without_a_uuid_is_listed_no_machine_is_gone() {
    let unreadable = Machine { uuid: String::new(), host_name: String::new(), ..machine(1) };
    // Looked up one by one, and in the list.
    for count in [1, 20] {
        let cloud = FakeVcenter::new(vec![unreadable.clone()]);
        let wanted: Vec<_> = (1..=count).map(node).collect();
        let error = ask_all(&[cloud], &mut [Index::new()], &wanted).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(text) if text.contains("vm-1") && text.contains("datastore")),
            "{error:?}"
        );
    }
    // The cache knows its UUID, whether its node is in this page or not.
    let (cloud, mut index) = (FakeVcenter::new(vec![unreadable]), Index::from([(uuid(1), "vm-1".to_owned())]));
    let found = ask(&cloud, &mut index, &[node(1), node(2)]);
    assert!(matches!(found.as_slice(), [Ok(_), Err(Error::NotFound(_))]), "{found:?}");
    let found = ask(&cloud, &mut index, &[node(2)]);
    assert!(matches!(found.as_slice(), [Err(Error::NotFound(_))]), "{found:?}");
}

#[test]
fn a_provider_id_in_the_other_byte_order_is_the_same_machine() {
    let cloud = FakeVcenter::new(vec![machine(1)]);
    let reverse = Wanted::new("node-1", Some("vsphere://00000042-1111-2222-3333-000000000001"), None).unwrap();
    assert_eq!(ids(&ask(&cloud, &mut Index::new(), &[reverse])), ["vm-1"]);
    assert_eq!(cloud.requests(), ["search 1", "search 1", "read 1"]);
}

#[test]
fn the_host_name_decides_between_machines_of_one_uuid() {
    let copy = Machine { id: "vm-9".to_owned(), host_name: "copy".to_owned(), ..machine(1) };
    let cloud = FakeVcenter::new(vec![copy.clone(), machine(1)]);
    assert_eq!(ids(&ask(&cloud, &mut Index::new(), &[node(1)])), ["vm-1"]);
    cloud.machines.borrow_mut()[1].host_name.clear();
    let found = ask(&cloud, &mut Index::new(), &[node(1)]);
    assert!(
        matches!(&found[0], Err(Error::Unavailable(text)) if text.contains("vm-9 of https://vcenter, vm-1 of ") && text.contains("uuid.bios")),
        "{found:?}"
    );
}

#[test]
fn a_node_without_an_id_is_found_by_its_uuid_if_the_host_name_fits() {
    let cloud = FakeVcenter::new(vec![machine(1), Machine { host_name: "NODE-2".to_owned(), ..machine(2) }]);
    let reversed = "00000042-1111-2222-3333-000000000002";
    assert_eq!(ids(&ask(&cloud, &mut Index::new(), &[named("node-2", Some(reversed))])), ["vm-2"]);
    assert_eq!(cloud.requests(), ["search 1", "read 1"]);
    // Another machine's UUID: the node reports it of itself.
    let found = ask(&cloud, &mut Index::new(), &[named("node-1", Some(&uuid(2)))]);
    assert_eq!(ids(&found), ["vm-1"]);
}

#[test]
fn a_node_without_an_id_is_found_by_host_name_or_by_its_address() {
    let cloud = FakeVcenter::new((1..=3).map(machine).collect());
    assert_eq!(
        ids(&ask(&cloud, &mut Index::new(), &[named("node-3", None), named("10.0.0.2", None)])),
        ["vm-3", "vm-2"]
    );
    let wanted: Vec<_> = (1..=3).chain(0..20).map(|number| named(&format!("node-{number}"), None)).collect();
    cloud.requests();
    let found = ask(&cloud, &mut Index::new(), &wanted);
    assert_eq!(ids(&found)[..3], ["vm-1", "vm-2", "vm-3"]);
    assert_eq!(cloud.requests()[..2], ["list", "read 3"]);
}

#[test]
fn a_host_name_that_no_machine_has_yet_proves_nothing() {
    let found = ask(&FakeVcenter::new(vec![machine(1)]), &mut Index::new(), &[named("node-7", Some(&uuid(7)))]);
    assert!(matches!(&found[0], Err(Error::Unavailable(text)) if text.contains("VMware Tools")), "{found:?}");
}

#[test]
fn two_machines_of_one_host_name_are_an_error_that_names_them() {
    let cloud = FakeVcenter::new(vec![machine(1), Machine { id: "vm-9".to_owned(), ..machine(1) }]);
    let found = ask(&cloud, &mut Index::new(), &[named("node-1", None)]);
    assert!(
        matches!(&found[0], Err(Error::Unavailable(text)) if text.contains("vm-1 of https://vcenter, vm-9 of ")),
        "{found:?}"
    );
}
