//! Requests, and answers captured from the simulator of govmomi.

use super::{
    Entity, Machine, Nic, Page, Ref, Walk, object::Permission, page, references, retrieve_properties, service_content,
};

/// Answers of govmomi's simulator.
const MACHINE: &[u8] = include_bytes!("../testdata/machine.xml");
const PAGE: &[u8] = include_bytes!("../testdata/page.xml");
const UNREADABLE: &[u8] = include_bytes!("../testdata/unreadable.xml");
/// Written by hand after the documents of vCenter: the simulator knows no permissions.
const ABOVE: &[u8] = include_bytes!("../testdata/above.xml");

fn nic(network: &str, addresses: &[&str], is_device: bool) -> Nic {
    Nic { network: network.to_owned(), addresses: addresses.iter().map(|text| (*text).to_owned()).collect(), is_device }
}

#[test]
fn a_machine_is_read_with_its_interfaces_and_its_place() {
    let Page { objects, token } = page::<Machine>(MACHINE).unwrap();
    let [machine] = objects.as_slice() else { panic!("{objects:?}") };
    assert_eq!(token, None);
    assert_eq!((machine.id.as_str(), machine.uuid.as_str()), ("vm-52", "a0cb3cff-afd1-5417-aac7-58c7036c22dc"));
    assert_eq!((machine.power.as_str(), machine.cpus, machine.memory_mib), ("poweredOn", 1, 32));
    assert_eq!((machine.host_name.as_str(), machine.guest_id.as_str()), ("node-0", "otherGuest"));
    let nics = [nic("VM Network", &["10.0.0.1", "fe80::1"], true), nic("", &["172.17.0.1"], false)];
    assert_eq!(machine.nics, nics);
    assert_eq!(machine.host, Some(Ref::new("HostSystem", "host-44")));
    assert_eq!(machine.pool, Some(Ref::new("ResourcePool", "resgroup-14")));
    assert_eq!(machine.refused, None, "a key that the extra configuration lacks is no refusal");
}

#[test]
fn a_page_has_the_token_of_the_next_one() {
    let Page { objects, token } = page::<Machine>(PAGE).unwrap();
    assert_eq!(objects.iter().map(|machine| machine.host_name.as_str()).collect::<Vec<_>>(), ["node-1", "node-0"]);
    assert_eq!(token.as_deref(), Some("3e957da5-3a91-458b-afce-c531146b62eb"));
}

#[test]
fn a_property_that_the_account_may_not_read_is_a_refusal() {
    let machine = page::<Machine>(UNREADABLE).unwrap().objects.remove(0);
    let fault = machine.refused.unwrap();
    assert_eq!((fault.kind.as_str(), fault.privilege.as_str()), ("NotAuthenticated", "System.Read"));
}

#[test]
fn an_object_above_machines_is_read_with_the_roles_and_the_permissions_on_it() {
    let above = page::<Entity>(ABOVE).unwrap().objects;
    let [datacenter, folder] = above.as_slice() else { panic!("{above:?}") };
    let permission =
        |principal: &str, role, propagates| Permission { principal: principal.to_owned(), role, propagates };
    assert_eq!(datacenter.to_string(), "Datacenter \"DC0\" (datacenter-2)");
    assert_eq!((datacenter.roles.as_slice(), &datacenter.refused), ([-2, 1034].as_slice(), &None));
    assert_eq!(datacenter.machines, Some(Ref::new("Folder", "group-v3")));
    let permissions = [permission("VSPHERE.LOCAL\\skysail", -2, false), permission("VSPHERE.LOCAL\\Admins", -1, true)];
    assert_eq!(datacenter.permissions, permissions);
    assert_eq!((folder.to_string(), folder.roles.len()), ("Folder group-v9".to_owned(), 0));
    assert_eq!(folder.refused.as_ref().map(|fault| fault.kind.as_str()), Some("NoPermission"));
}

#[test]
fn an_answer_without_objects_is_an_empty_page() {
    let empty = page::<Entity>(include_bytes!("../testdata/none.xml")).unwrap();
    assert_eq!((empty.objects.len(), empty.token), (0, None));
}

#[test]
fn references_are_read_also_where_there_is_none() {
    let found = references(include_bytes!("../testdata/found.xml"));
    assert_eq!(found, Ok(vec![Ref::new("Datacenter", "datacenter-1")]));
    assert_eq!(references(include_bytes!("../testdata/none.xml")), Ok(Vec::new()));
}

#[test]
fn the_service_content_names_the_kind_of_server() {
    let content = service_content(include_bytes!("../testdata/service-content.xml")).unwrap();
    assert_eq!(content.root_folder, Ref::new("Folder", "group-d1"));
    assert_eq!(content.search_index, Ref::new("SearchIndex", "SearchIndex"));
    assert_eq!(content.api_type, "VirtualCenter");
}

fn retrieve(what: &[(&str, &[&str])], objects: &[Ref], walk: Walk, page: usize) -> Vec<String> {
    retrieve_properties(&Ref::new("PropertyCollector", "pc"), what, objects, walk, page)
}

#[test]
fn names_are_escaped_in_a_request() {
    let what: &[(&str, &[&str])] = &[("VirtualMachine", &["config.extraConfig[\"a\"]"])];
    let body = retrieve(what, &[Ref::machine("vm-1<>")], Walk::None, 9).concat();
    assert!(body.contains("<pathSet>config.extraConfig[&quot;a&quot;]</pathSet>"), "{body}");
    assert!(body.contains("<obj type=\"VirtualMachine\">vm-1&lt;&gt;</obj>"), "{body}");
    assert!(body.ends_with("<options><maxObjects>9</maxObjects></options></RetrievePropertiesEx>"), "{body}");
}

#[test]
fn only_a_walk_has_further_pages() {
    let objects = ["vm-1", "vm-2", "vm-3"].map(Ref::machine);
    let count = |bodies: &[String]| bodies.iter().map(|body| body.matches("<obj ").count()).collect::<Vec<_>>();
    assert_eq!(count(&retrieve(&[("VirtualMachine", &[])], &objects, Walk::None, 2)), [2, 1]);
    assert_eq!(count(&retrieve(Entity::ROLES, &objects, Walk::Down, 2)), [3]);
}

#[test]
fn the_roles_are_those_on_the_datacenters_the_folders_and_the_vapps_above_machines() {
    let body = retrieve(Entity::ROLES, &[Ref::new("Datacenter", "datacenter-2")], Walk::Down, 9).concat();
    for kind in ["Datacenter", "Folder", "VirtualApp"] {
        assert!(body.contains(&format!("<propSet><type>{kind}</type><pathSet>name</pathSet>")), "{kind}: {body}");
    }
    assert!(!body.contains("<skip>true</skip>"), "the datacenter itself is left out: {body}");
    assert!(!body.contains("<type>VirtualMachine</type><pathSet>"), "every machine is in the answer: {body}");
}
