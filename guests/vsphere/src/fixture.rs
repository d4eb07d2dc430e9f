//! Common code of the tests: an in-memory vCenter with the rules of govmomi's simulator, and its
//! objects.

use std::{cell::RefCell, collections::BTreeMap};

use skysail_guest_sdk::{Error, Result};

use crate::{
    lookup::{Cloud, Query},
    vim::{Entity, Machine, Nic, Ref},
    zones::{Tag, Tags},
};

/// A machine with tools, `node-N` and 10.0.0.N, on the host `host-1`.
pub(crate) fn machine(number: usize) -> Machine {
    Machine {
        id: format!("vm-{number}"),
        uuid: uuid(number),
        power: "poweredOn".to_owned(),
        cpus: 2,
        memory_mib: 8192,
        guest_id: "ubuntu64Guest".to_owned(),
        host_name: format!("node-{number}"),
        ip: format!("10.0.0.{number}"),
        nics: vec![nic("VM Network", &[&format!("10.0.0.{number}")])],
        host: Some(Ref::new("HostSystem", "host-1")),
        pool: Some(Ref::new("ResourcePool", "resgroup-1")),
        ..Machine::default()
    }
}

pub(crate) fn uuid(number: usize) -> String {
    format!("42000000-1111-2222-3333-{number:012}")
}

pub(crate) fn nic(network: &str, addresses: &[&str]) -> Nic {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
    Nic { network: network.to_owned(), addresses, is_device: true }
}

/// A vCenter with one datacenter: the host `host-1` in the cluster `domain-c1`, the pool
/// `resgroup-1` in the same cluster, the folder `group-v1`, and the datacenter above all of them.
pub(crate) struct FakeVcenter {
    name: &'static str,
    pub(crate) machines: RefCell<Vec<Machine>>,
    /// Tags on objects: the object's ID, the tag's ID.
    pub(crate) attached: RefCell<Vec<(&'static str, &'static str)>>,
    /// Each request since the last [`FakeVcenter::requests`].
    log: RefCell<Vec<String>>,
    /// Every request fails with this.
    pub(crate) failure: RefCell<Option<Error>>,
    /// What is above the machines, with the roles of the account.
    pub(crate) above: RefCell<Vec<Entity>>,
}

/// An object above machines on which the account has the role Read-only.
pub(crate) fn readable(kind: &str, id: &str) -> Entity {
    Entity { of: Ref::new(kind, id), roles: vec![-2], ..Entity::default() }
}

impl FakeVcenter {
    pub(crate) fn new(machines: Vec<Machine>) -> Self {
        Self::named("https://vcenter", machines)
    }

    pub(crate) fn named(name: &'static str, machines: Vec<Machine>) -> Self {
        let folder = readable("Folder", "group-v1");
        let datacenter = Entity { machines: Some(folder.of.clone()), ..readable("Datacenter", "datacenter-1") };
        Self {
            name,
            machines: RefCell::new(machines),
            attached: RefCell::default(),
            log: RefCell::default(),
            failure: RefCell::default(),
            above: RefCell::new(vec![datacenter, folder]),
        }
    }

    /// The requests since the last call of this function.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.log.take()
    }

    fn request(&self, line: String) -> Result<()> {
        self.log.borrow_mut().push(line);
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }
}

impl Cloud for FakeVcenter {
    fn name(&self) -> &str {
        self.name
    }

    fn containers(&self) -> Result<Vec<Ref>> {
        Ok(vec![Ref::new("Datacenter", "datacenter-1")])
    }

    fn read(&self, ids: &[String], _paths: &[&str]) -> Result<Vec<Machine>> {
        self.request(format!("read {}", ids.len()))?;
        Ok(self.machines.borrow().iter().filter(|machine| ids.contains(&machine.id)).cloned().collect())
    }

    fn list(&self, _paths: &[&str]) -> Result<Vec<Machine>> {
        self.request("list".to_owned())?;
        Ok(self.machines.borrow().clone())
    }

    fn search(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<String>>> {
        self.request(format!("search {}", queries.len()))?;
        let fits = |query: &Query<'_>, machine: &Machine| match query {
            Query::Uuid(uuid) => machine.uuid == *uuid,
            Query::HostName(name) => machine.host_name.eq_ignore_ascii_case(name),
            Query::Ip(ip) => machine.ip == *ip,
        };
        let machines = self.machines.borrow();
        let ids =
            |query| machines.iter().filter(|machine| fits(query, machine)).map(|machine| machine.id.clone()).collect();
        Ok(queries.iter().map(ids).collect())
    }

    fn roles(&self) -> Result<Vec<Entity>> {
        self.request("roles".to_owned())?;
        Ok(self.above.borrow().clone())
    }
}

impl Tags for FakeVcenter {
    fn places(&self, objects: &[Ref]) -> Result<Vec<Entity>> {
        self.request(format!("places {}", objects.len()))?;
        let above = |object: &Ref| match object.id.as_str() {
            "host-1" | "resgroup-1" => Some(Ref::new("ClusterComputeResource", "domain-c1")),
            "domain-c1" | "group-v1" => Some(Ref::new("Datacenter", "datacenter-1")),
            id if id.starts_with("vm-") => Some(Ref::new("Folder", "group-v1")),
            _ => None,
        };
        let mut places: BTreeMap<Ref, Option<Ref>> = BTreeMap::new();
        for object in objects {
            for of in std::iter::successors(Some(object.clone()), above) {
                places.insert(of.clone(), above(&of));
            }
        }
        Ok(places.into_iter().map(|(of, parent)| Entity { of, parent, ..Entity::default() }).collect())
    }

    fn attached(&self, objects: &[Ref]) -> Result<BTreeMap<Ref, Vec<String>>> {
        self.request(format!("attached {}", objects.len()))?;
        let attached = self.attached.borrow();
        let of = |object: &Ref| {
            let tags = attached.iter().filter(|(id, _)| *id == object.id);
            (object.clone(), tags.map(|(_, tag)| (*tag).to_owned()).collect())
        };
        Ok(objects.iter().map(of).collect())
    }

    /// The tag `zone:a` is `a` of the category with the ID `zone`.
    fn tags(&self, ids: &[String]) -> Result<Vec<(String, Tag)>> {
        self.request(format!("tags {}", ids.len()))?;
        let tag = |id: &String| {
            let (category, name) = id.split_once(':')?;
            Some((id.clone(), Tag { name: name.to_owned(), category: category.to_owned() }))
        };
        Ok(ids.iter().filter_map(tag).collect())
    }

    /// The category with the ID `zone` is `k8s-zone`.
    fn categories(&self, ids: &[String]) -> Result<Vec<(String, String)>> {
        self.request(format!("categories {}", ids.len()))?;
        Ok(ids.iter().map(|id| (id.clone(), format!("k8s-{id}"))).collect())
    }
}
