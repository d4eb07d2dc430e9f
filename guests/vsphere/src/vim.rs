//! The part of the vSphere Web Services API (vim25) that this provider uses: its requests as text,
//! its answers as types. No decisions here.

pub(crate) mod object;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use skysail_guest_sdk::{
    Error, Result,
    xml::{element, escape, reader::Reader},
};

pub(crate) use self::object::{Entity, Machine, Nic, Object};
use crate::soap::{self, Fault};

/// A reference to a managed object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Ref {
    /// `VirtualMachine`, `HostSystem`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `vm-42`. vCenter never uses an ID again.
    pub(crate) id: String,
}

/// The objects that every request begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceContent {
    pub(crate) root_folder: Ref,
    pub(crate) property_collector: Ref,
    pub(crate) search_index: Ref,
    /// `VirtualCenter`, or `HostAgent` of a single host.
    pub(crate) api_type: String,
}

/// One page of objects with their properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page<T> {
    pub(crate) objects: Vec<T>,
    /// Leads to the next page.
    pub(crate) token: Option<String>,
}

/// Where the property collector begins, and where it goes from there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Walk {
    /// The objects themselves.
    None,
    /// The objects and all objects above them.
    Up,
    /// The objects, and all datacenters, folders of machines, vApps and machines below, but for
    /// those in a vApp of a vApp.
    Down,
}

impl Ref {
    pub(crate) fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.to_owned(), id: id.to_owned() }
    }

    /// A reference to a virtual machine.
    pub(crate) fn machine(id: &str) -> Self {
        Self::new("VirtualMachine", id)
    }

    fn write(&self, out: &mut String, name: &str) {
        for (mark, text) in [("<", name), (" type=\"", &self.kind), ("\">", &self.id), ("</", name)] {
            out.push_str(mark);
            escape(out, text);
        }
        out.push('>');
    }
}

/// `RetrieveServiceContent`: also serves a client that is not logged in.
pub(crate) fn retrieve_service_content() -> String {
    method("RetrieveServiceContent", &Ref::new("ServiceInstance", "ServiceInstance"), "")
}

/// `FindByInventoryPath`: `DC0`, `folder/DC0`.
pub(crate) fn find_by_inventory_path(index: &Ref, path: &str) -> String {
    method("FindByInventoryPath", index, &element("inventoryPath", path))
}

/// `FindAllByUuid` for virtual machines by the UUID of their firmware, in one datacenter or in all.
pub(crate) fn find_all_by_uuid(index: &Ref, datacenter: Option<&Ref>, uuid: &str) -> String {
    find_all("FindAllByUuid", index, datacenter, &element("uuid", uuid))
}

/// `FindAllByDnsName`: by the host name that VMware Tools report.
pub(crate) fn find_all_by_dns_name(index: &Ref, datacenter: Option<&Ref>, name: &str) -> String {
    find_all("FindAllByDnsName", index, datacenter, &element("dnsName", name))
}

/// `FindAllByIp`: by the address that VMware Tools report as the first one.
pub(crate) fn find_all_by_ip(index: &Ref, datacenter: Option<&Ref>, address: &str) -> String {
    find_all("FindAllByIp", index, datacenter, &element("ip", address))
}

fn find_all(name: &str, index: &Ref, datacenter: Option<&Ref>, key: &str) -> String {
    let mut arguments = String::new();
    if let Some(datacenter) = datacenter {
        datacenter.write(&mut arguments, "datacenter");
    }
    arguments.push_str(key);
    arguments.push_str("<vmSearch>true</vmSearch>");
    method(name, index, &arguments)
}

/// The requests `RetrievePropertiesEx` for properties by type, each for at most `page` objects at
/// once. Objects that do not exist are left out of the answers.
///
/// Only the answer of a walk has further pages: some vCenters refuse a second page to an account
/// without a role on the root folder.
pub(crate) fn retrieve_properties(
    collector: &Ref,
    what: &[(&str, &[&str])],
    objects: &[Ref],
    walk: Walk,
    page: usize,
) -> Vec<String> {
    let properties = |(kind, paths): &(&str, &[&str])| {
        let paths: String = paths.iter().map(|path| element("pathSet", path)).collect();
        format!("<propSet>{}{paths}</propSet>", element("type", kind))
    };
    let properties: String = what.iter().map(properties).collect();
    let steps = walk.steps();
    let set = |objects: &[Ref]| {
        let mut set = format!("<specSet>{properties}");
        for object in objects {
            set.push_str("<objectSet>");
            object.write(&mut set, "obj");
            set.push_str(&steps);
            set.push_str("</objectSet>");
        }
        set.push_str("<reportMissingObjectsInResults>true</reportMissingObjectsInResults></specSet>");
        set
    };
    // The steps have names, which are unique in one set.
    let (of_request, of_set) = if steps.is_empty() { (page, page) } else { (objects.len(), 1) };
    let request = |objects: &[Ref]| {
        let sets: String = objects.chunks(of_set.max(1)).map(set).collect();
        method("RetrievePropertiesEx", collector, &format!("{sets}<options><maxObjects>{page}</maxObjects></options>"))
    };
    objects.chunks(of_request.max(1)).map(request).collect()
}

