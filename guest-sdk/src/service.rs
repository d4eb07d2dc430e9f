//! Reads a [`Service`] as upstream's providers do.

use crate::{
    Cidr, Ingress, IpFamily, LoadBalancerStatus, Protocol, Result, Service, ServicePort, SessionAffinity, TrafficPolicy,
};

/// Longest default name, in bytes: the shortest limit among the clouds upstream knew.
const LOAD_BALANCER_NAME_BYTES_MAX: usize = 32;

impl ServicePort {
    /// A port without a name, whose target port has the same number: for a provider's tests.
    #[must_use]
    pub fn new(protocol: Protocol, port: u16, node_port: u16) -> Self {
        Self {
            name: String::new(),
            protocol,
            app_protocol: None,
            port,
            node_port,
            target_port: port.to_string(),
            extra: Vec::new(),
        }
    }
}

impl Service {
    /// A Service without ports and with the API server's defaults: for a provider's tests.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            labels: Vec::new(),
            annotations: Vec::new(),
            ports: Vec::new(),
            session_affinity: SessionAffinity::None,
            load_balancer_ip: None,
            load_balancer_class: None,
            source_ranges: Vec::new(),
            external_ips: Vec::new(),
            external_traffic_policy: TrafficPolicy::Cluster,
            internal_traffic_policy: TrafficPolicy::Cluster,
            health_check_node_port: 0,
            ip_families: Vec::new(),
            ip_family_policy: None,
            allocate_node_ports: true,
            status: LoadBalancerStatus { ingress: Vec::new() },
            extra: Vec::new(),
        }
    }

    /// Value of one annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Upstream's default name: `a`, then the uid without dashes, at most 32 bytes. It starts with
    /// a letter, because some clouds require that, and is unique because the uid is.
    #[must_use]
    pub fn default_load_balancer_name(&self) -> String {
        let uid = self.uid.chars().filter(|c| *c != '-');
        std::iter::once('a').chain(uid).take(LOAD_BALANCER_NAME_BYTES_MAX).collect()
    }

    /// `namespace/name`, for messages.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The allowed source ranges: masked, sorted, without duplicates. A Service without ranges
    /// allows all addresses of its IP families.
    ///
    /// # Errors
    ///
    /// `invalid` for an entry that is not a CIDR.
    pub fn allowed_sources(&self) -> Result<Vec<Cidr>> {
        let mut ranges: Vec<Cidr> = self.source_ranges.iter().map(|range| range.parse()).collect::<Result<_>>()?;
        if ranges.is_empty() {
            ranges.extend(self.families().filter_map(|family| {
                Cidr::new(if family == IpFamily::Ipv6 { [0; 16].into() } else { [0; 4].into() }, 0)
            }));
        }
        ranges.sort_unstable();
        ranges.dedup();
        Ok(ranges)
    }

    /// The port of the health check that kube-proxy answers on `/healthz`; none where every node
    /// may receive traffic.
    #[must_use]
    pub fn health_check_node_port(&self) -> Option<u16> {
        let local = self.external_traffic_policy == TrafficPolicy::Local;
        (local && self.health_check_node_port != 0).then_some(self.health_check_node_port)
    }

    /// The Service's IP families, the first one preferred; IPv4 where it names none.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> + '_ {
        let none = self.ip_families.is_empty().then_some(IpFamily::Ipv4);
        self.ip_families.iter().copied().chain(none)
    }
}

impl Ingress {
    /// An ingress with an IP address and without ports.
    pub fn ip(ip: impl Into<String>) -> Self {
        Self { ip: Some(ip.into()), hostname: None, ip_mode: None, ports: Vec::new(), extra: Vec::new() }
    }

    /// An ingress with a DNS name and without ports.
    pub fn hostname(hostname: impl Into<String>) -> Self {
        Self { ip: None, hostname: Some(hostname.into()), ip_mode: None, ports: Vec::new(), extra: Vec::new() }
    }
}

impl From<Ingress> for LoadBalancerStatus {
    fn from(ingress: Ingress) -> Self {
        Self { ingress: vec![ingress] }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, IpFamily, Service, TrafficPolicy};

    fn service() -> Service {
        Service {
            annotations: vec![("a".to_owned(), "1".to_owned())],
            health_check_node_port: 30_000,
            ..Service::new("default", "web", "0a1b2c3d-4e5f-6789-abcd-ef0123456789")
        }
    }

    #[test]
    fn the_default_name_is_upstreams() {
        assert_eq!(service().default_load_balancer_name(), "a0a1b2c3d4e5f6789abcdef012345678");
    }

    #[test]
    fn sources_are_a_set_and_any_address_where_none_is_named() {
        let ranges = |texts: &[&str]| {
            let source_ranges = texts.iter().map(|text| (*text).to_owned()).collect();
            Service { source_ranges, ..service() }
                .allowed_sources()
                .map(|ranges| ranges.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(ranges(&[]), Ok(vec!["0.0.0.0/0".to_owned()]));
        assert_eq!(ranges(&["10.1.2.3/8", " 10.0.0.0/8"]), Ok(vec!["10.0.0.0/8".to_owned()]));
        assert!(matches!(ranges(&["10.0.0.0"]), Err(Error::Invalid(_))));
        let dual = Service { ip_families: vec![IpFamily::Ipv6, IpFamily::Ipv4], ..service() };
        assert_eq!(dual.allowed_sources().map(|ranges| ranges.len()), Ok(2));
    }

    /// Upstream recognizes only the IPv4 range 0.0.0.0/0.
    #[test]
    fn h7_everybody_is_a_range_without_fixed_bits() {
        let everybody = |texts: &[&str]| {
            let source_ranges = texts.iter().map(|text| (*text).to_owned()).collect();
            let service = Service { source_ranges, ..service() };
            service.allowed_sources().unwrap().iter().any(crate::Cidr::is_everything)
        };
        for some in [&["10.0.0.1/32"][..], &["10.0.0.1/32", "10.0.0.2/32"], &["10.0.0.1/32", "10.0.0.1/32"]] {
            assert!(!everybody(some), "{some:?}");
        }
        for all in [&["0.0.0.0/0"][..], &["192.168.0.0/0"], &["10.0.0.1/32", "0.0.0.0/0"], &["::/0"], &[]] {
            assert!(everybody(all), "{all:?}");
        }
    }

    /// Services of other types never reach a provider.
    #[test]
    fn h8_only_local_traffic_needs_the_health_check() {
        assert_eq!(service().health_check_node_port(), None);
        let without = Service { external_traffic_policy: TrafficPolicy::Local, health_check_node_port: 0, ..service() };
        assert_eq!(without.health_check_node_port(), None);
    }

    /// kube-proxy answers it on `/healthz`.
    #[test]
    fn h9_the_health_check_of_local_traffic_has_the_services_port() {
        let local = Service { external_traffic_policy: TrafficPolicy::Local, ..service() };
        assert_eq!(local.health_check_node_port(), Some(30_000));
    }

    #[test]
    fn an_annotation_is_found_by_its_whole_name() {
        assert_eq!(service().annotation("a"), Some("1"));
        assert_eq!(service().annotation("A"), None);
    }
}
