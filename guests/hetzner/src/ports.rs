//! The services of a load balancer: one for each TCP port of the Service. Pure.

use std::time::Duration;

use skysail_guest_sdk::{Error, Protocol, Result, Service, annotations::Annotations};

use crate::{
    plan::{PREFIX, Warnings, word},
    settings::Balancers,
    wire::{HealthCheck, HealthCheckHttp, Http, LoadBalancerService},
};

/// Hetzner's defaults, which a new service has to state.
const CHECK_INTERVAL: u64 = 15;
const CHECK_TIMEOUT: u64 = 10;
const CHECK_RETRIES: u64 = 3;
const CHECK_PATH: &str = "/";

/// The bounds of `http-timeout-idle`, in seconds.
const TIMEOUT_IDLE: std::ops::RangeInclusive<u64> = 30..=300;

/// The protocols of a service, and of its health check.
const PROTOCOLS: [(&str, &str); 3] = [("tcp", "tcp"), ("http", "http"), ("https", "https")];

/// The services without certificates, which have to be looked up.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) services: Vec<LoadBalancerService>,
    pub(crate) certificates: Certificates,
}

/// The certificates of all services.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// Those that the cloud has.
    #[default]
    Unchanged,
    /// IDs or names, in the order of the annotation.
    Listed(Vec<String>),
    /// One that Hetzner issues and renews.
    Managed {
        /// None: a name made of the UID.
        name: Option<String>,
        domains: Vec<String>,
        /// Whether Let's Encrypt's staging environment issues it; for Hetzner's own tests.
        staging: bool,
    },
}

/// What the annotations say about every port.
struct Options {
    protocol: &'static str,
    proxyprotocol: Option<bool>,
    http: Option<Http>,
    check: Option<Check>,
}

/// The health check, if an annotation or the cloud-config changes it.
struct Check {
    protocol: &'static str,
    port: Option<u16>,
    interval: Option<u64>,
    timeout: Option<u64>,
    retries: Option<u64>,
    http: Option<HealthCheckHttp>,
}

/// The services that a Service asks for.
///
/// # Errors
///
/// `invalid` for a wrong annotation, and for a port without a node port, to which Hetzner forwards.
pub(crate) fn ports(service: &Service, defaults: &Balancers, warnings: &mut Warnings) -> Result<Ports> {
    let annotations = Annotations::of(service, PREFIX);
    let options = Options::read(annotations, defaults)?;
    let mut services = Vec::with_capacity(service.ports.len());
    for port in &service.ports {
        if port.protocol != Protocol::Tcp {
            let message = format!("port {} is left out: Hetzner load balancers forward TCP only", port.port);
            warnings.push(("UnsupportedProtocolConfigured", message));
            continue;
        }
        if port.node_port == 0 {
            return Err(Error::Invalid(format!(
                "port {} has no node port; set spec.allocateLoadBalancerNodePorts to true, or set the port's nodePort",
                port.port
            )));
        }
        services.push(options.service(port.port, port.node_port));
    }
    let certificates = if options.http.is_some() { certificates(annotations)? } else { Certificates::Unchanged };
    if options.http.is_none() && annotated_for_http(annotations) {
        let message = format!("annotation {PREFIX}protocol is tcp: the annotations for HTTP have no effect");
        warnings.push(("HTTPOptionsIgnored", message));
    }
    Ok(Ports { services, certificates })
}

impl Options {
    fn read(annotations: Annotations<'_>, defaults: &Balancers) -> Result<Self> {
        let protocol = word(annotations, "protocol", &PROTOCOLS)?.unwrap_or("tcp");
        let http = http(annotations)?;
        Ok(Self {
            protocol,
            proxyprotocol: annotations.bool("uses-proxyprotocol")?.or(defaults.proxy_protocol),
            http: (protocol != "tcp").then_some(http),
            check: check(annotations, defaults, protocol)?,
        })
    }

    fn service(&self, listen_port: u16, destination_port: u16) -> LoadBalancerService {
        let health_check = match &self.check {
            None => HealthCheck {
                protocol: "tcp".to_owned(),
                port: destination_port,
                interval: None,
                timeout: None,
                retries: None,
                http: None,
            },
            Some(check) => HealthCheck {
                protocol: check.protocol.to_owned(),
                port: check.port.unwrap_or(destination_port),
                interval: check.interval,
                timeout: check.timeout,
                retries: check.retries,
                http: check.http.clone(),
            },
        };
        let http = self.http.clone().filter(|http| *http != Http::default());
        let (protocol, proxyprotocol) = (self.protocol.to_owned(), self.proxyprotocol);
        LoadBalancerService { protocol, listen_port, destination_port, proxyprotocol, http, health_check }
    }
}

fn http(annotations: Annotations<'_>) -> Result<Http> {
    let timeout_idle = seconds(annotations, "http-timeout-idle")?;
    if let Some(seconds) = timeout_idle.filter(|seconds| !TIMEOUT_IDLE.contains(seconds)) {
        let reason = format_args!("{seconds} s is not possible; write 30s to 300s");
        return Err(annotations.invalid("http-timeout-idle", reason));
    }
    Ok(Http {
        cookie_name: annotations.text("http-cookie-name").map(str::to_owned),
        cookie_lifetime: seconds(annotations, "http-cookie-lifetime")?,
        timeout_idle,
        certificates: None,
        redirect_http: annotations.bool("http-redirect-http")?,
        sticky_sessions: annotations.bool("http-sticky-sessions")?,
    })
}

fn annotated_for_http(annotations: Annotations<'_>) -> bool {
    let names = ["certificates", "cookie-name", "cookie-lifetime", "timeout-idle", "redirect-http", "sticky-sessions"];
    names.iter().any(|name| annotations.text(&format!("http-{name}")).is_some())
}

