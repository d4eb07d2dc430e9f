//! Converts from the contract to `skysail-provider`. All input is untrusted.

use std::{collections::BTreeMap, time::Duration};

use skysail_provider::{
    self as host, Code, Error, Result,
    text::{is_plain, one_line},
};

use super::{ENABLE_NODE_ADDRESSES, PAGE_NODES};
use crate::{
    bindings::{
        exports::skysail::{legacy, provider as exports},
        skysail::provider::types as guest,
    },
    egress::Origin,
    identity::{Problem, Severity},
};

/// Longest name, ID, address or label in a guest's result, in bytes. Kubernetes allows less for
/// each; provider IDs of the large clouds are below 200 bytes.
const SHORT_BYTES_MAX: usize = 1024;
/// Longest text for people in a result, in bytes.
const PROSE_BYTES_MAX: usize = 4096;
/// The maximum number of entries of a status, and of addresses or labels of a machine: more than
/// Kubernetes objects have.
const FEW_MAX: usize = 256;
/// The maximum number of origins that a component may require: as many as one egress rule can have.
const ORIGINS_MAX: usize = 64;
/// The maximum number of pairs of `extra` that the host passes back to the guest: part of the
/// contract.
const EXTRA_MAX: usize = 32;
/// The maximum number of ports of one ingress: more than a Service usually has.
const PORTS_MAX: usize = 1024;
/// The maximum number of load balancers, routes, clusters in one list. The largest clusters have
/// thousands of nodes.
const MANY_MAX: usize = 100_000;
/// The maximum number of problems of a cloud-config: more are of no use to a person.
const PROBLEMS_MAX: usize = 100;
/// Longest time of `retry-after`; part of the contract.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The error for a result that the contract does not allow.
fn wrong(what: impl AsRef<str>) -> Error {
    Error::new(Code::Internal, format!("the provider's answer is wrong: {}", what.as_ref()))
}

/// A text for machines: of bounded length, and without characters that would display or compare
/// otherwise than they are written. Never changed: a truncated provider ID could name another
/// machine.
pub(crate) fn short(field: &str, text: String) -> Result<String> {
    if text.len() > SHORT_BYTES_MAX {
        return Err(wrong(format!("{field} has {} bytes, and at most {SHORT_BYTES_MAX} are allowed", text.len())));
    }
    if !is_plain(&text) {
        return Err(wrong(format!("{field} contains a control or invisible character: {:?}", one_line(&text, 100))));
    }
    Ok(text)
}

fn short_option(field: &str, text: Option<String>) -> Result<Option<String>> {
    text.map(|text| short(field, text)).transpose()
}

fn bounded<T, U>(field: &str, max: usize, list: Vec<T>, convert: impl FnMut(T) -> Result<U>) -> Result<Vec<U>> {
    if list.len() > max {
        return Err(wrong(format!("{field} has {} entries, and at most {max} are allowed", list.len())));
    }
    list.into_iter().map(convert).collect()
}

/// A list of names.
pub(crate) fn texts(field: &str, list: Vec<String>) -> Result<Vec<String>> {
    bounded(field, MANY_MAX, list, |text| short(field, text))
}

/// The name of a load balancer: never empty, because the cloud finds the load balancer by its name.
pub(crate) fn load_balancer_name(name: String) -> Result<String> {
    if name.is_empty() {
        return Err(wrong("the load balancer's name is empty"));
    }
    short("the load balancer's name", name)
}

/// Names of clusters.
pub(crate) fn cluster_names(list: Vec<String>) -> Result<Vec<String>> {
    texts("clusters", list)
}

/// An error that a guest returned.
pub(crate) fn error(error: guest::Error) -> Error {
    match error {
        guest::Error::NotFound(message) => Error::new(Code::NotFound, message),
        guest::Error::ImplementedElsewhere(message) => Error::new(Code::ImplementedElsewhere, message),
        guest::Error::Unsupported(message) => Error::new(Code::Unsupported, message),
        guest::Error::Invalid(message) => Error::new(Code::Invalid, message),
        guest::Error::Denied(message) => Error::new(Code::Denied, message),
        guest::Error::Exhausted(message) => Error::new(Code::Exhausted, message),
        guest::Error::RetryAfter(guest::Retry { after_ms, message }) => {
            Error::retry_after(Duration::from_millis(after_ms).min(RETRY_AFTER_MAX), message)
        }
        guest::Error::Unavailable(message) => Error::new(Code::Unavailable, message),
        guest::Error::Internal(message) => Error::new(Code::Internal, message),
        guest::Error::Other((code, message)) => {
            Error::new(Code::Internal, format!("{}: {message}", one_line(&code, 128)))
        }
    }
}

/// The result of a function of the contract.
pub(crate) fn result<T, U>(result: Result<T, guest::Error>, convert: impl FnOnce(T) -> Result<U>) -> Result<U> {
    result.map_err(error).and_then(convert)
}

