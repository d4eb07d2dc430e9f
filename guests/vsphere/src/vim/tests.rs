//! Requests, and answers captured from the simulator of govmomi.

use super::{Entity, Machine, Nic, Page, Ref, Walk, page, references, retrieve_properties, service_content};

/// Answers of govmomi's simulator.
const MACHINE: &[u8] = include_bytes!("../testdata/machine.xml");
const PAGE: &[u8] = include_bytes!("../testdata/page.xml");
const UNREADABLE: &[u8] = include_bytes!("../testdata/unreadable.xml");

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

#[test]
fn names_are_escaped_in_a_request() {
    let body = retrieve_properties(
        &Ref::new("PropertyCollector", "pc"),
        ("VirtualMachine", &["config.extraConfig[\"a\"]"]),
        &[Ref::machine("vm-1<>")],
        Walk::None,
        9,
    );
    assert!(body.contains("<pathSet>config.extraConfig[&quot;a&quot;]</pathSet>"), "{body}");
    assert!(body.contains("<obj type=\"VirtualMachine\">vm-1&lt;&gt;</obj>"), "{body}");
    assert!(body.ends_with("<options><maxObjects>9</maxObjects></options></RetrievePropertiesEx>"), "{body}");
}
