//! The kinds of load balancers, and the changes of Services that each can carry out.

use skysail_provider::{Protocol, Service, TrafficPolicy};

use crate::cloud::{Change, changes};

/// A kind of load balancer.
pub trait Kind: Send + Sync + 'static {
    /// The value of the annotation `type`.
    const TYPE: Option<&'static str>;
    /// Further lines of the section `[Global]`.
    const CONFIG: &'static str = "";

    /// The changes that this kind can carry out.
    fn changes() -> Vec<Change>;
}

/// Network Load Balancers without security groups, which is the default.
#[derive(Debug)]
pub struct Network;

/// Network Load Balancers with a security group each.
#[derive(Debug)]
pub struct Managed;

/// Classic Load Balancers.
#[derive(Debug)]
pub struct Classic;

/// A certificate in IAM.
const CERTIFICATE: &str = "arn:aws:iam::100000000001:server-certificate/web";
const TLS_POLICY: &str = "ELBSecurityPolicy-TLS13-1-2-2021-06";
const CLASSIC_POLICY: &str = "ELBSecurityPolicy-TLS-1-2-2017-01";

/// Sets an annotation of AWS.
pub(super) fn annotate(service: &mut Service, key: &str, value: &str) {
    let key = format!("service.beta.kubernetes.io/aws-load-balancer-{key}");
    service.annotations.insert(key, value.to_owned());
}

impl Kind for Network {
    const TYPE: Option<&'static str> = Some("nlb");

    fn changes() -> Vec<Change> {
        let mut changes = common();
        changes.extend::<[Change; 5]>([
            ("UDP", |service| {
                for port in &mut service.ports {
                    port.protocol = Protocol::Udp;
                }
            }),
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
}

impl Kind for Managed {
    const TYPE: Option<&'static str> = Network::TYPE;
    const CONFIG: &'static str = "NLBSecurityGroupMode = Managed";

    fn changes() -> Vec<Change> {
        Network::changes()
    }
}

impl Kind for Classic {
    const TYPE: Option<&'static str> = None;

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
}

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
        ("only nodes with a pod", |service| {
            service.external_traffic_policy = TrafficPolicy::Local;
            service.health_check_node_port = 30_999;
        }),
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
