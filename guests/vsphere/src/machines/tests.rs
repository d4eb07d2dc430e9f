//! The instance of a machine in each state.

use skysail_guest_sdk::{Detail, Error, Instance, IpFamily, Result};

use super::{instance, with_place};
use crate::{
    fixture::{machine, uuid},
    settings::{Labels, Nodes, Vcenter},
    soap::Fault,
    vim::Machine,
    zones::Place,
};

fn vcenter() -> Vcenter {
    Vcenter {
        origin: "https://vcenter".to_owned(),
        credential: "vsphere".to_owned(),
        datacenters: Vec::new(),
        families: vec![IpFamily::Ipv4],
    }
}

fn metadata(machine: &Machine) -> Result<Instance> {
    instance(machine, None, Detail::Metadata, &Nodes::default(), &vcenter())
}

#[test]
fn an_instance_has_the_id_and_the_type_of_the_vendors_manager() {
    let instance = metadata(&machine(7)).unwrap();
    assert_eq!(instance.provider_id, format!("vsphere://{}", uuid(7)));
    assert_eq!(instance.instance_type, "vsphere-vm.cpu-2.mem-8gb.os-ubuntu");
    assert!(!instance.shutdown);
    let kinds: Vec<_> = instance.addresses.iter().map(|address| address.address.as_str()).collect();
    assert_eq!(kinds, ["node-7", "10.0.0.7", "10.0.0.7"]);
}

#[test]
fn the_provider_id_of_a_node_stays_as_it_is() {
    let id = format!("vsphere://{}", uuid(7).to_uppercase());
    let instance = instance(&machine(7), Some(&id), Detail::State, &Nodes::default(), &vcenter()).unwrap();
    assert_eq!(instance.provider_id, id);
}

#[test]
fn a_machine_that_is_off_or_suspended_is_shut_down_and_keeps_its_addresses() {
    for power in ["poweredOff", "suspended"] {
        let off = Machine { power: power.to_owned(), nics: Vec::new(), host_name: String::new(), ..machine(1) };
        let instance = metadata(&off).unwrap();
        assert!(instance.shutdown && instance.addresses.is_empty(), "{power}: {instance:?}");
    }
}

#[test]
fn a_running_machine_without_tools_exists_and_has_no_metadata_yet() {
    let bare = Machine { nics: Vec::new(), host_name: String::new(), ..machine(1) };
    assert!(matches!(metadata(&bare), Err(Error::Unavailable(text)) if text.contains("VMware Tools")));
    assert!(instance(&bare, None, Detail::State, &Nodes::default(), &vcenter()).is_ok());
}

#[test]
fn a_machine_that_the_account_may_not_read_is_denied() {
    let fault = Fault { kind: "NoPermission".to_owned(), privilege: "System.Read".to_owned(), ..Fault::default() };
    let hidden = Machine { refused: Some(fault), ..machine(1) };
    assert!(
        matches!(metadata(&hidden), Err(Error::Denied(text)) if text.contains("vm-1") && text.contains("System.Read"))
    );
    let strange = Machine { power: String::new(), ..machine(1) };
    assert!(matches!(metadata(&strange), Err(Error::Internal(_))));
}

#[test]
fn zone_and_region_are_labels_or_the_node_waits() {
    let labels = Labels { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() };
    let place = |zone: &str| Place { zone: zone.to_owned(), region: "r".to_owned() };
    let placed = |place: Option<&Place>| with_place(metadata(&machine(1)).unwrap(), &machine(1), place, &labels);
    let instance = placed(Some(&place("a"))).unwrap();
    assert_eq!((instance.zone.as_str(), instance.region.as_str()), ("a", "r"));
    assert!(matches!(placed(None), Err(Error::Unavailable(text)) if text.contains("k8s-region")));
    assert!(matches!(placed(Some(&place("Zone A"))), Err(Error::Unavailable(text)) if text.contains("rename the tag")));
}
