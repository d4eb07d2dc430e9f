//! The APIs of one vCenter Server over the host's HTTP: SOAP for the inventory, REST for tags.
//!
//! The list of all machines is one walk of the property collector and no container view: a view
//! lives in a session, and the host may begin another session between two requests.

use std::{cell::OnceCell, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skysail_guest_sdk::{
    Absent as _, Error, Result, cache,
    http::{Api, Response, send_all, send_every},
    paging,
};

use crate::{
    lookup::{Cloud, Query},
    settings::Vcenter as Server,
    soap::Soap,
    vim::{self, Entity, Machine, Object, Ref, ServiceContent, Walk},
    zones::{Tag, Tags},
};

/// How long the root objects and the places of datacenters are used.
const SCOPE_TTL: Duration = Duration::from_hours(1);
/// Whole machines of one answer: with 30 network interfaces each it has 5 MB, and the default limit
/// is 8 MiB.
const MACHINES_PER_PAGE: usize = 250;
/// Objects of one answer with a few short properties: 1 MB.
const OBJECTS_PER_PAGE: usize = 2_000;

/// A client of one vCenter.
pub(crate) struct Vcenter<'a> {
    server: &'a Server,
    soap: Soap,
    scope: OnceCell<Scope>,
}

/// Where the nodes' machines are.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Scope {
    content: ServiceContent,
    /// Empty: the whole inventory.
    datacenters: Vec<Ref>,
}

/// The envelope of the answers of REST.
#[derive(Deserialize)]
struct Envelope<T> {
    value: T,
}

#[derive(Serialize)]
struct Objects<'a> {
    object_ids: &'a [Ref],
}

#[derive(Deserialize)]
struct Attached {
    object_id: Ref,
    #[serde(default)]
    tag_ids: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct WireTag {
    name: String,
    category_id: String,
}

#[derive(Deserialize)]
struct WireCategory {
    name: String,
}

impl<'a> Vcenter<'a> {
    /// Makes the client; sends no request.
    pub(crate) fn new(server: &'a Server) -> Self {
        Self { server, soap: Soap::new(&server.origin, &server.credential), scope: OnceCell::new() }
    }

    /// The root objects and the datacenters; asked for once in [`SCOPE_TTL`].
    fn scope(&self) -> Result<&Scope> {
        if let Some(scope) = self.scope.get() {
            return Ok(scope);
        }
        let key = format!("scope {} {}", self.server.origin, self.server.datacenters.join(","));
        let scope = cache::get_or(&key, SCOPE_TTL, || self.ask_scope())?;
        Ok(self.scope.get_or_init(|| scope))
    }

    fn ask_scope(&self) -> Result<Scope> {
        let answer = self.soap.call(&vim::retrieve_service_content())?;
        let content = readable(&self.server.origin, vim::service_content(&answer.body))?;
        check_kind(&self.server.origin, &content)?;
        let datacenters = self.server.datacenters.iter().map(|name| self.datacenter(&content, name));
        Ok(Scope { datacenters: datacenters.collect::<Result<_>>()?, content })
    }

    fn datacenter(&self, content: &ServiceContent, name: &str) -> Result<Ref> {
        if let Some(id) = name.strip_prefix("Datacenter:") {
            return Ok(Ref::new("Datacenter", id));
        }
        let path = name.trim_start_matches('/');
        let answer = self.soap.call(&vim::find_by_inventory_path(&content.search_index, path))?;
        datacenter_in(&answer.body, name, &self.server.origin)
    }

    /// The objects' properties, page by page.
    fn retrieve<T: Object>(
        &self,
        what: &[(&str, &[&str])],
        objects: &[Ref],
        walk: Walk,
        page: usize,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        if objects.is_empty() {
            return Ok(all);
        }
        let collector = &self.scope()?.content.property_collector;
        for first in vim::retrieve_properties(collector, what, objects, walk, page) {
            all.append(&mut paging::collect(|token| {
                let answer = match token {
                    None => self.soap.call(&first)?,
                    Some(token) => {
                        self.soap.call_for_next_page(&vim::continue_retrieve_properties(collector, token))?
                    }
                };
                readable(&self.server.origin, vim::page(&answer.body)).map(|page| (page.objects, page.token))
            })?);
        }
        Ok(all)
    }

    /// The API of the tags below this path.
    fn tagging(&self, path: &str) -> Api {
        Api::new(&format!("{}/rest/com/vmware/cis/tagging/{path}", self.server.origin))
            .credential(&self.server.credential)
            .judged_by(judge_tagging)
    }

