//! The load balancer of one Service. Pure: computes what should be from Service, nodes and
//! cloud-config.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
};

use skysail_guest_sdk::{
    Cidr, Error, Ingress, IpMode, LoadBalancerStatus, NodeSet, Result, Service, SessionAffinity,
    annotations::Annotations, provider_id,
};

use crate::{
    SCHEME,
    ports::{self, Ports},
    selector::Selector,
    settings::{Algorithm, Balancers, Settings},
    wire::LoadBalancer,
};

/// Prefix of every annotation.
pub(crate) const PREFIX: &str = "load-balancer.hetzner.cloud/";

/// The type of a load balancer if neither the Service nor the cloud-config names one.
pub(crate) const DEFAULT_TYPE: &str = "lb11";

/// Reason and message of Events of type `Warning`.
pub(crate) type Warnings = Vec<(&'static str, String)>;

/// The load balancer that a Service asks for. None leaves the cloud's value.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The name that the user chose.
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) public_interface: Option<bool>,
    /// Reverse DNS of the public addresses.
    pub(crate) rdns_ipv4: Option<String>,
    pub(crate) rdns_ipv6: Option<String>,
    /// The address in the network that the user chose.
    pub(crate) private_ipv4: Option<Ipv4Addr>,
    pub(crate) private_subnet: Option<Cidr>,
    pub(crate) use_private_ip: bool,
    pub(crate) ports: Ports,
    pub(crate) servers: Servers,
    pub(crate) front: Front,
}

/// Where a new load balancer is created: one of the two.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) location: Option<String>,
    pub(crate) network_zone: Option<String>,
}

/// What the status of the Service lists.
#[derive(Debug)]
pub(crate) struct Front {
    /// Stands in place of the addresses.
    hostname: Option<String>,
    proxy_protocol: bool,
    ipv6: bool,
    private: bool,
}

/// The servers behind the nodes: ID and name of the node.
pub(crate) type Servers = BTreeMap<u64, String>;

/// The name of the Service's load balancer, chosen by the user or made of the UID.
pub(crate) fn name_of(service: &Service) -> String {
    let chosen = Annotations::of(service, PREFIX).text("name");
    chosen.map_or_else(|| service.default_load_balancer_name(), str::to_owned)
}

impl Wanted {
    /// Reads the Service and its nodes.
    ///
    /// # Errors
    ///
    /// `invalid` for a wrong annotation, `unsupported` for source ranges: a Service with an
    /// allowlist must not be open to every client.
    pub(crate) fn new(
        settings: &Settings,
        service: &Service,
        nodes: &NodeSet,
        warnings: &mut Warnings,
    ) -> Result<Self> {
        if !service.allowed_sources()?.iter().all(Cidr::is_everything) {
            return Err(Error::Unsupported(
                "loadBalancerSourceRanges: Hetzner load balancers accept every client; remove the ranges".to_owned(),
            ));
        }
        let defaults = &settings.balancers;
        let annotations = Annotations::of(service, PREFIX);
        let use_private_ip = annotations.bool("use-private-ip")?.unwrap_or(defaults.use_private_ip);
        if use_private_ip && settings.network.is_none() {
            let reason = "private addresses need a network; write the key network into the cloud-config";
            return Err(annotations.invalid("use-private-ip", reason));
        }
        let kind = annotations.text("type").map(str::to_owned).or_else(|| defaults.kind.clone());
        if kind.is_none() {
            let message = format!(
                "annotation {PREFIX}type and key load-balancers-type are absent; a new load balancer has the type \
                 {DEFAULT_TYPE}; Hetzner's manager will require one of the two"
            );
            warnings.push(("LoadBalancerTypeUnconfigured", message));
        }
        warnings.extend(ignored(service).map(|(reason, message)| (reason, message.to_owned())));
        let algorithms = [Algorithm::RoundRobin, Algorithm::LeastConnections].map(|one| (one.word(), one));
        let disable = annotations.bool("disable-public-network")?.or(defaults.disable_public_network);
        Ok(Self {
            name: annotations.text("name").map(str::to_owned),
            kind,
            algorithm: word(annotations, "algorithm-type", &algorithms)?.or(defaults.algorithm),
            public_interface: disable.map(|disable| !disable),
            rdns_ipv4: annotations.text("ipv4-rdns").map(str::to_owned),
            rdns_ipv6: annotations.text("ipv6-rdns").map(str::to_owned),
            private_ipv4: annotations.parse("private-ipv4")?,
            private_subnet: subnet(annotations)?.or(defaults.private_subnet),
            use_private_ip,
            ports: ports::ports(service, defaults, warnings)?,
            servers: servers(service, nodes, warnings)?,
            front: Front::new(defaults, service)?,
        })
    }
}

