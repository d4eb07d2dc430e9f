//! The load balancer that a Service asks for. Pure: from Service, cloud-config and features of the
//! cloud.

mod floating;
mod placement;

use std::net::IpAddr;

use skysail_guest_sdk::{
    Cidr, Error, Ingress, IpFamily, IpMode, LoadBalancerStatus, NodeSet, Protocol, Result, Service, ServicePort,
    SessionAffinity, TrafficPolicy, annotations::Annotations,
};

pub(crate) use self::{
    floating::{SubnetFilter, matches, tag_query},
    placement::{MemberSubnet, Place},
};
use crate::{
    features::Features,
    names,
    settings::{ContainerStore, LoadBalancer, Settings},
};

/// The prefix of the annotations of the vendor's manager.
pub(crate) const ANNOTATIONS: &str = "loadbalancer.openstack.org/";

/// The only annotation with another prefix.
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Default timeouts in milliseconds, in the order of [`Timeouts`].
const TIMEOUTS: [(&str, u32); 4] = [
    ("timeout-client-data", 50_000),
    ("timeout-member-connect", 5_000),
    ("timeout-member-data", 50_000),
    ("timeout-tcp-inspect", 0),
];

/// Client data, member connect, member data, TCP inspect; in milliseconds.
pub(crate) type Timeouts = [u32; 4];

/// The desired load balancer of one Service.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Name of the load balancer and tag of the Service's share.
    pub(crate) name: String,
    pub(crate) description: String,
    /// The load balancer that the user named.
    pub(crate) existing: Option<String>,
    pub(crate) internal: bool,
    pub(crate) family: IpFamily,
    pub(crate) place: Place,
    /// `loadBalancerIP`.
    pub(crate) address: Option<IpAddr>,
    pub(crate) keep_floating_ip: bool,
    pub(crate) flavor: Option<String>,
    pub(crate) availability_zone: Option<String>,
    /// A container or secret of Barbican that must exist.
    pub(crate) checked_tls: Option<String>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) node_selector: Vec<(String, String)>,
    /// Sources that may reach the nodes: those of the security group for the driver `ovn`.
    pub(crate) sources: Vec<Cidr>,
    hostname: Option<String>,
    proxy_protocol: bool,
    hostname_suffix: Option<String>,
    /// Reason and message of Events of type `Warning`.
    pub(crate) warnings: Vec<(&'static str, String)>,
}

/// A desired listener with its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) index: usize,
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
    pub(crate) connection_limit: i64,
    pub(crate) x_forwarded_for: bool,
    pub(crate) tls: Option<String>,
    /// None where the driver has none.
    pub(crate) timeouts: Option<Timeouts>,
    /// None where the driver cannot limit sources.
    pub(crate) allowed_cidrs: Option<Vec<Cidr>>,
    pub(crate) pool: Pool,
}

/// A desired pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) protocol: &'static str,
    pub(crate) method: String,
    /// Connections of one client address go to one member.
    pub(crate) sticky: bool,
    /// 0 where the Service has no node ports: the pool stays empty.
    pub(crate) node_port: u16,
    pub(crate) transport: Protocol,
    pub(crate) monitor: Option<Monitor>,
}

/// A desired health monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Monitor {
    pub(crate) r#type: &'static str,
    pub(crate) delay: u32,
    pub(crate) timeout: u32,
    pub(crate) max_retries: u32,
    pub(crate) max_retries_down: u32,
    /// The port of kube-proxy's health check, which members are asked at instead of the node port.
    pub(crate) health_port: Option<u16>,
}

/// A node as a member of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) node: String,
    pub(crate) address: String,
    pub(crate) provider_id: Option<String>,
}

/// What every port of a Service has in common.
struct Common<'a> {
    settings: &'a LoadBalancer,
    features: Features,
    connection_limit: i64,
    x_forwarded_for: bool,
    proxy: Option<&'static str>,
    tls: Option<String>,
    timeouts: Option<Timeouts>,
    allowed_cidrs: Option<Vec<Cidr>>,
    sticky: bool,
    monitor: Option<Monitor>,
    health_port: Option<u16>,
}

