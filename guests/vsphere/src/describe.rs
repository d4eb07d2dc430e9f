//! The instances of a page of nodes: the steps of `instances.describe`.

use std::collections::BTreeMap;

use skysail_guest_sdk::{Detail, Error, Instance, NodeSet, Result, config, instances::Turn};

use crate::{
    lookup::{self, Found, Index, Wanted},
    machines, memory,
    settings::{self, Labels, Settings},
    vcenter::Vcenter,
    vim::Machine,
    zones::{self, Place},
};

/// Labels that a node keeps for its life.
const PLACE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The place of each machine, by vCenter and ID.
type Places = BTreeMap<(usize, String), Result<Option<Place>>>;

/// The instance of each node.
pub(crate) fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    let settings = config::load(settings::parse)?;
    let clouds: Vec<_> = settings.vcenters.iter().map(Vcenter::new).collect();
    let ids = nodes.provider_ids();
    let wanted = wanted(nodes, &ids);
    let found = find(&settings, &clouds, &wanted, detail)?; // (client)
    let labels = settings.labels.as_ref().filter(|_| detail == Detail::Metadata);
    let places = labels.map(|labels| (labels, places(&settings, &clouds, labels, &found))); // (client)
    let labelled = || labelled(nodes);
    let labelled = std::cell::LazyCell::new(labelled);
    let answers = found.into_iter().zip(&ids).enumerate().map(|(number, (found, id))| {
        let Found { vcenter, machine } = found?;
        let server = settings.vcenters.get(vcenter).ok_or_else(|| Error::Internal(format!("no vCenter {vcenter}")))?;
        let instance = machines::instance(&machine, id.as_deref(), detail, &settings.nodes, server)?; // (pure)
        let Some((labels, places)) = &places else { return Ok(instance) };
        match places.get(&(vcenter, machine.id.clone())) {
            Some(Err(error)) => Err(error.clone()),
            // A tag was removed; the node keeps the labels that it has.
            None | Some(Ok(None)) if labelled.get(number) == Some(&true) => Ok(instance),
            place => {
                let place = place.and_then(|place| place.as_ref().ok()?.as_ref());
                machines::with_place(instance, &machine, place, labels)
            }
        }
    });
    Ok(answers.collect())
}

/// The key of each node. A whole node is read only if it has no provider ID.
fn wanted(nodes: &NodeSet, ids: &[Option<String>]) -> Vec<Result<Wanted>> {
    let names = (0..).zip(nodes.names()).zip(ids);
    let key = |((number, name), id): ((u32, String), &Option<String>)| {
        let node = id.is_none().then(|| nodes.get(number)).flatten();
        Wanted::new(&name, id.as_deref(), node.as_ref().and_then(|node| node.system_uuid()))
    };
    names.map(key).collect()
}

/// The machine of each node.
fn find(
    settings: &Settings,
    clouds: &[Vcenter<'_>],
    wanted: &[Result<Wanted>],
    detail: Detail,
) -> Result<Vec<Result<Found>>> {
    let valid: Vec<Wanted> = wanted.iter().flatten().cloned().collect();
    let mut indexes: Vec<Index> = settings.vcenters.iter().map(|vcenter| memory::machines(&vcenter.origin)).collect();
    let before = indexes.clone();
    let found = lookup::find(clouds, &mut indexes, &valid, &paths(settings, &valid, detail), Turn::now())?;
    for ((vcenter, before), after) in settings.vcenters.iter().zip(&before).zip(&indexes) {
        memory::keep_machines(&vcenter.origin, before, after);
    }
    let mut found = found.into_iter();
    let missing = || Err(Error::Internal("a node was not looked up".to_owned()));
    let answer = |wanted: &Result<Wanted>| match wanted {
        Ok(_) => found.next().unwrap_or_else(missing),
        Err(error) => Err(error.clone()),
    };
    Ok(wanted.iter().map(answer).collect())
}

/// The properties that are needed: each costs a hundred bytes for each machine.
fn paths(settings: &Settings, wanted: &[Wanted], detail: Detail) -> Vec<&'static str> {
    let mut paths = vec![Machine::IDENTITY, Machine::POWER, Machine::HOST_NAME];
    if wanted.iter().any(Wanted::has_address_as_name) {
        paths.push(Machine::ADDRESS);
    }
    if detail == Detail::Metadata {
        paths.push(Machine::METADATA);
        paths.extend(settings.labels.is_some().then_some(Machine::PLACE));
    }
    paths.concat()
}

/// The places of all machines, vCenter by vCenter.
fn places(settings: &Settings, clouds: &[Vcenter<'_>], labels: &Labels, found: &[Result<Found>]) -> Places {
    let mut all = Places::new();
    for (number, (server, cloud)) in settings.vcenters.iter().zip(clouds).enumerate() {
        let of_vcenter = found.iter().flatten().filter(|found| found.vcenter == number);
        let machines: Vec<_> = of_vcenter.map(|found| &found.machine).collect();
        let before = memory::zones(&server.origin);
        let mut known = before.clone();
        let places = zones::places(cloud, &mut known, labels, &machines);
        if known != before {
            memory::keep_zones(&server.origin, &known);
        }
        match places {
            Ok(places) => {
                all.extend(
                    machines.iter().zip(places).map(|(machine, place)| ((number, machine.id.clone()), Ok(place))),
                );
            }
            Err(error) => {
                let error = error.never_gone();
                all.extend(machines.iter().map(|machine| ((number, machine.id.clone()), Err(error.clone()))));
            }
        }
    }
    all
}

/// Whether each node has the labels of its zone and its region.
fn labelled(nodes: &NodeSet) -> Vec<bool> {
    let [zones, regions] = PLACE_LABELS.map(|label| nodes.label(label));
    zones.into_iter().zip(regions).map(|(zone, region)| zone.is_some() && region.is_some()).collect()
}
