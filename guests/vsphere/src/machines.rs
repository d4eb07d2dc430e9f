//! Machines as the instances of nodes. Pure.

use skysail_guest_sdk::{Detail, Error, Instance, Result, labels::is_label_value, provider_id};

use crate::{
    SCHEME,
    addresses::addresses,
    guest_os,
    settings::{Labels, Nodes, Vcenter},
    vim::Machine,
    zones::Place,
};

/// The power state of a machine that runs. A suspended one does not.
const POWERED_ON: &str = "poweredOn";

/// The instance of a node.
///
/// # Errors
///
/// `denied` where the account may not read the machine; those of [`addresses`] for a machine that
/// runs.
pub(crate) fn instance(
    machine: &Machine,
    provider_id: Option<&str>,
    detail: Detail,
    nodes: &Nodes,
    vcenter: &Vcenter,
) -> Result<Instance> {
    if let Some(fault) = &machine.refused {
        return Err(fault.error(format!("machine {} of {} cannot be read: {fault}", machine.id, vcenter.origin)));
    }
    if machine.power.is_empty() {
        return Err(Error::Internal(format!(
            "machine {} of {} has no power state, which vCenter Server promises; report the fault to the author of the provider",
            machine.id, vcenter.origin
        )));
    }
    let mut instance = Instance::new(match provider_id {
        // Kubernetes never changes a provider ID, so the answer repeats it.
        Some(id) => id.to_owned(),
        None => provider_id::format(SCHEME, &machine.uuid),
    });
    instance.shutdown = machine.power != POWERED_ON;
    if detail == Detail::Metadata {
        instance.instance_type = instance_type(machine);
        instance.addresses = match addresses(machine, nodes, &vcenter.families) {
            Ok(addresses) => addresses,
            // VMware Tools report nothing; the node keeps its addresses.
            Err(_) if instance.shutdown => Vec::new(),
            Err(error) => return Err(error),
        };
    }
    Ok(instance)
}

/// Sets zone and region.
///
/// # Errors
///
/// `unavailable` where a tag is missing, or cannot be the value of a label.
pub(crate) fn with_place(
    mut instance: Instance,
    machine: &Machine,
    place: Option<&Place>,
    labels: &Labels,
) -> Result<Instance> {
    let id = &machine.id;
    let Labels { zone, region } = labels;
    let Some(place) = place else {
        return Err(Error::Unavailable(format!(
            "machine {id} has no tags of both categories {zone:?} and {region:?} on its host, cluster, datacenter, \
             resource pool or folders; attach them, or correct zone and region in [Labels]"
        )));
    };
    for (category, value) in [(zone, &place.zone), (region, &place.region)] {
        if !is_label_value(value) {
            return Err(Error::Unavailable(format!(
                "machine {id}: tag {value:?} of category {category:?} cannot be the value of a label; rename the tag"
            )));
        }
    }
    instance.zone.clone_from(&place.zone);
    instance.region.clone_from(&place.region);
    Ok(instance)
}

/// As the Kubernetes vSphere Cloud Provider writes it.
fn instance_type(machine: &Machine) -> String {
    let (cpus, gib, os) = (machine.cpus, machine.memory_mib / 1024, guest_os::name(&machine.guest_id));
    format!("vsphere-vm.cpu-{cpus}.mem-{gib}gb.os-{os}")
}

#[cfg(test)]
mod tests;
