//! Invalid Services and invalid answers of a cloud: the object gets a clear Event, and other
//! objects are handled.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};
use skysail_provider::{Ingress, LoadBalancerStatus, PortStatus, Protocol};

use skysail_test_conformance::world::{S, World, pass};

use crate::upstream_services::{FINALIZER, calls, touch};

/// A cluster without validation, with a node and one worker: a stuck Service would block the
/// others.
async fn without_validation() -> World {
    let world = World::new().without_validation();
    world.fake().add_instances(["a"]);
    world.add_node("a").await;
    world.start().await
}

#[rstest]
#[case::bad_input_unknown_protocol(json!({ "ports": [{ "port": 80, "protocol": "QUIC" }] }), "port 80/QUIC")]
#[case::bad_input_port_out_of_range(json!({ "ports": [{ "port": 70_000 }] }), "port 70000/TCP")]
#[case::bad_input_port_zero(json!({ "ports": [{ "port": 0 }] }), "port 0/TCP")]
#[case::bad_input_negative_port(json!({ "ports": [{ "port": -1 }] }), "port -1/TCP")]
#[case::bad_input_target_port_out_of_range(
    json!({ "ports": [{ "port": 80, "targetPort": 65_536 }] }),
    "target port 65536 of port 80/TCP is out of range"
)]
#[case::bad_input_source_range(
    json!({ "loadBalancerSourceRanges": ["10.0.0.0/8", "everyone"] }),
    r#"source range "everyone" is not a CIDR"#
)]
#[case::bad_input_affinity(json!({ "sessionAffinity": "Cookie" }), r#"session affinity "Cookie""#)]
#[case::bad_input_traffic_policy(json!({ "externalTrafficPolicy": "Nearby" }), r#"external traffic policy "Nearby""#)]
#[case::bad_input_many_bad_ports(
    json!({ "allocateLoadBalancerNodePorts": false, "ports": (0..5_000).map(|n| json!({ "port": 70_000 + n })).collect::<Vec<_>>() }),
    "and 4992 more"
)]
#[tokio::test(start_paused = true)]
async fn an_invalid_service_gets_an_event_and_others_are_ensured(#[case] spec: Value, #[case] text: &str) {
    let mut world = without_validation().await;
    world.add_service("bad", spec).await;
    world.add_service("good", json!({})).await;
    pass(Duration::from_mins(10)).await;
    assert_eq!(calls(&world), ["ensure default/good ports=80/TCP nodes=a"]);
    assert!(world.state("good").await.contains("203.0.113.1"));
    assert_eq!(world.state("bad").await, "[] []", "no load balancer was made, so no finalizer is needed");
    let events = world.transcript().await;
    let told: Vec<&str> = events.lines().filter(|line| line.starts_with("event bad")).collect();
    let reason =
        "event bad Warning SyncLoadBalancerFailed x1: Error syncing load balancer: failed to read the Service: ";
    assert!(told.len() == 1 && told[0].starts_with(reason) && told[0].contains(text), "{told:?}");
}

