//! The listeners of one Service. Pure: computes the desired listeners from Service, nodes and
//! network.
//!
//! A listener is one address with its ports and targets: a *network load balancer* on an OVN
//! network, a *network forward* on a bridge. A forward has one target for each port, so on a bridge
//! a Service is reached through one node, chosen by its UID and kept as long as the node is there;
//! kube-proxy on that node forwards to the pods of other nodes.

use std::{collections::BTreeMap, net::IpAddr};

use skysail_guest_sdk::{Cidr, Error, IpFamily, IpFamilyPolicy, Protocol, Result, Service, SessionAffinity};

use crate::{
    pool::{Pool, family_of},
    wire::{Backend, Config, Forward, ForwardPort, LoadBalancer, LoadBalancerPort, Network},
};

/// Configuration keys with the owner of a listener.
const CLUSTER_KEY: &str = "user.skysail.cluster";
const SERVICE_KEY: &str = "user.skysail.service";
const UID_KEY: &str = "user.skysail.service-uid";
const HEALTH_CHECK_KEY: &str = "healthcheck";

/// How a network forwards traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// OVN: every backend receives a share.
    LoadBalancer,
    /// Bridge: one target for each port.
    Forward,
}

impl Kind {
    /// The kind of a network.
    ///
    /// # Errors
    ///
    /// `invalid` for a network of another type.
    pub(crate) fn of(network: &Network) -> Result<Self> {
        match network.r#type.as_str() {
            "ovn" => Ok(Self::LoadBalancer),
            "bridge" => Ok(Self::Forward),
            other => Err(Error::Invalid(format!(
                "a network of type {other:?} has no load balancers: the cloud-config's network must be an OVN or a bridge network"
            ))),
        }
    }
}

/// The Service that a listener belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Owner {
    /// The owner of a Service's listeners.
    pub(crate) fn new(cluster: &str, service: &Service) -> Self {
        let Service { namespace, name, uid, .. } = service;
        Self { cluster: cluster.to_owned(), namespace: namespace.clone(), name: name.clone(), uid: uid.clone() }
    }

    fn of(config: &Config) -> Option<Self> {
        let (namespace, name) = config.get(SERVICE_KEY)?.split_once('/')?;
        Some(Self {
            cluster: config.get(CLUSTER_KEY)?.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: config.get(UID_KEY)?.clone(),
        })
    }

    /// Whether both are the same Service, also after a rename.
    pub(crate) fn is(&self, cluster: &str, uid: &str) -> bool {
        self.cluster == cluster && self.uid == uid
    }
}

/// The target of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: String,
    pub(crate) address: IpAddr,
}

/// One port of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    protocol: &'static str,
    port: u16,
    node_port: u16,
}

/// The desired state of a listener except its address.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    pub(crate) ports: Vec<Port>,
    pub(crate) targets: Vec<Target>,
    pub(crate) health_check: bool,
}

/// A listener in the form of the API.
#[derive(Debug)]
pub(crate) enum Listener {
    LoadBalancer(LoadBalancer),
    Forward(Forward),
}

impl Listener {
    /// The address that it listens on; none where Incus sent an invalid one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.parts().0.parse().ok()
    }

    /// The listener's owner; none for a listener that this provider did not create.
    pub(crate) fn owner(&self) -> Option<Owner> {
        Owner::of(self.parts().1)
    }

    fn parts(&self) -> (&str, &Config) {
        match self {
            Self::LoadBalancer(LoadBalancer { listen_address, config, .. })
            | Self::Forward(Forward { listen_address, config, .. }) => (listen_address, config),
        }
    }

    /// Whether both have the same content; the order of lists does not matter.
    pub(crate) fn does_the_same_as(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.parts(), other.parts());
        ours.0.parse::<IpAddr>().ok() == theirs.0.parse().ok() && ours.1 == theirs.1 && self.ways() == other.ways()
    }

    /// Every forwarding rule: protocol and port, target address and port, and the name that Incus
    /// shows.
    fn ways(&self) -> Vec<[&str; 5]> {
        let mut ways: Vec<_> = match self {
            Self::Forward(forward) => forward
                .ports
                .iter()
                .map(|port| {
                    [&*port.protocol, &*port.listen_port, &*port.target_address, &*port.target_port, &*port.description]
                })
                .collect(),
            Self::LoadBalancer(balancer) => {
                let backends: BTreeMap<&str, &Backend> =
                    balancer.backends.iter().map(|backend| (&*backend.name, backend)).collect();
                let ports = balancer
                    .ports
                    .iter()
                    .flat_map(|port| port.target_backend.iter().map(move |name| (port, name.as_str())));
                ports
                    .map(|(port, name)| {
                        let (address, target_port) = backends
                            .get(name)
                            .map_or(("", ""), |backend| (&*backend.target_address, &*backend.target_port));
                        [&*port.protocol, &*port.listen_port, address, target_port, name]
                    })
                    .collect()
            }
        };
        ways.sort_unstable();
        ways
    }

    /// The targets that a forward has, by protocol and port.
    fn present(&self) -> BTreeMap<(&str, &str), &str> {
        match self {
            Self::Forward(forward) => forward
                .ports
                .iter()
                .map(|port| ((&*port.protocol, &*port.listen_port), &*port.target_address))
                .collect(),
            Self::LoadBalancer(_) => BTreeMap::new(),
        }
    }
}

