//! Elastic IPs and virtual servers.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
};

use ipnet::IpNet;
use tokio::time::Duration;

use super::{Made, State, checked_tags, checked_text, not_found, room};
use crate::cloud::{
    error::CloudError,
    listener::{Listener, Rules},
    model::{
        Backend, ElasticIp, NewElasticIp, NewVirtualServer, Progress, Protocol, VirtualServer, VirtualServerPatch,
    },
};

/// The maximum number of backends of one virtual server: Kubernetes supports clusters of up to
/// 5,000 nodes.
const REAL_SERVERS_MAX: usize = 5_000;
/// The maximum number of CIDRs of one virtual server.
const SOURCES_MAX: usize = 256;
/// Kubernetes' limit: one day.
const AFFINITY_SECONDS_MAX: u32 = 86_400;

/// A virtual server and its listener.
#[derive(Debug)]
pub(in crate::cloud) struct ServerEntry {
    made: Made<VirtualServer>,
    listener: Listener,
}

impl ServerEntry {
    /// The present record, with the health of the real servers.
    pub(in crate::cloud) fn view(&self) -> VirtualServer {
        let real_servers = self.listener.real_servers();
        VirtualServer { real_servers, state: self.made.progress(), ..self.made.record.clone() }
    }

    /// The record without the listener's data: its real servers are empty.
    pub(in crate::cloud) fn record(&self) -> &VirtualServer {
        &self.made.record
    }
}

impl State {
    pub(in crate::cloud) fn elastic_ip_of(made: &Made<ElasticIp>) -> ElasticIp {
        ElasticIp { state: made.progress(), ..made.record.clone() }
    }

    pub(in crate::cloud) fn create_elastic_ip(&mut self, new: NewElasticIp) -> Result<ElasticIp, CloudError> {
        let NewElasticIp { name, address, tags } = new;
        checked_text("the name of an elastic IP", &name)?;
        checked_tags(&tags)?;
        let base = u32::from(self.pools.elastic);
        let whole = || format!("the pool of the {} elastic IPs after {}", self.pools.elastic_max, self.pools.elastic);
        let mut pool = (1..=self.pools.elastic_max).map(|n| Ipv4Addr::from(base + n));
        let taken: HashSet<_> = self.elastic_ips.values().map(|made| made.record.address).collect();
        let address = match address {
            Some(address) if !pool.any(|one| one == address) => {
                return Err(CloudError::Invalid(format!("{address} is not in {}", whole())));
            }
            Some(address) if taken.contains(&address) => {
                return Err(CloudError::Conflict(format!("{address} belongs to another elastic IP")));
            }
            Some(address) => address,
            None => pool
                .find(|address| !taken.contains(address))
                .ok_or_else(|| CloudError::Exhausted(format!("{} is used up", whole())))?,
        };
        let record = ElasticIp { id: self.next_id("eip"), name, address, state: Progress::Pending, tags };
        self.tell("created", "elastic-ip", (&record.id, &address.to_string()), &record.tags);
        let made = Made { record, ready_at: self.ready_at() };
        let view = Self::elastic_ip_of(&made);
        self.elastic_ips.insert(view.id.clone(), made);
        Ok(view)
    }

    pub(in crate::cloud) fn delete_elastic_ip(&mut self, id: &str) -> Result<(), CloudError> {
        if let Some(user) = self.virtual_servers.values().find(|entry| entry.made.record.elastic_ip == id) {
            let user = &user.made.record.id;
            return Err(CloudError::Conflict(format!("elastic IP {id} is used by virtual server {user}")));
        }
        let made = self.elastic_ips.remove(id).ok_or_else(|| not_found("elastic IP", id))?;
        self.forget(id);
        self.tell("deleted", "elastic-ip", (id, &made.record.address.to_string()), &made.record.tags);
        Ok(())
    }

