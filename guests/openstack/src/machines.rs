//! Nodes and their servers: identity, power state, labels. The servers of a page of nodes are
//! listed at once.

mod addresses;

use std::collections::HashMap;

use skysail_guest_sdk::{
    Detail, Error, Instance, Result,
    instances::{CONFIRMED_MAX, Turn, not_yet_looked_up},
    labels::is_label_value,
    legacy::Zone,
    provider_id,
};

use crate::{
    SCHEME,
    client::{Call, Cloud},
    distinct,
    settings::{Api, Settings},
    wire::{self, Network, Port, Server},
};

/// Pages of at most this many servers or ports: Nova's own limit, and about 3 MiB of servers.
const PAGE: &str = "1000";

/// Up to this many nodes are looked up one by one: cheaper than the list of a large project.
const LOOK_UPS_MAX: usize = 5;

/// What a port must tell for the addresses of its server.
const PORT_FIELDS: [&str; 6] = ["id", "device_id", "network_id", "status", "fixed_ips", "trunk_details"];

/// The power state in which volumes may be detached at once.
const SHUTOFF: &str = "SHUTOFF";

/// The key of a node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    /// The server's ID, and the provider ID that the node has.
    Id { server: String, provider_id: String },
    /// The node's name.
    Name(String),
}

/// Answers `instances.describe` of the contract. `nodes` has the name of each node and, where the
/// node has one, its provider ID.
pub(crate) fn describe(
    cloud: &impl Cloud,
    settings: &Settings,
    nodes: Vec<(String, Option<String>)>,
    detail: Detail,
    turn: Turn,
) -> Result<Vec<Result<Instance>>> {
    let keys: Vec<Result<By>> = nodes.into_iter().map(|(name, id)| key(settings, name, id)).collect();
    let servers = if keys.len() <= LOOK_UPS_MAX { Vec::new() } else { list(cloud)? };
    let known = Known::new(&servers);
    let mut found: Vec<Result<Option<Server>>> = keys.iter().map(|key| known.find(key.as_ref().ok())).collect();
    confirm(cloud, turn, &keys, &mut found);
    let wanted: Vec<&Server> = found.iter().filter_map(|server| server.as_ref().ok()?.as_ref()).collect();
    let ports = match detail {
        Detail::State => Vec::new(),
        Detail::Metadata => ports(cloud, &wanted)?,
    };
    let addresses = addresses::Addresses::new(cloud, &ports, &wanted, &settings.networking)?;
    let instance = |(key, server): (Result<By>, Result<Option<Server>>)| {
        let (key, server) = (key?, server?);
        let server = server.ok_or_else(|| Error::NotFound(format!("OpenStack has no server {}", name_of(&key))))?;
        let mut instance = instance(settings, &key, &server);
        if detail == Detail::Metadata {
            instance.addresses = addresses.of(&server);
        }
        Ok(instance)
    };
    Ok(keys.into_iter().zip(found).map(instance).collect())
}

/// The zone of one node's server, by its provider ID or, without one, by its name.
pub(crate) fn zone(cloud: &impl Cloud, settings: &Settings, name: &str, id: Option<String>) -> Result<Zone> {
    let found = describe(cloud, settings, vec![(name.to_owned(), id)], Detail::State, Turn::of(0))?.pop();
    let Instance { zone, region, .. } =
        found.unwrap_or_else(|| Err(Error::Internal("one node has one description".to_owned())))?;
    Ok(Zone { failure_domain: zone, region })
}

/// The ID of the server of a provider ID.
///
/// # Errors
///
/// `invalid` for another scheme, form or region.
pub(crate) fn server_id<'a>(settings: &Settings, provider_id: &'a str) -> Result<&'a str> {
    let rest = provider_id::parse(SCHEME, provider_id)?;
    match rest.split_once('/') {
        Some((region, _)) if !region.is_empty() && region != settings.region => Err(Error::Invalid(format!(
            "provider ID {provider_id:?} is of region {region:?}, and this provider serves {:?}; give each region a \
             provider with providerIdPrefixes",
            settings.region
        ))),
        Some((_, id)) if !id.is_empty() && !id.contains('/') => Ok(id),
        _ => Err(Error::Invalid(format!(
            "provider ID {provider_id:?} does not have the form openstack:///UUID or openstack://REGION/UUID"
        ))),
    }
}

fn key(settings: &Settings, name: String, id: Option<String>) -> Result<By> {
    match id.filter(|id| !id.is_empty()) {
        None => Ok(By::Name(name)),
        Some(provider_id) => Ok(By::Id { server: server_id(settings, &provider_id)?.to_owned(), provider_id }),
    }
}

impl By {
    fn text(&self) -> &str {
        match self {
            Self::Id { server, .. } => server,
            Self::Name(name) => name,
        }
    }
}

fn name_of(key: &By) -> String {
    match key {
        By::Id { server, .. } => server.clone(),
        By::Name(name) => format!("named {name:?}"),
    }
}

/// All servers of the project.
fn list(cloud: &impl Cloud) -> Result<Vec<Server>> {
    cloud.list(Call::get(Api::Compute, &["servers", "detail"]).query("limit", PAGE))
}

/// Listed servers by ID and by name in lower case.
struct Known<'a> {
    ids: HashMap<&'a str, &'a Server>,
    names: HashMap<String, Vec<&'a Server>>,
}

impl<'a> Known<'a> {
    fn new(servers: &'a [Server]) -> Self {
        let mut names: HashMap<String, Vec<&Server>> = HashMap::new();
        for server in servers {
            names.entry(server.name.to_ascii_lowercase()).or_default().push(server);
        }
        Self { ids: servers.iter().map(|server| (server.id.as_str(), server)).collect(), names }
    }

