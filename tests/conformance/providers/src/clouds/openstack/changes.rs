//! The Services of the comparison with cloud-provider-openstack.

use skysail_provider::{IpFamily, IpFamilyPolicy, Protocol, Service, ServicePort, SessionAffinity, TrafficPolicy};

use crate::cloud::{
    Change, Difference,
    changes::{self, use_local_policy, use_protocol},
};

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Changes that the component carries out.
pub(super) fn changes() -> Vec<Change> {
    vec![
        changes::PORT,
        changes::NODE_PORT,
        changes::EXCHANGED_NODE_PORTS,
        ("UDP", |service| use_protocol(service, Protocol::Udp)),
        changes::NAMES,
        changes::ONE_PORT_LESS,
        changes::SOURCE_RANGES,
        changes::SESSION_AFFINITY,
        ("a limit and timeouts", |service| {
            annotate(service, "connection-limit", "100");
            annotate(service, "timeout-client-data", "60000");
        }),
        ("the PROXY protocol", |service| annotate(service, "proxy-protocol", "true")),
        ("HTTP with X-Forwarded-For", |service| annotate(service, "x-forwarded-for", "true")),
        ("a health monitor", |service| annotate(service, "enable-health-monitor", "true")),
        ("no public address", |service| use_internally(service)),
    ]
}

/// Sets an annotation of cloud-provider-openstack.
pub(super) fn annotate(service: &mut Service, key: &str, value: &str) {
    service.annotations.insert(format!("loadbalancer.openstack.org/{key}"), value.to_owned());
}

fn use_internally(service: &mut Service) {
    service.annotations.insert(INTERNAL.to_owned(), "true".to_owned());
}

fn monitor(service: &mut Service, key: &str, value: &str) {
    annotate(service, "enable-health-monitor", "true");
    annotate(service, &format!("health-monitor-{key}"), value);
}

/// Where kube-proxy answers the health checks of [`use_local_policy`].
const HEALTH_CHECK_NODE_PORT: u16 = 30_998;

fn use_families(service: &mut Service, policy: IpFamilyPolicy, families: &[IpFamily]) {
    service.ip_family_policy = Some(policy);
    service.ip_families = families.to_vec();
}

/// Further Services. A value in braces is the ID of something in the project.
pub(super) fn more_services() -> Vec<Change> {
    let mut services = listeners();
    services.extend(options());
    services.extend(monitors());
    services.extend(networks());
    services
}

/// Protocols, ports and who may connect.
fn listeners() -> Vec<Change> {
    vec![
        ("the usual Service", |_| {}),
        ("SCTP", |service| use_protocol(service, Protocol::Sctp)),
        ("TCP and UDP", |service| service.ports.iter_mut().take(1).for_each(|port| port.protocol = Protocol::Udp)),
        ("TCP and UDP at one port", |service| {
            let udp = service.ports.first().map(|port| ServicePort {
                protocol: Protocol::Udp,
                name: "udp".to_owned(),
                node_port: port.node_port + 100,
                ..port.clone()
            });
            service.ports.extend(udp);
        }),
        ("many ports", |service| {
            let more = service.ports.first().cloned().into_iter().flat_map(|port| {
                (0..5).map(move |number: u16| ServicePort {
                    name: format!("more-{number}"),
                    port: 9000 + number,
                    node_port: 31_000 + number,
                    ..port.clone()
                })
            });
            service.ports.extend(more.collect::<Vec<_>>());
        }),
        ("a port without a name", |service| {
            service.ports.truncate(1);
            service.ports.iter_mut().for_each(|port| port.name.clear());
        }),
        ("three source ranges", |service| {
            service.source_ranges = ["10.0.0.0/8", "172.16.0.0/12", "192.0.2.0/24"].map(str::to_owned).to_vec();
        }),
        ("source ranges of both families", |service| {
            service.source_ranges = ["10.0.0.0/8", "2001:db8::/32"].map(str::to_owned).to_vec();
        }),
        ("UDP from source ranges", |service| {
            use_protocol(service, Protocol::Udp);
            service.source_ranges = vec!["10.0.0.0/8".to_owned()];
        }),
        ("UDP with session affinity", |service| {
            use_protocol(service, Protocol::Udp);
            service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
        }),
    ]
}

