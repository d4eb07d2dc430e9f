//! What a Service may ask for, annotation by annotation.

use skysail_guest_sdk::{Error, Ingress, Protocol, Service, SessionAffinity, TrafficPolicy};

use super::{
    Kind, PREFIX,
    classic::Classic,
    network::{Check, Network},
};
use crate::fixture::{annotated, service, settings};

const CERT: &str = "arn:aws:acm:us-east-1:1:certificate/1";

fn web(annotations: &[(&str, &str)]) -> Service {
    annotated(service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Tcp, 443, 30_443)]), annotations)
}

fn network(annotations: &[(&str, &str)]) -> Network {
    Network::new(&web(annotations), &settings("")).unwrap()
}

fn classic(annotations: &[(&str, &str)]) -> Classic {
    Classic::new(&web(annotations), &settings("")).unwrap()
}

fn refusals(annotations: &[(&str, &str)]) -> [Option<Error>; 2] {
    let service = web(annotations);
    [Network::new(&service, &settings("")).err(), Classic::new(&service, &settings("")).err()]
}

#[test]
fn the_type_decides_who_serves_the_service() {
    let kind = |text: &str| Kind::of(&web(&[("type", text)]));
    assert_eq!([kind("nlb"), kind(""), kind("elb")], [Some(Kind::Network), Some(Kind::Classic), Some(Kind::Classic)]);
    assert_eq!([kind("external"), kind("nlb-ip")], [None, None]);
}

#[test]
fn the_hostname_tells_the_kind() {
    let kind = |hostname: &str| {
        let mut service = web(&[]);
        service.status.ingress = vec![Ingress::hostname(hostname)];
        Kind::of_status(&service)
    };
    assert_eq!(kind("a1-2.us-east-1.elb.amazonaws.com"), Some(Kind::Classic));
    assert_eq!(kind("a1-2.elb.us-east-1.amazonaws.com"), Some(Kind::Network));
    assert_eq!(kind("a1-2.cn-north-1.elb.amazonaws.com.cn"), Some(Kind::Classic));
    assert_eq!(kind("a1-2.elb.cn-north-1.amazonaws.com.cn"), Some(Kind::Network));
    assert_eq!(Kind::of_status(&web(&[])), None);
}

#[test]
fn the_hostname_tells_the_kind_in_every_partition() {
    let kind = |hostname: &str| {
        let mut service = web(&[]);
        service.status.ingress = vec![Ingress::hostname(hostname)];
        Kind::of_status(&service)
    };
    for (region, domain) in [("eusc-de-east-1", "amazonaws.eu"), ("us-iso-east-1", "c2s.ic.gov")] {
        assert_eq!(kind(&format!("a1-2.{region}.elb.{domain}")), Some(Kind::Classic), "{region}");
        assert_eq!(kind(&format!("a1-2.elb.{region}.{domain}")), Some(Kind::Network), "{region}");
    }
    assert_eq!(kind("web.example.com"), None);
}

#[test]
fn what_no_load_balancer_can_do_is_refused_with_the_remedy() {
    let refused = |change: fn(&mut Service)| {
        let mut service = web(&[]);
        change(&mut service);
        [Network::new(&service, &settings("")).unwrap_err(), Classic::new(&service, &settings("")).unwrap_err()]
    };
    let unsupported = |errors: [Error; 2]| errors.iter().all(|error| matches!(error, Error::Unsupported(_)));
    let invalid = |errors: [Error; 2]| errors.iter().all(|error| matches!(error, Error::Invalid(_)));
    assert!(unsupported(refused(|service| service.session_affinity = SessionAffinity::ClientIp(60))));
    assert!(unsupported(refused(|service| service.load_balancer_ip = Some("10.0.0.1".to_owned()))));
    assert!(unsupported(refused(|service| service.ports[1].protocol = Protocol::Udp)));
    assert!(unsupported(refused(|service| service.ports[0].protocol = Protocol::Sctp)));
    assert!(invalid(refused(|service| service.ports.clear())));
    assert!(invalid(refused(|service| service.ports[0].node_port = 0)));
    assert!(invalid(refused(|service| service.source_ranges = vec!["10.0.0.0".to_owned()])));
    assert!(invalid(refused(|service| service.external_traffic_policy = TrafficPolicy::Local)));
}

