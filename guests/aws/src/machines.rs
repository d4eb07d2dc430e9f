//! The machines of nodes: which one is a node's, and what Kubernetes shows of it.

mod labels;

use std::collections::{BTreeSet, HashMap};

use skysail_guest_sdk::{
    AddressKind, Detail, Error, Instance, NodeAddress, NodeSet, Result,
    instances::{CONFIRMED_MAX, Turn, not_yet_looked_up},
    nodes::add_address,
};

use crate::{
    cloud::Cloud,
    lookup::{self, Lacking},
    provider_id,
    settings::{Family, Settings},
    tagging::Tagging,
    wire::ec2,
};

/// States of a machine that is off or being switched off. A machine that is `shutting-down` is
/// being terminated.
const SHUTDOWN: [&str; 3] = ["stopping", "stopped", "shutting-down"];
const TERMINATED: &str = "terminated";

/// How a node's machine is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Id(String),
    /// The private DNS name.
    Name(String),
}

impl Key {
    /// By provider ID; without one by the name, which begins with the machine's ID where the VPC
    /// names machines by resource.
    fn of(name: &str, provider_id: Option<&str>) -> Result<Self> {
        if let Some(id) = provider_id {
            return provider_id::instance_of(id).map(|id| Self::Id(id.to_owned()));
        }
        let first = name.split('.').next().unwrap_or_default();
        Ok(if provider_id::is_instance(first) { Self::Id(first.to_owned()) } else { Self::Name(name.to_owned()) })
    }

    const fn lacking(&self) -> Lacking<'_> {
        match self {
            Self::Id(id) => Lacking::Id(id.as_str()),
            Self::Name(name) => Lacking::Name(name.as_str()),
        }
    }
}

/// The machines that were found, by ID and by private DNS name.
#[derive(Default)]
struct Found {
    by_id: HashMap<String, ec2::Instance>,
    by_name: HashMap<String, Vec<ec2::Instance>>,
}

impl Found {
    /// One question for all IDs, and one for all names.
    fn ask(cloud: &dyn Cloud, keys: &[Result<Key>], tagging: Option<&Tagging>) -> Result<Self> {
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for key in keys.iter().flatten() {
            match key {
                Key::Id(id) => ids.insert(id.as_str()),
                Key::Name(name) => names.insert(name.as_str()),
            };
        }
        let mut found = Self { by_id: lookup::by_ids(cloud, &ids)?, ..Self::default() };
        found.add_named(lookup::by_names(cloud, &names)?, tagging);
        Ok(found)
    }

    /// A name may be given twice in two VPCs; only machines of this cluster count.
    fn add_named(&mut self, machines: Vec<ec2::Instance>, tagging: Option<&Tagging>) {
        for machine in machines.into_iter().filter(|one| tagging.is_none_or(|tagging| tagging.has(&one.tags))) {
            self.by_name.entry(machine.private_dns.clone()).or_default().push(machine);
        }
    }

    /// None where the answers lack the machine.
    fn machine(&self, key: &Key) -> Option<Result<&ec2::Instance>> {
        match key {
            Key::Id(id) => self.by_id.get(id).map(Ok),
            Key::Name(name) => self.by_name.get(name).and_then(|machines| match machines.as_slice() {
                [] => None,
                [machine] => Some(Ok(machine)),
                [_, _, ..] => {
                    let why = format!(
                        "{} machines have the private DNS name {name}; set the node's provider ID",
                        machines.len()
                    );
                    Some(Err(Error::Unavailable(why)))
                }
            }),
        }
    }
}

/// Implements `instances.describe`.
pub(crate) fn describe(
    cloud: &dyn Cloud,
    settings: &Settings,
    nodes: &NodeSet,
    detail: Detail,
    turn: Turn,
) -> Result<Vec<Result<Instance>>> {
    let tagging = settings.cluster_id.as_deref().map(|id| Tagging::new(settings, id));
    let columns: Vec<_> = nodes.names().into_iter().zip(nodes.provider_ids()).collect();
    let keys: Vec<_> = columns.iter().map(|(name, id)| Key::of(name, id.as_deref())).collect();
    let mut found = Found::ask(cloud, &keys, tagging.as_ref())?;
    let refused = confirm(cloud, turn, &keys, (&mut found, tagging.as_ref()));
    let machine = |key: &Result<Key>| {
        let key = key.as_ref().map_err(Clone::clone)?;
        match found.machine(key) {
            Some(machine) => machine.and_then(existing),
            None => Err(refused
                .get(key.lacking_text())
                .cloned()
                .unwrap_or_else(|| not_yet_looked_up("EC2's list", key.lacking_text()))),
        }
    };
    let machines: Vec<_> = keys.iter().map(machine).collect();
    let instances = machines.iter().zip(&columns).map(|(machine, (_, id))| {
        machine.as_ref().map_err(Clone::clone).and_then(|machine| instance(settings, machine, id.as_deref()))
    });
    let mut instances: Vec<_> = instances.collect();
    if detail == Detail::Metadata {
        let machines: Vec<_> = machines.iter().map(|machine| machine.as_ref().ok().copied()).collect();
        labels::add(cloud, settings, nodes, &machines, &mut instances)?;
    }
    Ok(instances)
}

