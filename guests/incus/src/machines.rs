//! Instances as the machines of nodes. Pure: converts the lists of the API to the contract's types.
//!
//! A provider ID is `incus://<project>/<uuid>`, with the `volatile.uuid` that Incus gives an
//! instance for its life: another instance can get the same name after a deletion or a rename, and
//! then the old node must be deleted. Where the kubelet has set `incus://<project>/<name>`, this
//! provider keeps that form. The project is in the ID so that a node of another project never
//! counts as gone.

use std::collections::{BTreeMap, BTreeSet};

use skysail_guest_sdk::{
    AddressKind, Error, Instance, NodeAddress, Result, labels::is_label_value, legacy::Zone, nodes::add_address,
    provider_id,
};

use crate::{SCHEME, settings::Settings, wire};

/// Status codes of instances that are off or being switched off. Frozen (110) is not included,
/// because a paused machine keeps its node without a taint. Neither is Error (112), the status of
/// an instance on an unreachable cluster member.
const SHUTDOWN: [u32; 3] = [
    102, // Stopped
    107, // Stopping
    108, // Aborting
];

/// All instances of the project, by UUID and by name.
pub(crate) struct Machines<'a> {
    settings: &'a Settings,
    by_uuid: BTreeMap<&'a str, &'a wire::Instance>,
    /// In lower case, like the names of nodes.
    by_name: BTreeMap<String, &'a wire::Instance>,
}

impl<'a> Machines<'a> {
    /// Indexes the listed instances.
    pub(crate) fn new(settings: &'a Settings, listed: &'a [wire::Instance]) -> Self {
        Self {
            settings,
            by_uuid: listed.iter().filter_map(|machine| Some((uuid(machine)?, machine))).collect(),
            by_name: listed.iter().map(|machine| (machine.name.to_ascii_lowercase(), machine)).collect(),
        }
    }

    /// The machine of one node: by provider ID where it has one, else by name.
    pub(crate) fn describe(&self, node: &str, provider_id: Option<&str>) -> Result<Instance> {
        let machine = match provider_id {
            Some(id) => self.by_provider_id(id)?,
            None => self.by_node_name(node)?,
        };
        let mut instance = Instance::new(match provider_id {
            // Kubernetes never changes a provider ID, so the answer repeats it.
            Some(id) => id.to_owned(),
            None => self.provider_id(machine)?,
        });
        instance.shutdown = SHUTDOWN.contains(&machine.status_code);
        instance.instance_type = instance_type(machine);
        let zone = self.zone(machine);
        (instance.zone, instance.region) = (zone.failure_domain, zone.region);
        instance.addresses = self.addresses(machine);
        Ok(instance)
    }

    /// The machine with this ID.
    pub(crate) fn by_provider_id(&self, id: &str) -> Result<&'a wire::Instance> {
        let rest = provider_id::parse(SCHEME, id)?;
        let project = &self.settings.project;
        match rest.split_once('/') {
            Some((of, key)) if of == project && !key.is_empty() => {
                let found = self.by_uuid.get(key).or_else(|| self.by_name.get(&key.to_ascii_lowercase()));
                found.copied().ok_or_else(|| self.gone(key))
            }
            _ => Err(Error::Invalid(format!(
                "{id:?} is not of the form {SCHEME}://{project}/<uuid> of this provider's project"
            ))),
        }
    }

    /// The machine with the node's name.
    pub(crate) fn by_node_name(&self, node: &str) -> Result<&'a wire::Instance> {
        self.by_name.get(&node.to_ascii_lowercase()).copied().ok_or_else(|| self.gone(node))
    }

    /// Cluster member and region; the configured zone where the server is not a cluster.
    pub(crate) fn zone(&self, machine: &wire::Instance) -> Zone {
        let member = machine.location.as_str();
        let clustered = !member.is_empty() && member != "none" && is_label_value(member);
        let failure_domain = if clustered { member } else { &self.settings.zone };
        Zone { failure_domain: failure_domain.to_owned(), region: self.settings.region.clone() }
    }

    fn gone(&self, key: &str) -> Error {
        Error::NotFound(format!("no instance {key:?} in project {:?}", self.settings.project))
    }

    fn provider_id(&self, machine: &wire::Instance) -> Result<String> {
        // Incus sets the UUID when it creates an instance; an instance without one is not complete
        // yet.
        let uuid =
            uuid(machine).ok_or_else(|| Error::Unavailable(format!("instance {:?} has no UUID yet", machine.name)))?;
        Ok(provider_id::format(SCHEME, &format!("{}/{uuid}", self.settings.project)))
    }

    /// Global addresses of the NICs that Incus gave the instance, the configured network's first,
    /// then the name. Interfaces that a container runtime made inside the instance are excluded.
    fn addresses(&self, machine: &wire::Instance) -> Vec<NodeAddress> {
        let mut nics: Vec<_> =
            machine.expanded_devices.iter().filter(|(_, device)| value(device, "type") == "nic").collect();
        let network = self.settings.network.as_deref();
        // Stable: by device name within each half.
        nics.sort_by_key(|(_, device)| network.is_none() || device.get("network").map(String::as_str) != network);
        let mut addresses = Vec::new();
        let mut seen = BTreeSet::new();
        for (device, options) in nics {
            let Some((name, interface)) = interface(machine, device, options) else { continue };
            if !seen.insert(name) {
                continue;
            }
            for address in interface.addresses.iter().filter(|address| address.scope == "global") {
                add_address(&mut addresses, NodeAddress::new(AddressKind::InternalIp, address.address.as_str()));
            }
        }
        // For a machine without an address the node keeps its addresses.
        if !addresses.is_empty() {
            addresses.push(NodeAddress::new(AddressKind::Hostname, machine.name.as_str()));
        }
        addresses
    }
}

