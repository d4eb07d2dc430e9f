//! Validates a provider's answer before it is written (pure), so that the API server does not
//! reject the status and clients can rely on it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Code, Error, Ingress, IpMode, LoadBalancerStatus, PortStatus, Protocol};

use crate::service_spec::shown;

/// The maximum number of entries of `ingress`. Clouds return one for each zone and IP family; every
/// client of Services reads all entries.
const INGRESS_MAX: usize = 64;
/// The maximum number of ports of one entry: no load balancer has more listeners, and the object
/// contains all of them.
const PORTS_MAX: usize = 1024;
/// As the API server's limit for `ports[].error`.
const PORT_ERROR_BYTES_MAX: usize = 316;

/// The validated status, with the mode that the API server would default.
///
/// # Errors
/// [`Code::Internal`], with the entry and the rule that it violates.
pub(crate) fn judge(status: LoadBalancerStatus) -> Result<LoadBalancerStatus, Error> {
    let count = status.ingress.len();
    if count > INGRESS_MAX {
        return Err(refused(format!("{count} ingress entries, at most {INGRESS_MAX} are allowed")));
    }
    let ingress: Result<Vec<Ingress>, Error> = status
        .ingress
        .into_iter()
        .enumerate()
        .map(|(index, entry)| entry_judged(entry).map_err(|why| refused(format!("ingress[{index}]: {why}"))))
        .collect();
    Ok(LoadBalancerStatus { ingress: ingress? })
}

fn refused(why: String) -> Error {
    Error::new(Code::Internal, format!("the provider's status is not valid: {why}"))
}

fn entry_judged(mut entry: Ingress) -> Result<Ingress, String> {
    entry.ip = entry.ip.filter(|ip| !ip.is_empty());
    entry.hostname = entry.hostname.filter(|hostname| !hostname.is_empty());
    match &entry.ip {
        Some(ip) if ip.parse::<IpAddr>().is_err() => return Err(format!("{} is not an IP address", shown(ip))),
        Some(_) => entry.ip_mode = entry.ip_mode.or(Some(IpMode::Vip)),
        None if entry.ip_mode.is_some() => return Err("ipMode is set without an IP address".to_owned()),
        None if entry.hostname.is_none() => return Err("it has neither an IP address nor a hostname".to_owned()),
        None => {}
    }
    if let Some(hostname) = &entry.hostname {
        if hostname.parse::<IpAddr>().is_ok() {
            return Err(format!("hostname {hostname} is an IP address"));
        }
        if !is_dns_1123(hostname) {
            return Err(format!("{} is not a DNS-1123 subdomain", shown(hostname)));
        }
    }
    if entry.ports.len() > PORTS_MAX {
        return Err(format!("{} ports, at most {PORTS_MAX} are allowed", entry.ports.len()));
    }
    for PortStatus { port, error, .. } in &entry.ports {
        if *port == 0 {
            return Err("port 0 is not valid".to_owned());
        }
        if let Some(error) = error.as_deref().filter(|error| !is_port_error(error)) {
            return Err(format!("port {port}: the error {} is not a CamelCase reason", shown(error)));
        }
    }
    Ok(entry)
}

fn is_dns_1123(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// A CamelCase reason, or `domain/Reason`.
fn is_port_error(error: &str) -> bool {
    let (domain, reason) = match error.rsplit_once('/') {
        Some((domain, reason)) => (Some(domain), reason),
        None => (None, error),
    };
    error.len() <= PORT_ERROR_BYTES_MAX
        && domain.is_none_or(is_dns_1123)
        && reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// As `status.loadBalancer` spells it.
pub(crate) fn to_core(status: &LoadBalancerStatus) -> Vec<core::LoadBalancerIngress> {
    let port = |port: &PortStatus| core::PortStatus {
        port: i32::from(port.port),
        protocol: match port.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
        .to_owned(),
        error: port.error.clone(),
    };
    let entry = |entry: &Ingress| core::LoadBalancerIngress {
        ip: entry.ip.clone(),
        hostname: entry.hostname.clone(),
        ip_mode: entry.ip_mode.map(|mode| {
            match mode {
                IpMode::Vip => "VIP",
                IpMode::Proxy => "Proxy",
            }
            .to_owned()
        }),
        ports: (!entry.ports.is_empty()).then(|| entry.ports.iter().map(port).collect()),
    };
    status.ingress.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use skysail_provider::{Ingress, IpMode, LoadBalancerStatus, PortStatus, Protocol};

    use super::{INGRESS_MAX, judge};

    fn entry(ip: Option<&str>, hostname: Option<&str>, ip_mode: Option<IpMode>) -> Ingress {
        Ingress { ip: ip.map(str::to_owned), hostname: hostname.map(str::to_owned), ip_mode, ports: vec![] }
    }

    fn with_port(error: &str) -> Ingress {
        let port = PortStatus { port: 80, protocol: Protocol::Tcp, error: Some(error.to_owned()) };
        Ingress { ports: vec![port], ..entry(Some("192.0.2.1"), None, None) }
    }

    #[track_caller]
    fn check(entry: Ingress, refusal: Option<&str>) {
        let verdict = judge(LoadBalancerStatus { ingress: vec![entry.clone()] });
        match (verdict, refusal) {
            (Ok(_), None) => {}
            (Err(error), Some(refusal)) if error.message.contains(refusal) => {}
            (verdict, _) => panic!("{entry:?}: {verdict:?}"),
        }
    }

    #[test]
    fn a_status_that_the_api_server_would_reject_is_refused_with_the_reason() {
        check(entry(Some("192.0.2.300"), None, None), Some("not an IP address"));
        check(entry(Some("192.0.2.1/24"), None, None), Some("not an IP address"));
        check(entry(None, Some("lb.example.com"), Some(IpMode::Vip)), Some("ipMode is set without"));
        check(entry(None, None, None), Some("neither"));
        check(entry(Some(""), Some(""), None), Some("neither"));
        check(entry(None, Some("192.0.2.1"), None), Some("is an IP address"));
        for name in ["UPPER.example", "a b", "-a.example", "a..b", "a\n.example", &"a".repeat(64)] {
            check(entry(None, Some(name), None), Some("DNS-1123"));
        }
        check(with_port("not camel case"), Some("CamelCase"));
        check(with_port("BAD domain/Reason"), Some("CamelCase"));
        let many = LoadBalancerStatus { ingress: vec![entry(Some("::1"), None, None); INGRESS_MAX + 1] };
        assert!(judge(many).unwrap_err().message.contains("65 ingress entries, at most 64"));
    }

    #[test]
    fn a_valid_status_passes() {
        check(entry(Some("2001:db8::1"), Some("a.b-c.example"), Some(IpMode::Proxy)), None);
        check(with_port("LoadBalancerMixedProtocolNotSupported"), None);
        check(with_port("cloud.example/NoListener"), None);
    }

    #[test]
    fn the_mode_is_filled_in_so_that_equal_answers_are_equal() {
        let judged = judge(LoadBalancerStatus { ingress: vec![entry(Some("192.0.2.1"), None, None)] }).unwrap();
        assert_eq!(judged.ingress[0].ip_mode, Some(IpMode::Vip));
    }
}
