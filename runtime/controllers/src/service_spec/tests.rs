//! The conversion of a Service object.
//! IDs: tests/conformance/README.md.

use expect_test::{Expect, expect};
use k8s_openapi::{
    api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus},
    apimachinery::pkg::util::intstr::IntOrString,
};
use rstest::rstest;
use serde_json::json;
use skysail_provider::IpMode;

use super::{convert, has_finalizer, status};

fn with_ranges(field: &[&str], annotation: Option<&str>) -> Service {
    let mut object = Service { spec: Some(ServiceSpec::default()), ..Service::default() };
    let field: Vec<String> = field.iter().map(|range| (*range).to_owned()).collect();
    object.spec.as_mut().unwrap().load_balancer_source_ranges = (!field.is_empty()).then_some(field);
    object.metadata.annotations = annotation
        .map(|text| [("service.beta.kubernetes.io/load-balancer-source-ranges".to_owned(), text.to_owned())].into());
    object
}

#[track_caller]
fn check_ranges(field: &[&str], annotation: Option<&str>, expected: Expect) {
    let converted = convert(&with_ranges(field, annotation));
    expected.assert_eq(&format!("{:?} {:?}", converted.service.source_ranges, converted.problems));
}

#[test]
fn h6_source_ranges_come_from_the_field_or_else_from_the_annotation() {
    check_ranges(&[], None, expect!["[] []"]);
    check_ranges(&[], Some(" "), expect!["[] []"]);
    check_ranges(
        &[],
        Some(" 10.0.0.0/8 , 2001:db8::/32,10.0.0.0/8"),
        expect![[r#"["10.0.0.0/8", "2001:db8::/32"] []"#]],
    );
    check_ranges(&["192.0.2.0/24"], Some("10.0.0.0/8"), expect![[r#"["192.0.2.0/24"] []"#]]);
}

/// H6: invalid source ranges.
#[test]
fn h6_a_problem_names_a_source_range_that_is_not_a_cidr() {
    check_ranges(&[], Some("10.0.0.1/33"), expect![[r#"[] ["source range \"10.0.0.1/33\" is not a CIDR"]"#]]);
    check_ranges(&[], Some("10.0.0.1/32,*"), expect![[r#"["10.0.0.1/32"] ["source range \"*\" is not a CIDR"]"#]]);
    check_ranges(&[], Some("10.0.0.1/32,"), expect![[r#"["10.0.0.1/32"] ["source range \"\" is not a CIDR"]"#]]);
    check_ranges(&[], Some("foo.bar"), expect![[r#"[] ["source range \"foo.bar\" is not a CIDR"]"#]]);
    check_ranges(&["10.0.0.1/32", "*"], None, expect![[r#"["10.0.0.1/32"] ["source range \"*\" is not a CIDR"]"#]]);
    check_ranges(&["10.0.0.1/33"], None, expect![[r#"[] ["source range \"10.0.0.1/33\" is not a CIDR"]"#]]);
    check_ranges(&["10.0.0.1"], None, expect![[r#"[] ["source range \"10.0.0.1\" is not a CIDR"]"#]]);
    check_ranges(&["10.0.0.1/+8"], None, expect![[r#"[] ["source range \"10.0.0.1/+8\" is not a CIDR"]"#]]);
    check_ranges(&["010.0.0.0/8"], None, expect![[r#"[] ["source range \"010.0.0.0/8\" is not a CIDR"]"#]]);
}

#[test]
fn an_invalid_port_is_a_problem_and_not_a_wrong_number() {
    let port = |port, node_port, protocol: &str| ServicePort {
        port,
        node_port: Some(node_port),
        protocol: Some(protocol.to_owned()),
        target_port: Some(IntOrString::String("http".to_owned())),
        ..ServicePort::default()
    };
    let ports = vec![
        port(80, 30080, "TCP"),
        port(65616, 0, "TCP"),
        port(0, 0, "UDP"),
        port(443, -1, "TCP"),
        port(53, 0, "QUIC"),
    ];
    let object =
        Service { spec: Some(ServiceSpec { ports: Some(ports), ..ServiceSpec::default() }), ..Service::default() };
    let converted = convert(&object);
    expect![[r#"
        80 -> http
        port 65616/TCP (node port 0) is out of range or has an unknown protocol
        port 0/UDP (node port 0) is out of range or has an unknown protocol
        port 443/TCP (node port -1) is out of range or has an unknown protocol
        port 53/QUIC (node port 0) is out of range or has an unknown protocol
    "#]]
    .assert_eq(&format!(
        "{}{}\n",
        converted.service.ports.iter().map(|p| format!("{} -> {}\n", p.port, p.target_port)).collect::<String>(),
        converted.problems.join("\n"),
    ));
}

/// A status with the API server's defaults equals the written status.
#[test]
fn a_missing_mode_is_read_as_the_api_servers_default() {
    let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".to_owned()), ..LoadBalancerIngress::default() };
    let load_balancer = LoadBalancerStatus { ingress: Some(vec![ingress]) };
    let object = Service {
        status: Some(ServiceStatus { load_balancer: Some(load_balancer), ..ServiceStatus::default() }),
        ..Service::default()
    };
    assert_eq!(status(&object).ingress[0].ip_mode, Some(IpMode::Vip));
}

#[rstest]
#[case::h10_none(&[], false)]
#[case::h10_an_unrelated_one(&["example.com/other"], false)]
#[case::h10_ours(&["service.kubernetes.io/load-balancer-cleanup"], true)]
#[case::h10_ours_and_an_unrelated_one(&["example.com/other", "service.kubernetes.io/load-balancer-cleanup"], true)]
fn our_finalizer_is_recognized_by_its_exact_name(#[case] finalizers: &[&str], #[case] ours: bool) {
    let mut object = Service::default();
    assert!(!has_finalizer(&object));
    object.metadata.finalizers = Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect());
    assert_eq!(has_finalizer(&object), ours);
}

fn spec(spec: serde_json::Value) -> Service {
    Service { spec: Some(serde_json::from_value(spec).unwrap()), ..Service::default() }
}

/// An invalid value must not be replaced silently, such as by a health check at port 0 or by IPv4.
#[rstest]
#[case::bad_input_health_check_node_port(json!({ "healthCheckNodePort": 70_000 }), "health check node port 70000 is out of range")]
#[case::bad_input_target_port(
    json!({ "ports": [{ "port": 80, "targetPort": -5 }] }),
    "target port -5 of port 80/TCP is out of range",
)]
#[case::bad_input_family(json!({ "ipFamilies": ["IPv4", "IPv9"] }), r#"IP family "IPv9" is neither IPv4 nor IPv6"#)]
#[case::bad_input_traffic_policy(
    json!({ "externalTrafficPolicy": "Nearby" }),
    r#"external traffic policy "Nearby" is neither Cluster nor Local"#,
)]
#[case::bad_input_affinity(json!({ "sessionAffinity": "Cookie" }), r#"session affinity "Cookie" is neither None nor ClientIP"#)]
#[case::bad_input_affinity_timeout(
    json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 0 } } }),
    "the session affinity timeout of 0 s is not from 1 to 86400 s",
)]
#[case::bad_input_protocol(
    json!({ "ports": [{ "port": 80, "protocol": "X".repeat(65_536) }] }),
    &format!("port 80/{} (node port 0) is out of range or has an unknown protocol", "X".repeat(64)),
)]
fn an_invalid_value_is_a_problem_that_names_it(#[case] object: serde_json::Value, #[case] problem: &str) {
    assert_eq!(convert(&spec(object)).problems, [problem]);
}

/// Every entry is checked once, and the message fits into an Event.
#[test]
fn bad_input_an_annotation_of_64_kib_of_wrong_ranges_is_reported_briefly() {
    let converted = convert(&with_ranges(&[], Some(&"x,".repeat(32_768))));
    assert_eq!(converted.problems.len(), 9);
    assert_eq!(converted.problems[8], "and 32761 more");
    assert!(converted.problems.join("; ").len() < 900);
}

#[test]
fn bad_input_an_annotation_of_64_kib_of_valid_ranges_is_accepted() {
    let ranges: Vec<String> = (0..5_000).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    let twice = [ranges.join(","), ranges.join(",")].join(",");
    let converted = convert(&with_ranges(&[], Some(&twice)));
    assert_eq!((converted.service.source_ranges, converted.problems), (ranges, vec![]));
}

fn with_ingress(ingress: serde_json::Value) -> Service {
    let status = json!({ "loadBalancer": { "ingress": ingress } });
    Service { status: Some(serde_json::from_value(status).unwrap()), ..Service::default() }
}

/// Whether the status has to be written. As upstream, except that a missing mode equals the API
/// server's default: upstream treats it as a different status and patches for ever.
#[rstest]
#[case::h13_empty_and_empty(json!([]), json!(null), true)]
#[case::h13_the_same_ip(json!([{ "ip": "192.0.2.1" }]), json!([{ "ip": "192.0.2.1" }]), true)]
#[case::h13_another_ip(json!([{ "ip": "192.0.2.1" }]), json!([{ "ip": "192.0.2.2" }]), false)]
#[case::h13_the_same_mode(
    json!([{ "ip": "192.0.2.1", "ipMode": "Proxy" }]), json!([{ "ip": "192.0.2.1", "ipMode": "Proxy" }]), true
)]
#[case::h13_a_missing_mode_is_vip(json!([{ "ip": "192.0.2.1" }]), json!([{ "ip": "192.0.2.1", "ipMode": "VIP" }]), true)]
#[case::h13_a_missing_mode_is_not_proxy(
    json!([{ "ip": "192.0.2.1" }]), json!([{ "ip": "192.0.2.1", "ipMode": "Proxy" }]), false
)]
#[case::h13_vip_and_proxy(
    json!([{ "ip": "192.0.2.1", "ipMode": "VIP" }]), json!([{ "ip": "192.0.2.1", "ipMode": "Proxy" }]), false
)]
#[case::h13_the_same_ports(
    json!([{ "ip": "192.0.2.1", "ports": [{ "port": 80, "protocol": "TCP" }] }]),
    json!([{ "ip": "192.0.2.1", "ports": [{ "port": 80, "protocol": "TCP" }] }]), true
)]
#[case::h13_another_protocol(
    json!([{ "ip": "192.0.2.1", "ports": [{ "port": 80, "protocol": "TCP" }] }]),
    json!([{ "ip": "192.0.2.1", "ports": [{ "port": 80, "protocol": "UDP" }] }]), false
)]
#[case::h13_ports_on_one_side_only(
    json!([{ "ip": "192.0.2.1", "ports": [{ "port": 80, "protocol": "TCP" }] }]), json!([{ "ip": "192.0.2.1" }]), false
)]
#[case::h13_another_order(
    json!([{ "ip": "192.0.2.1" }, { "ip": "192.0.2.2" }]), json!([{ "ip": "192.0.2.2" }, { "ip": "192.0.2.1" }]), false
)]
fn statuses_are_compared_completely(
    #[case] one: serde_json::Value,
    #[case] other: serde_json::Value,
    #[case] equal: bool,
) {
    assert_eq!(status(&with_ingress(one)) == status(&with_ingress(other)), equal);
}