/// A corrected Service is served at once; a Service that becomes invalid keeps its load balancer
/// and can be deleted.
#[tokio::test(start_paused = true)]
async fn bad_input_that_is_corrected_is_served_at_once_and_an_invalid_service_can_be_deleted() {
    let world = without_validation().await;
    world.add_service("bad", json!({ "ports": [{ "port": 70_000 }] })).await;
    pass(S).await;
    world.patch_service("bad", json!({ "spec": { "ports": [{ "port": 80 }] } })).await;
    pass(S).await;
    assert_eq!(calls(&world), ["ensure default/bad ports=80/TCP nodes=a"]);
    world.patch_service("bad", json!({ "spec": { "ports": [{ "port": 70_000 }] } })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), [""; 0]);
    assert_eq!(world.state("bad").await, format!(r#"["203.0.113.1"] ["{FINALIZER}"]"#));
    world.delete_service("bad").await;
    pass(S).await;
    assert_eq!(calls(&world), ["get default/bad", "ensure-deleted default/bad"]);
    assert_eq!(world.state("bad").await, "gone");
}

/// 64 KiB are allowed: a provider receives the whole annotation. Invalid source ranges are reported
/// within an Event's size.
#[tokio::test(start_paused = true)]
async fn bad_input_an_annotation_of_64_kib_reaches_the_provider_or_is_refused_briefly() {
    let mut world = without_validation().await;
    let long = |service: &skysail_provider::Service| service.annotations.get("note").map_or(0, String::len);
    world.fake().answer_ensure(move |service| {
        let hostname = Some(format!("l{}.example", long(service)));
        LoadBalancerStatus { ingress: vec![Ingress { hostname, ..Ingress::default() }] }
    });
    for name in ["long", "wrong"] {
        world.add_service(name, json!({ "type": "ClusterIP" })).await;
    }
    let annotate = |key: &str, value: String| json!({ "metadata": { "annotations": { key: value } }, "spec": { "type": "LoadBalancer" } });
    world.patch_service("long", annotate("note", "x".repeat(65_536))).await;
    let ranges = "service.beta.kubernetes.io/load-balancer-source-ranges";
    world.patch_service("wrong", annotate(ranges, "everyone,".repeat(7_281))).await;
    world.add_service("good", json!({})).await;
    pass(60 * S).await;
    let ensured = ["ensure default/long ports=80/TCP nodes=a", "ensure default/good ports=80/TCP nodes=a"];
    assert_eq!(calls(&world), ensured);
    let status =
        world.as_user(world.services().get("long")).await.status.unwrap().load_balancer.unwrap().ingress.unwrap();
    assert_eq!(status[0].hostname.as_deref(), Some("l65536.example"));
    let events = world.transcript().await;
    let told: Vec<&str> = events.lines().filter(|line| line.starts_with("event wrong")).collect();
    assert!(told.len() == 1 && told[0].contains("and 7274 more") && told[0].len() < 1100, "{told:?}");
}

fn ip(ip: &str) -> Vec<Ingress> {
    vec![Ingress { ip: Some(ip.to_owned()), ..Ingress::default() }]
}

fn hostname(hostname: &str) -> Vec<Ingress> {
    vec![Ingress { hostname: Some(hostname.to_owned()), ..Ingress::default() }]
}

fn with_ports(ports: Vec<PortStatus>) -> Vec<Ingress> {
    vec![Ingress { ports, ..ip("192.0.2.1").remove(0) }]
}

fn port(error: &str) -> PortStatus {
    PortStatus { port: 80, protocol: Protocol::Tcp, error: Some(error.to_owned()) }
}

#[rstest]
#[case::bad_input_ip_out_of_range(ip("203.0.113.999"), r#"ingress[0]: "203.0.113.999" is not an IP address"#)]
#[case::bad_input_cidr(ip("192.0.2.0/24"), r#"ingress[0]: "192.0.2.0/24" is not an IP address"#)]
#[case::bad_input_ip_of_a_mebibyte(ip(&"1".repeat(1 << 20)), "is not an IP address")]
#[case::bad_input_hostname(hostname("Not A Name"), r#"ingress[0]: "Not A Name" is not a DNS-1123 subdomain"#)]
#[case::bad_input_hostname_with_a_line_break(hostname("a\nevil.example"), "is not a DNS-1123 subdomain")]
#[case::bad_input_hostname_that_is_an_ip(hostname("192.0.2.1"), "ingress[0]: hostname 192.0.2.1 is an IP address")]
#[case::bad_input_neither(hostname(""), "ingress[0]: it has neither an IP address nor a hostname")]
#[case::bad_input_port_error(with_ports(vec![port("it broke")]), "is not a CamelCase reason")]
#[case::bad_input_many_ports(with_ports(vec![port("Broken"); 2_000]), "ingress[0]: 2000 ports, at most 1024 are allowed")]
#[case::bad_input_ten_thousand_ingress_entries(vec![ip("192.0.2.1").remove(0); 10_000], "10000 ingress entries, at most 64 are allowed")]
#[tokio::test(start_paused = true)]
async fn an_invalid_answer_of_a_cloud_is_not_written(#[case] ingress: Vec<Ingress>, #[case] text: &str) {
    let mut world = without_validation().await;
    world.fake().answer_ensure(move |service| LoadBalancerStatus {
        ingress: if service.name == "bad" { ingress.clone() } else { ip("192.0.2.7") },
    });
    world.add_service("bad", json!({})).await;
    world.add_service("good", json!({})).await;
    pass(4 * S).await;
    assert!(world.state("good").await.contains("192.0.2.7"));
    let state = format!(r#"[] ["{FINALIZER}"]"#);
    assert_eq!(world.state("bad").await, state, "not written; the load balancer may exist, so the finalizer stays");
    let events = world.transcript().await;
    let told = events.lines().find(|line| line.starts_with("event bad Warning SyncLoadBalancerFailed x1")).unwrap();
    assert!(told.contains("the provider's status is not valid") && told.contains(text), "{told}");
    assert!(told.len() < 1100, "{} bytes", told.len());
}

/// The provider's answer replaces a status that another client wrote.
#[tokio::test(start_paused = true)]
async fn bad_input_ten_thousand_ingress_entries_in_an_object_are_replaced_by_the_next_answer() {
    let world = without_validation().await;
    world.add_service("web", json!({})).await;
    pass(S).await;
    let entries: Vec<Value> = (0..10_000).map(|n| json!({ "ip": format!("10.0.{}.{}", n / 250, n % 250) })).collect();
    let patch = json!({ "status": { "loadBalancer": { "ingress": entries } } });
    world.as_user(world.services().patch_status("web", &PatchParams::default(), &Patch::Merge(&patch))).await;
    pass(S).await;
    drop(calls(&world));
    touch(&world, "web", "1").await;
    pass(S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a"]);
    assert_eq!(world.state("web").await, format!(r#"["203.0.113.1"] ["{FINALIZER}"]"#));
}
