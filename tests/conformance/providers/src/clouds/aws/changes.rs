//! The kinds of load balancers, and the changes of Services that each can carry out.

use std::marker::PhantomData;

use skysail_provider::{Protocol, Service, ServicePort, SessionAffinity};

use crate::cloud::{
    Change, Difference,
    changes::{self, use_local_policy, use_protocol},
};

/// A kind of load balancer.
pub trait Kind: Send + Sync + 'static {
    /// The component: a file of `target/components`, without `.wasm`.
    const COMPONENT: &'static str = "aws";
    /// The value of the annotation `type`.
    const TYPE: Option<&'static str>;
    /// Whether the provider has a role by a web identity, in place of an access key.
    const HAS_ROLE: bool = false;
    /// Further lines of the section `[Global]`.
    const CONFIG: &'static str = "";
    /// What the component and Amazon's provider do in different ways.
    const DIFFERENCES: &'static [Difference] = &[];

    /// The changes that this kind can carry out.
    fn changes() -> Vec<Change>;

    /// Services of the comparison with Amazon's provider, beside those of [`Self::changes`].
    fn more_services() -> Vec<Change>;
}

/// Network Load Balancers without security groups, which is the default.
#[derive(Debug)]
pub struct Network;

/// Network Load Balancers with a security group each.
#[derive(Debug)]
pub struct Managed;

/// As [`Network`], with a role by a web identity.
#[derive(Debug)]
pub struct WithRole;

/// Classic Load Balancers.
#[derive(Debug)]
pub struct Classic;

/// As the other kind, with Amazon's Go provider as the component.
#[derive(Debug)]
pub struct Vendors<K>(PhantomData<fn() -> K>);

/// A certificate in IAM.
const CERTIFICATE: &str = "arn:aws:iam::100000000001:server-certificate/web";
const TLS_POLICY: &str = "ELBSecurityPolicy-TLS13-1-2-2021-06";
const CLASSIC_POLICY: &str = "ELBSecurityPolicy-TLS-1-2-2017-01";

/// Sets an annotation of AWS.
pub(super) fn annotate(service: &mut Service, key: &str, value: &str) {
    let key = format!("service.beta.kubernetes.io/aws-load-balancer-{key}");
    service.annotations.insert(key, value.to_owned());
}

fn use_udp(service: &mut Service) {
    use_protocol(service, Protocol::Udp);
}

impl Kind for Network {
    const TYPE: Option<&'static str> = Some("nlb");
    const DIFFERENCES: &'static [Difference] = &[OTHER_PROTOCOL];

    fn changes() -> Vec<Change> {
        let mut changes = common();
        changes.extend::<[Change; 5]>([
            ("UDP", use_udp),
            ("an encrypted port", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-ports", "https");
            }),
            ("another policy of encrypted ports", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-negotiation-policy", TLS_POLICY);
            }),
            ("traffic that is encrypted twice", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "backend-protocol", "ssl");
            }),
            ("health checks of another port", |service| annotate(service, "healthcheck-port", "10256")),
        ]);
        changes
    }

    fn more_services() -> Vec<Change> {
        let mut services = more_common();
        services.extend(addresses());
        services.extend::<[Change; 16]>([
            ("health checks by HTTPS", |service| {
                annotate(service, "healthcheck-protocol", "HTTPS");
                annotate(service, "healthcheck-path", "/ready");
            }),
            ("only nodes with a pod, and a path of its own", |service| {
                use_local_policy(service, 30_998);
                annotate(service, "healthcheck-path", "/alive");
            }),
            ("only nodes with a pod, checked by TCP", |service| {
                use_local_policy(service, 30_997);
                annotate(service, "healthcheck-protocol", "tcp");
                annotate(service, "healthcheck-port", "traffic-port");
            }),
            ("the addresses of clients", |service| {
                annotate(service, "target-group-attributes", "preserve_client_ip.enabled=true");
            }),
            ("no addresses of clients", |service| {
                annotate(service, "target-group-attributes", "preserve_client_ip.enabled=false");
            }),
            ("the proxy protocol", |service| {
                annotate(service, "target-group-attributes", "proxy_protocol_v2.enabled=true");
            }),
            ("the proxy protocol and no addresses of clients", |service| {
                let attributes = "preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true";
                annotate(service, "target-group-attributes", attributes);
            }),
            ("an attribute that AWS does not have", |service| {
                annotate(service, "target-group-attributes", "stickiness.enabled=maybe");
            }),
            ("TLS with ports by number", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-ports", "80,443");
            }),
            ("TLS at all ports, by a star", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-ports", "*");
                annotate(service, "ssl-negotiation-policy", TLS_POLICY);
            }),
            ("one port of UDP", |service| {
                service.ports.truncate(1);
                use_udp(service);
            }),
            ("UDP checked by HTTP", |service| {
                use_udp(service);
                annotate(service, "healthcheck-protocol", "http");
                annotate(service, "healthcheck-port", "10256");
                annotate(service, "healthcheck-path", "/healthz");
            }),
            ("UDP from source ranges", |service| {
                use_udp(service);
                service.source_ranges = vec!["10.0.0.0/8".to_owned()];
            }),
            ("TCP and UDP", |service| {
                service.ports.iter_mut().take(1).for_each(|port| port.protocol = Protocol::Udp);
            }),
            ("a port of health checks that is no number", |service| annotate(service, "healthcheck-port", "web")),
            ("a protocol of health checks that is none", |service| annotate(service, "healthcheck-protocol", "udp")),
        ]);
        services
    }
}