#[test]
fn each_wrong_annotation_is_named_with_its_value_and_the_remedy() {
    let both: [(&str, &str); 5] = [
        ("healthcheck-port", "0x50"),
        ("healthcheck-interval", "soon"),
        ("healthcheck-protocol", "udp"),
        ("cross-zone-load-balancing-enabled", "yes"),
        ("access-log-enabled", "on"),
    ];
    for (key, value) in both {
        for error in refusals(&[(key, value)]) {
            let Some(Error::Invalid(text)) = error else { panic!("{key}={value}: {error:?}") };
            assert!(text.starts_with(&format!("annotation {PREFIX}{key}: ")), "{text}");
            assert!(text.to_lowercase().contains(value), "{text}");
        }
    }
    let of_networks = [
        ("extra-security-groups", "sg-1"),
        ("target-group-attributes", "stickiness.enabled=true"),
        ("target-group-attributes", "proxy_protocol_v2.enabled=yes"),
    ];
    for annotation in of_networks {
        assert!(matches!(refusals(&[annotation])[0], Some(Error::Invalid(_))), "{annotation:?}");
    }
    let of_classics = [
        ("target-group-attributes", "proxy_protocol_v2.enabled=true"),
        ("proxy-protocol", "80"),
        ("access-log-emit-interval", "hourly"),
        ("connection-draining-enabled", "2"),
        ("connection-draining-timeout", "long"),
        ("connection-idle-timeout", "-1"),
        ("healthcheck-healthy-threshold", "1"),
        ("healthcheck-timeout", "1"),
    ];
    for annotation in of_classics {
        assert!(matches!(refusals(&[annotation])[1], Some(Error::Invalid(_))), "{annotation:?}");
    }
    let wrong = [("ssl-cert", CERT), ("backend-protocol", "smtp")];
    assert!(matches!(refusals(&wrong), [None, Some(Error::Invalid(_))]));
}

#[test]
fn a_certificate_encrypts_the_ports_that_are_listed() {
    let protocols = |annotations: &[(&str, &str)]| {
        let mut all = annotations.to_vec();
        all.push(("ssl-cert", CERT));
        let network = network(&all)
            .ports
            .iter()
            .map(|port| format!("{}/{}", port.protocol(), port.traffic_protocol))
            .collect::<Vec<_>>();
        let classic = classic(&all)
            .listeners
            .into_iter()
            .map(|one| format!("{}/{}", one.protocol, one.instance_protocol))
            .collect::<Vec<_>>();
        (network.join(" "), classic.join(" "))
    };
    let expect = |network: &str, classic: &str| (network.to_owned(), classic.to_owned());
    assert_eq!(protocols(&[]), expect("TLS/TCP TLS/TCP", "SSL/TCP SSL/TCP"));
    assert_eq!(protocols(&[("ssl-ports", "*")]), expect("TLS/TCP TLS/TCP", "SSL/TCP SSL/TCP"));
    assert_eq!(protocols(&[("ssl-ports", "443")]), expect("TCP/TCP TLS/TCP", "TCP/TCP SSL/TCP"));
    assert_eq!(protocols(&[("ssl-ports", "port-80")]), expect("TLS/TCP TCP/TCP", "SSL/TCP TCP/TCP"));
    let http = [("ssl-ports", "443"), ("backend-protocol", "http")];
    assert_eq!(protocols(&http), expect("TCP/TCP TLS/TCP", "HTTP/HTTP HTTPS/HTTP"));
    assert_eq!(protocols(&[("backend-protocol", "ssl")]), expect("TLS/TLS TLS/TLS", "SSL/SSL SSL/SSL"));
    assert_eq!(protocols(&[("backend-protocol", "https")]), expect("TLS/TCP TLS/TCP", "HTTPS/HTTPS HTTPS/HTTPS"));
    let tls = network(&[("ssl-cert", CERT), ("ssl-negotiation-policy", "P")]).ports.remove(0).tls.unwrap();
    assert_eq!((&*tls.certificate, tls.policy.as_deref()), (CERT, Some("P")));
}

fn check(protocol: &str, port: &str, path: Option<&str>, seconds: u32, threshold: u32) -> Check {
    Check {
        protocol: protocol.to_owned(),
        port: port.to_owned(),
        path: path.map(str::to_owned),
        interval: seconds,
        healthy_threshold: threshold,
        unhealthy_threshold: threshold,
    }
}

