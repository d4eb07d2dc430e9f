//! What each annotation asks for, and what is refused.

use skysail_guest_sdk::{Error, IpFamily, IpMode, Protocol, Result, Service, SessionAffinity, TrafficPolicy};

use super::{MemberSubnet, Plan, plan};
use crate::{
    features::Features,
    fixture::{CLUSTER, annotated, features, service, settings, web},
};

fn planned(config: &str, service: &Service) -> Result<Plan> {
    let settings = settings(config);
    plan(&settings, features(&settings.load_balancer.provider), CLUSTER, service)
}

fn of(annotations: &[(&str, &str)]) -> Plan {
    planned("", &annotated(annotations)).unwrap()
}

#[test]
fn a_plain_service_asks_for_the_defaults_of_the_vendors_manager() {
    let plan = planned("", &web()).unwrap();
    assert_eq!(plan.name, "kube_service_prod_default_web");
    assert_eq!(plan.description, "Kubernetes external service default/web from cluster prod");
    assert_eq!((plan.internal, plan.keep_floating_ip, plan.family), (false, false, IpFamily::Ipv4));
    let listener = &plan.listeners[0];
    assert_eq!((listener.protocol, listener.port, listener.connection_limit), ("TCP", 80, -1));
    assert_eq!(listener.timeouts, Some([50_000, 5_000, 50_000, 0]));
    assert_eq!(listener.allowed_cidrs.as_ref().unwrap()[0].to_string(), "0.0.0.0/0");
    let pool = &listener.pool;
    assert_eq!((pool.protocol, pool.method.as_str(), pool.sticky), ("TCP", "ROUND_ROBIN", false));
    assert_eq!(pool.monitor, None);
    assert_eq!(plan.place.member_subnet, MemberSubnet::OfNodes);
    assert_eq!(plan.warnings, []);
}

#[test]
fn protocols_follow_ports_and_annotations() {
    let plan = planned("", &service(&[(Protocol::Udp, 53, 30_053), (Protocol::Sctp, 99, 30_099)])).unwrap();
    let protocols: Vec<_> = plan.listeners.iter().map(|listener| (listener.protocol, listener.pool.protocol)).collect();
    assert_eq!(protocols, [("UDP", "UDP"), ("SCTP", "SCTP")]);
    let protocols = |annotations: &[(&str, &str)]| {
        let plan = of(annotations);
        (plan.listeners[0].protocol, plan.listeners[0].pool.protocol)
    };
    assert_eq!(protocols(&[("x-forwarded-for", "true")]), ("HTTP", "HTTP"));
    assert_eq!(protocols(&[("proxy-protocol", "true")]), ("TCP", "PROXY"));
    assert_eq!(protocols(&[("proxy-protocol", "v1")]), ("TCP", "PROXY"));
    assert_eq!(protocols(&[("proxy-protocol", "v2")]), ("TCP", "PROXYV2"));
    assert_eq!(protocols(&[("proxy-protocol", "false")]), ("TCP", "TCP"));
    let tls = ("default-tls-container-ref", "https://b/v1/secrets/s");
    assert_eq!(protocols(&[tls]), ("TERMINATED_HTTPS", "HTTP"));
    assert_eq!(protocols(&[tls, ("x-forwarded-for", "true")]), ("TERMINATED_HTTPS", "HTTP"));
    assert_eq!(protocols(&[tls, ("proxy-protocol", "v2")]), ("TERMINATED_HTTPS", "PROXYV2"));
}