impl Kind for Managed {
    const TYPE: Option<&'static str> = Network::TYPE;
    const CONFIG: &'static str = "NLBSecurityGroupMode = Managed";
    const DIFFERENCES: &'static [Difference] = &[TLS_RULES[0], TLS_RULES[1], OTHER_PROTOCOL];

    fn changes() -> Vec<Change> {
        Network::changes()
    }

    fn more_services() -> Vec<Change> {
        let ranges: Change = ("source ranges for every port", |service| {
            service.source_ranges =
                vec!["10.0.0.0/8".to_owned(), "172.16.0.0/12".to_owned(), "192.0.2.0/24".to_owned()];
        });
        vec![
            ranges,
            ("a group of the user", |service| annotate(service, "security-groups", "{group}")),
            ("a group that does not exist", |service| annotate(service, "security-groups", "sg-0123456789abcdef0")),
        ]
    }
}

impl Kind for WithRole {
    const TYPE: Option<&'static str> = Network::TYPE;
    const HAS_ROLE: bool = true;

    fn changes() -> Vec<Change> {
        Network::changes()
    }

    fn more_services() -> Vec<Change> {
        Network::more_services()
    }
}

impl<K: Kind> Kind for Vendors<K> {
    const COMPONENT: &'static str = super::VENDORS;
    const TYPE: Option<&'static str> = K::TYPE;
    const CONFIG: &'static str = K::CONFIG;

    fn changes() -> Vec<Change> {
        K::changes()
    }

    fn more_services() -> Vec<Change> {
        K::more_services()
    }
}

impl Kind for Classic {
    const TYPE: Option<&'static str> = None;
    const DIFFERENCES: &'static [Difference] = &[LOWER_CASE];