/// A list with one result for each requested item.
pub(crate) fn results<T, U>(
    asked: usize,
    list: Vec<Result<T, guest::Error>>,
    mut convert: impl FnMut(T) -> Result<U>,
) -> Result<Vec<Result<U>>> {
    if list.len() != asked {
        return Err(wrong(format!("{} results for {asked} requested items", list.len())));
    }
    Ok(list.into_iter().map(|one| result(one, &mut convert)).collect())
}

/// The result of `identity.describe`.
pub(crate) fn info(info: exports::identity::Info) -> Result<host::Info> {
    let exports::identity::Info {
        name,
        version,
        description,
        provider_id_schemes,
        has_cluster_id,
        serial_load_balancers,
        extra,
    } = info;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 63 || !name.chars().all(allowed) {
        return Err(wrong(format!(
            "the name {:?} does not consist of 1 to 63 lower-case letters, digits and dashes",
            one_line(&name, 100)
        )));
    }
    let provider_id_schemes = bounded("provider-id-schemes", FEW_MAX, provider_id_schemes, |scheme| {
        if scheme.is_empty() || scheme.contains("://") {
            return Err(wrong(format!("{:?} is not the scheme of a provider ID", one_line(&scheme, 100))));
        }
        short("provider-id-schemes", scheme)
    })?;
    let page_nodes = match extra.iter().find(|(key, _)| key == PAGE_NODES) {
        None => host::NODES_PER_PAGE,
        Some((_, text)) => {
            let nodes = text.parse().ok().filter(|nodes| (1..=host::NODES_PER_PAGE).contains(nodes));
            let most = host::NODES_PER_PAGE;
            nodes.ok_or_else(|| {
                wrong(format!("{PAGE_NODES} {:?} is not a number from 1 to {most}", one_line(text, 100)))
            })?
        }
    };
    Ok(host::Info {
        name,
        version: one_line(&version, FEW_MAX),
        description: one_line(&description, SHORT_BYTES_MAX),
        provider_id_schemes,
        has_cluster_id,
        serial_load_balancers,
        page_nodes,
    })
}

/// The result of `identity.origins`.
pub(crate) fn origins(list: Vec<String>) -> Result<Vec<Origin>> {
    bounded("origins", ORIGINS_MAX, list, |text| {
        Origin::parse(&text).map_err(|error| wrong(format!("the origin {:?} {error}", one_line(&text, 100))))
    })
}

/// The result of `identity.check-config`.
pub(crate) fn problems(problems: Vec<exports::identity::Problem>) -> Result<Vec<Problem>> {
    bounded("check-config", PROBLEMS_MAX, problems, |problem| {
        let exports::identity::Problem { severity, line, key, message } = problem;
        Ok(Problem {
            severity: match severity {
                exports::identity::Severity::Warning => Severity::Warning,
                exports::identity::Severity::Fatal => Severity::Fatal,
            },
            line: (line > 0).then_some(line),
            key: one_line(&key, FEW_MAX),
            message: one_line(&message, PROSE_BYTES_MAX),
        })
    })
}

/// A Service's status.
pub(crate) fn status(status: guest::LoadBalancerStatus) -> Result<host::LoadBalancerStatus> {
    let guest::LoadBalancerStatus { ingress } = status;
    let ingress = bounded("status.ingress", FEW_MAX, ingress, |ingress| {
        let guest::Ingress { ip, hostname, ip_mode, ports, extra: _ } = ingress;
        Ok(host::Ingress {
            ip: short_option("status.ingress.ip", ip)?,
            hostname: short_option("status.ingress.hostname", hostname)?,
            ip_mode: ip_mode.map(|mode| match mode {
                guest::IpMode::Vip => host::IpMode::Vip,
                guest::IpMode::Proxy => host::IpMode::Proxy,
            }),
            ports: bounded("status.ingress.ports", PORTS_MAX, ports, port_status)?,
        })
    })?;
    Ok(host::LoadBalancerStatus { ingress })
}

fn port_status(status: guest::PortStatus) -> Result<host::PortStatus> {
    let guest::PortStatus { port, protocol, error } = status;
    let protocol = match protocol {
        guest::Protocol::Tcp => host::Protocol::Tcp,
        guest::Protocol::Udp => host::Protocol::Udp,
        guest::Protocol::Sctp => host::Protocol::Sctp,
    };
    Ok(host::PortStatus { port, protocol, error: short_option("status.ingress.ports.error", error)? })
}