/// Reads a Service.
///
/// # Errors
///
/// `invalid` for an annotation with a value that has no meaning, and for what cannot be had
/// together.
pub(crate) fn plan(settings: &Settings, features: Features, cluster: &str, service: &Service) -> Result<Plan> {
    let lb = &settings.load_balancer;
    let name = names::load_balancer_of(cluster, service)?;
    let annotations = Annotations::of(service, ANNOTATIONS);
    let family = service.families().next().unwrap_or(IpFamily::Ipv4);
    let internal = lb.internal || Annotations::of(service, "").bool(INTERNAL)?.unwrap_or(false);
    let sources = sources(service, family)?;
    let mut warnings = Vec::new();
    let common = common(lb, features, service, &sources)?;
    let listeners = service.ports.iter().enumerate().map(|(index, port)| listener(&common, index, port)).collect();
    if common.allowed_cidrs.is_none() && !lb.manage_security_groups && !sources.iter().all(Cidr::is_everything) {
        let message = format!(
            "loadBalancerSourceRanges have no effect: the driver {} cannot limit the sources; set \
             manage-security-groups in [LoadBalancer]",
            lb.provider
        );
        warnings.push(("LoadBalancerSourceRangesIgnored", message));
    }
    if service.external_traffic_policy == TrafficPolicy::Local && common.monitor.is_none() {
        let message = format!(
            "externalTrafficPolicy Local has no health monitor, so the load balancer also sends connections to nodes \
             without a pod of the Service, which drop them; set the annotation {ANNOTATIONS}enable-health-monitor to \
             true, or create-monitor in [LoadBalancer]"
        );
        warnings.push(("LoadBalancerHealthMonitorMissing", message));
    }
    let flavor = annotations.text("flavor-id").map(str::to_owned).or_else(|| lb.flavor.clone());
    let zone = annotations.text("availability-zone").map(str::to_owned).or_else(|| lb.availability_zone.clone());
    if let Some(zone) = zone.as_ref().filter(|_| !features.availability_zones) {
        let message = format!("availability zone {zone:?} has no effect: Octavia's version or driver has no zones");
        warnings.push(("LoadBalancerAvailabilityZonesIgnored", message));
    }
    Ok(Plan {
        description: names::load_balancer_description(cluster, service),
        existing: existing(service)?,
        internal,
        family,
        place: placement::read(lb, &annotations)?,
        address: address(service)?,
        keep_floating_ip: keep_floating_ip(service)?,
        flavor: flavor.filter(|_| features.flavors),
        availability_zone: zone.filter(|_| features.availability_zones),
        checked_tls: common.tls.clone().filter(|_| lb.container_store == ContainerStore::Barbican),
        listeners,
        node_selector: selector(annotations.text("node-selector").unwrap_or(&lb.node_selector)),
        sources,
        hostname: annotations.text("hostname").map(str::to_owned),
        proxy_protocol: common.proxy.is_some(),
        hostname_suffix: lb.ingress_hostname_suffix.clone(),
        name,
        warnings,
    })
}

/// The load balancer that the annotation `load-balancer-id` names.
pub(crate) fn existing(service: &Service) -> Result<Option<String>> {
    let annotations = Annotations::of(service, ANNOTATIONS);
    let Some(id) = annotations.text("load-balancer-id") else { return Ok(None) };
    if !crate::settings::is_id(id) {
        return Err(
            annotations.invalid("load-balancer-id", format_args!("{id:?} is not an ID; write the ID, not the name"))
        );
    }
    Ok(Some(id.to_owned()))
}

/// Whether the user keeps the floating IP.
pub(crate) fn keep_floating_ip(service: &Service) -> Result<bool> {
    Ok(Annotations::of(service, ANNOTATIONS).bool("keep-floatingip")?.unwrap_or(false))
}

fn address(service: &Service) -> Result<Option<IpAddr>> {
    let Some(text) = service.load_balancer_ip.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let address = text.parse().map_err(|_| Error::Invalid(format!("loadBalancerIP {text:?} is not an IP address")));
    address.map(Some)
}

