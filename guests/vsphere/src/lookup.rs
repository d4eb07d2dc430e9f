//! Finds the machine of each node of a page.
//!
//! A machine is found by its ID in vCenter, which an earlier call has learned, and else by a
//! search: a few machines one by one in vCenter's index, many in one list of all machines.

mod evidence;
mod page;
mod roster;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use skysail_guest_sdk::{Result, instances::Turn};

pub(crate) use self::wanted::{Key, Wanted};
use self::{page::Page, roster::Roster};
use crate::vim::{Entity, Machine, Ref};

/// Look-ups one by one in one call, over all datacenters: each takes up to [`wanted::QUERIES_MAX`]
/// requests, and a call may make 64.
const LOOKED_UP_MAX: usize = 12;

/// A key of vCenter's search index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query<'a> {
    /// The UUID of the firmware.
    Uuid(&'a str),
    HostName(&'a str),
    Ip(&'a str),
}

/// What this module asks of a vCenter.
pub(crate) trait Cloud {
    /// The name for messages.
    fn name(&self) -> &str;

    /// The places where each query of [`Cloud::search`] is made: datacenters, or the root folder.
    fn containers(&self) -> Result<Vec<Ref>>;

    /// The machines of these IDs with these properties; those that do not exist are left out.
    fn read(&self, ids: &[String], paths: &[&str]) -> Result<Vec<Machine>>;

    /// All machines with these properties.
    fn list(&self, paths: &[&str]) -> Result<Vec<Machine>>;

    /// The IDs of the machines that each query finds.
    fn search(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<String>>>;

    /// The places of the search and all that is between them and the machines, with the roles of
    /// the account.
    fn roles(&self) -> Result<Vec<Entity>>;
}

/// The IDs that earlier calls have learned, by the UUID of the firmware.
pub(crate) type Index = BTreeMap<String, String>;

/// A node's machine.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Index of the machine's vCenter in the list of vCenters.
    pub(crate) vcenter: usize,
    pub(crate) machine: Machine,
}

/// Looks up the machine of each node, and keeps the indexes up to date.
///
/// # Errors
///
/// Outer: the first vCenter's error if all of them failed. Inner: `not-found` only for a provider
/// ID that no vCenter has, where each shows its machines to the account.
pub(crate) fn find<C: Cloud>(
    clouds: &[C],
    indexes: &mut [Index],
    wanted: &[Wanted],
    paths: &[&str],
    turn: Turn,
) -> Result<Vec<Result<Found>>> {
    let mut page = Page::new(wanted, clouds.iter().map(Cloud::name).collect());
    for (number, (cloud, index)) in clouds.iter().zip(&mut *indexes).enumerate() {
        page.ask(number, |page| read_known(cloud, index, page, paths)); // (client)
    }
    page.choose(); // (pure)
    let mut places = 0;
    for (number, cloud) in clouds.iter().enumerate() {
        page.ask(number, |_| {
            places += cloud.containers()?.len(); // (client)
            Ok(Vec::new())
        });
    }
    let mut lists = vec![None; clouds.len()];
    let singly = (LOOKED_UP_MAX / places.max(1)).max(1);
    if page.open().len() > singly {
        for ((number, cloud), list) in clouds.iter().enumerate().zip(&mut lists) {
            page.ask(number, |page| read_listed(cloud, page, list, paths)); // (client)
        }
        page.choose_proven(); // (pure)
        page.postpone(singly, turn); // (pure)
    }
    for (number, cloud) in clouds.iter().enumerate() {
        page.ask(number, |page| read_searched(cloud, page, paths)); // (client)
    }
    page.choose_proven(); // (pure)
    for ((number, cloud), (list, index)) in clouds.iter().enumerate().zip(lists.into_iter().zip(&*indexes)) {
        if page.has_absent() {
            // The index has the UUIDs of these machines.
            let known = |page: &Page<'_>| index.values().cloned().chain(page.found_in(cloud.name())).collect();
            page.ask(number, |page| check_evidence(cloud, list, &known(page)).map(|()| Vec::new())); // (client)
        }
    }
    let found = page.finish()?; // (pure)
    for Found { vcenter, machine } in found.iter().flatten() {
        if let (Some(index), false) = (indexes.get_mut(*vcenter), machine.uuid.is_empty()) {
            index.insert(machine.uuid.clone(), machine.id.clone());
        }
    }
    Ok(found)
}

/// The machines whose IDs are known. An ID whose machine is gone is forgotten.
fn read_known<C: Cloud>(cloud: &C, index: &mut Index, page: &Page<'_>, paths: &[&str]) -> Result<Vec<Machine>> {
    let uuids = || page.open().into_iter().flat_map(|wanted| wanted.uuids());
    let ids = distinct(uuids().filter_map(|uuid| index.get(uuid).cloned()));
    let mut machines = if ids.is_empty() { Vec::new() } else { cloud.read(&ids, paths)? };
    // The files of a machine may be out of reach for a while, and its UUID with them.
    for machine in machines.iter_mut().filter(|machine| machine.uuid.is_empty()) {
        let known = uuids().find(|uuid| index.get(*uuid) == Some(&machine.id));
        known.map(String::as_str).unwrap_or_default().clone_into(&mut machine.uuid);
    }
    let roster = Roster::new(&machines);
    for uuid in uuids() {
        if index.get(uuid).is_some_and(|id| !roster.with_uuid(uuid).any(|machine| machine.id == *id)) {
            index.remove(uuid);
        }
    }
    Ok(machines)
}

/// The machines that the list of all machines has for the open nodes. `list` becomes that list.
fn read_listed<C: Cloud>(
    cloud: &C,
    page: &Page<'_>,
    list: &mut Option<Vec<Machine>>,
    paths: &[&str],
) -> Result<Vec<Machine>> {
    let by_name = page.open().iter().any(|wanted| matches!(wanted.key, Key::Name(_)));
    let name: &[&[&str]] = if by_name { &[Machine::HOST_NAME, Machine::ADDRESS] } else { &[] };
    let listed = list.insert(cloud.list(&[&[Machine::IDENTITY], name].concat().concat())?);
    let (open, roster) = (page.open(), Roster::new(listed));
    let ids = distinct(open.iter().flat_map(|wanted| wanted.candidates(&roster)).map(|machine| machine.id.clone()));
    if ids.is_empty() { Ok(Vec::new()) } else { cloud.read(&ids, paths) }
}

/// The machines that vCenter's index has for the open nodes, by one key after the other.
fn read_searched<C: Cloud>(cloud: &C, page: &Page<'_>, paths: &[&str]) -> Result<Vec<Machine>> {
    let mut machines: Vec<Machine> = Vec::new();
    for round in 0..wanted::QUERIES_MAX {
        let roster = Roster::new(&machines);
        let fits = |wanted: &&Wanted| wanted.candidates(&roster).into_iter().any(|machine| wanted.fits(machine));
        let missing = page.open().into_iter().filter(|wanted| !fits(wanted));
        let queries: Vec<_> = missing.filter_map(|wanted| wanted.queries().get(round).copied()).collect();
        if queries.is_empty() {
            continue;
        }
        let found = cloud.search(&queries)?;
        let known = |id: &&String| machines.iter().any(|machine| machine.id == **id);
        let ids = distinct(found.iter().flatten().filter(|id| !known(id)).cloned());
        let read = if ids.is_empty() { Vec::new() } else { cloud.read(&ids, paths)? };
        machines.extend(read.into_iter().map(|machine| with_uuid_of_query(machine, &queries, &found)));
    }
    Ok(machines)
}

/// A machine whose UUID cannot be read, but which the index has under one: it exists.
fn with_uuid_of_query(mut machine: Machine, queries: &[Query<'_>], found: &[Vec<String>]) -> Machine {
    let query = queries.iter().zip(found).find(|(_, ids)| ids.contains(&machine.id)).map(|(query, _)| query);
    if let (true, Some(Query::Uuid(uuid))) = (machine.uuid.is_empty(), query) {
        (*uuid).clone_into(&mut machine.uuid);
    }
    machine
}

/// An account that may not read a machine does not find it, and a machine without a UUID is found
/// by none: either would look gone. `list` is the list of all machines, if this call has read it.
fn check_evidence<C: Cloud>(cloud: &C, list: Option<Vec<Machine>>, known: &BTreeSet<String>) -> Result<()> {
    evidence::check(cloud.name(), &cloud.containers()?, &cloud.roles()?)?;
    let machines = list.map_or_else(|| cloud.list(Machine::IDENTITY), Ok)?;
    evidence::check_uuids(cloud.name(), &machines, known)
}

fn distinct(ids: impl Iterator<Item = String>) -> Vec<String> {
    ids.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests;