/// The kind of an address.
pub(crate) fn address_kind(kind: guest::AddressKind) -> host::AddressKind {
    match kind {
        guest::AddressKind::Hostname => host::AddressKind::Hostname,
        guest::AddressKind::InternalIp => host::AddressKind::InternalIp,
        guest::AddressKind::ExternalIp => host::AddressKind::ExternalIp,
        guest::AddressKind::InternalDns => host::AddressKind::InternalDns,
        guest::AddressKind::ExternalDns => host::AddressKind::ExternalDns,
        guest::AddressKind::Other(kind) => host::AddressKind::Other(kind),
    }
}

fn address(address: guest::NodeAddress) -> Result<host::NodeAddress> {
    let guest::NodeAddress { kind, address } = address;
    let kind = match address_kind(kind) {
        host::AddressKind::Other(kind) => host::AddressKind::Other(short("address kind", kind)?),
        kind => kind,
    };
    Ok(host::NodeAddress { kind, address: short("address", address)? })
}

/// The results for a page of nodes.
pub(crate) fn instances(
    asked: usize,
    list: Vec<Result<exports::instances::Instance, guest::Error>>,
) -> Result<Vec<Result<host::Instance>>> {
    results(asked, list, |instance| {
        let exports::instances::Instance {
            provider_id,
            shutdown,
            instance_type,
            zone,
            region,
            addresses,
            labels,
            extra,
        } = instance;
        Ok(host::Instance {
            provider_id: short("provider-id", provider_id)?,
            without_provider_id: extra.iter().any(|(key, value)| key == "without-provider-id" && value == "true"),
            shutdown,
            instance_type: short("instance-type", instance_type)?,
            zone: short("zone", zone)?,
            region: short("region", region)?,
            addresses: bounded("addresses", FEW_MAX, addresses, address)?,
            labels: bounded("labels", FEW_MAX, labels, |(key, value)| {
                Ok((short("label key", key)?, short("label value", value)?))
            })?
            .into_iter()
            .collect(),
        })
    })
}

/// Labels of a volume. The controllers check whether the API accepts them.
pub(crate) fn volume_labels(list: Vec<guest::Pair>) -> Result<BTreeMap<String, String>> {
    let count = list.len();
    let pairs =
        bounded("labels", FEW_MAX, list, |(key, value)| Ok((short("label key", key)?, short("label value", value)?)))?;
    let labels: BTreeMap<_, _> = pairs.into_iter().collect();
    if labels.len() < count {
        return Err(wrong("labels contains a key twice"));
    }
    Ok(labels)
}

/// The load balancers that a cluster owns.
pub(crate) fn owned(list: Vec<exports::load_balancer_inventory::Owned>) -> Result<Vec<host::OwnedLoadBalancer>> {
    bounded("load balancers", MANY_MAX, list, |owned| {
        let exports::load_balancer_inventory::Owned { name, service, extra: _ } = owned;
        let service = match service {
            Some((namespace, name, uid)) => {
                Some((short("namespace", namespace)?, short("Service name", name)?, short("Service uid", uid)?))
            }
            None => None,
        };
        Ok(host::OwnedLoadBalancer { name: load_balancer_name(name)?, service })
    })
}

/// The routes that a cluster owns.
pub(crate) fn routes(list: Vec<exports::routes::Route>) -> Result<Vec<host::Route>> {
    bounded("routes", MANY_MAX, list, |route| {
        let exports::routes::Route { name, target, target_addresses, destination_cidr, blackhole, extra } = route;
        let is_known = |(key, value): &guest::Pair| key == ENABLE_NODE_ADDRESSES && value == "true";
        let (known, own): (Vec<_>, Vec<_>) = extra.into_iter().partition(is_known);
        Ok(host::Route {
            name: short("route name", name)?,
            target: target_of(target)?,
            target_addresses: bounded("target-addresses", FEW_MAX, target_addresses, address)?,
            destination_cidr: short("destination-cidr", destination_cidr)?,
            blackhole,
            enable_node_addresses: !known.is_empty(),
            extra: bounded("extra", EXTRA_MAX, own, |(key, value)| {
                Ok((short("extra key", key)?, short("extra value", value)?))
            })?,
        })
    })
}

/// An empty text names nothing.
fn target_of(target: exports::routes::Target) -> Result<host::Target> {
    let (named, text): (fn(String) -> host::Target, _) = match target {
        exports::routes::Target::Node(name) => (host::Target::Node, name),
        exports::routes::Target::ProviderId(id) => (host::Target::ProviderId, id),
        exports::routes::Target::Address(address) => (host::Target::Address, address),
        exports::routes::Target::None => return Ok(host::Target::None),
    };
    Ok(if text.is_empty() { host::Target::None } else { named(short("target", text)?) })
}

/// A zone.
pub(crate) fn zone(zone: legacy::zones::Zone) -> Result<host::Zone> {
    let legacy::zones::Zone { failure_domain, region } = zone;
    Ok(host::Zone { failure_domain: short("failure-domain", failure_domain)?, region: short("region", region)? })
}