    fn changes() -> Vec<Change> {
        let mut changes = common();
        changes.extend::<[Change; 7]>([
            ("HTTP", |service| annotate(service, "backend-protocol", "http")),
            ("an encrypted port", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-ports", "443");
            }),
            ("encrypted ports with a policy, to pods that speak HTTP", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "backend-protocol", "http");
                annotate(service, "ssl-negotiation-policy", CLASSIC_POLICY);
            }),
            ("the proxy protocol", |service| annotate(service, "proxy-protocol", "*")),
            ("a longer idle time", |service| annotate(service, "connection-idle-timeout", "120")),
            ("connections that end slowly", |service| {
                annotate(service, "connection-draining-enabled", "true");
                annotate(service, "connection-draining-timeout", "60");
            }),
            ("a shorter timeout of health checks", |service| annotate(service, "healthcheck-timeout", "4")),
        ]);
        changes
    }

    fn more_services() -> Vec<Change> {
        let mut services = more_common();
        services.extend::<[Change; 20]>([
            ("a group of the user", |service| annotate(service, "security-groups", "{group}")),
            ("a group that does not exist", |service| annotate(service, "security-groups", "sg-0123456789abcdef0")),
            ("a further group of the user", |service| annotate(service, "extra-security-groups", "{group}")),
            ("a group of the user and a further one", |service| {
                annotate(service, "security-groups", "{group}");
                annotate(service, "extra-security-groups", "{group}");
            }),
            ("HTTPS to pods that speak HTTPS", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "backend-protocol", "https");
            }),
            ("TLS to pods that speak TLS", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "backend-protocol", "ssl");
            }),
            ("TLS at one port by name, to pods that speak TCP", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-ports", "https");
                annotate(service, "backend-protocol", "tcp");
            }),
            ("TLS to a port that exists under no name", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "ssl-ports", "nothing");
            }),
            ("a protocol of pods that is none", |service| annotate(service, "backend-protocol", "quic")),
            ("the proxy protocol for one port", |service| annotate(service, "proxy-protocol", "80")),
            ("a log every five minutes", |service| {
                annotate(service, "access-log-enabled", "true");
                annotate(service, "access-log-emit-interval", "5");
                annotate(service, "access-log-s3-bucket-name", "logs");
            }),
            ("a log at an interval that is no number", |service| {
                annotate(service, "access-log-enabled", "true");
                annotate(service, "access-log-emit-interval", "often");
            }),
            ("connections that end within the default time", |service| {
                annotate(service, "connection-draining-enabled", "true");
            }),
            ("an idle time that is no number", |service| annotate(service, "connection-idle-timeout", "long")),
            ("every number of health checks", |service| {
                annotate(service, "healthcheck-interval", "20");
                annotate(service, "healthcheck-timeout", "7");
                annotate(service, "healthcheck-healthy-threshold", "3");
                annotate(service, "healthcheck-unhealthy-threshold", "8");
            }),
            ("health checks by HTTPS of another port", |service| {
                annotate(service, "healthcheck-protocol", "HTTPS");
                annotate(service, "healthcheck-port", "10256");
                annotate(service, "healthcheck-path", "/healthz");
            }),
            ("health checks of pods that speak HTTPS", |service| {
                annotate(service, "ssl-cert", CERTIFICATE);
                annotate(service, "backend-protocol", "https");
                annotate(service, "healthcheck-path", "/ready");
            }),
            ("only nodes with a pod, and HTTP", |service| {
                use_local_policy(service, 30_998);
                annotate(service, "backend-protocol", "http");
            }),
            ("UDP", use_udp),
            ("many tags and a long idle time", |service| {
                annotate(service, "additional-resource-tags", "team=web,stage=test,cost=12");
                annotate(service, "connection-idle-timeout", "3600");
            }),
        ]);
        services
    }
}

/// Addresses of a new Network Load Balancer.
fn addresses() -> [Change; 4] {
    [
        ("an Elastic IP in each subnet", |service| {
            annotate(service, "eip-allocations", "{address-a},{address-b}");
        }),
        ("an Elastic IP in the only subnet", |service| {
            annotate(service, "subnets", "{subnet-b}");
            annotate(service, "eip-allocations", "{address-b}");
        }),
        ("too few Elastic IPs", |service| annotate(service, "eip-allocations", "{address-a}")),
        ("a private address in each subnet", |service| {
            annotate(service, "internal", "true");
            annotate(service, "private-ipv4-addresses", "10.0.0.99,10.0.128.99");
        }),
    ]
}

