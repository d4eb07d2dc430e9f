//! Converts a Service object to the provider's form (pure). Only this module reads optional fields
//! and annotations of a Service.

use std::{collections::HashSet, net::IpAddr};

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::util::intstr::IntOrString};
use skysail_provider::{
    Ingress, IpFamily, IpFamilyPolicy, IpMode, LoadBalancerStatus, PortStatus, Protocol, Service, ServicePort,
    SessionAffinity, TrafficPolicy,
};

use crate::{names, providers::is_provider_name};

/// The API server's default.
const CLIENT_IP_TIMEOUT_DEFAULT: u32 = 10_800;
/// As the API server's limit for `sessionAffinityConfig.clientIP.timeoutSeconds`: a day.
const CLIENT_IP_TIMEOUT_MAX: u32 = 86_400;
/// The maximum number of problems in one text: an Event has no room for more, and an annotation can
/// have thousands.
const PROBLEMS_TOLD_MAX: usize = 8;
/// The maximum number of characters of an object's own text in a message.
const SHOWN_CHARS_MAX: usize = 64;

/// A Service in the provider's form, with its problems.
///
/// `service` lacks an invalid entry: it is sufficient to delete a load balancer, but not to create
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Converted {
    pub(crate) service: Service,
    pub(crate) problems: Vec<String>,
}

/// The problems of an object.
#[derive(Default)]
struct Problems {
    told: Vec<String>,
    more: usize,
}

impl Problems {
    fn add(&mut self, problem: String) {
        if self.told.len() < PROBLEMS_TOLD_MAX {
            self.told.push(problem);
        } else {
            self.more += 1;
        }
    }

    fn into_sentences(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!("and {} more", self.more));
        }
        self.told
    }
}

/// Quotes and shortens text from an object or a guest.
pub(crate) fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(SHOWN_CHARS_MAX).collect::<String>())
}

/// Whether `spec.type` is LoadBalancer.
pub(crate) fn is_load_balancer(object: &core::Service) -> bool {
    object.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// `spec.loadBalancerClass`.
pub(crate) fn class(object: &core::Service) -> Option<&str> {
    object.spec.as_ref()?.load_balancer_class.as_deref()
}

/// Whether the object has our finalizer.
pub(crate) fn has_finalizer(object: &core::Service) -> bool {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|finalizer| finalizer == names::LOAD_BALANCER_FINALIZER)
}

/// Whether the cache keeps all that the controllers read of the object.
pub(crate) fn is_whole(object: &core::Service) -> bool {
    is_load_balancer(object) || has_finalizer(object)
}

/// The provider that made the load balancer, according to the annotation. Anyone with write access
/// to the object can set it, so it counts only after that provider confirmed it.
pub(crate) fn named_holder(object: &core::Service) -> Option<&str> {
    let annotation = object.metadata.annotations.as_ref()?.get(names::LOAD_BALANCER_PROVIDER_ANNOTATION)?;
    Some(annotation.as_str()).filter(|name| is_provider_name(name))
}

/// The value of the annotation next to the provider's name, for a load balancer of this class.
pub(crate) fn made_for(object: &core::Service, class: Option<&str>) -> String {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    class.map_or_else(|| uid.to_owned(), |class| format!("{uid} {class}"))
}

fn annotation<'a>(object: &'a core::Service, name: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The text of the annotation that pauses the Service.
pub(crate) fn paused(object: &core::Service) -> Option<&str> {
    annotation(object, names::PAUSED_ANNOTATION)
}

/// The text of the annotation with the deletion policy.
pub(crate) fn deletion_policy(object: &core::Service) -> Option<&str> {
    annotation(object, names::DELETION_POLICY_ANNOTATION)
}

/// Whether a person lets the deletions of the Service through although the budget is used up.
pub(crate) fn allows_deletion(object: &core::Service) -> bool {
    annotation(object, names::ALLOW_DELETION_ANNOTATION) == Some("true")
}

/// The UID of the retained load balancer that the Service asks for.
pub(crate) fn adopted(object: &core::Service) -> Option<&str> {
    annotation(object, names::ADOPT_LOAD_BALANCER_ANNOTATION)
}

/// The class that this object had when its load balancer was made, according to the annotation;
/// none if the annotation is missing or belongs to another object.
pub(crate) fn named_class(object: &core::Service) -> Option<Option<&str>> {
    let text = annotation(object, names::LOAD_BALANCER_MADE_FOR_ANNOTATION)?;
    let (uid, class) = text.split_once(' ').map_or((text, None), |(uid, class)| (uid, Some(class)));
    (object.metadata.uid.as_deref() == Some(uid)).then_some(class)
}