impl Walk {
    fn steps(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Up => [
                step("parent", ("ManagedEntity", "parent"), &["parent"]),
                step("vApp", ("VirtualMachine", "parentVApp"), &["parent"]),
            ]
            .concat(),
            Self::Down => [
                step("datacenter", ("Datacenter", "vmFolder"), &["folder"]),
                step("folder", ("Folder", "childEntity"), &["folder", "datacenter", "vApp"]),
                step("vApp", ("VirtualApp", "vm"), &[]),
            ]
            .concat(),
        }
    }
}

/// A step from objects of a type along one of their properties, and the names of the steps that
/// follow.
fn step(name: &str, (kind, property): (&str, &str), next: &[&str]) -> String {
    let next: String = next.iter().map(|name| format!("<selectSet><name>{name}</name></selectSet>")).collect();
    format!(
        "<selectSet xsi:type=\"TraversalSpec\"><name>{name}</name><type>{kind}</type><path>{property}</path>\
         <skip>false</skip>{next}</selectSet>"
    )
}

/// `ContinueRetrievePropertiesEx`.
pub(crate) fn continue_retrieve_properties(collector: &Ref, token: &str) -> String {
    method("ContinueRetrievePropertiesEx", collector, &element("token", token))
}

fn method(name: &str, this: &Ref, arguments: &str) -> String {
    let mut body = format!("<{name} xmlns=\"urn:vim25\">");
    this.write(&mut body, "_this");
    body.push_str(arguments);
    body.push_str("</");
    body.push_str(name);
    body.push('>');
    body
}

/// The answer of `RetrieveServiceContent`.
pub(crate) fn service_content(body: &[u8]) -> Result<ServiceContent> {
    let (mut reader, mut content) = (soap::answer(body)?, ServiceContent::default());
    reader.enter(&["returnval"])?;
    while let Some(start) = reader.child()? {
        let kind = start.attribute("type").unwrap_or_default();
        match start.name {
            "rootFolder" => content.root_folder = Ref::new(&kind, &reader.text()?),
            "propertyCollector" => content.property_collector = Ref::new(&kind, &reader.text()?),
            "searchIndex" => content.search_index = Ref::new(&kind, &reader.text()?),
            "about" => {
                while let Some(start) = reader.child()? {
                    match start.name {
                        "apiType" => reader.text()?.as_ref().clone_into(&mut content.api_type),
                        _ => reader.skip()?,
                    }
                }
            }
            _ => reader.skip()?,
        }
    }
    let ServiceContent { root_folder, property_collector, search_index, api_type } = &content;
    let parts = [
        ("rootFolder", &root_folder.id),
        ("propertyCollector", &property_collector.id),
        ("searchIndex", &search_index.id),
        ("about/apiType", api_type),
    ];
    match parts.iter().find(|(_, text)| text.is_empty()) {
        Some((lacking, _)) => Err(Error::Internal(format!("unexpected XML: RetrieveServiceContent without {lacking}"))),
        None => Ok(content),
    }
}

/// The references of an answer; none where nothing was found.
pub(crate) fn references(body: &[u8]) -> Result<Vec<Ref>> {
    let (mut reader, mut found) = (soap::answer(body)?, Vec::new());
    while let Some(start) = reader.child()? {
        found.push(Ref::new(&start.attribute("type").unwrap_or_default(), &reader.text()?));
    }
    Ok(found)
}

/// The answer of `RetrievePropertiesEx` and of its continuation.
pub(crate) fn page<T: Object>(body: &[u8]) -> Result<Page<T>> {
    let mut reader = soap::answer(body)?;
    let mut page = Page { objects: Vec::new(), token: None };
    // An answer without objects has no `returnval`.
    if !reader.enter(&["returnval"])? {
        return Ok(page);
    }
    while let Some(start) = reader.child()? {
        match start.name {
            "token" => page.token = Some(reader.text()?.into_owned()),
            "objects" => page.objects.push(read_object(&mut reader)?),
            _ => reader.skip()?,
        }
    }
    Ok(page)
}

fn read_object<T: Object>(reader: &mut Reader<'_>) -> Result<T> {
    let mut object = None;
    while let Some(start) = reader.child()? {
        match (start.name, &mut object) {
            ("obj", None) => {
                object = Some(T::new(Ref::new(&start.attribute("type").unwrap_or_default(), &reader.text()?)))
            }
            ("propSet", Some(object)) => read_property(object, reader)?,
            ("missingSet", Some(object)) => object.missing(&read_missing(reader)?),
            _ => reader.skip()?,
        }
    }
    object.ok_or_else(|| Error::Internal("unexpected XML: properties of no object".to_owned()))
}

fn read_property<T: Object>(object: &mut T, reader: &mut Reader<'_>) -> Result<()> {
    let mut path = Cow::Borrowed("");
    while let Some(start) = reader.child()? {
        match start.name {
            "name" => path = reader.text()?,
            "val" => object.read(&path, &start, reader)?,
            _ => reader.skip()?,
        }
    }
    Ok(())
}

/// Why a property could not be read.
fn read_missing(reader: &mut Reader<'_>) -> Result<Fault> {
    let mut fault = Fault::default();
    while let Some(start) = reader.child()? {
        if start.name != "fault" {
            reader.skip()?;
            continue;
        }
        while let Some(inner) = reader.child()? {
            match inner.name {
                "fault" => fault.read(&inner.prefixed_attribute("type").unwrap_or_default(), reader)?,
                "localizedMessage" => reader.text()?.as_ref().clone_into(&mut fault.text),
                _ => reader.skip()?,
            }
        }
    }
    Ok(fault)
}

#[cfg(test)]
mod tests;
