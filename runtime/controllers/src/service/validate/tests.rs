//! What is read from a Service object.

use expect_test::{Expect, expect};
use k8s_openapi::{
    api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus},
    apimachinery::pkg::util::intstr::IntOrString,
};
use skysail_provider::IpMode;

use super::{convert, status};

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

/// H6 of the catalogue.
#[test]
fn source_ranges_come_from_the_field_or_else_from_the_annotation() {
    check_ranges(&[], None, expect!["[] []"]);
    check_ranges(&[], Some(" "), expect!["[] []"]);
    check_ranges(
        &[],
        Some(" 10.0.0.0/8 , 2001:db8::/32,10.0.0.0/8"),
        expect![[r#"["10.0.0.0/8", "2001:db8::/32"] []"#]],
    );
    check_ranges(&["192.0.2.0/24"], Some("10.0.0.0/8"), expect![[r#"["192.0.2.0/24"] []"#]]);
}

/// H6 of the catalogue: what is invalid.
#[test]
fn a_source_range_that_is_no_cidr_is_a_problem_that_names_it() {
    check_ranges(&[], Some("10.0.0.1/33"), expect![[r#"[] ["source range \"10.0.0.1/33\" is not a CIDR"]"#]]);
    check_ranges(&[], Some("10.0.0.1/32,*"), expect![[r#"["10.0.0.1/32"] ["source range \"*\" is not a CIDR"]"#]]);
    check_ranges(&[], Some("10.0.0.1/32,"), expect![[r#"["10.0.0.1/32"] ["source range \"\" is not a CIDR"]"#]]);
    check_ranges(&["10.0.0.1"], None, expect![[r#"[] ["source range \"10.0.0.1\" is not a CIDR"]"#]]);
    check_ranges(&["10.0.0.1/+8"], None, expect![[r#"[] ["source range \"10.0.0.1/+8\" is not a CIDR"]"#]]);
}

#[test]
fn a_port_that_no_schema_would_pass_is_a_problem_and_not_a_wrong_number() {
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
        port 65616/TCP (node port 0) is out of range or of an unknown protocol
        port 0/UDP (node port 0) is out of range or of an unknown protocol
        port 443/TCP (node port -1) is out of range or of an unknown protocol
        port 53/QUIC (node port 0) is out of range or of an unknown protocol
    "#]]
    .assert_eq(&format!(
        "{}{}\n",
        converted.service.ports.iter().map(|p| format!("{} -> {}\n", p.port, p.target_port)).collect::<String>(),
        converted.problems.join("\n"),
    ));
}

/// H13 of the catalogue: a status that the API server has filled in equals the one that was written.
#[test]
fn a_missing_mode_reads_as_the_api_server_would_fill_it_in() {
    let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".to_owned()), ..LoadBalancerIngress::default() };
    let load_balancer = LoadBalancerStatus { ingress: Some(vec![ingress]) };
    let object = Service {
        status: Some(ServiceStatus { load_balancer: Some(load_balancer), ..ServiceStatus::default() }),
        ..Service::default()
    };
    assert_eq!(status(&object).ingress[0].ip_mode, Some(IpMode::Vip));
}
