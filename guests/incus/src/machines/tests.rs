//! Answers for nodes from a list as Incus 6.0 sends it.

use skysail_guest_sdk::{AddressKind, Error, NodeAddress};

use super::{Machines, gibibytes};
use crate::{settings, wire};

const CONFIG: &str = "endpoint = https://a:8443\nproject = kube\nnetwork = ovn0\nregion = home\nzone = shed\n";

/// Shortened from an answer of Incus 6.0.4; node-1 as a virtual machine on a cluster member,
/// switched off.
const LISTED: &str = r#"[
  {"name": "Node-0", "type": "container", "status": "Running", "status_code": 103, "location": "none", "project": "kube",
   "expanded_config": {"volatile.uuid": "u-0", "limits.cpu": "2", "limits.memory": "4GiB",
                       "volatile.eth0.host_name": "veth0", "volatile.eth1.hwaddr": "10:66:6A:00:00:01"},
   "expanded_devices": {"eth0": {"type": "nic", "network": "mgmt", "name": "eth0"}, "eth1": {"type": "nic", "network": "ovn0"},
                        "root": {"type": "disk", "path": "/"}},
   "state": {"network": {
     "eth0": {"hwaddr": "", "host_name": "veth0", "addresses": [{"address": "192.168.0.2", "family": "inet", "scope": "global"}]},
     "enp6s0": {"hwaddr": "10:66:6a:00:00:01", "host_name": "", "addresses": [
       {"address": "10.88.0.2", "family": "inet", "scope": "global"}, {"address": "fd00::2", "family": "inet6", "scope": "global"},
       {"address": "fe80::2", "family": "inet6", "scope": "link"}]},
     "cni0": {"hwaddr": "aa:aa:aa:00:00:01", "host_name": "", "addresses": [{"address": "10.244.0.1", "family": "inet", "scope": "global"}]},
     "lo": {"hwaddr": "", "host_name": "", "addresses": [{"address": "127.0.0.1", "family": "inet", "scope": "local"}]}}}},
  {"name": "node-1", "type": "virtual-machine", "status": "Stopped", "status_code": 102, "location": "member-b",
   "expanded_config": {"volatile.uuid": "u-1", "limits.cpu": "0-3"}, "expanded_devices": null, "state": null}
]"#;

fn check(test: impl FnOnce(&Machines<'_>)) {
    let settings = settings::parse(CONFIG).config().unwrap();
    let listed: Vec<wire::Instance> = serde_json::from_str(LISTED).unwrap();
    test(&Machines::new(&settings, &listed));
}

#[test]
fn a_running_instance_is_described_whole() {
    check(|machines| {
        let found = machines.describe("node-0", None).unwrap();
        assert_eq!(found.provider_id, "incus://kube/u-0");
        assert!(!found.shutdown);
        assert_eq!(
            (found.instance_type.as_str(), found.zone.as_str(), found.region.as_str()),
            ("c2-m4", "shed", "home")
        );
        let address = |kind, text: &str| NodeAddress::new(kind, text);
        let expected = [
            address(AddressKind::InternalIp, "10.88.0.2"),
            address(AddressKind::InternalIp, "fd00::2"),
            address(AddressKind::InternalIp, "192.168.0.2"),
            address(AddressKind::Hostname, "Node-0"),
        ];
        assert_eq!(found.addresses, expected);
    });
}

#[test]
fn a_stopped_instance_exists_and_names_its_cluster_member() {
    check(|machines| {
        let found = machines.describe("node-1", Some("incus://kube/u-1")).unwrap();
        assert!(found.shutdown && found.addresses.is_empty());
        assert_eq!((found.instance_type.as_str(), found.zone.as_str()), ("virtual-machine", "member-b"));
    });
}

#[test]
fn a_paused_or_unreachable_instance_is_not_shut_down() {
    for code in [110, 112] {
        let settings = settings::parse(CONFIG).config().unwrap();
        let mut listed: Vec<wire::Instance> = serde_json::from_str(LISTED).unwrap();
        listed[1].status_code = code;
        assert!(!Machines::new(&settings, &listed).describe("node-1", None).unwrap().shutdown, "{code}");
    }
}

#[test]
fn the_same_name_with_another_uuid_is_another_machine() {
    check(|machines| {
        let found = machines.describe("node-1", Some("incus://kube/u-of-the-one-before"));
        assert!(matches!(found, Err(Error::NotFound(_))));
    });
}

#[test]
fn an_id_by_name_is_understood_and_kept() {
    check(|machines| {
        let found = machines.describe("x", Some("incus://kube/node-0")).unwrap();
        assert_eq!(found.provider_id, "incus://kube/node-0");
    });
}

#[test]
fn an_id_of_another_project_or_cloud_is_invalid_and_never_gone() {
    check(|machines| {
        for id in ["incus://other/u-0", "incus://u-0", "incus:///u-0", "incus://kube/", "aws:///a/i-1"] {
            assert!(matches!(machines.describe("node-0", Some(id)), Err(Error::Invalid(_))), "{id}");
        }
    });
}

#[test]
fn memory_is_written_in_gibibytes() {
    let cases = [
        ("4GiB", Some("4")),
        ("4096MiB", Some("4")),
        ("512MiB", Some("0.5")),
        ("1536MiB", Some("1.5")),
        ("4GB", None),
        ("50%", None),
    ];
    for (text, expected) in cases {
        assert_eq!(gibibytes(text).as_deref(), expected, "{text}");
    }
}
