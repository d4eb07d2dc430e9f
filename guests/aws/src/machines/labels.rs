//! Labels beyond those of Kubernetes: the zone's ID, and the place in the network.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use serde_json::Value;
use skysail_guest_sdk::{Error, Instance, NodeSet, Result};

use crate::{
    call::Call,
    cloud::{Cloud, list},
    fault::Fault,
    lookup,
    settings::Settings,
    wire::ec2::{self, TOPOLOGIES, Topology},
};

const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// The key is followed by the layer's number, from 1.
const NETWORK_LAYER: &str = "topology.k8s.aws/network-node-layer-";

/// Machines in one question about their places.
const TOPOLOGIES_PER_CALL: usize = 100;
/// How long a region, an instance type or a machine without a place is not asked about again.
const WITHOUT_TOPOLOGY_TTL: Duration = Duration::from_hours(24);

/// Adds the labels that a node does not have yet.
pub(super) fn add(
    cloud: &dyn Cloud,
    settings: &Settings,
    nodes: &NodeSet,
    machines: &[Option<&ec2::Instance>],
    instances: &mut [Result<Instance>],
) -> Result<()> {
    let lacks = |key: &str| nodes.label(key).into_iter().map(|value| value.is_none()).collect::<Vec<_>>();
    let lacking = |lacks: &[bool]| -> Vec<_> {
        let with_machine = machines.iter().zip(lacks).enumerate();
        with_machine
            .filter_map(|(at, (machine, lacks))| machine.filter(|_| *lacks).map(|machine| (at, machine)))
            .collect()
    };
    let without_zone = lacking(&lacks(ZONE_ID));
    let zones = lookup::zones(cloud, &without_zone.iter().map(|(_, machine)| machine.zone.as_str()).collect())?;
    for (at, machine) in without_zone {
        let Some(Ok(instance)) = instances.get_mut(at) else { continue };
        match zones.get(&machine.zone) {
            Some(zone) if !zone.id.is_empty() => instance.labels.push((ZONE_ID.to_owned(), zone.id.clone())),
            _ => set(instances, at, Err(Error::Unavailable(format!("EC2 does not know the zone {:?}", machine.zone)))),
        }
    }
    let without_layer = lacking(&lacks(&format!("{NETWORK_LAYER}1")));
    let asked: Vec<_> = without_layer.iter().map(|(_, machine)| *machine).collect();
    let topologies = topologies(cloud, &settings.region, &asked);
    for (at, machine) in without_layer {
        let Some(Ok(instance)) = instances.get_mut(at) else { continue };
        match &topologies {
            Ok(topologies) => {
                let layers = topologies.get(&machine.id).into_iter().flatten();
                instance
                    .labels
                    .extend((1..).zip(layers).map(|(n, node)| (format!("{NETWORK_LAYER}{n}"), node.clone())));
            }
            Err(error) if needs_topology(&machine.instance_type) => set(instances, at, Err(error.clone())),
            // The label helps few machines; the node must not wait for it.
            Err(error) => {
                skysail_guest_sdk::warn!("no topology of machine"; "id" => machine.id, "error" => error.message())
            }
        }
    }
    Ok(())
}

fn set(instances: &mut [Result<Instance>], at: usize, value: Result<Instance>) {
    if let Some(instance) = instances.get_mut(at) {
        *instance = value;
    }
}

/// The layers of each machine that has a place. A region, type or machine without one is
/// remembered.
fn topologies(cloud: &dyn Cloud, region: &str, machines: &[&ec2::Instance]) -> Result<HashMap<String, Vec<String>>> {
    let key = |what: &str| format!("no-topology/{what}");
    let without = |what: &str| what.is_empty() || cloud.recall(&key(what)).is_some();
    let remember = |what: &str| cloud.remember(&key(what), &Value::Bool(true), WITHOUT_TOPOLOGY_TTL);
    if machines.is_empty() || without(region) {
        return Ok(HashMap::new());
    }
    let types: BTreeSet<&str> = machines.iter().map(|machine| machine.instance_type.as_str()).collect();
    let types: BTreeSet<&str> = types.into_iter().filter(|kind| !without(kind)).collect();
    let asked = machines.iter().filter(|machine| types.contains(machine.instance_type.as_str()));
    let asked: Vec<_> =
        asked.filter(|machine| !(needs_topology(&machine.instance_type) && without(&machine.id))).collect();
    let mut found = HashMap::new();
    for page in asked.chunks(TOPOLOGIES_PER_CALL) {
        let call = Call::ec2("DescribeInstanceTopology").list("InstanceId", page.iter().map(|machine| &machine.id));
        match list(cloud, &call, &TOPOLOGIES, Topology::read) {
            Ok(listed) => found.extend(listed.into_iter().map(|one| (one.instance, one.layers))),
            Err(Fault { code, .. }) if matches!(&*code, "UnsupportedOperation" | "UnauthorizedOperation") => {
                remember(region);
                return Ok(HashMap::new());
            }
            Err(fault) => return Err(fault.error),
        }
    }
    for machine in asked.iter().filter(|machine| !found.contains_key(&machine.id)) {
        remember(if needs_topology(&machine.instance_type) { &machine.id } else { &machine.instance_type });
    }
    Ok(found)
}

/// Whether machines of this type always have a place: the families hpc, trn and p with a number,
/// such as `p5en.48xlarge`, `trn1n.32xlarge` or `hpc6a.48xlarge`.
fn needs_topology(instance_type: &str) -> bool {
    let Some((family, size)) = instance_type.split_once('.') else { return false };
    let number_and_more = ["hpc", "trn", "p"]
        .iter()
        .find_map(|name| family.strip_prefix(name).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    let Some(rest) = number_and_more else { return false };
    let rest =
        rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(|c: char| c.is_ascii_lowercase());
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_variant = rest.is_empty() || rest.strip_prefix('-').is_some_and(|word| !word.is_empty() && is_word(word));
    is_variant && is_word(size)
}

#[cfg(test)]
mod tests {
    use super::needs_topology;

    #[test]
    fn machines_for_training_and_computing_wait_for_their_place() {
        for kind in ["p5.48xlarge", "p4de.24xlarge", "trn1n.32xlarge", "hpc6a.48xlarge", "p6-b200.48xlarge"] {
            assert!(needs_topology(kind), "{kind}");
        }
        for kind in ["t3.small", "m5.large", "pp5.large", "p.large", "p5", "hpc.large", "p5-.large", "P5.large", ""] {
            assert!(!needs_topology(kind), "{kind}");
        }
    }
}