#[test]
fn a_monitor_has_the_type_of_its_port_and_asks_kube_proxy_for_local_traffic() {
    let ports = service(&[(Protocol::Tcp, 80, 1), (Protocol::Udp, 53, 2), (Protocol::Sctp, 99, 3)]).ports;
    let types = |driver: &str, version: &str, local: bool| {
        let service = Service {
            ports: ports.clone(),
            external_traffic_policy: if local { TrafficPolicy::Local } else { TrafficPolicy::Cluster },
            health_check_node_port: 32_000,
            ..annotated(&[("enable-health-monitor", "true")])
        };
        let settings = settings(&format!("lb-provider = {driver}\n"));
        let features = Features::of(version.parse().unwrap(), driver).unwrap();
        let plan = plan(&settings, features, CLUSTER, &service).unwrap();
        let monitors = plan.listeners.iter().map(|listener| listener.pool.monitor.clone().unwrap());
        monitors.map(|monitor| (monitor.r#type, monitor.health_port.is_some())).collect::<Vec<_>>()
    };
    let by_port = [("TCP", false), ("UDP-CONNECT", false), ("SCTP", false)];
    assert_eq!(types("amphora", "v2.27", false), by_port);
    assert_eq!(types("amphora", "v2.27", true), [("HTTP", true); 3]);
    assert_eq!(types("amphora", "v2.15", true), [("HTTP", true), ("UDP-CONNECT", false), ("HTTP", true)]);
    assert_eq!(types("ovn", "v2.27", true), by_port);
}

#[test]
fn local_traffic_without_a_monitor_is_a_warning_with_the_remedy() {
    let warned = |config: &str, annotations: &[(&str, &str)], policy| {
        let service =
            Service { external_traffic_policy: policy, health_check_node_port: 32_000, ..annotated(annotations) };
        planned(config, &service).unwrap().warnings.pop()
    };
    let (reason, message) = warned("", &[], TrafficPolicy::Local).unwrap();
    assert_eq!(reason, "LoadBalancerHealthMonitorMissing");
    assert!(message.contains("loadbalancer.openstack.org/enable-health-monitor"), "{message}");
    assert_eq!(warned("", &[], TrafficPolicy::Cluster), None);
    assert_eq!(warned("", &[("enable-health-monitor", "true")], TrafficPolicy::Local), None);
    assert_eq!(warned("create-monitor = true\n", &[], TrafficPolicy::Local), None);
}

#[test]
fn numbers_of_monitors_come_from_annotations_over_the_cloud_config() {
    let config = "create-monitor = true\nmonitor-delay = 20s\nmonitor-timeout = 10s\n";
    let more = [("health-monitor-timeout", "12"), ("health-monitor-max-retries", "2")];
    let plan = planned(config, &annotated(&more)).unwrap();
    let monitor = plan.listeners[0].pool.monitor.clone().unwrap();
    let numbers = (monitor.delay, monitor.timeout, monitor.max_retries, monitor.max_retries_down);
    assert_eq!(numbers, (20, 12, 2, 3));
}

#[test]
fn sessions_flavor_zone_and_address_are_read() {
    let plan = planned("flavor-id = f-1\navailability-zone = az-1\n", &web()).unwrap();
    assert_eq!((plan.flavor.as_deref(), plan.availability_zone.as_deref()), (Some("f-1"), Some("az-1")));
    let plan =
        planned("flavor-id = f-1\n", &annotated(&[("flavor-id", "f-2"), ("availability-zone", "az-2")])).unwrap();
    assert_eq!((plan.flavor.as_deref(), plan.availability_zone.as_deref()), (Some("f-2"), Some("az-2")));
    let ovn = "lb-provider = ovn\nlb-method = SOURCE_IP_PORT\nflavor-id = f-1\navailability-zone = az-1\n";
    let plan = planned(ovn, &web()).unwrap();
    assert_eq!((plan.flavor, plan.availability_zone, plan.listeners[0].timeouts), (None, None, None));
    assert_eq!(plan.warnings[0].0, "LoadBalancerAvailabilityZonesIgnored");
    let sticky = Service { session_affinity: SessionAffinity::ClientIp(60), ..web() };
    assert!(planned("", &sticky).unwrap().listeners[0].pool.sticky);
}

#[test]
fn networks_come_from_class_annotation_and_cloud_config_in_this_order() {
    let place = |config: &str, annotations: &[(&str, &str)]| planned(config, &annotated(annotations)).unwrap().place;
    let class = "[LoadBalancerClass \"c\"]\nsubnet-id = class\nnetwork-id = class-net\n";
    let config = "subnet-id = config\nnetwork-id = config-net\n";
    assert_eq!(place(config, &[]).subnet.as_deref(), Some("config"));
    assert_eq!(place(config, &[("subnet-id", "annotation")]).subnet.as_deref(), Some("annotation"));
    let all = place(&format!("{config}{class}"), &[("class", "c"), ("subnet-id", "annotation"), ("network-id", "n")]);
    assert_eq!((all.subnet.as_deref(), all.network.as_deref()), (Some("class"), Some("class-net")));
    // The subnet of the members.
    let of = |subnet: &str| MemberSubnet::Of(subnet.to_owned());
    assert_eq!(place(config, &[("member-subnet-id", "m")]).member_subnet, of("m"));
    assert_eq!(place(config, &[("subnet-id", "annotation")]).member_subnet, of("config"));
    assert_eq!(place("", &[("subnet-id", "annotation")]).member_subnet, of("annotation"));
    assert_eq!(place("member-subnet-id = mc\n", &[]).member_subnet, of("mc"));
    assert_eq!(place("network-id = n\n", &[]).member_subnet, MemberSubnet::OfVip);
    assert_eq!(place("", &[("port-id", "p-1")]).vip_port.as_deref(), Some("p-1"));
}

#[test]
fn a_wrong_value_is_invalid_with_the_name_the_value_and_the_remedy() {
    for (key, value, said) in [
        ("x-forwarded-for", "yes", "write true or false"),
        ("keep-floatingip", "si", "write true or false"),
        ("enable-health-monitor", "on", "write true or false"),
        ("proxy-protocol", "v3", "write one of true, v1, v2, false"),
        ("connection-limit", "many", "invalid digit"),
        ("connection-limit", "-2", "-1 for no limit"),
        ("timeout-client-data", "-1", "invalid digit"),
        ("health-monitor-delay", "5s", "invalid digit"),
        ("health-monitor-timeout", "9", "longer than the delay of 5 s"),
        ("health-monitor-max-retries", "0", "from 1 to 10"),
        ("health-monitor-max-retries-down", "11", "from 1 to 10"),
        ("class", "gold", "no [LoadBalancerClass"),
        ("subnet-id", "my subnet", "not the name"),
        ("network-id", "a/b", "not the name"),
        ("port-id", "?", "not the name"),
        ("member-subnet-id", "a b", "not the name"),
        ("floating-network-id", "a b", "not the name"),
        ("floating-subnet-id", "a b", "not the name"),
        ("floating-subnet", "~public.*", "write a glob"),
        ("load-balancer-id", "web lb", "not the name"),
    ] {
        let error = planned("", &annotated(&[(key, value)])).unwrap_err();
        let Error::Invalid(text) = &error else { panic!("{key}: {error:?}") };
        let named = text.starts_with(&format!("annotation loadbalancer.openstack.org/{key}: "));
        assert!(named && text.contains(said), "{key}: {text}");
    }
    let internal = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    assert!(planned("", &annotated(&[(internal, "yes")])).unwrap_err().message().contains(internal));
    let both = annotated(&[("x-forwarded-for", "true"), ("proxy-protocol", "v2")]);
    assert!(planned("", &both).unwrap_err().message().contains("proxy-protocol"));
    let address = Service { load_balancer_ip: Some("gateway".to_owned()), ..web() };
    assert!(matches!(planned("", &address), Err(Error::Invalid(_))));
}

#[test]
fn an_allowlist_of_the_other_family_never_becomes_open_to_all() {
    let v6_only = Service { source_ranges: vec!["2001:db8::/32".to_owned()], ..web() };
    assert!(matches!(planned("", &v6_only), Err(Error::Invalid(_))));
    let both = Service { source_ranges: vec!["2001:db8::/32".to_owned(), "192.0.2.0/24".to_owned()], ..web() };
    let plan = planned("", &both).unwrap();
    assert_eq!(plan.listeners[0].allowed_cidrs.as_ref().unwrap().len(), 1);
}

#[test]
fn the_status_names_the_address_or_the_hostname_that_the_user_chose() {
    let ingress = |config: &str, annotations: &[(&str, &str)]| {
        planned(config, &annotated(annotations)).unwrap().status("203.0.113.1").ingress.remove(0)
    };
    let plain = ingress("", &[]);
    assert_eq!((plain.ip.as_deref(), plain.ip_mode), (Some("203.0.113.1"), Some(IpMode::Vip)));
    assert_eq!(ingress("", &[("proxy-protocol", "v2")]).ip_mode, Some(IpMode::Proxy));
    let named = ingress("", &[("hostname", "web.example.com")]);
    assert_eq!((named.hostname.as_deref(), named.ip), (Some("web.example.com"), None));
    let on = "enable-ingress-hostname = true\n";
    assert_eq!(ingress(on, &[("proxy-protocol", "true")]).hostname.as_deref(), Some("203.0.113.1.nip.io"));
    assert_eq!(ingress(on, &[]).hostname, None);
    let suffix = "enable-ingress-hostname = true\ningress-hostname-suffix = lb.example.com\n";
    assert_eq!(ingress(suffix, &[("proxy-protocol", "true")]).hostname.as_deref(), Some("203.0.113.1.lb.example.com"));
}
