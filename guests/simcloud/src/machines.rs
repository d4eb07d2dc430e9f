//! Machines behind nodes, and their zones.

use std::{collections::HashMap, time::Duration};

use skysail_guest_sdk::{
    AddressKind, Detail, Error, Instance, NodeAddress, NodeSet, Result, cache, legacy::Zone, provider_id,
};

use crate::api::{Cloud, CloudZone, Machine};

pub(crate) const SCHEME: &str = "simcloud";
/// The maximum number of nodes in one request by ID and name; for more nodes the whole list is
/// requested, because a URL has a limited length.
const ASKED_MAX: usize = 100;
/// Zones rarely change.
const ZONES_TTL: Duration = Duration::from_secs(600);

/// One list request for up to 500 machines of the cloud, or for up to 100 nodes.
pub(crate) fn describe(cloud: &Cloud, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    let wanted: Vec<(String, Option<String>)> = nodes.names().into_iter().zip(nodes.provider_ids()).collect();
    let is_ours = |id: Option<&str>| id.is_none_or(|id| provider_id::parse(SCHEME, id).is_ok());
    let asked = wanted.iter().any(|(_, id)| is_ours(id.as_deref()));
    let mut request = cloud.api.get(&["v1", "instances"]);
    if wanted.len() <= ASKED_MAX {
        for (name, id) in &wanted {
            request = match id.as_deref().map(|id| provider_id::parse(SCHEME, id)) {
                Some(Ok(id)) => request.query("id", id),
                // Handled below, without a request.
                Some(Err(_)) => request,
                None => request.query("name", name),
            };
        }
    }
    // Without a filter the cloud would list all machines; nodes of other clouds need no request.
    let machines: Vec<Machine> = if asked { Cloud::list(&request)? } else { Vec::new() };
    let by_id: HashMap<&str, &Machine> = machines.iter().map(|machine| (machine.id.as_str(), machine)).collect();
    let by_name: HashMap<&str, &Machine> = machines.iter().map(|machine| (machine.name.as_str(), machine)).collect();
    let zones = if asked && detail == Detail::Metadata { zones(cloud)? } else { Vec::new() };
    let one = |(name, id): (String, Option<String>)| {
        let found = match &id {
            Some(id) => by_id.get(provider_id::parse(SCHEME, id)?),
            None => by_name.get(name.as_str()),
        };
        found.map(|machine| instance(machine, &zones)).ok_or_else(|| {
            Error::NotFound(format!(
                "the cloud has no machine for node {name} ({})",
                id.as_deref().unwrap_or("by name")
            ))
        })
    };
    Ok(wanted.into_iter().map(one).collect())
}

pub(crate) fn by_provider_id(cloud: &Cloud, id: &str) -> Result<Machine> {
    let id = provider_id::parse(SCHEME, id)?;
    cloud.api.get(&["v1", "instances", id]).send()?.json()
}

pub(crate) fn by_name(cloud: &Cloud, name: &str) -> Result<Machine> {
    let machines: Vec<Machine> = Cloud::list(&cloud.api.get(&["v1", "instances"]).query("name", name))?;
    machines.into_iter().next().ok_or_else(|| Error::NotFound(format!("the cloud has no machine {name:?}")))
}

pub(crate) fn zone(cloud: &Cloud, name: &str) -> Result<Zone> {
    let found = zones(cloud)?.into_iter().find(|zone| zone.name == name);
    let zone = found.ok_or_else(|| Error::NotFound(format!("the cloud has no zone {name:?}")))?;
    Ok(Zone { failure_domain: zone.name, region: zone.region })
}

fn zones(cloud: &Cloud) -> Result<Vec<CloudZone>> {
    cache::get_or("zones", ZONES_TTL, || cloud.zones())
}

fn instance(machine: &Machine, zones: &[CloudZone]) -> Instance {
    let region = zones.iter().find(|zone| zone.name == machine.zone).map(|zone| zone.region.clone());
    let mut addresses = vec![
        NodeAddress::new(AddressKind::Hostname, &machine.name),
        NodeAddress::new(AddressKind::InternalIp, &machine.private_address),
    ];
    addresses.extend(machine.public_address.iter().map(|ip| NodeAddress::new(AddressKind::ExternalIp, ip)));
    Instance {
        shutdown: machine.state == "stopped",
        instance_type: machine.machine_type.clone(),
        zone: machine.zone.clone(),
        region: region.unwrap_or_default(),
        addresses,
        ..Instance::new(provider_id::format(SCHEME, &machine.id))
    }
}
