//! Network Load Balancers.

use std::collections::BTreeSet;

use skysail_guest_sdk::{Error, Protocol, Result, Service, annotations::Annotations};

use super::{
    BACKEND_PROTOCOL, CERTIFICATE, Common, EXTRA_SECURITY_GROUPS, EncryptedPorts, SSL_POLICY, TARGET_GROUP_ATTRIBUTES,
    annotations, local_check, ports, tags,
};
use crate::{settings::Settings, wire::Tags};

/// A health check asks the port that has the traffic.
pub(crate) const TRAFFIC_PORT: &str = "traffic-port";

const CROSS_ZONE: &str = "load_balancing.cross_zone.enabled";
const ACCESS_LOG: &str = "access_logs.s3.enabled";
const ACCESS_LOG_BUCKET: &str = "access_logs.s3.bucket";
const ACCESS_LOG_PREFIX: &str = "access_logs.s3.prefix";

/// The desired state of a Network Load Balancer.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) common: Common,
    pub(crate) ports: Vec<Port>,
    pub(crate) check: Check,
    /// Attributes of the load balancer.
    pub(crate) attributes: Tags,
    /// Attributes of each target group; the others stay as they are.
    pub(crate) target_attributes: Tags,
    /// Elastic IP addresses, one for each subnet, or none.
    pub(crate) allocations: Vec<String>,
    /// Private addresses, one for each subnet, or none.
    pub(crate) private_addresses: Vec<String>,
}

/// One port: a listener and its target group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    /// `TCP`, `UDP` or `TLS`.
    pub(crate) traffic_protocol: &'static str,
    pub(crate) tls: Option<Tls>,
}

/// How a listener decrypts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) certificate: String,
    /// None for AWS's default.
    pub(crate) policy: Option<String>,
}

impl Port {
    /// The protocol of the listener.
    pub(crate) const fn protocol(&self) -> &'static str {
        if self.tls.is_some() { "TLS" } else { self.traffic_protocol }
    }

    /// Whether its packets are UDP.
    pub(crate) fn is_udp(&self) -> bool {
        self.traffic_protocol == "UDP"
    }
}

/// The health check of every target group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub(crate) protocol: String,
    /// A number or [`TRAFFIC_PORT`].
    pub(crate) port: String,
    /// None for TCP.
    pub(crate) path: Option<String>,
    /// Seconds between two health checks.
    pub(crate) interval: u32,
    pub(crate) healthy_threshold: u32,
    pub(crate) unhealthy_threshold: u32,
}

impl Network {
    /// # Errors
    ///
    /// `invalid` and `unsupported` for what the Service cannot have.
    pub(crate) fn new(service: &Service, settings: &Settings) -> Result<Self> {
        let annotations = annotations(service);
        if annotations.text(EXTRA_SECURITY_GROUPS).is_some() {
            return Err(annotations.invalid(
                EXTRA_SECURITY_GROUPS,
                "a Network Load Balancer has no extra groups; use security-groups and NLBSecurityGroupMode = Managed",
            ));
        }
        let target_attributes = target_attributes(service, &annotations)?;
        let common = Common::new(service)?;
        let encrypted = EncryptedPorts::of(service);
        let port = |port: &skysail_guest_sdk::ServicePort| {
            let is_udp = port.protocol == Protocol::Udp;
            let certificate = annotations.text(CERTIFICATE).filter(|_| !is_udp && encrypted.has(port));
            let policy = annotations.text(SSL_POLICY).map(str::to_owned);
            let tls = certificate.map(|certificate| Tls { certificate: certificate.to_owned(), policy });
            let encrypts = tls.is_some() && annotations.text(BACKEND_PROTOCOL) == Some("ssl");
            let traffic_protocol = match port.protocol {
                Protocol::Udp => "UDP",
                Protocol::Tcp | Protocol::Sctp if encrypts => "TLS",
                Protocol::Tcp | Protocol::Sctp => "TCP",
            };
            Port { port: port.port, node_port: port.node_port, traffic_protocol, tls }
        };
        let list = |key: &str| annotations.list(key).into_iter().map(str::to_owned).collect();
        Ok(Self {
            ports: ports(service, &[Protocol::Tcp, Protocol::Udp])?.iter().map(port).collect(),
            check: Check::new(service, settings)?,
            attributes: attributes(&annotations)?,
            target_attributes,
            allocations: list("eip-allocations"),
            private_addresses: list("private-ipv4-addresses"),
            common,
        })
    }

    /// The ports that health checks ask.
    pub(crate) fn check_ports(&self) -> BTreeSet<u16> {
        match self.check.port.parse() {
            Ok(port) => BTreeSet::from([port]),
            Err(_) => self.node_ports(),
        }
    }

