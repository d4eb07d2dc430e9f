//! Machines and their programs.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

use super::{State, checked_tags, checked_text, not_found, room};
use crate::cloud::{
    backend::Program,
    error::CloudError,
    model::{Instance, NewInstance, Power},
};

/// The maximum number of programs of one machine: one for each node port of a test's Services.
const PROGRAMS_MAX: usize = 64;
/// Distance of a public address from its machine's private one: more than the number of machines,
/// so that the ranges do not overlap.
const PUBLIC_OFFSET: u32 = 1 << 15;

/// A machine and its programs.
#[derive(Debug)]
pub(in crate::cloud) struct InstanceEntry {
    pub(in crate::cloud) record: Instance,
    /// By port; none while the machine is stopped.
    programs: BTreeMap<u16, Option<Program>>,
}

impl State {
    pub(in crate::cloud) fn create_instance(&mut self, new: NewInstance) -> Result<Instance, CloudError> {
        let NewInstance { name, zone, instance_type, public, tags } = new;
        checked_text("the name of an instance", &name)?;
        checked_tags(&tags)?;
        room("instances", self.instances.len())?;
        if self.instances.values().any(|entry| entry.record.name == name) {
            return Err(CloudError::Conflict(format!("there is an instance with the name {name:?}")));
        }
        let zone = self.zone_named(zone)?;
        let taken: std::collections::HashSet<_> =
            self.instances.values().map(|entry| entry.record.private_address).collect();
        let base = u32::from(self.pools.machines);
        let mut free = (1..PUBLIC_OFFSET).map(|n| Ipv4Addr::from(base + n)).filter(|a| !taken.contains(a));
        let private_address =
            free.next().ok_or_else(|| CloudError::Exhausted("the pool of private addresses is used up".to_owned()))?;
        let record = Instance {
            id: self.next_id("i"),
            name,
            zone,
            instance_type: instance_type.unwrap_or_else(|| "sim.small".to_owned()),
            private_address,
            public_address: public.then(|| Ipv4Addr::from(u32::from(private_address) + PUBLIC_OFFSET)),
            state: Power::Running,
            tags,
        };
        self.tell("created", "instance", (&record.id, &record.name), &record.tags);
        let entry = InstanceEntry { record: record.clone(), programs: BTreeMap::new() };
        self.instances.insert(record.id.clone(), entry);
        Ok(record)
    }

    /// The caller stops the programs that come back.
    pub(in crate::cloud) fn stop_instance(&mut self, id: &str) -> Result<(Instance, Vec<Program>), CloudError> {
        let entry = self.instances.get_mut(id).ok_or_else(|| not_found("instance", id))?;
        let changed = entry.record.state != Power::Stopped;
        entry.record.state = Power::Stopped;
        let programs = entry.programs.values_mut().filter_map(Option::take).collect();
        let record = entry.record.clone();
        if changed {
            self.tell("stopped", "instance", (id, &record.name), &record.tags);
        }
        Ok((record, programs))
    }

    /// The machine's programs run again; the start fails where the port of one is in use.
    pub(in crate::cloud) fn start_instance(&mut self, id: &str) -> Result<Instance, CloudError> {
        let entry = self.instances.get_mut(id).ok_or_else(|| not_found("instance", id))?;
        let InstanceEntry { record, programs } = entry;
        for (port, program) in programs.iter_mut().filter(|(_, program)| program.is_none()) {
            *program = Some(Program::start(SocketAddr::from((record.private_address, *port)), &record.name)?);
        }
        let changed = record.state != Power::Running;
        record.state = Power::Running;
        let record = record.clone();
        if changed {
            self.tell("started", "instance", (id, &record.name), &record.tags);
        }
        Ok(record)
    }

    /// The caller stops the programs that come back.
    pub(in crate::cloud) fn delete_instance(&mut self, id: &str) -> Result<Vec<Program>, CloudError> {
        let entry = self.instances.remove(id).ok_or_else(|| not_found("instance", id))?;
        self.forget(id);
        self.tell("deleted", "instance", (id, &entry.record.name), &entry.record.tags);
        Ok(entry.programs.into_values().flatten().collect())
    }

    /// Starts a program on the machine, if there is none.
    pub(in crate::cloud) fn serve_backend(&mut self, id: &str, port: u16) -> Result<SocketAddr, CloudError> {
        let entry = self.instances.get_mut(id).ok_or_else(|| not_found("instance", id))?;
        let InstanceEntry { record, programs } = entry;
        let address = SocketAddr::from((record.private_address, port));
        if programs.contains_key(&port) {
            return Ok(address);
        }
        if programs.len() >= PROGRAMS_MAX {
            return Err(CloudError::Exhausted(format!("instance {id} has {PROGRAMS_MAX} programs already")));
        }
        let program = match record.state {
            Power::Running => Some(Program::start(address, &record.name)?),
            Power::Stopped => None,
        };
        programs.insert(port, program);
        Ok(address)
    }

    /// The caller stops the returned program; none where there is none, or the machine is off.
    pub(in crate::cloud) fn end_backend(&mut self, id: &str, port: u16) -> Result<Option<Program>, CloudError> {
        let entry = self.instances.get_mut(id).ok_or_else(|| not_found("instance", id))?;
        Ok(entry.programs.remove(&port).flatten())
    }
}