    /// The objects of these IDs; those that do not exist any more are left out.
    fn by_ids<T: DeserializeOwned>(&self, kind: &str, ids: &[String]) -> Result<Vec<(String, T)>> {
        // An ID has colons, which a segment of a path would encode.
        let requests = ids.iter().map(|id| self.tagging(&format!("{kind}/id:{id}")).get(&[])).collect();
        let mut found = Vec::new();
        for (id, answer) in ids.iter().zip(send_all(requests)) {
            if let Some(answer) = answer.absent_ok()? {
                found.push((id.clone(), answer.json::<Envelope<T>>()?.value));
            }
        }
        Ok(found)
    }
}

/// An answer that could be read, or an error that names the vCenter.
fn readable<T>(origin: &str, answer: Result<T>) -> Result<T> {
    answer.map_err(|error| {
        let message = format!(
            "{origin}: {}; the answer is not that of vCenter Server: correct server and port, or report the fault to the \
             author of the provider",
            error.message()
        );
        error.with_message(message)
    })
}

/// Refuses a single host, which has no tags.
fn check_kind(origin: &str, content: &ServiceContent) -> Result<()> {
    if content.api_type == "VirtualCenter" {
        return Ok(());
    }
    Err(Error::Denied(format!(
        "{origin} is not a vCenter Server but {:?}; write the address of a vCenter Server into the cloud-config",
        content.api_type
    )))
}

/// The datacenter in the answer of `FindByInventoryPath`.
fn datacenter_in(answer: &[u8], name: &str, origin: &str) -> Result<Ref> {
    let found = readable(origin, vim::references(answer))?.into_iter().find(|found| found.kind == "Datacenter");
    found.ok_or_else(|| {
        Error::Denied(format!(
            "{origin} has no datacenter {name:?}, or does not show it to this account; correct `datacenters`, or give the \
             account the role Read-only"
        ))
    })
}

/// The error of a response of the API of tags, with the remedy; none where it is no error.
fn judge_tagging(response: &Response) -> Option<Error> {
    let error = response.clone().check().err()?;
    if !matches!(error, Error::Denied(_)) {
        return Some(error);
    }
    let message = format!("{}; give the account the role Read-only as a global permission", error.message());
    Some(error.with_message(message))
}

impl Cloud for Vcenter<'_> {
    fn name(&self) -> &str {
        &self.server.origin
    }

    fn containers(&self) -> Result<Vec<Ref>> {
        let Scope { content, datacenters } = self.scope()?;
        Ok(if datacenters.is_empty() { vec![content.root_folder.clone()] } else { datacenters.clone() })
    }

    fn read(&self, ids: &[String], paths: &[&str]) -> Result<Vec<Machine>> {
        let objects: Vec<_> = ids.iter().map(|id| Ref::machine(id)).collect();
        let whole = Machine::METADATA.iter().any(|path| paths.contains(path));
        let page = if whole { MACHINES_PER_PAGE } else { OBJECTS_PER_PAGE };
        self.retrieve(&[("VirtualMachine", paths)], &objects, Walk::None, page)
    }

    fn list(&self, paths: &[&str]) -> Result<Vec<Machine>> {
        self.retrieve(&[("VirtualMachine", paths)], &self.containers()?, Walk::Down, OBJECTS_PER_PAGE)
    }

    fn search(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<String>>> {
        let Scope { content, datacenters } = self.scope()?;
        let places: Vec<_> = if datacenters.is_empty() { vec![None] } else { datacenters.iter().map(Some).collect() };
        let index = &content.search_index;
        let bodies = queries.iter().flat_map(|query| {
            places.iter().map(move |place| match query {
                Query::Uuid(uuid) => vim::find_all_by_uuid(index, *place, uuid),
                Query::HostName(name) => vim::find_all_by_dns_name(index, *place, name),
                Query::Ip(address) => vim::find_all_by_ip(index, *place, address),
            })
        });
        let answers = send_every(bodies.map(|body| self.soap.request(&body)).collect())?;
        let found: Vec<_> = answers
            .iter()
            .map(|answer| readable(&self.server.origin, vim::references(&answer.body)))
            .collect::<Result<_>>()?;
        let ids = |of_query: &[Vec<Ref>]| of_query.iter().flatten().map(|found| found.id.clone()).collect();
        Ok(found.chunks(places.len()).map(ids).collect())
    }

    fn roles(&self) -> Result<Vec<Entity>> {
        self.retrieve(Entity::ROLES, &self.containers()?, Walk::Down, OBJECTS_PER_PAGE)
    }
}

impl Tags for Vcenter<'_> {
    fn places(&self, objects: &[Ref]) -> Result<Vec<Entity>> {
        self.retrieve(&[("ManagedEntity", Entity::PLACE)], objects, Walk::Up, OBJECTS_PER_PAGE)
    }

    fn attached(&self, objects: &[Ref]) -> Result<BTreeMap<Ref, Vec<String>>> {
        if objects.is_empty() {
            return Ok(BTreeMap::new());
        }
        let request = self.tagging("tag-association").post(&[]).query("~action", "list-attached-tags-on-objects");
        let answer = request.json(&Objects { object_ids: objects }).send()?;
        let Envelope { value } = answer.json::<Envelope<Option<Vec<Attached>>>>()?;
        let attached = value.unwrap_or_default().into_iter();
        Ok(attached.map(|Attached { object_id, tag_ids }| (object_id, tag_ids.unwrap_or_default())).collect())
    }

    fn tags(&self, ids: &[String]) -> Result<Vec<(String, Tag)>> {
        let found: Vec<(String, WireTag)> = self.by_ids("tag", ids)?;
        Ok(found
            .into_iter()
            .map(|(id, WireTag { name, category_id })| (id, Tag { name, category: category_id }))
            .collect())
    }

    fn categories(&self, ids: &[String]) -> Result<Vec<(String, String)>> {
        let found: Vec<(String, WireCategory)> = self.by_ids("category", ids)?;
        Ok(found.into_iter().map(|(id, WireCategory { name })| (id, name)).collect())
    }
}

#[cfg(test)]
mod tests;