/// Whether an annotation names another provider, an invalid name, or another object or class. A
/// missing annotation does not count, to avoid a conflict with the client that removed it.
pub(crate) fn names_another(object: &core::Service, provider: &str) -> bool {
    let differs = |name: &str, ours: &str| annotation(object, name).is_some_and(|text| text != ours);
    differs(names::LOAD_BALANCER_PROVIDER_ANNOTATION, provider)
        || differs(names::LOAD_BALANCER_MADE_FOR_ANNOTATION, &made_for(object, class(object)))
}

/// The object in the provider's form, as the service controller passes it.
///
/// # Errors
/// The problems of the object: a sentence for each invalid entry.
pub fn provider_service(object: &core::Service) -> Result<Service, Vec<String>> {
    let Converted { service, problems } = convert(object);
    if problems.is_empty() { Ok(service) } else { Err(problems) }
}

/// Converts the object to the provider's form.
pub(crate) fn convert(object: &core::Service) -> Converted {
    let empty = core::ServiceSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&empty);
    let mut annotations = object.metadata.annotations.clone().unwrap_or_default();
    // Our own annotations are no input for a provider, and their change must not cause an `ensure`.
    annotations.remove(names::LOAD_BALANCER_PROVIDER_ANNOTATION);
    annotations.remove(names::LOAD_BALANCER_MADE_FOR_ANNOTATION);
    annotations.remove(names::PAUSED_ANNOTATION);
    annotations.remove(names::ALLOW_DELETION_ANNOTATION);
    annotations.remove(names::DELETION_POLICY_ANNOTATION);
    annotations.remove(names::ADOPT_LOAD_BALANCER_ANNOTATION);
    let mut problems = Problems::default();
    let from_annotation = annotations.get(names::SOURCE_RANGES_ANNOTATION).map(String::as_str);
    let service = Service {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        ports: ports(spec, &mut problems),
        session_affinity: session_affinity(spec, &mut problems),
        load_balancer_ip: spec.load_balancer_ip.clone().filter(|ip| !ip.is_empty()),
        load_balancer_class: spec.load_balancer_class.clone(),
        source_ranges: source_ranges(spec, from_annotation, &mut problems),
        external_ips: spec.external_ips.clone().unwrap_or_default(),
        external_traffic_policy: external_traffic_policy(spec, &mut problems),
        internal_traffic_policy: match spec.internal_traffic_policy.as_deref() {
            Some("Local") => TrafficPolicy::Local,
            _ => TrafficPolicy::Cluster,
        },
        health_check_node_port: health_check_node_port(spec, &mut problems),
        ip_families: ip_families(spec, &mut problems),
        ip_family_policy: spec.ip_family_policy.as_deref().and_then(ip_family_policy),
        allocate_node_ports: spec.allocate_load_balancer_node_ports.unwrap_or(true),
        status: status(object),
        annotations,
    };
    Converted { service, problems: problems.into_sentences() }
}

/// `status.loadBalancer`, with the mode that the API server defaults.
pub(crate) fn status(object: &core::Service) -> LoadBalancerStatus {
    let ingress = object.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_deref());
    let port = |port: &core::PortStatus| {
        Some(PortStatus {
            port: u16::try_from(port.port).ok()?,
            protocol: protocol(&port.protocol)?,
            error: port.error.clone(),
        })
    };
    let entry = |entry: &core::LoadBalancerIngress| Ingress {
        ip: entry.ip.clone().filter(|ip| !ip.is_empty()),
        hostname: entry.hostname.clone().filter(|hostname| !hostname.is_empty()),
        ip_mode: match entry.ip_mode.as_deref() {
            Some("Proxy") => Some(IpMode::Proxy),
            Some(_) => Some(IpMode::Vip),
            None => entry.ip.as_ref().map(|_| IpMode::Vip),
        },
        ports: entry.ports.iter().flatten().filter_map(port).collect(),
    };
    LoadBalancerStatus { ingress: ingress.unwrap_or_default().iter().map(entry).collect() }
}

fn ports(spec: &core::ServiceSpec, problems: &mut Problems) -> Vec<ServicePort> {
    let mut ports = Vec::new();
    for port in spec.ports.iter().flatten() {
        let number = u16::try_from(port.port).ok().filter(|number| *number > 0);
        let node_port = u16::try_from(port.node_port.unwrap_or(0)).ok();
        let spelled: String = port.protocol.as_deref().unwrap_or("TCP").chars().take(SHOWN_CHARS_MAX).collect();
        let (Some(number), Some(node_port), Some(protocol)) = (number, node_port, protocol(&spelled)) else {
            let (port, node_port) = (port.port, port.node_port.unwrap_or(0));
            problems.add(format!(
                "port {port}/{spelled} (node port {node_port}) is out of range or has an unknown protocol"
            ));
            continue;
        };
        let target_port = match &port.target_port {
            Some(IntOrString::Int(target)) if !(1..=i32::from(u16::MAX)).contains(target) => {
                problems.add(format!("target port {target} of port {number}/{spelled} is out of range"));
                continue;
            }
            Some(IntOrString::Int(target)) => target.to_string(),
            Some(IntOrString::String(name)) => name.clone(),
            None => number.to_string(),
        };
        ports.push(ServicePort {
            name: port.name.clone().unwrap_or_default(),
            protocol,
            app_protocol: port.app_protocol.clone(),
            port: number,
            node_port,
            target_port,
        });
    }
    ports
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}