/// The sources of the family of the load balancer: Octavia refuses those of another family.
fn sources(service: &Service, family: IpFamily) -> Result<Vec<Cidr>> {
    let sources = service.allowed_sources()?.into_iter();
    let sources: Vec<Cidr> = sources.filter(|source| family.includes(source.address())).collect();
    if sources.is_empty() {
        return Err(Error::Invalid(format!(
            "loadBalancerSourceRanges {} allow no {family:?} address, and the load balancer has only such; add a \
             range, or change ipFamilies",
            service.source_ranges.join(", ")
        )));
    }
    Ok(sources)
}

fn common<'a>(lb: &'a LoadBalancer, features: Features, service: &Service, sources: &[Cidr]) -> Result<Common<'a>> {
    let annotations = Annotations::of(service, ANNOTATIONS);
    let proxy = [("true", Some("PROXY")), ("v1", Some("PROXY")), ("v2", Some("PROXYV2")), ("false", None)];
    let proxy = annotations.one_of("proxy-protocol", &proxy)?.flatten();
    let x_forwarded_for = annotations.bool("x-forwarded-for")?.unwrap_or(false);
    if proxy.is_some() && x_forwarded_for {
        return Err(annotations.invalid("x-forwarded-for", "cannot be used together with proxy-protocol; remove one"));
    }
    let connection_limit = annotations.parse::<i64>("connection-limit")?.unwrap_or(-1);
    if connection_limit < -1 {
        let why = format_args!("{connection_limit} is not a limit; write a number from 0, or -1 for no limit");
        return Err(annotations.invalid("connection-limit", why));
    }
    Ok(Common {
        settings: lb,
        features,
        connection_limit,
        x_forwarded_for,
        proxy,
        tls: annotations.text("default-tls-container-ref").map(str::to_owned).or_else(|| lb.tls_container_ref.clone()),
        timeouts: timeouts(&annotations)?.filter(|_| features.timeouts),
        allowed_cidrs: features.allowed_cidrs.then(|| sources.to_vec()),
        sticky: service.session_affinity != SessionAffinity::None,
        monitor: monitor(lb, &annotations)?,
        health_port: service.health_check_node_port(),
    })
}

fn timeouts(annotations: &Annotations<'_>) -> Result<Option<Timeouts>> {
    let mut timeouts = [0; 4];
    for (timeout, (key, default)) in timeouts.iter_mut().zip(TIMEOUTS) {
        *timeout = annotations.parse(key)?.unwrap_or(default);
    }
    Ok(Some(timeouts))
}

/// The health monitor without its type; none where the Service has none.
fn monitor(lb: &LoadBalancer, annotations: &Annotations<'_>) -> Result<Option<Monitor>> {
    let defaults = lb.monitor;
    let number = |key: &str, default| annotations.parse::<u32>(key).map(|value| value.unwrap_or(default));
    let monitor = Monitor {
        r#type: "TCP",
        delay: number("health-monitor-delay", defaults.delay_seconds)?,
        timeout: number("health-monitor-timeout", defaults.timeout_seconds)?,
        max_retries: number("health-monitor-max-retries", defaults.max_retries)?,
        max_retries_down: number("health-monitor-max-retries-down", defaults.max_retries_down)?,
        health_port: None,
    };
    let wanted = annotations.bool("enable-health-monitor")?.unwrap_or(defaults.create);
    if monitor.timeout > monitor.delay {
        let why = format_args!("{} s is longer than the delay of {} s", monitor.timeout, monitor.delay);
        return Err(annotations.invalid("health-monitor-timeout", why));
    }
    for (key, retries) in [
        ("health-monitor-max-retries", monitor.max_retries),
        ("health-monitor-max-retries-down", monitor.max_retries_down),
    ] {
        if !(1..=10).contains(&retries) {
            return Err(
                annotations.invalid(key, format_args!("{retries} is out of range; write a number from 1 to 10"))
            );
        }
    }
    Ok(wanted.then_some(monitor))
}

