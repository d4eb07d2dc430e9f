//! What a Service asks for, as the annotations of the vendor's manager say it. Pure.

pub(crate) mod classic;
pub(crate) mod network;

use skysail_guest_sdk::{
    Cidr, Error, Protocol, Result, Service, ServicePort, SessionAffinity, annotations::Annotations,
};

use crate::wire::Tags;

/// Prefix of all annotations.
const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
const TYPE: &str = "type";
const CERTIFICATE: &str = "ssl-cert";
const BACKEND_PROTOCOL: &str = "backend-protocol";
const SSL_POLICY: &str = "ssl-negotiation-policy";
const SECURITY_GROUPS: &str = "security-groups";
const EXTRA_SECURITY_GROUPS: &str = "extra-security-groups";
const TARGET_GROUP_ATTRIBUTES: &str = "target-group-attributes";

/// The kinds of load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Network,
    Classic,
}

impl Kind {
    /// The kind that the Service asks for; none where another controller serves it.
    pub(crate) fn of(service: &Service) -> Option<Self> {
        match annotations(service).text(TYPE) {
            Some("nlb") => Some(Self::Network),
            Some("nlb-ip" | "external") => None,
            _ => Some(Self::Classic),
        }
    }

    /// The kind of the load balancer whose name is in the Service's status; none for a name that
    /// AWS did not give.
    pub(crate) fn of_status(service: &Service) -> Option<Self> {
        let hostname = service.status.ingress.first()?.hostname.as_deref()?;
        // A classic one: NAME-NUMBER.REGION.elb.DOMAIN; a network one:
        // NAME-NUMBER.elb.REGION.DOMAIN. Each partition has a domain of its own: amazonaws.com,
        // amazonaws.com.cn, amazonaws.eu, c2s.ic.gov.
        let mut labels = hostname.split('.').skip(1);
        match (labels.next(), labels.next()) {
            (Some("elb"), _) => Some(Self::Network),
            (_, Some("elb")) => Some(Self::Classic),
            _ => None,
        }
    }
}

/// The parts of a plan that both kinds have.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) internal: bool,
    /// IDs and names of subnets; empty to find them by their tags.
    pub(crate) subnets: Vec<String>,
    /// Who may reach the load balancer.
    pub(crate) sources: Vec<Cidr>,
    /// The user's tags for new resources.
    pub(crate) tags: Tags,
    /// Security groups that replace the Service's own one.
    pub(crate) security_groups: Vec<String>,
}

impl Common {
    /// # Errors
    ///
    /// `invalid` and `unsupported` for what no kind of load balancer can do.
    fn new(service: &Service) -> Result<Self> {
        if matches!(service.session_affinity, SessionAffinity::ClientIp(_)) {
            return Err(Error::Unsupported(
                "sessionAffinity ClientIP: the load balancers of this provider have none; remove it".to_owned(),
            ));
        }
        if let Some(ip) = service.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty()) {
            return Err(Error::Unsupported(format!(
                "loadBalancerIP {ip}: AWS chooses the address; remove it, or use the annotation {PREFIX}eip-allocations \
                 with a Network Load Balancer"
            )));
        }
        let annotations = annotations(service);
        let internal = annotations.text("internal").is_some_and(|text| text != "false");
        let everybody = || Cidr::new([0; 4].into(), 0).into_iter().collect();
        let sources = if service.source_ranges.is_empty() { everybody() } else { service.allowed_sources()? };
        Ok(Self {
            internal,
            subnets: texts(&annotations, "subnets"),
            sources,
            tags: tags(&annotations, "additional-resource-tags"),
            security_groups: named_groups(service),
        })
    }
}

/// The labels that a node needs to be a backend, and their values; any value where it is empty.
pub(crate) fn node_labels(service: &Service) -> Tags {
    tags(&annotations(service), "target-node-labels")
}

/// The security groups that the user names in place of the Service's own one.
pub(crate) fn named_groups(service: &Service) -> Vec<String> {
    texts(&annotations(service), SECURITY_GROUPS)
}

const fn annotations(service: &Service) -> Annotations<'_> {
    Annotations::of(service, PREFIX)
}

fn texts(annotations: &Annotations<'_>, key: &str) -> Vec<String> {
    annotations.list(key).into_iter().map(str::to_owned).collect()
}

fn tags(annotations: &Annotations<'_>, key: &str) -> Tags {
    annotations.pairs(key).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The ports, all of one protocol and each with a node port.
fn ports<'a>(service: &'a Service, allowed: &[Protocol]) -> Result<&'a [ServicePort]> {
    let Some(first) = service.ports.first() else {
        return Err(Error::Invalid("the Service has no ports; add one".to_owned()));
    };
    for port in &service.ports {
        let number = port.port;
        if !allowed.contains(&port.protocol) {
            return Err(Error::Unsupported(format!(
                "port {number}: this kind of load balancer does not support {:?}; a Network Load Balancer (annotation \
                 {PREFIX}{TYPE}: nlb) supports TCP and UDP",
                port.protocol
            )));
        }
        if port.protocol != first.protocol {
            return Err(Error::Unsupported(format!(
                "port {number}: a load balancer has ports of one protocol; make a Service for each protocol"
            )));
        }
        if port.node_port == 0 {
            return Err(Error::Invalid(format!(
                "port {number} has no node port; set spec.allocateLoadBalancerNodePorts to true, or set the port's nodePort"
            )));
        }
    }
    Ok(&service.ports)
}

/// The ports that are encrypted where there is a certificate: all, or those that the annotation
/// lists by number or name.
struct EncryptedPorts<'a>(Vec<&'a str>);

impl<'a> EncryptedPorts<'a> {
    fn of(service: &'a Service) -> Self {
        let listed = annotations(service).list("ssl-ports");
        Self(if listed == ["*"] { Vec::new() } else { listed })
    }

    fn has(&self, port: &ServicePort) -> bool {
        let is =
            |text: &str| text.parse() == Ok(port.port) || (!text.is_empty() && text.eq_ignore_ascii_case(&port.name));
        self.0.is_empty() || self.0.iter().any(|text| is(text))
    }
}

/// Path and port of kube-proxy's answer for Services that need a local pod.
fn local_check(service: &Service) -> Result<Option<(&'static str, u16)>> {
    if service.external_traffic_policy != skysail_guest_sdk::TrafficPolicy::Local {
        return Ok(None);
    }
    let port = service.health_check_node_port().ok_or_else(|| {
        Error::Invalid("externalTrafficPolicy Local without healthCheckNodePort; set one, or use Cluster".to_owned())
    })?;
    Ok(Some(("/healthz", port)))
}

#[cfg(test)]
mod tests;
