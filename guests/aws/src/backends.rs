//! The machines behind a load balancer.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use serde_json::{Value, json};
use skysail_guest_sdk::{NodeSet, Result};

use crate::{call::Call, cloud::Cloud, fault::NOT_NOW, lookup, provider_id, tagging::Tagging, wire::Tags};

/// Key of the machines that are remembered.
const MACHINES: &str = "machines";

/// As in the vendor's manager: machines rarely change their security groups.
const MACHINES_TTL: Duration = Duration::from_mins(10);

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) id: String,
    /// IDs of its security groups, sorted: EC2 promises no order.
    pub(crate) groups: Vec<String>,
    /// AWS registers only machines that run.
    pub(crate) is_running: bool,
}

/// The machines of the nodes that have all the labels, by ID, and the names of nodes without a
/// machine of the cluster. One question, unless an earlier call asked about the same nodes.
pub(crate) fn of_nodes(
    cloud: &dyn Cloud,
    tagging: &Tagging,
    nodes: &NodeSet,
    labels: &Tags,
) -> Result<(Vec<Backend>, Vec<String>)> {
    let names = nodes.names();
    let ids: Vec<_> = nodes.provider_ids();
    let ids: Vec<Option<&str>> =
        ids.iter().map(|id| id.as_deref().and_then(|id| provider_id::instance_of(id).ok())).collect();
    let machines = machines(cloud, tagging, &ids.iter().flatten().copied().collect())?;
    let mut is_chosen = vec![true; names.len()];
    for (key, value) in labels {
        for (is_chosen, label) in is_chosen.iter_mut().zip(nodes.label(key)) {
            *is_chosen &= label.is_some_and(|label| value.is_empty() || label == *value);
        }
    }
    let (mut backends, mut without) = (Vec::new(), Vec::new());
    for ((name, id), _) in names.into_iter().zip(ids).zip(is_chosen).filter(|(_, is_chosen)| *is_chosen) {
        match id.and_then(|id| machines.get(id)) {
            Some(backend) => backends.push(backend.clone()),
            None => without.push(name),
        }
    }
    backends.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    backends.dedup();
    Ok((backends, without))
}

/// Sends calls that must all succeed, some of which register machines, in parallel. AWS refuses all
/// machines of a call for one that stopped since it was remembered, so the next call asks for the
/// machines again.
pub(crate) fn register(cloud: &dyn Cloud, calls: Vec<Call>) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let answers = cloud.send_all(calls);
    if answers.iter().any(|answer| matches!(answer, Err(fault) if fault.is(&NOT_NOW))) {
        cloud.forget(MACHINES);
    }
    let answers = answers.into_iter().map(|answer| answer.map_err(|fault| fault.error));
    skysail_guest_sdk::http::every(answers.collect()).map(drop)
}

fn machines(cloud: &dyn Cloud, tagging: &Tagging, ids: &BTreeSet<&str>) -> Result<HashMap<String, Backend>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let known = cloud.recall(MACHINES).as_ref().and_then(read).unwrap_or_default();
    if ids.iter().all(|id| known.get(*id).is_some_and(|backend| backend.is_running)) {
        return Ok(known);
    }
    let found =
        lookup::by_ids(cloud, ids)?.into_values().filter(|one| one.state != "terminated" && tagging.has(&one.tags));
    let backend = |one: crate::wire::ec2::Instance| {
        let is_running = one.state == "running";
        let mut groups = one.groups;
        groups.sort_unstable();
        (one.id.clone(), Backend { id: one.id, groups, is_running })
    };
    let found: HashMap<_, _> = found.map(backend).collect();
    cloud.remember(MACHINES, &write(&found), MACHINES_TTL);
    Ok(found)
}

fn write(machines: &HashMap<String, Backend>) -> Value {
    let entry = |backend: &Backend| (backend.id.clone(), json!([backend.is_running, backend.groups]));
    Value::Object(machines.values().map(entry).collect())
}

fn read(value: &Value) -> Option<HashMap<String, Backend>> {
    let backend = |(id, value): (&String, &Value)| {
        let groups = value.get(1)?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let is_running = value.get(0)?.as_bool()?;
        Some((id.clone(), Backend { id: id.clone(), groups, is_running }))
    };
    value.as_object()?.iter().map(backend).collect()
}
