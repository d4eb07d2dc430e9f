//! The selection of addresses.

use skysail_guest_sdk::{AddressKind, Error, IpFamily, Result};

use super::addresses;
use crate::{
    fixture::{machine, nic},
    settings::{Nodes, Selection},
    vim::{Machine, Nic},
};

fn with(nics: &[Nic]) -> Machine {
    Machine { nics: nics.to_vec(), ..machine(1) }
}

/// Internal and external addresses: `i 10.0.0.1`, `e 10.0.0.1`.
fn shown(machine: &Machine, nodes: &Nodes, families: &[IpFamily]) -> Result<Vec<String>> {
    let shown = addresses(machine, nodes, families)?.into_iter().filter_map(|address| match address.kind {
        AddressKind::InternalIp => Some(format!("i {}", address.address)),
        AddressKind::ExternalIp => Some(format!("e {}", address.address)),
        _ => None,
    });
    Ok(shown.collect())
}

fn ipv4(machine: &Machine, nodes: &Nodes) -> Vec<String> {
    shown(machine, nodes, &[IpFamily::Ipv4]).unwrap()
}

fn selection(subnets: &[&str], excluded: &[&str], network: Option<&str>) -> Selection {
    let cidrs = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Selection { subnets: cidrs(subnets), excluded: cidrs(excluded), network: network.map(str::to_owned) }
}

#[test]
fn without_settings_the_first_address_is_both_internal_and_external() {
    let machine = with(&[nic("a", &["fe80::1", "127.0.0.1", "10.0.0.1", "10.0.0.2"]), nic("b", &["192.0.2.1"])]);
    assert_eq!(ipv4(&machine, &Nodes::default()), ["i 10.0.0.1", "e 10.0.0.1"]);
}

#[test]
fn interfaces_of_a_container_runtime_do_not_count() {
    let bridge = Nic { is_device: false, ..nic("", &["172.17.0.1"]) };
    assert_eq!(ipv4(&with(&[bridge.clone(), nic("a", &["10.0.0.1"])]), &Nodes::default())[0], "i 10.0.0.1");
    assert!(matches!(shown(&with(&[bridge]), &Nodes::default(), &[IpFamily::Ipv4]), Err(Error::Unavailable(_))));
}

#[test]
fn subnets_come_before_networks_and_the_first_subnet_first() {
    let machine = with(&[nic("a", &["10.0.0.1", "10.1.0.1"]), nic("B", &["192.0.2.1", "198.51.100.1"])]);
    let nodes = Nodes {
        internal: selection(&["10.1.0.0/16", "10.0.0.0/16"], &[], Some("b")),
        external: selection(&["203.0.113.0/24"], &[], Some("b")),
    };
    assert_eq!(ipv4(&machine, &nodes), ["i 10.1.0.1", "e 192.0.2.1"]);
    let one = Nodes { internal: selection(&[], &[], Some("b")), ..Nodes::default() };
    assert_eq!(ipv4(&machine, &one), ["i 192.0.2.1"], "the other kind is not guessed");
}

#[test]
fn an_excluded_address_is_never_selected() {
    let machine = with(&[nic("a", &["10.0.0.1", "10.0.0.2"])]);
    let nodes =
        Nodes { internal: selection(&[], &["10.0.0.1/32"], None), external: selection(&[], &["10.0.0.0/8"], None) };
    assert_eq!(ipv4(&machine, &nodes), ["i 10.0.0.2"]);
    let none = Nodes { internal: selection(&[], &["0.0.0.0/0"], None), external: selection(&[], &["0.0.0.0/0"], None) };
    assert!(
        matches!(shown(&machine, &none, &[IpFamily::Ipv4]), Err(Error::Unavailable(text)) if text.contains("[Nodes]"))
    );
}

#[test]
fn each_family_needs_an_address() {
    let both = [IpFamily::Ipv6, IpFamily::Ipv4];
    let machine = with(&[nic("a", &["10.0.0.1", "fd00::1", "ff02::1", "fe80::1"])]);
    assert_eq!(
        shown(&machine, &Nodes::default(), &both).unwrap(),
        ["i fd00::1", "e fd00::1", "i 10.0.0.1", "e 10.0.0.1"]
    );
    let four = with(&[nic("a", &["10.0.0.1"])]);
    assert!(matches!(shown(&four, &Nodes::default(), &both), Err(Error::Unavailable(text)) if text.contains("IPv6")));
}

#[test]
fn a_machine_on_neither_network_has_no_address() {
    let nodes = Nodes { internal: selection(&[], &[], Some("x")), external: selection(&[], &[], Some("y")) };
    let machine = with(&[nic("a", &["10.0.0.1"])]);
    assert!(
        matches!(shown(&machine, &nodes, &[IpFamily::Ipv4]), Err(Error::Unavailable(text)) if text.contains("\"x\""))
    );
    let half = Nodes { internal: selection(&[], &[], Some("x")), ..Nodes::default() };
    assert_eq!(ipv4(&machine, &half), ["i 10.0.0.1", "e 10.0.0.1"]);
}

/// A floating address of the control plane stands in front of the machine's own one.
#[test]
fn the_addresses_that_cloud_init_was_given_come_first() {
    let machine = Machine {
        // `addresses: [10.0.0.9/24]`.
        metadata: "YWRkcmVzc2VzOiBbMTAuMC4wLjkvMjRd".to_owned(),
        metadata_encoding: "base64".to_owned(),
        ..with(&[nic("a", &["10.0.0.200", "10.0.0.9"])])
    };
    assert_eq!(ipv4(&machine, &Nodes::default())[0], "i 10.0.0.9");
}