/// The health check; none where neither an annotation nor the cloud-config asks for another one
/// than a connection to the node port.
fn check(annotations: Annotations<'_>, defaults: &Balancers, service: &'static str) -> Result<Option<Check>> {
    let asked = word(annotations, "health-check-protocol", &PROTOCOLS)?;
    let port = annotations.parse("health-check-port")?;
    let interval = seconds(annotations, "health-check-interval")?.or(defaults.check_interval);
    let timeout = seconds(annotations, "health-check-timeout")?.or(defaults.check_timeout);
    let retries = annotations.parse("health-check-retries")?.or(defaults.check_retries);
    let tls = annotations.bool("health-check-http-validate-certificate")?;
    if asked.is_none() && port.is_none() && interval.is_none() && timeout.is_none() && retries.is_none() {
        return Ok(None);
    }
    // The load balancer ends TLS, so the targets of a service with `https` speak plain HTTP.
    let protocol = if asked.unwrap_or(service) == "tcp" { "tcp" } else { "http" };
    let tls = tls.or_else(|| asked.map(|asked| asked == "https").filter(|https| *https));
    let http = HealthCheckHttp {
        domain: annotations.text("health-check-http-domain").map(|domain| Some(domain.to_owned())),
        path: annotations.text("health-check-http-path").map(str::to_owned),
        status_codes: Some(annotations.list("http-status-codes").into_iter().map(str::to_owned).collect())
            .filter(|codes: &Vec<String>| !codes.is_empty()),
        tls,
    };
    let http = (protocol == "http").then_some(http);
    Ok(Some(Check { protocol, port, interval, timeout, retries, http }))
}

fn certificates(annotations: Annotations<'_>) -> Result<Certificates> {
    let managed = word(annotations, "certificate-type", &[("uploaded", false), ("managed", true)])?;
    if managed != Some(true) {
        let listed = annotations.list("http-certificates");
        let listed: Vec<_> = listed.into_iter().map(str::to_owned).collect();
        return Ok(if listed.is_empty() { Certificates::Unchanged } else { Certificates::Listed(listed) });
    }
    let domains = annotations.list("http-managed-certificate-domains");
    if domains.is_empty() {
        let reason = "is absent; write the domains of the managed certificate, with commas between";
        return Err(annotations.invalid("http-managed-certificate-domains", reason));
    }
    Ok(Certificates::Managed {
        name: annotations.text("http-managed-certificate-name").map(str::to_owned),
        domains: domains.into_iter().map(str::to_owned).collect(),
        staging: annotations.bool("http-managed-certificate-acme-staging").is_ok_and(|staging| staging == Some(true)),
    })
}

/// A duration as the whole seconds of the API.
fn seconds(annotations: Annotations<'_>, key: &str) -> Result<Option<u64>> {
    Ok(annotations.duration(key)?.as_ref().map(Duration::as_secs))
}

impl LoadBalancerService {
    /// The same service with every field that a new one needs.
    pub(crate) fn complete(mut self) -> Self {
        self.proxyprotocol.get_or_insert(false);
        let check = &mut self.health_check;
        check.interval.get_or_insert(CHECK_INTERVAL);
        check.timeout.get_or_insert(CHECK_TIMEOUT);
        check.retries.get_or_insert(CHECK_RETRIES);
        if check.protocol == "http" {
            let http = check.http.get_or_insert_default();
            http.domain.get_or_insert(None);
            http.path.get_or_insert_with(|| CHECK_PATH.to_owned());
        }
        self
    }

    /// Whether the cloud's service has each field as this one wants it.
    pub(crate) fn is_done_by(&self, actual: &Self) -> bool {
        self.protocol == actual.protocol
            && self.destination_port == actual.destination_port
            && same(&self.proxyprotocol, &actual.proxyprotocol)
            && self.http.as_ref().is_none_or(|http| http.is_done_by(&actual.http.clone().unwrap_or_default()))
            && self.health_check.is_done_by(&actual.health_check)
    }
}

impl Http {
    fn is_done_by(&self, actual: &Self) -> bool {
        let sorted = |ids: &Option<Vec<u64>>| {
            let mut ids = ids.clone()?;
            ids.sort_unstable();
            Some(ids)
        };
        same(&self.cookie_name, &actual.cookie_name)
            && same(&self.cookie_lifetime, &actual.cookie_lifetime)
            && same(&self.timeout_idle, &actual.timeout_idle)
            && same(&sorted(&self.certificates), &sorted(&actual.certificates))
            && same(&self.redirect_http, &actual.redirect_http)
            && same(&self.sticky_sessions, &actual.sticky_sessions)
    }
}

impl HealthCheck {
    fn is_done_by(&self, actual: &Self) -> bool {
        let http = |wanted: &HealthCheckHttp| {
            let actual = actual.http.clone().unwrap_or_default();
            same(&wanted.domain, &actual.domain)
                && same(&wanted.path, &actual.path)
                && same(&wanted.status_codes, &actual.status_codes)
                && same(&wanted.tls, &actual.tls)
        };
        self.protocol == actual.protocol
            && self.port == actual.port
            && same(&self.interval, &actual.interval)
            && same(&self.timeout, &actual.timeout)
            && same(&self.retries, &actual.retries)
            && self.http.as_ref().is_none_or(http)
    }
}

/// Whether the cloud has what is wanted, if anything is.
fn same<T: PartialEq>(wanted: &Option<T>, actual: &Option<T>) -> bool {
    wanted.is_none() || wanted == actual
}

#[cfg(test)]
mod tests;