/// Limits, timeouts, and the addresses of clients.
fn options() -> Vec<Change> {
    vec![
        ("no limit", |service| annotate(service, "connection-limit", "-1")),
        ("a limit that is no number", |service| annotate(service, "connection-limit", "many")),
        ("a timeout of clients", |service| annotate(service, "timeout-client-data", "1000")),
        ("a timeout of connections", |service| annotate(service, "timeout-member-connect", "1000")),
        ("a timeout of members", |service| annotate(service, "timeout-member-data", "1000")),
        ("a timeout of inspection", |service| annotate(service, "timeout-tcp-inspect", "1000")),
        ("a timeout that is no number", |service| annotate(service, "timeout-client-data", "1s")),
        ("version 1 of the PROXY protocol", |service| annotate(service, "proxy-protocol", "v1")),
        ("version 2 of the PROXY protocol", |service| annotate(service, "proxy-protocol", "v2")),
        ("no PROXY protocol", |service| annotate(service, "proxy-protocol", "false")),
        ("the PROXY protocol for UDP", |service| {
            use_protocol(service, Protocol::Udp);
            annotate(service, "proxy-protocol", "true");
        }),
        ("the PROXY protocol and X-Forwarded-For", |service| {
            annotate(service, "proxy-protocol", "true");
            annotate(service, "x-forwarded-for", "true");
        }),
        ("the PROXY protocol with session affinity", |service| {
            annotate(service, "proxy-protocol", "true");
            service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
        }),
        ("no X-Forwarded-For", |service| annotate(service, "x-forwarded-for", "false")),
        ("X-Forwarded-For with a limit", |service| {
            annotate(service, "x-forwarded-for", "true");
            annotate(service, "connection-limit", "10");
        }),
        ("a certificate", |service| {
            annotate(service, "default-tls-container-ref", "https://barbican.example.com/v1/containers/none");
        }),
    ]
}

/// Health monitors, and the policy of external traffic, which decides about them.
fn monitors() -> Vec<Change> {
    vec![
        ("no health monitor", |service| annotate(service, "enable-health-monitor", "false")),
        ("a monitor's delay", |service| monitor(service, "delay", "20")),
        ("a monitor's timeout", |service| monitor(service, "timeout", "4")),
        ("a monitor's retries", |service| monitor(service, "max-retries", "3")),
        ("a monitor's retries to go down", |service| monitor(service, "max-retries-down", "2")),
        ("a monitor's delay that is no number", |service| monitor(service, "delay", "soon")),
        ("a monitor that Octavia refuses", |service| monitor(service, "max-retries", "11")),
        ("a monitor of UDP", |service| {
            use_protocol(service, Protocol::Udp);
            annotate(service, "enable-health-monitor", "true");
        }),
        ("a monitor behind the PROXY protocol", |service| {
            annotate(service, "proxy-protocol", "true");
            annotate(service, "enable-health-monitor", "true");
        }),
        ("a monitor of HTTP", |service| {
            annotate(service, "x-forwarded-for", "true");
            annotate(service, "enable-health-monitor", "true");
        }),
        ("only nodes with a pod", |service| use_local_policy(service, HEALTH_CHECK_NODE_PORT)),
        ("only nodes with a pod, monitored", |service| {
            use_local_policy(service, HEALTH_CHECK_NODE_PORT);
            annotate(service, "enable-health-monitor", "true");
        }),
        ("only nodes with a pod, UDP, monitored", |service| {
            use_local_policy(service, HEALTH_CHECK_NODE_PORT);
            use_protocol(service, Protocol::Udp);
            annotate(service, "enable-health-monitor", "true");
        }),
        ("only nodes with a pod, not monitored", |service| {
            use_local_policy(service, HEALTH_CHECK_NODE_PORT);
            annotate(service, "enable-health-monitor", "false");
        }),
    ]
}