/// [`Kind::more_services`] of Network and Classic Load Balancers.
fn more_common() -> Vec<Change> {
    vec![
        ("two ports", |_| ()),
        ("one port", |service| service.ports.truncate(1)),
        ("five ports", |service| {
            let Some(first) = service.ports.first().cloned() else { return };
            service.ports.extend((0..3).map(|n| ServicePort {
                name: format!("more-{n}"),
                port: 8000 + n,
                node_port: 30_500 + n,
                ..first.clone()
            }));
        }),
        ("inside the network", |service| annotate(service, "internal", "true")),
        ("not inside the network", |service| annotate(service, "internal", "false")),
        ("tags", |service| annotate(service, "additional-resource-tags", "team=web,stage=test")),
        ("a tag without a value", |service| annotate(service, "additional-resource-tags", "team=,stage=test")),
        ("no source ranges that are left", |service| service.source_ranges = vec!["0.0.0.0/0".to_owned()]),
        ("a source range that is none", |service| service.source_ranges = vec!["10.0.0.0/33".to_owned()]),
        ("nodes with a label that none has", |service| annotate(service, "target-node-labels", "role=web")),
        ("session affinity", |service| {
            service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
        }),
        ("an address", |service| service.load_balancer_ip = Some("192.0.2.1".to_owned())),
        ("no traffic across zones", |service| annotate(service, "cross-zone-load-balancing-enabled", "false")),
        ("a Boolean that is none", |service| annotate(service, "cross-zone-load-balancing-enabled", "perhaps")),
        ("a number of health checks that is none", |service| annotate(service, "healthcheck-interval", "soon")),
        ("both subnets by ID", |service| annotate(service, "subnets", "{subnet-b},{subnet-a}")),
        ("one subnet by ID", |service| annotate(service, "subnets", "{subnet-b}")),
        ("a subnet by name", |service| annotate(service, "subnets", "eu-west-1a")),
        ("a subnet by ID and one by name", |service| annotate(service, "subnets", "{subnet-a}, eu-west-1b")),
        ("subnets that do not exist", |service| annotate(service, "subnets", "subnet-1,subnet-2")),
    ]
}

/// What Network Load Balancers with groups have in another way: rules for encrypted ports.
const TLS_RULES: [Difference; 2] = [
    Difference {
        cases: &["an encrypted port"],
        lines: &[": tls 443-443 ", ": tcp 443-443 ", "SecurityGroupIngress"],
        reason: TLS_REASON,
    },
    Difference {
        cases: &["another policy of encrypted ports", "traffic that is encrypted twice"],
        lines: &[": tls ", ": tcp 80-80 ", ": tcp 443-443 ", "SecurityGroupIngress"],
        reason: TLS_REASON,
    },
];

const TLS_REASON: &str =
    "Amazon's provider asks for a rule with the protocol `tls`, which EC2 does not have; the component asks for TCP";

/// What Amazon's provider cannot do with a Network Load Balancer.
const OTHER_PROTOCOL: Difference = Difference {
    cases: &[
        "change to UDP",
        "change to an encrypted port",
        "change to another policy of encrypted ports",
        "change to traffic that is encrypted twice",
    ],
    lines: &[],
    reason: "Amazon's provider creates the listener or the target group of another protocol before it deletes the \
             former one, and AWS refuses a second one with the same port or name; the component replaces it",
};

/// What Classic Load Balancers have in another way.
const LOWER_CASE: Difference = Difference {
    cases: &["health checks by HTTP"],
    lines: &[],
    reason: "Amazon's provider sends the protocol of health checks in lower case as it is, and AWS refuses it",
};

fn common() -> Vec<Change> {
    vec![
        changes::PORT,
        changes::NODE_PORT,
        changes::EXCHANGED_NODE_PORTS,
        changes::NAMES,
        changes::ONE_PORT_LESS,
        ("source ranges", |service| {
            service.source_ranges = vec!["10.0.0.0/8".to_owned(), "192.0.2.0/24".to_owned()];
        }),
        ("only nodes with a pod", |service| use_local_policy(service, 30_999)),
        ("health checks by HTTP", |service| {
            annotate(service, "healthcheck-protocol", "http");
            annotate(service, "healthcheck-path", "/ready");
        }),
        ("other health checks", |service| {
            annotate(service, "healthcheck-interval", "15");
            annotate(service, "healthcheck-healthy-threshold", "4");
            annotate(service, "healthcheck-unhealthy-threshold", "4");
        }),
        ("traffic across zones", |service| annotate(service, "cross-zone-load-balancing-enabled", "true")),
        ("a log in S3", |service| {
            annotate(service, "access-log-enabled", "true");
            annotate(service, "access-log-s3-bucket-name", "logs");
            annotate(service, "access-log-s3-bucket-prefix", "web");
        }),
    ]
}
