//! Load balancers: an elastic IP, and a virtual server for each port, all with the load balancer's
//! name and the cluster's tag.
//!
//! Each function first lists the existing resources, so that it finds repeated and partial work.
//! The idempotency key finds the result of a request whose response was lost.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skysail_guest_sdk::{
    Absent as _, Error, Ingress, IpFamily, LoadBalancerStatus, NodeSet, Owned, Protocol, Result, Service,
    SessionAffinity,
    http::{self, Request},
};

use crate::api::{Backend, Cloud, ElasticIp, Tags, VirtualServer};

pub(crate) const CLUSTER_TAG: &str = "skysail-cluster";
const SERVICE_TAG: &str = "skysail-service";
const UID_TAG: &str = "skysail-service-uid";
/// Wait before the next look at a resource that is still being created.
const PENDING: Duration = Duration::from_secs(1);

/// The existing resources of one name.
struct Present {
    ips: Vec<ElasticIp>,
    servers: Vec<VirtualServer>,
}

/// The desired state of one virtual server.
#[derive(Serialize)]
struct Wanted<'a> {
    name: &'a str,
    elastic_ip: &'a str,
    protocol: &'a str,
    port: u16,
    #[serde(flatten)]
    settings: Settings<'a>,
    tags: &'a Tags,
}

/// The part of a virtual server that may change.
#[derive(PartialEq, Serialize)]
struct Settings<'a> {
    real_servers: &'a [Backend],
    allowed_sources: &'a [String],
    session_affinity_seconds: u32,
}

/// What is read of a virtual server that was written: its backends may be thousands.
#[derive(Deserialize)]
struct Written {
    state: String,
}

#[derive(Serialize)]
struct NewElasticIp<'a> {
    name: &'a str,
    address: Option<&'a str>,
    tags: &'a Tags,
}

pub(crate) fn get(cloud: &Cloud, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
    let ips: Vec<ElasticIp> = list(cloud, "elastic-ips", cluster, Some(&service.default_load_balancer_name()))?;
    Ok(ips.first().map(|ip| Ingress::ip(&ip.address).into()))
}

pub(crate) fn ensure(cloud: &Cloud, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
    let ports = check(service)?;
    let sources = sources(service)?;
    let name = service.default_load_balancer_name();
    let mut present = find(cloud, cluster, Some(&name))?;
    let tags: Tags = [
        (CLUSTER_TAG.to_owned(), cluster.to_owned()),
        (SERVICE_TAG.to_owned(), service.key()),
        (UID_TAG.to_owned(), service.uid.clone()),
    ]
    .into();
    let asked = service.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty());
    let keep = present.ips.iter().position(|ip| asked.is_none_or(|asked| ip.address == asked));
    let kept = keep.map(|place| present.ips.remove(place));
    let kept_id = kept.as_ref().map(|ip| ip.id.as_str());
    let (servers, stale): (Vec<_>, Vec<_>) = present.servers.into_iter().partition(|server| {
        Some(server.elastic_ip.as_str()) == kept_id && ports.iter().any(|(port, _)| *port == server.port)
    });
    remove(cloud, &stale, &present.ips)?;
    let ip = match kept {
        Some(ip) => ip,
        None => {
            let request =
                cloud.api.post(&["v1", "elastic-ips"]).json(&NewElasticIp { name: &name, address: asked, tags: &tags });
            let key = format!("{cluster}/{name}/{}", asked.unwrap_or_default());
            request.header("idempotency-key", &key).send()?.json()?
        }
    };
    let mut requests: Vec<Request> = Vec::new();
    let mut backends = backends(nodes);
    for (port, node_port) in ports {
        backends.iter_mut().for_each(|backend| backend.port = node_port);
        let settings = Settings {
            real_servers: &backends,
            allowed_sources: &sources,
            session_affinity_seconds: affinity(service),
        };
        match servers.iter().find(|server| server.port == port) {
            Some(server) if Settings::of(server) == settings => {}
            Some(server) => requests.push(cloud.api.patch(&["v1", "virtual-servers", &server.id]).json(&settings)),
            None => {
                let new = Wanted { name: &name, elastic_ip: &ip.id, protocol: "tcp", port, settings, tags: &tags };
                let request = cloud.api.post(&["v1", "virtual-servers"]).json(&new);
                requests.push(request.header("idempotency-key", &format!("{cluster}/{name}/{}/{port}", ip.id)));
            }
        }
    }
    let mut pending = ip.state == "pending" || servers.iter().any(|server| server.state == "pending");
    for answer in http::send_every(requests)? {
        pending |= answer.json::<Written>()?.state == "pending";
    }
    if pending {
        return Err(Error::retry_after(PENDING, format!("{} is being made", ip.address)));
    }
    Ok(Ingress::ip(ip.address).into())
}

pub(crate) fn update(cloud: &Cloud, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
    let ports = check(service)?;
    let name = service.default_load_balancer_name();
    let servers: Vec<VirtualServer> = list(cloud, "virtual-servers", cluster, Some(&name))?;
    let mut requests = Vec::new();
    let mut backends = backends(nodes);
    for (port, node_port) in ports {
        backends.iter_mut().for_each(|backend| backend.port = node_port);
        let server = servers.iter().find(|server| server.port == port);
        let server = server.ok_or_else(|| Error::NotFound(format!("there is no virtual server for port {port}")))?;
        if server.real_servers != backends {
            let path = ["v1", "virtual-servers", server.id.as_str(), "real-servers"];
            requests.push(cloud.api.put(&path).json(&backends));
        }
    }
    http::send_every(requests).map(drop)
}