#[test]
fn health_checks_follow_the_traffic_policy_the_annotations_and_the_config() {
    assert_eq!(network(&[]).check, check("TCP", "traffic-port", None, 30, 3));
    assert_eq!(classic(&[]).check.target, "TCP:30080");
    let local = |annotations: &[(&str, &str)]| Service {
        external_traffic_policy: TrafficPolicy::Local,
        health_check_node_port: 32_000,
        ..web(annotations)
    };
    let network_of = |service: &Service, more: &str| Network::new(service, &settings(more)).unwrap().check;
    let classic_of = |service: &Service, more: &str| Classic::new(service, &settings(more)).unwrap().check.target;
    assert_eq!(network_of(&local(&[]), ""), check("HTTP", "32000", Some("/healthz"), 10, 2));
    assert_eq!(classic_of(&local(&[]), ""), "HTTP:32000/healthz");
    assert_eq!(classic_of(&local(&[("healthcheck-port", "traffic-port")]), ""), "HTTP:30080/healthz");
    let all = [
        ("healthcheck-protocol", "https"),
        ("healthcheck-port", "8443"),
        ("healthcheck-path", "/ready"),
        ("healthcheck-interval", "20"),
        ("healthcheck-healthy-threshold", "5"),
        ("healthcheck-unhealthy-threshold", "5"),
        ("healthcheck-timeout", "8"),
    ];
    assert_eq!(network(&all).check, check("HTTPS", "8443", Some("/ready"), 20, 5));
    let found = classic(&all).check;
    assert_eq!((&*found.target, found.interval, found.timeout), ("HTTPS:8443/ready", 20, 8));
    assert_eq!((found.healthy_threshold, found.unhealthy_threshold), (5, 5));
    assert_eq!(classic(&[("backend-protocol", "ssl")]).check.target, "SSL:30080");
    let shared = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n";
    assert_eq!(network_of(&web(&[]), shared), check("HTTP", "10256", Some("/healthz"), 30, 3));
    assert_eq!(classic_of(&web(&[]), shared), "HTTP:10256/healthz");
    assert_eq!(network_of(&local(&[]), shared), check("HTTP", "32000", Some("/healthz"), 10, 2));
}

#[test]
fn the_other_annotations_are_read() {
    let found = network(&[
        ("internal", "true"),
        ("subnets", "subnet-1, name"),
        ("eip-allocations", "eipalloc-1,eipalloc-2"),
        ("private-ipv4-addresses", "10.0.1.9,10.0.2.9"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "logs"),
        ("additional-resource-tags", "team=net,empty"),
        ("target-group-attributes", "preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true"),
    ]);
    assert!(found.common.internal);
    assert_eq!(found.common.subnets, ["subnet-1", "name"]);
    assert_eq!((found.allocations.len(), found.private_addresses.len(), found.target_attributes.len()), (2, 2, 2));
    assert_eq!(found.common.tags, [("empty", ""), ("team", "net")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let attributes: Vec<_> = found.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let expected = [
        "access_logs.s3.bucket=logs",
        "access_logs.s3.enabled=true",
        "access_logs.s3.prefix=",
        "load_balancing.cross_zone.enabled=true",
    ];
    assert_eq!(attributes, expected);
    assert!(classic(&[("internal", "0.0.0.0/0")]).common.internal, "the oldest form");
    assert!(!classic(&[("internal", "false")]).common.internal);
    let found = classic(&[
        ("connection-idle-timeout", "120"),
        ("connection-draining-enabled", "true"),
        ("connection-draining-timeout", "30"),
        ("access-log-emit-interval", "5"),
        ("extra-security-groups", "sg-1,sg-2"),
        ("proxy-protocol", "*"),
    ]);
    assert_eq!((found.attributes.idle_timeout, found.attributes.draining_timeout), (Some(120), Some(30)));
    assert!(found.attributes.draining && found.proxy_protocol);
    assert_eq!((found.attributes.access_log_interval, found.extra_groups.len()), (Some(5), 2));
}

#[test]
fn udp_cannot_hide_the_clients_address() {
    let udp = annotated(
        service(&[(Protocol::Udp, 53, 30_053)]),
        &[("target-group-attributes", "preserve_client_ip.enabled=false")],
    );
    assert!(matches!(Network::new(&udp, &settings("")), Err(Error::Invalid(_))));
}