    /// Must be called within a tokio runtime; when it returns, clients can connect.
    pub(in crate::cloud) fn create_virtual_server(
        &mut self,
        new: NewVirtualServer,
    ) -> Result<VirtualServer, CloudError> {
        let NewVirtualServer {
            name,
            elastic_ip,
            protocol,
            port,
            real_servers,
            allowed_sources,
            session_affinity_seconds,
            tags,
        } = new;
        checked_text("the name of a virtual server", &name)?;
        checked_tags(&tags)?;
        room("virtual servers", self.virtual_servers.len())?;
        match protocol {
            Protocol::Tcp => {}
            Protocol::Udp => return Err(CloudError::UnsupportedProtocol("udp")),
            Protocol::Sctp => return Err(CloudError::UnsupportedProtocol("sctp")),
        }
        if port == 0 {
            return Err(CloudError::Invalid("port must be from 1 to 65535".to_owned()));
        }
        let rules = rules(real_servers, &allowed_sources, session_affinity_seconds)?;
        let eip = self.elastic_ips.get(&elastic_ip).ok_or_else(|| not_found("elastic IP", &elastic_ip))?;
        let address = eip.record.address;
        let taken = self.virtual_servers.values().map(|entry| &entry.made.record);
        if let Some(other) = taken.into_iter().find(|other| other.elastic_ip == elastic_ip && other.port == port) {
            return Err(CloudError::Conflict(format!("virtual server {} has {address}:{port} already", other.id)));
        }
        let listener = Listener::bind(SocketAddr::from((address, port)), rules)?;
        let record = VirtualServer {
            id: self.next_id("vs"),
            name,
            elastic_ip,
            address,
            protocol,
            port,
            real_servers: Vec::new(),
            allowed_sources,
            session_affinity_seconds,
            state: Progress::Pending,
            tags,
        };
        self.tell("created", "virtual-server", (&record.id, &format!("{address}:{port}")), &record.tags);
        let entry = ServerEntry { made: Made { record, ready_at: self.ready_at() }, listener };
        let view = entry.view();
        self.virtual_servers.insert(view.id.clone(), entry);
        Ok(view)
    }

    pub(in crate::cloud) fn patch_virtual_server(
        &mut self,
        id: &str,
        patch: VirtualServerPatch,
    ) -> Result<VirtualServer, CloudError> {
        let entry = self.virtual_servers.get_mut(id).ok_or_else(|| not_found("virtual server", id))?;
        let VirtualServerPatch { real_servers, allowed_sources, session_affinity_seconds } = patch;
        let before = entry.view();
        let now = before.real_servers.iter().map(|real| Backend { address: real.address, port: real.port });
        let real_servers = real_servers.unwrap_or_else(|| now.collect());
        let allowed_sources = allowed_sources.unwrap_or(before.allowed_sources);
        let session_affinity_seconds = session_affinity_seconds.unwrap_or(before.session_affinity_seconds);
        entry.listener.set_rules(rules(real_servers, &allowed_sources, session_affinity_seconds)?);
        let record = &mut entry.made.record;
        record.allowed_sources = allowed_sources;
        record.session_affinity_seconds = session_affinity_seconds;
        let view = entry.view();
        self.tell("changed", "virtual-server", (id, &format!("{}:{}", view.address, view.port)), &view.tags);
        Ok(view)
    }

    pub(in crate::cloud) fn backend_counts(&self) -> Vec<(String, usize)> {
        self.virtual_servers.values().map(|entry| (entry.made.record.name.clone(), entry.listener.backends())).collect()
    }

    pub(in crate::cloud) fn virtual_servers_behind(&self, address: Ipv4Addr) -> usize {
        self.virtual_servers.values().filter(|entry| entry.listener.leads_to(address)).count()
    }

    /// The caller closes the returned listener.
    pub(in crate::cloud) fn delete_virtual_server(&mut self, id: &str) -> Result<Listener, CloudError> {
        let ServerEntry { made, listener } =
            self.virtual_servers.remove(id).ok_or_else(|| not_found("virtual server", id))?;
        self.forget(id);
        let VirtualServer { address, port, tags, .. } = &made.record;
        self.tell("deleted", "virtual-server", (id, &format!("{address}:{port}")), tags);
        Ok(listener)
    }
}

/// The checked rules of the listener: backends on loopback, sorted, without duplicates.
fn rules(mut backends: Vec<Backend>, allowed: &[String], affinity_seconds: u32) -> Result<Rules, CloudError> {
    if backends.len() > REAL_SERVERS_MAX || allowed.len() > SOURCES_MAX {
        let message = format!("a virtual server has at most {REAL_SERVERS_MAX} real servers and {SOURCES_MAX} sources");
        return Err(CloudError::Invalid(message));
    }
    if affinity_seconds > AFFINITY_SECONDS_MAX {
        let message = format!("session_affinity_seconds must be from 0 to {AFFINITY_SECONDS_MAX}");
        return Err(CloudError::Invalid(message));
    }
    for Backend { address, port } in &backends {
        if !address.is_loopback() || *port == 0 {
            let message = format!("real server {address}:{port} is not on the simulated network 127.0.0.0/8");
            return Err(CloudError::Invalid(message));
        }
    }
    backends.sort_unstable();
    backends.dedup();
    let range =
        |text: &String| text.parse::<IpNet>().map_err(|_| CloudError::Invalid(format!("{text:?} is not a CIDR")));
    let allowed = allowed.iter().map(range).collect::<Result<_, _>>()?;
    Ok(Rules { backends, allowed, affinity: Duration::from_secs(affinity_seconds.into()) })
}