    /// The ports that clients reach on the nodes.
    pub(crate) fn node_ports(&self) -> BTreeSet<u16> {
        self.ports.iter().map(|port| port.node_port).collect()
    }
}

impl Check {
    fn new(service: &Service, settings: &Settings) -> Result<Self> {
        let annotations = annotations(service);
        let local = local_check(service)?;
        let mut check = match local {
            Some((path, port)) => Self {
                protocol: "HTTP".to_owned(),
                port: port.to_string(),
                path: Some(path.to_owned()),
                interval: 10,
                healthy_threshold: 2,
                unhealthy_threshold: 2,
            },
            None => Self {
                protocol: "TCP".to_owned(),
                port: TRAFFIC_PORT.to_owned(),
                path: Some("/".to_owned()),
                interval: 30,
                healthy_threshold: 3,
                unhealthy_threshold: 3,
            },
        };
        if let Some(text) = annotations.text("healthcheck-protocol") {
            check.protocol = text.to_ascii_uppercase();
        }
        if let Some(text) = annotations.text("healthcheck-port") {
            text.clone_into(&mut check.port);
        }
        if let Some(text) = annotations.text("healthcheck-path") {
            check.path = Some(text.to_owned());
        }
        if let Some((port, path)) = settings.shared_probe.as_ref().filter(|_| local.is_none()) {
            check = Self { protocol: "HTTP".to_owned(), port: port.to_string(), path: Some(path.clone()), ..check };
        }
        match check.protocol.as_str() {
            "HTTP" | "HTTPS" => {}
            "TCP" => check.path = None,
            other => {
                let why = format!("{other:?} is not supported; write one of tcp, http, https");
                return Err(annotations.invalid("healthcheck-protocol", why));
            }
        }
        if check.port != TRAFFIC_PORT && check.port.parse::<u16>().is_err() {
            let why = format!("{:?} is not a port; write {TRAFFIC_PORT} or a number from 1 to 65535", check.port);
            return Err(annotations.invalid("healthcheck-port", why));
        }
        let number = |key: &str, default: u32| Ok::<_, Error>(annotations.parse(key)?.unwrap_or(default));
        check.interval = number("healthcheck-interval", check.interval)?;
        check.healthy_threshold = number("healthcheck-healthy-threshold", check.healthy_threshold)?;
        check.unhealthy_threshold = number("healthcheck-unhealthy-threshold", check.unhealthy_threshold)?;
        // Read and not sent, as in the vendor's manager: AWS has a fixed timeout for each protocol.
        annotations.parse::<u32>("healthcheck-timeout")?;
        Ok(check)
    }
}

/// AWS refuses an empty bucket, so the bucket is sent only where logs are on.
fn attributes(annotations: &Annotations<'_>) -> Result<Tags> {
    let is_on = |key: &str| Ok::<_, Error>(annotations.bool(key)?.unwrap_or(false));
    let (cross_zone, access_log) = (is_on("cross-zone-load-balancing-enabled")?, is_on("access-log-enabled")?);
    let text = |key: &str| annotations.text(key).unwrap_or_default().to_owned();
    let mut attributes = vec![(CROSS_ZONE, cross_zone.to_string()), (ACCESS_LOG, access_log.to_string())];
    if access_log {
        attributes.push((ACCESS_LOG_BUCKET, text("access-log-s3-bucket-name")));
        attributes.push((ACCESS_LOG_PREFIX, text("access-log-s3-bucket-prefix")));
    }
    Ok(attributes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// The target group attributes of the annotations. Refuses those that AWS's own
/// cloud-controller-manager refuses.
fn target_attributes(service: &Service, annotations: &Annotations<'_>) -> Result<Tags> {
    const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
    const PROXY_PROTOCOL: &str = "proxy_protocol_v2.enabled";
    let attributes = tags(annotations, TARGET_GROUP_ATTRIBUTES);
    let wrong = |why: String| Err(annotations.invalid(TARGET_GROUP_ATTRIBUTES, why));
    for (key, value) in &attributes {
        if ![PRESERVE_CLIENT_IP, PROXY_PROTOCOL].contains(&key.as_str()) {
            return wrong(format!("{key:?} is not supported; write {PRESERVE_CLIENT_IP} or {PROXY_PROTOCOL}"));
        }
        if value != "true" && value != "false" {
            return wrong(format!("{key}={value} is not a Boolean; write true or false"));
        }
        let has_udp = service.ports.iter().any(|port| port.protocol == Protocol::Udp);
        if key == PRESERVE_CLIENT_IP && value == "false" && has_udp {
            return wrong(format!("{key}=false: AWS always preserves the client's address for UDP; remove it"));
        }
    }
    Ok(attributes)
}