fn session_affinity(spec: &core::ServiceSpec, problems: &mut Problems) -> SessionAffinity {
    match spec.session_affinity.as_deref() {
        Some("ClientIP") => {}
        None | Some("" | "None") => return SessionAffinity::None,
        Some(other) => {
            problems.add(format!("session affinity {} is neither None nor ClientIP", shown(other)));
            return SessionAffinity::None;
        }
    }
    let client_ip = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let timeout_seconds = match client_ip.and_then(|client_ip| client_ip.timeout_seconds) {
        None => CLIENT_IP_TIMEOUT_DEFAULT,
        Some(seconds) => {
            let valid = u32::try_from(seconds).ok().filter(|seconds| (1..=CLIENT_IP_TIMEOUT_MAX).contains(seconds));
            valid.unwrap_or_else(|| {
                problems.add(format!(
                    "the session affinity timeout of {seconds} s is not from 1 to {CLIENT_IP_TIMEOUT_MAX} s"
                ));
                CLIENT_IP_TIMEOUT_DEFAULT
            })
        }
    };
    SessionAffinity::ClientIp { timeout_seconds }
}

fn external_traffic_policy(spec: &core::ServiceSpec, problems: &mut Problems) -> TrafficPolicy {
    match spec.external_traffic_policy.as_deref() {
        Some("Local") => TrafficPolicy::Local,
        None | Some("" | "Cluster") => TrafficPolicy::Cluster,
        Some(other) => {
            problems.add(format!("external traffic policy {} is neither Cluster nor Local", shown(other)));
            TrafficPolicy::Cluster
        }
    }
}

fn health_check_node_port(spec: &core::ServiceSpec, problems: &mut Problems) -> u16 {
    let port = spec.health_check_node_port.unwrap_or(0);
    u16::try_from(port).unwrap_or_else(|_| {
        problems.add(format!("health check node port {port} is out of range"));
        0
    })
}

fn ip_families(spec: &core::ServiceSpec, problems: &mut Problems) -> Vec<IpFamily> {
    let mut families = Vec::new();
    for family in spec.ip_families.iter().flatten() {
        match family.as_str() {
            "IPv4" => families.push(IpFamily::Ipv4),
            "IPv6" => families.push(IpFamily::Ipv6),
            other => problems.add(format!("IP family {} is neither IPv4 nor IPv6", shown(other))),
        }
    }
    families
}

fn ip_family_policy(name: &str) -> Option<IpFamilyPolicy> {
    match name {
        "SingleStack" => Some(IpFamilyPolicy::SingleStack),
        "PreferDualStack" => Some(IpFamilyPolicy::PreferDualStack),
        "RequireDualStack" => Some(IpFamilyPolicy::RequireDualStack),
        _ => None,
    }
}

/// The field takes precedence over the annotation; entries are trimmed and deduplicated. An empty
/// list allows all clients.
fn source_ranges(spec: &core::ServiceSpec, annotation: Option<&str>, problems: &mut Problems) -> Vec<String> {
    let field = spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
    let annotation = annotation.map(str::trim).filter(|text| !text.is_empty());
    let entries: Vec<&str> = match annotation {
        _ if !field.is_empty() => field.iter().map(String::as_str).collect(),
        Some(text) => text.split(',').collect(),
        None => Vec::new(),
    };
    let mut ranges = Vec::new();
    let mut seen = HashSet::new();
    for entry in entries.into_iter().map(str::trim) {
        if !is_cidr(entry) {
            problems.add(format!("source range {} is not a CIDR", shown(entry)));
        } else if seen.insert(entry) {
            ranges.push(entry.to_owned());
        }
    }
    ranges
}

/// Whether the text is a CIDR. The parser of `ipnet` would also accept leading zeros (010.0.0.0/8),
/// which other programs read as octal or refuse.
fn is_cidr(text: &str) -> bool {
    let Some((ip, bits)) = text.split_once('/') else { return false };
    let max = match ip.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= max)
}

#[cfg(test)]
mod tests;
