//! Managed objects with the properties that this provider reads.

use skysail_guest_sdk::{
    Result,
    xml::reader::{Reader, Start},
};

use super::Ref;
use crate::soap::Fault;

/// An object that is read from an answer of the property collector.
pub(crate) trait Object {
    fn new(of: Ref) -> Self;

    /// Reads the value of the property at this path; the start of the value was read.
    fn read(&mut self, path: &str, start: &Start<'_>, reader: &mut Reader<'_>) -> Result<()>;

    /// A property could not be read.
    fn missing(&mut self, fault: &Fault);
}

/// A virtual machine; properties that were not asked for, and those that vCenter does not know,
/// have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// `vm-42`.
    pub(crate) id: String,
    /// The UUID of the firmware in lower case; empty while the machine's files cannot be reached.
    pub(crate) uuid: String,
    /// `poweredOn`, `poweredOff` or `suspended`.
    pub(crate) power: String,
    pub(crate) cpus: u64,
    pub(crate) memory_mib: u64,
    /// The kind of operating system: `ubuntu64Guest`.
    pub(crate) guest_id: String,
    /// As VMware Tools report it.
    pub(crate) host_name: String,
    /// The first address that VMware Tools report.
    pub(crate) ip: String,
    /// As VMware Tools report them.
    pub(crate) nics: Vec<Nic>,
    /// `guestinfo.metadata`: what the machine's cloud-init was given.
    pub(crate) metadata: String,
    pub(crate) metadata_encoding: String,
    /// The host that it runs on.
    pub(crate) host: Option<Ref>,
    pub(crate) pool: Option<Ref>,
    /// Why some property could not be read.
    pub(crate) refused: Option<Fault>,
}

/// A network interface inside a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nic {
    /// Name of the network in vCenter.
    pub(crate) network: String,
    pub(crate) addresses: Vec<String>,
    /// Whether it is one that vCenter gave the machine, and not one that software inside made.
    pub(crate) is_device: bool,
}

impl Machine {
    /// To find machines among all machines.
    pub(crate) const IDENTITY: &[&str] = &["summary.config.uuid"];
    /// To find machines by their names. A host name also decides between machines of one UUID.
    pub(crate) const HOST_NAME: &[&str] = &["guest.hostName"];
    /// To find machines whose nodes' names are addresses.
    pub(crate) const ADDRESS: &[&str] = &["guest.ipAddress"];
    pub(crate) const POWER: &[&str] = &["summary.runtime.powerState"];
    pub(crate) const METADATA: &[&str] = &[
        "summary.config.numCpu",
        "summary.config.memorySizeMB",
        "summary.config.guestId",
        "guest.net",
        "config.extraConfig[\"guestinfo.metadata\"]",
        "config.extraConfig[\"guestinfo.metadata.encoding\"]",
    ];
    /// To find the machine's zone.
    pub(crate) const PLACE: &[&str] = &["runtime.host", "resourcePool"];

    pub(crate) fn reference(&self) -> Ref {
        Ref::machine(&self.id)
    }
}

impl Object for Machine {
    fn new(of: Ref) -> Self {
        Self { id: of.id, ..Self::default() }
    }

    fn read(&mut self, path: &str, start: &Start<'_>, reader: &mut Reader<'_>) -> Result<()> {
        match path {
            "summary.config.uuid" => self.uuid = reader.text()?.to_ascii_lowercase(),
            "summary.runtime.powerState" => self.power = reader.text()?.into_owned(),
            "summary.config.numCpu" => self.cpus = reader.text()?.parse().unwrap_or_default(),
            "summary.config.memorySizeMB" => self.memory_mib = reader.text()?.parse().unwrap_or_default(),
            "summary.config.guestId" => self.guest_id = reader.text()?.into_owned(),
            "guest.hostName" => self.host_name = reader.text()?.into_owned(),
            "guest.ipAddress" => self.ip = reader.text()?.into_owned(),
            "guest.net" => self.nics = read_nics(reader)?,
            "config.extraConfig[\"guestinfo.metadata\"]" => self.metadata = read_option(reader)?,
            "config.extraConfig[\"guestinfo.metadata.encoding\"]" => self.metadata_encoding = read_option(reader)?,
            "runtime.host" => self.host = Some(read_reference(start, reader)?),
            "resourcePool" => self.pool = Some(read_reference(start, reader)?),
            _ => reader.skip()?,
        }
        Ok(())
    }