impl Key {
    fn lacking_text(&self) -> &str {
        match self {
            Self::Id(text) | Self::Name(text) => text,
        }
    }
}

/// Asks for the machines that the lists lacked, each by itself; the errors by ID or name.
fn confirm(
    cloud: &dyn Cloud,
    turn: Turn,
    keys: &[Result<Key>],
    (found, tagging): (&mut Found, Option<&Tagging>),
) -> HashMap<String, Error> {
    let lacking = keys.iter().flatten().filter(|key| found.machine(key).is_none());
    let (lacking, _) = turn.split(lacking, CONFIRMED_MAX, |key| key.lacking_text());
    let asked: Vec<_> = lacking.iter().map(|key| key.lacking()).collect();
    let mut refused = HashMap::new();
    for (key, answer) in lacking.iter().zip(lookup::confirm(cloud, &asked)) {
        match (key, answer) {
            (Key::Id(_), Ok(machines)) => {
                found.by_id.extend(machines.into_iter().map(|machine| (machine.id.clone(), machine)));
            }
            (Key::Name(name), Ok(machines)) => {
                found.add_named(machines, tagging);
                let why = format!("no machine with the private DNS name {name} has the tag of this cluster");
                refused.insert(name.clone(), Error::NotFound(why));
            }
            (key, Err(error)) => {
                refused.insert(key.lacking_text().to_owned(), error);
            }
        }
    }
    refused
}

/// EC2 shows a terminated machine for about an hour.
fn existing(machine: &ec2::Instance) -> Result<&ec2::Instance> {
    if machine.state == TERMINATED {
        return Err(Error::NotFound(format!("machine {} is terminated", machine.id)));
    }
    Ok(machine)
}

fn instance(settings: &Settings, machine: &ec2::Instance, provider_id: Option<&str>) -> Result<Instance> {
    let mut instance = Instance::new(match provider_id {
        // Kubernetes never changes a provider ID, so the answer repeats it.
        Some(id) => id.to_owned(),
        None => provider_id::format(&machine.zone, &machine.id),
    });
    instance.shutdown = SHUTDOWN.contains(&machine.state.as_str());
    instance.instance_type.clone_from(&machine.instance_type);
    instance.zone.clone_from(&machine.zone);
    instance.region.clone_from(&settings.region);
    for family in &settings.node_ip_families {
        match family {
            Family::Ipv4 => add_ipv4(machine, &mut instance.addresses)?,
            Family::Ipv6 => add_ipv6(machine, &mut instance.addresses)?,
        }
    }
    Ok(instance)
}

/// The private addresses of the interfaces in use, then the public one and the names.
fn add_ipv4(machine: &ec2::Instance, addresses: &mut Vec<NodeAddress>) -> Result<()> {
    for interface in in_use(machine) {
        for address in &interface.ipv4 {
            add_address(addresses, NodeAddress::new(AddressKind::InternalIp, ip(machine, address)?));
        }
    }
    if !machine.public_ip.is_empty() {
        add_address(addresses, NodeAddress::new(AddressKind::ExternalIp, ip(machine, &machine.public_ip)?));
    }
    let names = [
        (AddressKind::InternalDns, &machine.private_dns),
        (AddressKind::Hostname, &machine.private_dns),
        (AddressKind::ExternalDns, &machine.public_dns),
    ];
    for (kind, name) in names {
        if !name.is_empty() {
            add_address(addresses, NodeAddress::new(kind, name.as_str()));
        }
    }
    Ok(())
}

/// The first IPv6 address of each interface in use. It is internal, even where the internet reaches
/// it.
fn add_ipv6(machine: &ec2::Instance, addresses: &mut Vec<NodeAddress>) -> Result<()> {
    for address in in_use(machine).into_iter().filter_map(|interface| interface.ipv6.first()) {
        add_address(addresses, NodeAddress::new(AddressKind::InternalIp, ip(machine, address)?));
    }
    Ok(())
}

/// The interfaces in use, the first device first.
fn in_use(machine: &ec2::Instance) -> Vec<&ec2::Interface> {
    let mut interfaces: Vec<_> = machine.interfaces.iter().filter(|one| one.status == "in-use").collect();
    interfaces.sort_by_key(|interface| interface.device_index.unwrap_or(u32::MAX));
    interfaces
}

fn ip(machine: &ec2::Instance, text: &str) -> Result<String> {
    let parsed: Result<std::net::IpAddr, _> = text.parse();
    parsed
        .map(|ip| ip.to_string())
        .map_err(|_| Error::Internal(format!("EC2 answered {text:?} as an address of machine {}", machine.id)))
}

#[cfg(test)]
mod tests;