/// Networks, addresses and nodes.
fn networks() -> Vec<Change> {
    vec![
        ("a public address, by annotation", |service| {
            service.annotations.insert(INTERNAL.to_owned(), "false".to_owned());
        }),
        ("no public address and a limit", |service| {
            use_internally(service);
            annotate(service, "connection-limit", "5");
        }),
        ("the floating network", |service| annotate(service, "floating-network-id", "{external}")),
        ("an unknown floating network", |service| {
            annotate(service, "floating-network-id", "00000000-0000-4000-8000-00000000dead");
        }),
        ("the floating subnet", |service| annotate(service, "floating-subnet-id", "{floating-subnet}")),
        ("the floating subnet by name", |service| annotate(service, "floating-subnet", "floating")),
        ("the floating subnet by tag", |service| annotate(service, "floating-subnet-tags", "pool")),
        ("a floating IP that does not stay", |service| annotate(service, "keep-floatingip", "false")),
        ("a port of the user", |service| annotate(service, "port-id", "{port}")),
        ("a flavor", |service| annotate(service, "flavor-id", "{flavor}")),
        ("an availability zone", |service| annotate(service, "availability-zone", "nova")),
        ("a class inside", |service| {
            use_internally(service);
            annotate(service, "class", "inside");
        }),
        ("a class outside", |service| annotate(service, "class", "outside")),
        ("an unknown floating subnet", |service| annotate(service, "floating-subnet", "nowhere")),
        ("tags of no floating subnet", |service| annotate(service, "floating-subnet-tags", "nowhere")),
        ("the floating subnets by a glob", |service| annotate(service, "floating-subnet", "*")),
        ("a wanted address", |service| service.load_balancer_ip = Some("198.18.99.99".to_owned())),
        ("a wanted internal address", |service| {
            use_internally(service);
            service.load_balancer_ip = Some("10.6.99.99".to_owned());
        }),
        ("a subnet", |service| annotate(service, "subnet-id", "{subnet}")),
        ("a network", |service| annotate(service, "network-id", "{network}")),
        ("an unknown subnet", |service| annotate(service, "subnet-id", "00000000-0000-4000-8000-00000000dead")),
        ("a subnet of the members", |service| annotate(service, "member-subnet-id", "{subnet}")),
        ("an unknown flavor", |service| annotate(service, "flavor-id", "00000000-0000-4000-8000-00000000dead")),
        ("an unknown availability zone", |service| annotate(service, "availability-zone", "moon")),
        ("an unknown class", |service| annotate(service, "class", "none")),
        ("an unknown load balancer", |service| {
            annotate(service, "load-balancer-id", "00000000-0000-4000-8000-00000000dead");
        }),
        ("a host name", |service| annotate(service, "hostname", "web.example.com")),
        ("nodes that none has selected", |service| annotate(service, "node-selector", "role=ingress")),
        ("nodes by a key that is none", |service| annotate(service, "node-selector", "a=b=c")),
        ("IPv4", |service| use_families(service, IpFamilyPolicy::SingleStack, &[IpFamily::Ipv4])),
        ("IPv6", |service| use_families(service, IpFamilyPolicy::SingleStack, &[IpFamily::Ipv6])),
        ("IPv4 and IPv6", |service| {
            use_families(service, IpFamilyPolicy::PreferDualStack, &[IpFamily::Ipv4, IpFamily::Ipv6]);
        }),
        ("external IPs", |service| service.external_ips = vec!["203.0.113.9".to_owned()]),
        ("internal traffic to this node", |service| service.internal_traffic_policy = TrafficPolicy::Local),
        ("an annotation that is none", |service| annotate(service, "colour", "blue")),
    ]
}

/// What the README of the guest explains.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        cases: &[
            "a limit that is no number",
            "a timeout that is no number",
            "a monitor's delay that is no number",
            "nodes by a key that is none",
        ],
        lines: &[],
        reason: "the vendor's provider logs a value that it cannot read and uses the default; the component refuses \
                 the Service with an Event",
    },
    Difference {
        cases: &["source ranges of both families"],
        lines: &[],
        reason: "the vendor's provider sends the ranges of both families, and Octavia refuses those of the other one; \
                 the component sends those of the load balancer's family",
    },
    Difference {
        cases: &["the PROXY protocol for UDP"],
        lines: &["a port of a load balancer"],
        reason: "Octavia leaves the port of a load balancer that it refuses",
    },
    Difference {
        cases: &["a network"],
        lines: &["member "],
        reason: "the vendor's provider makes members without a subnet, and gives them one with its next call",
    },
    Difference {
        cases: &["a class outside"],
        lines: &["member "],
        reason: "the vendor's provider gives a member that it adds later no subnet",
    },
    Difference {
        cases: &["change to session affinity"],
        lines: &["pool "],
        reason: "the vendor's provider leaves the affinity of existing pools as it is; the component changes it",
    },
    Difference {
        cases: &["change to HTTP with X-Forwarded-For"],
        lines: &[],
        reason: "the vendor's provider creates the listener of the other protocol before it deletes the former one, \
                 and Octavia refuses a second one on the port; the component replaces the listener",
    },
];
