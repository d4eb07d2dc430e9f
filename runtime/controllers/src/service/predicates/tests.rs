//! S12: which changes of a Service require a reconcile.
//! IDs: tests/conformance/README.md.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
    jiff::Timestamp,
};

use rstest::rstest;

use super::is_relevant;

fn base() -> Service {
    let port = |number: i32| ServicePort {
        port: number,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    };
    let mut service = Service::default();
    service.metadata.uid = Some("one".to_owned());
    service.metadata.finalizers = Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]);
    service.spec = Some(ServiceSpec {
        type_: Some("LoadBalancer".to_owned()),
        ports: Some(vec![port(80), port(22), port(53)]),
        external_ips: Some(vec!["192.0.2.1".to_owned()]),
        ip_families: Some(vec!["IPv4".to_owned()]),
        ..ServiceSpec::default()
    });
    service
}

type Change = fn(&mut Service);

fn spec(service: &mut Service) -> &mut ServiceSpec {
    service.spec.as_mut().unwrap()
}

fn port(service: &mut Service) -> &mut ServicePort {
    &mut spec(service).ports.as_mut().unwrap()[1]
}

fn annotate(service: &mut Service, name: &str, value: &str) {
    service.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

fn families(service: &mut Service, families: &[&str]) {
    spec(service).ip_families = Some(families.iter().map(|family| (*family).to_owned()).collect());
}

#[rstest]
#[case::s12_1_type_load_balancer_to_cluster_ip(|s: &mut Service| spec(s).type_ = Some("ClusterIP".to_owned()))]
#[case::s12_2_three_ports_all_renumbered(|s: &mut Service| spec(s).ports.as_mut().unwrap().iter_mut().for_each(|p| p.port += 1))]
#[case::s12_3_one_external_ip_to_two(|s: &mut Service| spec(s).external_ips.as_mut().unwrap().push("192.0.2.2".to_owned()))]
#[case::s12_4_other_external_ips_of_the_same_count(|s: &mut Service| spec(s).external_ips = Some(vec!["192.0.2.9".to_owned()]))]
#[case::s12_5_uid(|s: &mut Service| s.metadata.uid = Some("two".to_owned()))]
#[case::s12_6_external_traffic_policy_unset_to_local(|s: &mut Service| spec(s).external_traffic_policy = Some("Local".to_owned()))]
#[case::s12_7_health_check_node_port(|s: &mut Service| spec(s).health_check_node_port = Some(30_000))]
#[case::s12_8_target_port_by_number(|s: &mut Service| port(s).target_port = Some(IntOrString::Int(21)))]
#[case::s12_9_target_port_number_to_name(|s: &mut Service| port(s).target_port = Some(IntOrString::String("dns".to_owned())))]
#[case::s12_11_a_second_family(|s: &mut Service| families(s, &["IPv4", "IPv6"]))]
#[case::s12_14_app_protocol_unset_to_http(|s: &mut Service| port(s).app_protocol = Some("http".to_owned()))]
#[case::a_pause_begins(|s: &mut Service| annotate(s, "skysail.dev/paused", "true"))]
#[case::one_port_less(|s: &mut Service| drop(spec(s).ports.as_mut().unwrap().pop()))]
#[case::port_name(|s: &mut Service| port(s).name = Some("ssh".to_owned()))]
#[case::protocol(|s: &mut Service| port(s).protocol = Some("UDP".to_owned()))]
#[case::node_port(|s: &mut Service| port(s).node_port = Some(30_001))]
#[case::source_ranges(|s: &mut Service| spec(s).load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]))]
#[case::affinity(|s: &mut Service| spec(s).session_affinity = Some("ClientIP".to_owned()))]
#[case::address_asked_for(|s: &mut Service| spec(s).load_balancer_ip = Some("192.0.2.7".to_owned()))]
#[case::annotation(|s: &mut Service| s.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()))]
#[case::class(|s: &mut Service| spec(s).load_balancer_class = Some("x/y".to_owned()))]
#[case::deletion(|s: &mut Service| s.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)))]
#[case::finalizer_taken_away(|s: &mut Service| s.metadata.finalizers = None)]
#[case::a_problem_of_the_object(|s: &mut Service| port(s).port = 70_000)]
fn a_change_that_affects_the_load_balancer_is_relevant(#[case] change: Change) {
    let mut new = base();
    change(&mut new);
    assert!(is_relevant(&base(), &new));
    // The reverse change is relevant too, except an added finalizer, which is our own write.
    let back = is_relevant(&new, &base());
    assert!(back || new.metadata.finalizers.is_none());
}

#[test]
fn another_provider_in_the_annotation_is_relevant() {
    let held_by = |name: &str| {
        let mut service = base();
        service.metadata.annotations =
            Some([("skysail.dev/load-balancer-provider".to_owned(), name.to_owned())].into());
        service
    };
    assert!(is_relevant(&held_by("one"), &held_by("two")));
    assert!(!is_relevant(&base(), &held_by("one")), "our own write");
}

#[rstest]
#[case::s12_10_nothing(|_: &mut Service| {})]
#[case::s12_13_the_same_families(|s: &mut Service| families(s, &["IPv4"]))]
#[case::labels(|s: &mut Service| s.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()))]
#[case::internal_traffic_policy(|s: &mut Service| spec(s).internal_traffic_policy = Some("Local".to_owned()))]
#[case::family_policy(|s: &mut Service| spec(s).ip_family_policy = Some("PreferDualStack".to_owned()))]
#[case::allocation_of_node_ports(|s: &mut Service| spec(s).allocate_load_balancer_node_ports = Some(false))]
#[case::another_finalizer(|s: &mut Service| s.metadata.finalizers.as_mut().unwrap().push("x/y".to_owned()))]
#[case::status(|s: &mut Service| s.status = Some(k8s_openapi::api::core::v1::ServiceStatus::default()))]
#[case::version(|s: &mut Service| s.metadata.resource_version = Some("9".to_owned()))]
fn a_change_that_does_not_affect_the_load_balancer_is_not_relevant(#[case] change: Change) {
    let mut new = base();
    change(&mut new);
    assert!(!is_relevant(&base(), &new));
}

#[test]
fn s12_12_two_families_to_one() {
    let mut old = base();
    families(&mut old, &["IPv4", "IPv6"]);
    assert!(is_relevant(&old, &base()));
}

#[test]
fn s12_15_app_protocol_http_to_tcp() {
    let with = |protocol: &str| {
        let mut service = base();
        port(&mut service).app_protocol = Some(protocol.to_owned());
        service
    };
    assert!(is_relevant(&with("http"), &with("tcp")));
}

/// Upstream's first two rules: without a wanted load balancer no change counts, not even of the
/// ports.
#[test]
fn a_service_that_wants_no_load_balancer_is_not_ensured_whatever_changes() {
    let without = |ports: i32| {
        let mut service = base();
        spec(&mut service).type_ = Some("ClusterIP".to_owned());
        service.metadata.finalizers = None;
        port(&mut service).port = ports;
        service
    };
    assert!(!is_relevant(&without(1), &without(2)));
}