    fn missing(&mut self, fault: &Fault) {
        // A key that the machine's extra configuration does not have is an invalid property.
        if fault.kind != "InvalidProperty" {
            self.refused.get_or_insert_with(|| fault.clone());
        }
    }
}

/// Any object of the inventory, in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) of: Ref,
    pub(crate) name: String,
    /// None at the root.
    pub(crate) parent: Option<Ref>,
    /// The folder of a datacenter that has all of the datacenter's machines below.
    pub(crate) machines: Option<Ref>,
    /// The roles that the account has on the object; negative numbers are the built-in roles.
    pub(crate) roles: Vec<i64>,
    /// The permissions of all accounts that are defined on the object itself.
    pub(crate) permissions: Vec<Permission>,
    /// Why some property could not be read.
    pub(crate) refused: Option<Fault>,
}

/// A role of a user or of a group on an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) principal: String,
    pub(crate) role: i64,
    /// Whether the permission also counts for the objects below.
    pub(crate) propagates: bool,
}

impl Entity {
    pub(crate) const PLACE: &[&str] = &["parent"];
    /// What the account may see, of each type of object above the machines.
    pub(crate) const ROLES: &[(&str, &[&str])] = &[
        ("Datacenter", &["name", "effectiveRole", "permission", "vmFolder"]),
        ("Folder", &["name", "effectiveRole", "permission"]),
        ("VirtualApp", &["name", "effectiveRole", "permission"]),
    ];
}

impl Object for Entity {
    fn new(of: Ref) -> Self {
        Self { of, ..Self::default() }
    }

    fn read(&mut self, path: &str, start: &Start<'_>, reader: &mut Reader<'_>) -> Result<()> {
        match path {
            "name" => self.name = reader.text()?.into_owned(),
            "parent" => self.parent = Some(read_reference(start, reader)?),
            "vmFolder" => self.machines = Some(read_reference(start, reader)?),
            "permission" => self.permissions = read_permissions(reader)?,
            "effectiveRole" => {
                while reader.child()?.is_some() {
                    self.roles.extend(reader.text()?.parse::<i64>());
                }
            }
            _ => reader.skip()?,
        }
        Ok(())
    }

    fn missing(&mut self, fault: &Fault) {
        self.refused.get_or_insert_with(|| fault.clone());
    }
}

impl std::fmt::Display for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { of: Ref { kind, id }, name, .. } = self;
        if name.is_empty() { write!(f, "{kind} {id}") } else { write!(f, "{kind} {name:?} ({id})") }
    }
}

fn read_reference(start: &Start<'_>, reader: &mut Reader<'_>) -> Result<Ref> {
    Ok(Ref::new(&start.attribute("type").unwrap_or_default(), &reader.text()?))
}

fn read_permissions(reader: &mut Reader<'_>) -> Result<Vec<Permission>> {
    let mut permissions = Vec::new();
    while reader.child()?.is_some() {
        let mut permission = Permission::default();
        while let Some(start) = reader.child()? {
            match start.name {
                "principal" => permission.principal = reader.text()?.into_owned(),
                "roleId" => permission.role = reader.text()?.parse().unwrap_or_default(),
                "propagate" => permission.propagates = matches!(&*reader.text()?, "true" | "1"),
                _ => reader.skip()?,
            }
        }
        permissions.push(permission);
    }
    Ok(permissions)
}

fn read_nics(reader: &mut Reader<'_>) -> Result<Vec<Nic>> {
    let mut nics = Vec::new();
    while reader.child()?.is_some() {
        let mut nic = Nic { is_device: true, ..Nic::default() };
        while let Some(start) = reader.child()? {
            match start.name {
                "network" => nic.network = reader.text()?.into_owned(),
                "ipAddress" => nic.addresses.push(reader.text()?.into_owned()),
                "deviceConfigId" => nic.is_device = reader.text()? != "-1",
                _ => reader.skip()?,
            }
        }
        nics.push(nic);
    }
    Ok(nics)
}

/// The value of an `OptionValue`.
fn read_option(reader: &mut Reader<'_>) -> Result<String> {
    let mut value = String::new();
    while let Some(start) = reader.child()? {
        match start.name {
            "value" => value = reader.text()?.into_owned(),
            _ => reader.skip()?,
        }
    }
    Ok(value)
}
