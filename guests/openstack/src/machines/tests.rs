//! Which server is a machine of a node, and what its node receives.

use serde_json::{Value, json};
use skysail_guest_sdk::{AddressKind, Detail, Error, Instance, Result, instances::Turn};

use super::{describe, label_value, server_id, zone};
use crate::{
    fixture::{Fake, settings},
    settings::Api,
};

type Nodes = Vec<(String, Option<String>)>;

fn by_name(names: &[&str]) -> Nodes {
    names.iter().map(|name| ((*name).to_owned(), None)).collect()
}

fn by_id(ids: &[&str]) -> Nodes {
    ids.iter().map(|id| ("x".to_owned(), Some(format!("openstack:///{id}")))).collect()
}

fn described(cloud: &Fake, config: &str, nodes: Nodes) -> Vec<Result<Instance>> {
    describe(cloud, &settings(config), nodes, Detail::Metadata, Turn::of(0)).unwrap()
}

fn one(cloud: &Fake, config: &str) -> Instance {
    described(cloud, config, by_name(&["node-0"])).remove(0).unwrap()
}

fn addresses(cloud: &Fake, networking: &str) -> Vec<(&'static str, String)> {
    let kind = |kind| match kind {
        AddressKind::InternalIp => "internal",
        AddressKind::ExternalIp => "external",
        AddressKind::Hostname => "hostname",
        _ => "other",
    };
    let instance = one(cloud, &format!("[Networking]\n{networking}"));
    instance.addresses.into_iter().map(|address| (kind(address.kind), address.address)).collect()
}

fn edit(cloud: &Fake, change: impl FnOnce(&mut Value)) {
    cloud.edit(Api::Compute, "servers", "server-0", change);
}

/// Server 0 with a second network, IPv6, a floating IP and access addresses.
fn rich() -> Fake {
    let cloud = Fake::new();
    let address = |address: &str, kind: &str| json!({"addr": address, "OS-EXT-IPS:type": kind});
    edit(&cloud, |server| {
        server["accessIPv4"] = json!("198.51.100.1");
        server["accessIPv6"] = json!("2001:db8::1");
        server["metadata"] = json!({"hostname": "node-0.example.com"});
        server["addresses"] = json!({
            "k8s": [address("10.6.0.10", "fixed"), address("203.0.113.5", "floating")],
            "ext": [address("192.0.2.9", "fixed"), address("2001:db8::9", "fixed")],
        });
    });
    cloud
}

fn list(expected: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    expected.iter().map(|(kind, address)| (*kind, (*address).to_owned())).collect()
}

#[test]
fn a_server_is_found_by_name_and_by_either_form_of_provider_id() {
    let cloud = Fake::new();
    let instance = one(&cloud, "");
    assert_eq!(instance.provider_id, "openstack:///server-0");
    assert_eq!((instance.instance_type.as_str(), instance.zone.as_str()), ("m1.large", "nova"));
    assert_eq!((instance.region.as_str(), instance.shutdown), ("RegionOne", false));
    assert_eq!(one(&cloud, "[Skysail]\nregional-provider-id = true\n").provider_id, "openstack://RegionOne/server-0");
    // The form that the node has stays.
    let id = "openstack://RegionOne/server-1".to_owned();
    let instance = described(&cloud, "", vec![("x".to_owned(), Some(id.clone()))]).remove(0).unwrap();
    assert_eq!(instance.provider_id, id);
}

#[test]
fn a_provider_id_of_another_region_or_form_is_invalid() {
    let settings = settings("");
    assert_eq!(server_id(&settings, "openstack:///u"), Ok("u"));
    for id in ["openstack://RegionTwo/u", "openstack://u", "openstack:///", "openstack:///a/b", "aws:///u"] {
        assert!(matches!(server_id(&settings, id), Err(Error::Invalid(_))), "{id}");
    }
}

#[test]
fn only_shutoff_is_shut_down() {
    let cloud = Fake::new();
    for (status, shutdown) in [("ACTIVE", false), ("SHUTOFF", true), ("ERROR", false), ("SUSPENDED", false)] {
        edit(&cloud, |server| server["status"] = json!(status));
        assert_eq!(one(&cloud, "").shutdown, shutdown, "{status}");
    }
}

