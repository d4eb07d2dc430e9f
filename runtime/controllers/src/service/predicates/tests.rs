//! S12 of the catalogue: what makes a Service change enough.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
    jiff::Timestamp,
};

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

#[track_caller]
fn check(what: &str, relevant: bool, change: impl FnOnce(&mut Service)) {
    let mut new = base();
    change(&mut new);
    assert_eq!(is_relevant(&base(), &new), relevant, "{what}");
}

fn spec(service: &mut Service) -> &mut ServiceSpec {
    service.spec.as_mut().unwrap()
}

fn port(service: &mut Service) -> &mut ServicePort {
    &mut spec(service).ports.as_mut().unwrap()[1]
}

/// S12.1 to S12.15.
#[test]
fn what_a_load_balancer_depends_on_is_relevant() {
    check("S12.1 type", true, |s| spec(s).type_ = Some("ClusterIP".to_owned()));
    check("S12.2 ports", true, |s| spec(s).ports.as_mut().unwrap().iter_mut().for_each(|p| p.port += 1));
    check("S12.3 more external IPs", true, |s| spec(s).external_ips.as_mut().unwrap().push("192.0.2.2".to_owned()));
    check("S12.4 other external IPs", true, |s| spec(s).external_ips = Some(vec!["192.0.2.9".to_owned()]));
    check("S12.5 UID", true, |s| s.metadata.uid = Some("two".to_owned()));
    check("S12.6 traffic policy", true, |s| spec(s).external_traffic_policy = Some("Local".to_owned()));
    check("S12.7 health check port", true, |s| spec(s).health_check_node_port = Some(30_000));
    check("S12.8 target port", true, |s| port(s).target_port = Some(IntOrString::Int(21)));
    check("S12.9 named target port", true, |s| port(s).target_port = Some(IntOrString::String("dns".to_owned())));
    check("S12.10 nothing", false, |_| {});
    check("S12.11 second family", true, |s| spec(s).ip_families.as_mut().unwrap().push("IPv6".to_owned()));
    check("S12.12 no family", true, |s| spec(s).ip_families = None);
    check("S12.13 same families", false, |s| spec(s).ip_families = Some(vec!["IPv4".to_owned()]));
    check("S12.14 protocol of the application", true, |s| port(s).app_protocol = Some("http".to_owned()));
    check("node port", true, |s| port(s).node_port = Some(30_001));
    check("source ranges", true, |s| spec(s).load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]));
    check("affinity", true, |s| spec(s).session_affinity = Some("ClientIP".to_owned()));
    check("address asked for", true, |s| spec(s).load_balancer_ip = Some("192.0.2.7".to_owned()));
    check("annotation", true, |s| s.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()));
    check("class", true, |s| spec(s).load_balancer_class = Some("x/y".to_owned()));
    check("deletion", true, |s| s.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)));
    let holder = |name: &str| Some([("skysail.dev/load-balancer-provider".to_owned(), name.to_owned())].into());
    let mut held = base();
    held.metadata.annotations = holder("one");
    let mut other = base();
    other.metadata.annotations = holder("two");
    assert!(is_relevant(&held, &other), "another holder");
    check("finalizer taken away", true, |s| s.metadata.finalizers = None);
}

#[test]
fn what_a_load_balancer_does_not_depend_on_is_not() {
    check("labels", false, |s| s.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
    check("our own name", false, |s| {
        s.metadata.annotations = Some([("skysail.dev/load-balancer-provider".to_owned(), "one".to_owned())].into());
    });
    check("selector", false, |s| spec(s).selector = Some([("a".to_owned(), "b".to_owned())].into()));
    check("cluster IPs", false, |s| spec(s).cluster_ips = Some(vec!["10.0.0.9".to_owned()]));
    check("another finalizer", false, |s| s.metadata.finalizers.as_mut().unwrap().push("x/y".to_owned()));
    check("status", false, |s| s.status = Some(k8s_openapi::api::core::v1::ServiceStatus::default()));
    check("version", false, |s| s.metadata.resource_version = Some("9".to_owned()));
}
