//! Classic Load Balancers.

use skysail_guest_sdk::{Error, Protocol, Result, Service, ServicePort, annotations::Annotations};

use super::{
    BACKEND_PROTOCOL, CERTIFICATE, Common, EXTRA_SECURITY_GROUPS, EncryptedPorts, SSL_POLICY, TARGET_GROUP_ATTRIBUTES,
    annotations, local_check, ports, texts,
};
use crate::{
    settings::Settings,
    wire::elb::{Attributes, HealthCheck, Listener},
};

/// The desired state of a Classic Load Balancer.
#[derive(Debug)]
pub(crate) struct Classic {
    pub(crate) common: Common,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) check: HealthCheck,
    pub(crate) attributes: Attributes,
    /// Whether backends get the proxy protocol's header.
    pub(crate) proxy_protocol: bool,
    /// AWS's policy of the encrypted listeners; none leaves them as they are.
    pub(crate) ssl_policy: Option<String>,
    /// Security groups beside the Service's own one.
    pub(crate) extra_groups: Vec<String>,
}

impl Classic {
    /// # Errors
    ///
    /// `invalid` and `unsupported` for what the Service cannot have.
    pub(crate) fn new(service: &Service, settings: &Settings) -> Result<Self> {
        let annotations = annotations(service);
        if annotations.text(TARGET_GROUP_ATTRIBUTES).is_some() {
            return Err(annotations.invalid(
                TARGET_GROUP_ATTRIBUTES,
                "a Classic Load Balancer has no target groups; remove the annotation, or set the type nlb",
            ));
        }
        let common = Common::new(service)?;
        let encrypted = EncryptedPorts::of(service);
        let listeners = ports(service, &[Protocol::Tcp])?.iter();
        let listeners: Vec<_> =
            listeners.map(|port| listener(port, &annotations, &encrypted)).collect::<Result<_>>()?;
        let proxy_protocol = annotations.one_of("proxy-protocol", &[("*", true)])?.unwrap_or(false);
        Ok(Self {
            check: check(service, settings, &listeners)?,
            attributes: attributes(&annotations)?,
            proxy_protocol,
            ssl_policy: annotations.text(SSL_POLICY).map(str::to_owned),
            extra_groups: texts(&annotations, EXTRA_SECURITY_GROUPS),
            listeners,
            common,
        })
    }
}

/// A port with a certificate is decrypted; the protocol of the pods decides whether as HTTP.
fn listener(port: &ServicePort, annotations: &Annotations<'_>, encrypted: &EncryptedPorts<'_>) -> Result<Listener> {
    let certificate = annotations.text(CERTIFICATE).filter(|_| encrypted.has(port));
    let words =
        [("https", ("HTTPS", "HTTPS")), ("http", ("HTTPS", "HTTP")), ("ssl", ("SSL", "SSL")), ("tcp", ("SSL", "TCP"))];
    let (protocol, instance_protocol) = match (certificate, annotations.text(BACKEND_PROTOCOL)) {
        (Some(_), _) => annotations.one_of(BACKEND_PROTOCOL, &words)?.unwrap_or(("SSL", "TCP")),
        (None, Some("http")) => ("HTTP", "HTTP"),
        (None, _) => ("TCP", "TCP"),
    };
    Ok(Listener {
        protocol: protocol.to_owned(),
        port: port.port,
        instance_protocol: instance_protocol.to_owned(),
        instance_port: port.node_port,
        certificate: certificate.map(str::to_owned),
    })
}

/// One check for all ports: of the first node port, of kube-proxy, or of what the annotations name.
fn check(service: &Service, settings: &Settings, listeners: &[Listener]) -> Result<HealthCheck> {
    let annotations = annotations(service);
    let first = listeners.first().map_or(0, |listener| listener.instance_port);
    let asked_port = annotations.text("healthcheck-port");
    let (protocol, port, path) = match (local_check(service)?, &settings.shared_probe) {
        (Some((path, port)), _) => ("HTTP", if asked_port == Some("traffic-port") { first } else { port }, path),
        (None, Some((port, path))) => ("HTTP", *port, path.as_str()),
        (None, None) => match annotations.text(BACKEND_PROTOCOL).map(str::to_ascii_lowercase).as_deref() {
            Some("https" | "ssl") => ("SSL", first, ""),
            _ => ("TCP", first, ""),
        },
    };
    let words = ["TCP", "SSL", "HTTP", "HTTPS"];
    let protocol = annotations.text("healthcheck-protocol").unwrap_or(protocol).to_ascii_uppercase();
    if !words.contains(&protocol.as_str()) {
        let why = format!("{protocol:?} is not supported; write one of {}", words.join(", "));
        return Err(annotations.invalid("healthcheck-protocol", why));
    }
    let port = match asked_port {
        None | Some("traffic-port") => port,
        Some(_) => annotations.parse("healthcheck-port")?.unwrap_or(port),
    };
    let path = match protocol.as_str() {
        "HTTP" | "HTTPS" => annotations.text("healthcheck-path").unwrap_or(if path.is_empty() { "/" } else { path }),
        _ => "",
    };
    let at_least = |key: &str, default: u32, least: u32| match annotations.parse(key)?.unwrap_or(default) {
        number if number < least => {
            Err(annotations.invalid(key, format!("{number} is too small; write at least {least}")))
        }
        number => Ok(number),
    };
    Ok(HealthCheck {
        target: format!("{protocol}:{port}{path}"),
        interval: at_least("healthcheck-interval", 10, 5)?,
        timeout: at_least("healthcheck-timeout", 5, 2)?,
        unhealthy_threshold: at_least("healthcheck-unhealthy-threshold", 6, 2)?,
        healthy_threshold: at_least("healthcheck-healthy-threshold", 2, 2)?,
    })
}

fn attributes(annotations: &Annotations<'_>) -> Result<Attributes> {
    let is_on = |key: &str| Ok::<_, Error>(annotations.bool(key)?.unwrap_or(false));
    let text = |key: &str| annotations.text(key).map(str::to_owned);
    Ok(Attributes {
        cross_zone: is_on("cross-zone-load-balancing-enabled")?,
        access_log: is_on("access-log-enabled")?,
        access_log_interval: annotations.parse("access-log-emit-interval")?,
        access_log_bucket: text("access-log-s3-bucket-name"),
        access_log_prefix: text("access-log-s3-bucket-prefix"),
        draining: is_on("connection-draining-enabled")?,
        draining_timeout: annotations.parse("connection-draining-timeout")?,
        idle_timeout: Some(annotations.parse("connection-idle-timeout")?.unwrap_or(60)),
    })
}