#[test]
fn few_nodes_are_looked_up_and_many_are_listed() {
    let cloud = Fake::new();
    for n in 3..250 {
        cloud.add_server(n);
    }
    described(&cloud, "", by_id(&["server-0", "server-1"]));
    assert_eq!(cloud.read(), 3, "one for each server, one for the ports of both");
    let names: Vec<String> = (0..250).map(|n| format!("node-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = described(&cloud, "", by_name(&names));
    assert!(all.iter().all(|instance| instance.as_ref().is_ok_and(|instance| instance.addresses.len() == 1)));
    assert_eq!(cloud.read(), 2);
    describe(&cloud, &settings(""), by_name(&names), Detail::State, Turn::of(0)).unwrap();
    assert_eq!(cloud.read(), 1, "the state needs no ports");
    cloud.page.set(100);
    assert!(described(&cloud, "", by_name(&names)).iter().all(Result::is_ok));
    assert_eq!(cloud.read(), 6, "three pages of each list");
}

#[test]
fn a_machine_is_gone_only_when_the_cloud_was_asked_for_it() {
    let cloud = Fake::new();
    let gone = described(&cloud, "", by_id(&["server-9"])).remove(0);
    assert!(matches!(&gone, Err(Error::NotFound(text)) if text.contains("server-9")), "{gone:?}");
    let gone = described(&cloud, "", by_name(&["node-9"])).remove(0);
    assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
    let ids: Vec<String> = (0..40).map(|n| format!("server-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let answers = described(&cloud, "", by_id(&ids));
    let count = |is: fn(&Result<Instance>) -> bool| answers.iter().filter(|answer| is(answer)).count();
    assert_eq!(count(Result::is_ok), 3);
    assert_eq!(count(|answer| matches!(answer, Err(Error::NotFound(_)))), 20);
    assert_eq!(count(|answer| matches!(answer, Err(Error::Unavailable(_)))), 17);
    // All have the turn at some time.
    let mut reported = [false; 37];
    for turn in 0..40 {
        let answers = describe(&Fake::new(), &settings(""), by_id(&ids), Detail::State, Turn::of(turn)).unwrap();
        let gone = answers.iter().skip(3).map(|answer| matches!(answer, Err(Error::NotFound(_))));
        reported.iter_mut().zip(gone).for_each(|(reported, gone)| *reported |= gone);
    }
    assert_eq!(reported, [true; 37]);
}

#[test]
fn two_servers_of_one_name_are_nobodys_machine() {
    let cloud = Fake::new();
    edit(&cloud, |server| server["name"] = json!("node-1"));
    let answer = described(&cloud, "", by_name(&["node-1"])).remove(0);
    assert!(matches!(&answer, Err(Error::Unavailable(text)) if text.contains("several servers")), "{answer:?}");
    let answers = described(&cloud, "", by_name(&["node-1", "node-2", "a", "b", "c", "d"]));
    assert!(matches!(answers[0], Err(Error::Unavailable(_))));
    assert!(answers[1].is_ok());
}

#[test]
fn a_server_whose_name_has_another_case_is_the_machine_of_its_node() {
    let cloud = Fake::new();
    edit(&cloud, |server| server["name"] = json!("K8s-Worker.A"));
    let few = ["k8s-worker.a"];
    let many = ["k8s-worker.a", "node-2", "node-3", "node-4", "node-5", "node-6"];
    (3..7).for_each(|n| cloud.add_server(n));
    let found = |names: &[&str]| described(&cloud, "", by_name(names)).remove(0).map(|instance| instance.provider_id);
    for names in [&few[..], &many] {
        assert_eq!(found(names).as_deref(), Ok("openstack:///server-0"), "{names:?}");
    }
    cloud.read();
    found(&many).unwrap();
    assert_eq!(cloud.read(), 2, "servers and ports: the list shows the server");
    let rename = |name: &str| cloud.edit(Api::Compute, "servers", "server-1", |server| server["name"] = json!(name));
    rename("K8S-worker.a");
    for names in [&few[..], &many] {
        let answer = found(names);
        assert!(matches!(&answer, Err(Error::Unavailable(text)) if text.contains("several servers")), "{answer:?}");
    }
    rename("k8s-worker.a");
    for names in [&few[..], &many] {
        assert_eq!(found(names).as_deref(), Ok("openstack:///server-1"), "the exact name wins: {names:?}");
    }
}

#[test]
fn addresses_have_the_order_of_the_vendors_manager() {
    let expected = [
        ("internal", "10.6.0.10"),
        ("external", "198.51.100.1"),
        ("external", "2001:db8::1"),
        ("hostname", "node-0.example.com"),
        ("internal", "192.0.2.9"),
        ("internal", "2001:db8::9"),
        ("external", "203.0.113.5"),
    ];
    assert_eq!(addresses(&rich(), ""), list(&expected));
}

#[test]
fn names_of_networks_decide_what_is_external_internal_or_left_out() {
    let cloud = rich();
    let public = addresses(&cloud, "public-network-name = ext\nipv6-support-disabled = true\n");
    let expected = [
        ("internal", "10.6.0.10"),
        ("external", "198.51.100.1"),
        ("hostname", "node-0.example.com"),
        ("external", "192.0.2.9"),
        ("external", "203.0.113.5"),
    ];
    assert_eq!(public, list(&expected));
    let internal = addresses(&cloud, "internal-network-name = ext\nipv6-support-disabled = true\n");
    let expected = [
        ("external", "198.51.100.1"),
        ("hostname", "node-0.example.com"),
        ("internal", "192.0.2.9"),
        ("external", "203.0.113.5"),
    ];
    assert_eq!(internal, list(&expected), "the address of the other network was the port's, and is removed");
    // A network of the node's port that is public: its address is external only.
    let both = addresses(&cloud, "public-network-name = k8s\nipv6-support-disabled = true\n");
    assert!(
        both.contains(&("external", "10.6.0.10".to_owned())) && !both.contains(&("internal", "10.6.0.10".to_owned()))
    );
}

#[test]
fn address_sort_order_puts_ranges_first_and_keeps_the_rest() {
    let sorted =
        addresses(&rich(), "address-sort-order = \"203.0.113.0/24, 192.0.2.0/24\"\nipv6-support-disabled = true\n");
    let expected = [
        ("external", "203.0.113.5"),
        ("internal", "192.0.2.9"),
        ("internal", "10.6.0.10"),
        ("external", "198.51.100.1"),
        ("hostname", "node-0.example.com"),
    ];
    assert_eq!(sorted, list(&expected));
}

#[test]
fn an_inactive_port_adds_nothing() {
    let cloud = Fake::new();
    cloud.edit(Api::Network, "ports", "port-0", |port| port["status"] = json!("DOWN"));
    edit(&cloud, |server| server["addresses"] = json!({}));
    assert_eq!(addresses(&cloud, ""), []);
}

#[test]
fn ports_of_vlans_are_addresses_of_their_trunks_server() {
    let cloud = Fake::new();
    cloud.edit(Api::Network, "ports", "port-0", |port| {
        port["trunk_details"] = json!({"trunk_id": "t", "sub_ports": [{"port_id": "vlan", "segmentation_id": 7}]});
    });
    let vlan = json!({"id": "vlan", "device_id": "", "network_id": "net-vlan", "status": "ACTIVE",
        "fixed_ips": [{"subnet_id": "s", "ip_address": "10.7.0.1"}]});
    cloud.put(Api::Network, "ports", vlan);
    cloud.put(Api::Network, "networks", json!({"id": "net-vlan", "name": "vlan7"}));
    assert_eq!(addresses(&cloud, ""), list(&[("internal", "10.6.0.10"), ("internal", "10.7.0.1")]));
    assert_eq!(addresses(&cloud, "public-network-name = vlan7\n")[1].0, "external");
}

#[test]
fn texts_become_values_of_labels() {
    for (text, label) in [("m1.large", "m1.large"), ("zone 1/a", "zone-1-a"), (" (x) ", "x"), ("", "")] {
        assert_eq!(label_value(text), label);
    }
    assert_eq!(label_value(&"ä".repeat(100)), "");
    assert_eq!(label_value(&format!("{}.b c", "a".repeat(62))).len(), 62);
}

#[test]
fn a_zone_is_found_by_node_and_by_provider_id() {
    let cloud = Fake::new();
    let settings = settings("");
    for (name, id) in [("node-1", None), ("", Some("openstack:///server-1".to_owned()))] {
        let zone = zone(&cloud, &settings, name, id).unwrap();
        assert_eq!((zone.failure_domain.as_str(), zone.region.as_str()), ("nova", "RegionOne"));
    }
    assert!(zone(&cloud, &settings, "node-9", None).unwrap_err().is_not_found());
}