impl Wanted {
    /// The listener on this address. `now` is the existing listener; its targets are kept where
    /// they are still valid.
    pub(crate) fn listener(&self, address: IpAddr, now: Option<&Listener>) -> Listener {
        let Owner { cluster, namespace, name, uid } = &self.owner;
        let listen_address = address.to_string();
        let description = format!("Service {namespace}/{name} of cluster {cluster}");
        let mut config = Config::from([
            (CLUSTER_KEY.to_owned(), cluster.clone()),
            (SERVICE_KEY.to_owned(), format!("{namespace}/{name}")),
            (UID_KEY.to_owned(), uid.clone()),
        ]);
        match self.kind {
            Kind::Forward => {
                Listener::Forward(Forward { listen_address, description, config, ports: self.forward_ports(now) })
            }
            Kind::LoadBalancer => {
                if self.health_check {
                    config.insert(HEALTH_CHECK_KEY.to_owned(), "true".to_owned());
                }
                let (backends, ports) = self.balancer_ports();
                Listener::LoadBalancer(LoadBalancer { listen_address, description, config, backends, ports })
            }
        }
    }

    /// One backend for each node and node port. Without nodes there are no ports, because Incus
    /// refuses a port without a target.
    fn balancer_ports(&self) -> (Vec<Backend>, Vec<LoadBalancerPort>) {
        let mut backends: BTreeMap<String, Backend> = BTreeMap::new();
        let mut ports = Vec::new();
        for port in self.ports.iter().filter(|_| !self.targets.is_empty()) {
            let mut target_backend = Vec::with_capacity(self.targets.len());
            for target in &self.targets {
                let name = format!("{}-{}", target.node, port.node_port);
                target_backend.push(name.clone());
                // TCP and UDP on one node port share a backend.
                backends.entry(name.clone()).or_insert_with(|| Backend {
                    name,
                    target_address: target.address.to_string(),
                    target_port: port.node_port.to_string(),
                });
            }
            ports.push(LoadBalancerPort {
                listen_port: port.port.to_string(),
                protocol: port.protocol.to_owned(),
                target_backend,
            });
        }
        (backends.into_values().collect(), ports)
    }

    fn forward_ports(&self, now: Option<&Listener>) -> Vec<ForwardPort> {
        let present = now.map(Listener::present).unwrap_or_default();
        let ports = self.ports.iter().filter_map(|port| {
            let listen_port = port.port.to_string();
            let kept = present.get(&(port.protocol, &*listen_port));
            let kept =
                kept.and_then(|address| self.targets.iter().find(|target| target.address.to_string() == **address));
            let target = kept.or_else(|| self.chosen())?;
            Some(ForwardPort {
                description: target.node.clone(),
                listen_port,
                protocol: port.protocol.to_owned(),
                target_port: port.node_port.to_string(),
                target_address: target.address.to_string(),
            })
        });
        ports.collect()
    }

    /// The same node for every port of a Service, and different ones for different Services.
    fn chosen(&self) -> Option<&Target> {
        // FNV-1a: any hash works that is the same in every release.
        let hash = self
            .owner
            .uid
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let place = usize::try_from(hash % u64::try_from(self.targets.len()).ok()?.max(1)).ok()?;
        self.targets.get(place)
    }
}