/// The interface of a NIC inside the instance: by hardware address, by the host's end of the pair,
/// or by its name in a container.
fn interface<'a>(
    machine: &'a wire::Instance,
    device: &str,
    options: &wire::Config,
) -> Option<(&'a str, &'a wire::Interface)> {
    let volatile =
        |key: &str| machine.expanded_config.get(&format!("volatile.{device}.{key}")).map_or("", String::as_str);
    let hwaddr = options.get("hwaddr").map_or_else(|| volatile("hwaddr"), String::as_str);
    let (host_name, inner) = (volatile("host_name"), options.get("name").map_or(device, String::as_str));
    let interfaces = || machine.state.network.iter().map(|(name, interface)| (name.as_str(), interface));
    interfaces()
        .find(|(_, i)| !hwaddr.is_empty() && i.hwaddr.eq_ignore_ascii_case(hwaddr))
        .or_else(|| interfaces().find(|(_, i)| !host_name.is_empty() && i.host_name == host_name))
        .or_else(|| interfaces().find(|(name, _)| machine.r#type == "container" && *name == inner))
}

fn uuid(machine: &wire::Instance) -> Option<&str> {
    machine.expanded_config.get("volatile.uuid").map(String::as_str).filter(|uuid| !uuid.is_empty())
}

/// `c2-m4` (CPUs, GiB) as the client's own `--type` writes it, where both are limited to such
/// numbers; else the kind of instance.
fn instance_type(machine: &wire::Instance) -> String {
    let cpus = value(&machine.expanded_config, "limits.cpu").parse::<u32>().ok();
    let memory = gibibytes(value(&machine.expanded_config, "limits.memory"));
    match (cpus, memory) {
        (Some(cpus), Some(memory)) => format!("c{cpus}-m{memory}"),
        _ => machine.r#type.clone(),
    }
}

/// `4GiB`, `4096MiB` or `512MiB` in GiB: `4`, `4`, `0.5`; none for other units.
fn gibibytes(text: &str) -> Option<String> {
    let mebibytes = match text.strip_suffix("GiB") {
        Some(number) => number.trim().parse::<u64>().ok()?.checked_mul(1024)?,
        None => text.strip_suffix("MiB")?.trim().parse::<u64>().ok()?,
    };
    let (whole, rest) = (mebibytes / 1024, mebibytes % 1024);
    if rest == 0 {
        return Some(whole.to_string());
    }
    let thousandths = format!("{:03}", rest * 1000 / 1024);
    Some(format!("{whole}.{}", thousandths.trim_end_matches('0'))).filter(|text| !text.ends_with('.'))
}

fn value<'a>(config: &'a wire::Config, key: &str) -> &'a str {
    config.get(key).map_or("", String::as_str)
}

#[cfg(test)]
mod tests;