impl Place {
    /// The place of a new load balancer. An empty annotation takes the default back, so that a
    /// Service can name a network zone where the cloud-config names a location.
    ///
    /// # Errors
    ///
    /// `invalid` where nothing names a place.
    pub(crate) fn new(defaults: &Balancers, service: &Service) -> Result<Self> {
        let of = |key: &str, default: &Option<String>| match service.annotation(&format!("{PREFIX}{key}")) {
            Some(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            None => default.clone(),
        };
        let location = of("location", &defaults.location);
        let network_zone = of("network-zone", &defaults.network_zone).filter(|_| location.is_none());
        if location.is_none() && network_zone.is_none() {
            return Err(Error::Invalid(format!(
                "annotations {PREFIX}location and {PREFIX}network-zone are absent, and so are the keys \
                 load-balancers-location and load-balancers-network-zone; write one of them"
            )));
        }
        Ok(Self { location, network_zone })
    }
}

impl Front {
    /// Reads the annotations about the status.
    pub(crate) fn new(defaults: &Balancers, service: &Service) -> Result<Self> {
        let annotations = Annotations::of(service, PREFIX);
        let unless = |key: &str, default: bool| -> Result<bool> {
            Ok(annotations.bool(key)?.map_or(default, |disabled| !disabled))
        };
        Ok(Self {
            hostname: annotations.text("hostname").map(str::to_owned),
            proxy_protocol: annotations.bool("uses-proxyprotocol")?.or(defaults.proxy_protocol).unwrap_or(false),
            ipv6: unless("ipv6-disabled", defaults.ipv6)?,
            private: unless("disable-private-ingress", defaults.private_ingress)?,
        })
    }

    /// The status of a Service with this load balancer: public addresses, then private ones.
    pub(crate) fn status(&self, balancer: &LoadBalancer) -> LoadBalancerStatus {
        if let Some(hostname) = &self.hostname {
            return Ingress::hostname(hostname.as_str()).into();
        }
        let public = &balancer.public_net;
        let ipv4 = public.ipv4.ip.iter().filter(|_| public.enabled);
        let ipv6 = public.ipv6.ip.iter().filter(|_| public.enabled && self.ipv6);
        let private = balancer.private_net.iter().map(|net| &net.ip).filter(|ip| self.private && !ip.is_empty());
        // kube-proxy must not answer for the load balancer inside of the cluster: the connection
        // would lack the header of the PROXY protocol.
        let mode = if self.proxy_protocol { IpMode::Proxy } else { IpMode::Vip };
        let ingress = |ip: &String| Ingress { ip_mode: Some(mode), ..Ingress::ip(ip.as_str()) };
        LoadBalancerStatus { ingress: ipv4.chain(ipv6).chain(private).map(ingress).collect() }
    }
}

/// The servers behind the nodes that the Service selects; a node without a cloud server is left out
/// with a warning.
///
/// # Errors
///
/// `invalid` for a selector that cannot be read.
fn servers(service: &Service, nodes: &NodeSet, warnings: &mut Warnings) -> Result<Servers> {
    let annotations = Annotations::of(service, PREFIX);
    let selector = annotations.text("node-selector").map(Selector::parse).transpose();
    let selector = selector.map_err(|reason| annotations.invalid("node-selector", reason))?.unwrap_or_default();
    let columns: HashMap<&str, _> = selector.keys().map(|key| (key, nodes.label(key))).collect();
    let (mut servers, mut foreign) = (Servers::new(), Vec::new());
    for (at, (node, id)) in nodes.names().into_iter().zip(nodes.provider_ids()).enumerate() {
        let labels = columns.iter().filter_map(|(key, column)| Some((*key, column.get(at)?.as_deref()?)));
        if !selector.matches(&labels.collect()) {
            continue;
        }
        let id = id.as_deref().and_then(|id| provider_id::parse(SCHEME, id).ok()?.parse().ok());
        match id {
            Some(id) => {
                servers.insert(id, node);
            }
            None => foreign.push(node),
        }
    }
    if !foreign.is_empty() {
        warnings.push(("UnknownProviderIDPrefix", left_out(&foreign, "they are not cloud servers")));
    }
    Ok(servers)
}

/// A sentence about nodes that are no targets.
pub(crate) fn left_out(nodes: &[String], why: &str) -> String {
    let first = nodes.first().map_or("", String::as_str);
    format!("{} node(s) are not targets of the load balancer, among them {first}: {why}", nodes.len())
}

/// The value that `words` gives for the word of an annotation, in any case.
pub(crate) fn word<T: Copy>(annotations: Annotations<'_>, key: &str, words: &[(&str, T)]) -> Result<Option<T>> {
    let text = annotations.text(key);
    let found = words.iter().find(|(word, _)| text.is_some_and(|text| word.eq_ignore_ascii_case(text)));
    match found {
        Some((_, meaning)) => Ok(Some(*meaning)),
        // None, or the error with the list of the words.
        None => annotations.one_of(key, words),
    }
}

/// The settings that Hetzner does not support, as reason and message of Events.
fn ignored(service: &Service) -> impl Iterator<Item = (&'static str, &'static str)> {
    let affinity = service.session_affinity != SessionAffinity::None;
    let affinity = affinity.then_some((
        "SessionAffinityIgnored",
        "Hetzner load balancers have no affinity by client address; the annotation http-sticky-sessions has one by cookie",
    ));
    let address = service.load_balancer_ip.as_deref().is_some_and(|address| !address.is_empty());
    let address = address.then_some((
        "LoadBalancerIPIgnored",
        "Hetzner chooses the addresses of load balancers; name an existing load balancer by the annotation name",
    ));
    affinity.into_iter().chain(address)
}

fn subnet(annotations: Annotations<'_>) -> Result<Option<Cidr>> {
    let key = "private-subnet-ip-range";
    let Some(text) = annotations.text(key) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: Error| annotations.invalid(key, error.message()))
}

#[cfg(test)]
mod tests;