    fn find(&self, key: Option<&By>) -> Result<Option<Server>> {
        match key {
            None => Ok(None),
            Some(By::Id { server, .. }) => Ok(self.ids.get(server.as_str()).copied().cloned()),
            Some(By::Name(name)) => {
                only(name, self.names.get(&name.to_ascii_lowercase()).into_iter().flatten().copied())
            }
        }
    }
}

/// The only server of a name. Kubelet writes the name of a machine in lower case, so a server whose
/// name differs in case only is the node's machine, unless another one has exactly this name.
fn only<'a>(name: &str, servers: impl Iterator<Item = &'a Server>) -> Result<Option<Server>> {
    let alike: Vec<&Server> = servers.filter(|server| server.name.eq_ignore_ascii_case(name)).collect();
    let exact: Vec<&Server> = alike.iter().copied().filter(|server| server.name == name).collect();
    match if exact.is_empty() { alike } else { exact }.as_slice() {
        [] => Ok(None),
        [server] => Ok(Some((*server).clone())),
        _ => Err(Error::Unavailable(format!(
            "several servers have the name {name:?} of the node, so none of them is certainly its machine; rename the \
             others, or set the provider ID in kubelet"
        ))),
    }
}

/// Looks up the servers that were not listed: a list in pages can lose an entry, and only a look-up
/// says with certainty that a machine does not exist.
fn confirm(cloud: &impl Cloud, turn: Turn, keys: &[Result<By>], found: &mut [Result<Option<Server>>]) {
    let absent = keys.iter().zip(found).filter_map(|(key, found)| match found {
        Ok(None) => Some((key.as_ref().ok()?, found)),
        _ => None,
    });
    let (absent, later) = turn.split(absent, CONFIRMED_MAX, |(key, _)| key.text());
    for (key, found) in later {
        *found = Err(not_yet_looked_up("the list of servers", &server_text(key)));
    }
    let answers = cloud.send_all(absent.iter().map(|(key, _)| look_up(key)).collect());
    for ((key, found), answer) in absent.into_iter().zip(answers) {
        *found = looked_up(key, answer);
    }
}

fn look_up(key: &By) -> Call {
    match key {
        By::Id { server, .. } => Call::get(Api::Compute, &["servers", server]),
        By::Name(name) => {
            let pattern: String = name.chars().map(either_case).collect();
            Call::get(Api::Compute, &["servers", "detail"]).query("name", format!("^{pattern}$"))
        }
    }
}

/// A regular expression for one character of a node's name, which has no special character but the
/// dot. Nova leaves the case to its database, and not every database ignores the case.
fn either_case(c: char) -> String {
    match c {
        '.' => "[.]".to_owned(),
        c if c.is_ascii_alphabetic() => format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()),
        c => c.to_string(),
    }
}

fn server_text(key: &By) -> String {
    format!("server {}", name_of(key))
}

fn looked_up(key: &By, answer: Result<Vec<u8>>) -> Result<Option<Server>> {
    match key {
        By::Id { .. } => match answer {
            Ok(body) => wire::one(&body).map(Some).map_err(|error| error.context(&server_text(key))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        },
        By::Name(name) => {
            let servers =
                wire::one(&answer.map_err(Error::never_gone)?).map_err(|error| error.context(&server_text(key)));
            let servers: Vec<Server> = servers?;
            only(name, servers.iter())
        }
    }
}

/// The ports of the servers, and with many servers those of their project.
fn ports(cloud: &impl Cloud, servers: &[&Server]) -> Result<Vec<Port>> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    let call = Call::get(Api::Network, &["ports"]).queries("fields", PORT_FIELDS).query("limit", PAGE);
    if servers.len() <= LOOK_UPS_MAX {
        return cloud.list(call.queries("device_id", servers.iter().map(|server| server.id.as_str())));
    }
    // An account with the role of an administrator would list the ports of every project.
    let projects = distinct(servers.iter().map(|server| server.tenant_id.as_str()));
    cloud.list(call.queries("project_id", projects.into_iter().filter(|project| !project.is_empty())))
}

/// The networks of these IDs, for their names.
fn networks(cloud: &impl Cloud, ids: &[&str]) -> Result<Vec<Network>> {
    let call = Call::get(Api::Network, &["networks"]).queries("fields", ["id", "name"]);
    cloud.list(call.queries("id", ids.iter().copied()))
}

fn instance(settings: &Settings, key: &By, server: &Server) -> Instance {
    let provider_id = match key {
        By::Id { provider_id, .. } => provider_id.clone(),
        By::Name(_) if settings.regional_provider_id => {
            provider_id::format(SCHEME, &format!("{}/{}", settings.region, server.id))
        }
        By::Name(_) => provider_id::format(SCHEME, &format!("/{}", server.id)),
    };
    Instance {
        shutdown: server.status == SHUTOFF,
        instance_type: label_value(&server.flavor.original_name),
        zone: label_value(&server.availability_zone),
        region: settings.region.clone(),
        ..Instance::new(provider_id)
    }
}

/// The text as the value of a label: other characters become dashes.
fn label_value(text: &str) -> String {
    if is_label_value(text) {
        return text.to_owned();
    }
    let mut value = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            value.push(c);
        } else if !value.ends_with('-') {
            value.push('-');
        }
    }
    let value: String = value.trim_matches(['-', '_', '.']).chars().take(63).collect();
    value.trim_end_matches(['-', '_', '.']).to_owned()
}

#[cfg(test)]
mod tests;