fn listener(common: &Common<'_>, index: usize, port: &ServicePort) -> Listener {
    let transport = match port.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    };
    let http = common.tls.is_some() || common.x_forwarded_for;
    let protocol = match (&common.tls, common.x_forwarded_for) {
        (Some(_), _) => "TERMINATED_HTTPS",
        (None, true) => "HTTP",
        (None, false) => transport,
    };
    Listener {
        index,
        protocol,
        port: port.port,
        connection_limit: common.connection_limit,
        x_forwarded_for: common.x_forwarded_for,
        tls: common.tls.clone(),
        timeouts: common.timeouts,
        allowed_cidrs: common.allowed_cidrs.clone(),
        pool: Pool {
            protocol: common.proxy.unwrap_or(if http { "HTTP" } else { transport }),
            method: common.settings.method.clone(),
            sticky: common.sticky,
            node_port: port.node_port,
            transport: port.protocol,
            monitor: common.monitor.as_ref().map(|monitor| typed(common, monitor, port.protocol)),
        },
    }
}

/// The monitor for the port's protocol. With `externalTrafficPolicy: Local` it asks kube-proxy,
/// where the driver can.
fn typed(common: &Common<'_>, monitor: &Monitor, transport: Protocol) -> Monitor {
    let Features { http_monitors, http_monitors_on_udp, .. } = common.features;
    let can_ask = if transport == Protocol::Udp { http_monitors_on_udp } else { http_monitors };
    let health_port = common.health_port.filter(|_| can_ask);
    let r#type = match (health_port, transport) {
        (Some(_), _) => "HTTP",
        (None, Protocol::Tcp) => "TCP",
        (None, Protocol::Udp) => "UDP-CONNECT",
        (None, Protocol::Sctp) => "SCTP",
    };
    Monitor { r#type, health_port, ..monitor.clone() }
}

/// `a=1,b` as keys and values; an empty value stands for every value.
fn selector(text: &str) -> Vec<(String, String)> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, ""))).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

impl Plan {
    /// The nodes that the Service selects and that have an address of its family.
    pub(crate) fn members(&self, nodes: &NodeSet) -> Vec<Member> {
        let labels: Vec<_> = self.node_selector.iter().map(|(key, value)| (nodes.label(key), value)).collect();
        let selected = |index: usize| {
            labels.iter().all(|(column, wanted)| {
                let value = column.get(index).and_then(Option::as_ref);
                value.is_some_and(|value| wanted.is_empty() || value == *wanted)
            })
        };
        self.with_address(nodes, selected)
    }

    /// All nodes that have an address of the Service's family.
    pub(crate) fn all_nodes(&self, nodes: &NodeSet) -> Vec<Member> {
        self.with_address(nodes, |_| true)
    }

    /// The nodes at the places that the function accepts.
    fn with_address(&self, nodes: &NodeSet, selected: impl Fn(usize) -> bool) -> Vec<Member> {
        let internal = nodes.addresses(&skysail_guest_sdk::AddressKind::InternalIp);
        let external = nodes.addresses(&skysail_guest_sdk::AddressKind::ExternalIp);
        let addresses = internal.into_iter().zip(external).map(|(internal, external)| {
            internal.into_iter().chain(external).find(|address| self.family.matches(address))
        });
        let columns = nodes.names().into_iter().zip(nodes.provider_ids()).zip(addresses).enumerate();
        let selected = columns.filter(|(index, _)| selected(*index));
        selected
            .filter_map(|(_, ((node, provider_id), address))| Some(Member { node, address: address?, provider_id }))
            .collect()
    }

    /// The status of the Service behind this address.
    pub(crate) fn status(&self, address: &str) -> LoadBalancerStatus {
        if let Some(hostname) = &self.hostname {
            return Ingress::hostname(hostname.clone()).into();
        }
        if let Some(suffix) = self.hostname_suffix.as_ref().filter(|_| self.proxy_protocol) {
            return Ingress::hostname(format!("{address}.{suffix}")).into();
        }
        let ip_mode = Some(if self.proxy_protocol { IpMode::Proxy } else { IpMode::Vip });
        Ingress { ip_mode, ..Ingress::ip(address) }.into()
    }
}

#[cfg(test)]
mod tests;