/// Deletes everything of this name and cluster.
pub(crate) fn delete(cloud: &Cloud, cluster: &str, name: &str) -> Result<()> {
    let present = find(cloud, cluster, Some(name))?;
    remove(cloud, &present.servers, &present.ips)
}

/// A load balancer has one Service: one of another Service with this name stays.
pub(crate) fn delete_owned(cloud: &Cloud, cluster: &str, name: &str, uid: Option<&str>) -> Result<()> {
    let all: Vec<ElasticIp> = Cloud::list(&cloud.api.get(&["v1", "elastic-ips"]).query("name", name))?;
    let is_of_another = |ip: &ElasticIp| uid.is_some_and(|uid| ip.tags.get(UID_TAG).is_some_and(|tag| tag != uid));
    if all.iter().any(is_of_another) {
        return Ok(());
    }
    if all.iter().any(|ip| ip.tags.get(CLUSTER_TAG).map(String::as_str) != Some(cluster)) {
        return Err(Error::Denied(format!("load balancer {name:?} is not of cluster {cluster:?}")));
    }
    delete(cloud, cluster, name)
}

pub(crate) fn owned(cloud: &Cloud, cluster: &str) -> Result<Vec<Owned>> {
    let Present { ips, servers } = find(cloud, cluster, None)?;
    let named = ips.into_iter().map(|ip| (ip.name, ip.tags));
    let named: BTreeMap<String, Tags> =
        named.chain(servers.into_iter().map(|server| (server.name, server.tags))).collect();
    let service = |tags: &Tags| {
        let (namespace, name) = tags.get(SERVICE_TAG)?.split_once('/')?;
        Some((namespace.to_owned(), name.to_owned(), tags.get(UID_TAG)?.clone()))
    };
    Ok(named.into_iter().map(|(name, tags)| Owned { service: service(&tags), name, extra: Vec::new() }).collect())
}

fn find(cloud: &Cloud, cluster: &str, name: Option<&str>) -> Result<Present> {
    Ok(Present {
        ips: list(cloud, "elastic-ips", cluster, name)?,
        servers: list(cloud, "virtual-servers", cluster, name)?,
    })
}

fn list<T: DeserializeOwned>(cloud: &Cloud, kind: &str, cluster: &str, name: Option<&str>) -> Result<Vec<T>> {
    let tag = format!("{CLUSTER_TAG}={cluster}");
    Cloud::list(&cloud.api.get(&["v1", kind]).query("tag", &tag).query_opt("name", name))
}

/// Virtual servers first: an address in use cannot be released.
fn remove(cloud: &Cloud, servers: &[VirtualServer], ips: &[ElasticIp]) -> Result<()> {
    let servers = servers.iter().map(|server| cloud.api.delete(&["v1", "virtual-servers", &server.id])).collect();
    let ips = ips.iter().map(|ip| cloud.api.delete(&["v1", "elastic-ips", &ip.id])).collect();
    for requests in [servers, ips] {
        for answer in http::send_all(requests) {
            answer.absent_ok()?;
        }
    }
    Ok(())
}

/// Port and node port of each entry. What the cloud does not support is refused before anything is
/// created.
fn check(service: &Service) -> Result<Vec<(u16, u16)>> {
    if !service.families().any(|family| family == IpFamily::Ipv4) {
        return Err(Error::Unsupported("the simulated cloud has IPv4 only".to_owned()));
    }
    let port = |port: &skysail_guest_sdk::ServicePort| match port.protocol {
        Protocol::Tcp if port.node_port == 0 => Err(Error::Invalid(format!(
            "port {} has no node port: the load balancer reaches pods through node ports",
            port.port
        ))),
        Protocol::Tcp => Ok((port.port, port.node_port)),
        Protocol::Udp | Protocol::Sctp => {
            Err(Error::Unsupported(format!("port {}: the simulated cloud carries TCP only", port.port)))
        }
    };
    service.ports.iter().map(port).collect()
}

/// The IPv4 ranges; no range at all means every client.
fn sources(service: &Service) -> Result<Vec<String>> {
    let ranges = service.allowed_sources()?;
    if ranges.iter().any(|range| range.address().is_ipv4() && range.is_everything()) {
        return Ok(Vec::new());
    }
    let ranges: Vec<_> = ranges.iter().filter(|range| range.address().is_ipv4()).map(ToString::to_string).collect();
    if ranges.is_empty() {
        return Err(Error::Unsupported("no source range is IPv4: the simulated cloud has no other clients".to_owned()));
    }
    Ok(ranges)
}

/// The nodes as backends in the order of the cloud's lists, with the port still open.
fn backends(nodes: &NodeSet) -> Vec<Backend> {
    let ips = nodes.internal_ips(IpFamily::Ipv4);
    let mut backends: Vec<_> = ips.into_iter().map(|address| Backend { address, port: 0 }).collect();
    backends.sort_unstable();
    backends.dedup();
    backends
}

const fn affinity(service: &Service) -> u32 {
    match service.session_affinity {
        SessionAffinity::None => 0,
        SessionAffinity::ClientIp(seconds) => seconds,
    }
}

impl<'a> Settings<'a> {
    fn of(server: &'a VirtualServer) -> Self {
        Self {
            real_servers: &server.real_servers,
            allowed_sources: &server.allowed_sources,
            session_affinity_seconds: server.session_affinity_seconds,
        }
    }
}

#[cfg(test)]
mod tests;