/// The Service's ports, if Incus supports them.
///
/// # Errors
///
/// `unsupported` for SCTP and for source ranges: a Service with an allowlist must not be open to
/// every client. `invalid` for a port without a node port, because Incus forwards to node ports.
pub(crate) fn ports(service: &Service) -> Result<Vec<Port>> {
    if !service.allowed_sources()?.iter().all(Cidr::is_everything) {
        return Err(Error::Unsupported(
            "Incus load balancers cannot be limited to loadBalancerSourceRanges".to_owned(),
        ));
    }
    let port = |port: &skysail_guest_sdk::ServicePort| {
        let protocol = match port.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => {
                return Err(Error::Unsupported(format!("port {}: Incus load balancers do not carry SCTP", port.port)));
            }
        };
        if port.node_port == 0 {
            return Err(Error::Invalid(format!(
                "port {} has no node port; set spec.allocateLoadBalancerNodePorts to true, or set the port's nodePort",
                port.port
            )));
        }
        Ok(Port { protocol, port: port.port, node_port: port.node_port })
    };
    service.ports.iter().map(port).collect()
}

/// The settings that Incus does not support, as reason and message of an Event.
pub(crate) fn ignored(service: &Service) -> Option<(&'static str, &'static str)> {
    match service.session_affinity {
        SessionAffinity::ClientIp(_) => Some((
            "SessionAffinityIgnored",
            "Incus balances each connection on its own; ClientIP affinity holds only within the node that a connection reaches",
        )),
        SessionAffinity::None => None,
    }
}

/// For each family that needs a listener, the address that the user requested.
///
/// # Errors
///
/// `invalid` for a `loadBalancerIP` that is not an address, has a family that the Service does not
/// have, or is outside of the operator's addresses; and where both families are required and only
/// one has addresses.
pub(crate) fn families(service: &Service, pool: &Pool) -> Result<Vec<(IpFamily, Option<IpAddr>)>> {
    let fixed = service.load_balancer_ip.as_deref().filter(|text| !text.is_empty());
    let fixed: Option<IpAddr> = match fixed {
        Some(text) => {
            Some(text.parse().map_err(|_| Error::Invalid(format!("loadBalancerIP {text:?} is not an address")))?)
        }
        None => None,
    };
    if let Some(address) = fixed
        && !pool.contains(address)
    {
        return Err(Error::Invalid(format!(
            "loadBalancerIP {address} is not in the address pool of the operator; choose another one, or none"
        )));
    }
    let asked: Vec<IpFamily> = service.families().collect();
    if let Some(address) = fixed
        && !asked.contains(&family_of(address))
    {
        return Err(Error::Invalid(format!(
            "loadBalancerIP {address} is of an IP family that spec.ipFamilies of the Service does not have"
        )));
    }
    let served: Vec<IpFamily> = asked.iter().copied().filter(|family| pool.has(*family)).collect();
    let all_are_needed = service.ip_family_policy != Some(IpFamilyPolicy::PreferDualStack);
    if served.is_empty() || (all_are_needed && served.len() < asked.len()) {
        return Err(Error::Invalid(
            "there is no address for an IP family of the Service: the cloud-config's `listen`, or the \
             routes of the network's uplink, have none"
                .to_owned(),
        ));
    }
    Ok(served.into_iter().map(|family| (family, fixed.filter(|address| family_of(*address) == family))).collect())
}

/// The network's subnet of this family: Incus accepts no target outside of it.
pub(crate) fn subnet(network: &Network, family: IpFamily) -> Option<Cidr> {
    let key = if family == IpFamily::Ipv4 { "ipv4.address" } else { "ipv6.address" };
    network.config.get(key)?.parse().ok()
}

/// The first address of each node in the network, and the names of the nodes without one.
pub(crate) fn targets(nodes: Vec<(String, Vec<String>)>, subnet: Option<Cidr>) -> (Vec<Target>, Vec<String>) {
    let (mut targets, mut outside) = (Vec::with_capacity(nodes.len()), Vec::new());
    for (node, addresses) in nodes {
        let mut parsed = addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        match parsed.find(|address| subnet.is_some_and(|subnet| subnet.contains(*address))) {
            Some(address) => targets.push(Target { node, address }),
            None => outside.push(node),
        }
    }
    (targets, outside)
}

#[cfg(test)]
mod tests;
