//! What a change of the Service changes in the cloud, and nothing else.

use super::*;

/// Ensures `before`, then `after`; the writes of the second one.
fn change(config: &str, before: &Service, after: &Service) -> (World, Vec<String>) {
    let world = World::new(config);
    world.ensure(before, &nodes(2)).unwrap();
    world.cloud.written();
    world.ensure(after, &nodes(2)).unwrap();
    let written = world.cloud.written();
    world.ensure(after, &nodes(2)).unwrap();
    assert_eq!(world.cloud.written(), [""; 0]);
    (world, written)
}

fn begins(written: &[String], expected: &[&str]) {
    assert_eq!(written.len(), expected.len(), "{written:?}");
    for (written, expected) in written.iter().zip(expected) {
        assert!(written.starts_with(expected), "{written:?} {expected:?}");
    }
}

#[test]
fn each_annotation_of_a_listener_is_updated_in_place() {
    for (key, value, field, expected) in [
        ("connection-limit", "100", "connection_limit", json!(100)),
        ("timeout-client-data", "1000", "timeout_client_data", json!(1000)),
        ("timeout-member-connect", "1001", "timeout_member_connect", json!(1001)),
        ("timeout-member-data", "1002", "timeout_member_data", json!(1002)),
        ("timeout-tcp-inspect", "1003", "timeout_tcp_inspect", json!(1003)),
    ] {
        let (world, written) = change("", &web(), &annotated(&[(key, value)]));
        begins(&written, &["PUT listeners/"]);
        assert_eq!(world.column("listeners", field), [expected]);
    }
    let ranges = Service { source_ranges: vec!["192.0.2.7/24".to_owned()], ..web() };
    let (world, written) = change("", &web(), &ranges);
    begins(&written, &["PUT listeners/"]);
    assert_eq!(world.column("listeners", "allowed_cidrs"), [json!(["192.0.2.0/24"])]);
    let (world, _) = change("", &ranges, &web());
    assert_eq!(world.column("listeners", "allowed_cidrs"), [json!(["0.0.0.0/0"])]);
}

#[test]
fn a_new_protocol_replaces_the_listener_because_both_have_the_port() {
    let (world, written) = change("", &web(), &annotated(&[("x-forwarded-for", "true")]));
    let expected = ["DELETE pools/", "DELETE listeners/", "POST listeners", "POST pools", "PUT pools/"];
    begins(&written, &expected);
    assert_eq!(world.column("listeners", "protocol"), ["HTTP"]);
    assert_eq!(world.column("listeners", "insert_headers"), [json!({"X-Forwarded-For": "true"})]);
    assert_eq!(world.column("pools", "protocol"), ["HTTP"]);
}

#[test]
fn the_proxy_protocol_replaces_the_pool_only() {
    let (world, written) = change("", &web(), &annotated(&[("proxy-protocol", "v2")]));
    begins(&written, &["DELETE pools/", "POST pools", "PUT pools/"]);
    assert_eq!(world.column("pools", "protocol"), ["PROXYV2"]);
    assert_eq!(world.cloud.all(LB, "members").len(), 2);
}

#[test]
fn sessions_and_the_algorithm_are_updated_in_place() {
    let sticky = Service { session_affinity: SessionAffinity::ClientIp(60), ..web() };
    let (world, written) = change("", &web(), &sticky);
    begins(&written, &["PUT pools/"]);
    assert_eq!(world.column("pools", "session_persistence"), [json!({"type": "SOURCE_IP"})]);
    let (world, _) = change("", &sticky, &web());
    assert_eq!(world.column("pools", "session_persistence"), [Value::Null]);
    let world = world.with("lb-method = LEAST_CONNECTIONS\n");
    world.ensure(&web(), &nodes(2)).unwrap();
    assert_eq!(world.column("pools", "lb_algorithm"), ["LEAST_CONNECTIONS"]);
}

#[test]
fn a_monitor_comes_changes_and_goes() {
    let on = [("enable-health-monitor", "true")];
    let slow =
        [("enable-health-monitor", "true"), ("health-monitor-delay", "9"), ("health-monitor-max-retries-down", "5")];
    let (world, written) = change("", &web(), &annotated(&on));
    begins(&written, &["POST healthmonitors"]);
    assert_eq!(world.column("healthmonitors", "type"), ["TCP"]);
    let (world, written) = change("", &annotated(&on), &annotated(&slow));
    begins(&written, &["PUT healthmonitors/"]);
    assert_eq!(
        (&world.column("healthmonitors", "delay")[0], &world.column("healthmonitors", "max_retries_down")[0]),
        (&json!(9), &json!(5))
    );
    let (world, written) = change("create-monitor = true\n", &web(), &annotated(&[("enable-health-monitor", "false")]));
    begins(&written, &["DELETE healthmonitors/"]);
    assert_eq!(world.cloud.all(LB, "healthmonitors").len(), 0);
    let local =
        Service { external_traffic_policy: TrafficPolicy::Local, health_check_node_port: 32_000, ..annotated(&on) };
    let (world, written) = change("", &annotated(&on), &local);
    begins(&written, &["PUT pools/", "DELETE healthmonitors/", "POST healthmonitors"]);
    assert_eq!(world.column("healthmonitors", "url_path"), ["/healthz"]);
    assert_eq!(world.column("members", "monitor_port"), [json!(32_000), json!(32_000)]);
}

#[test]
fn ports_come_and_go() {
    let two = Service { ports: service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Tcp, 443, 30_443)]).ports, ..web() };
    let (world, written) = change("create-monitor = true\n", &web(), &two);
    begins(&written, &["POST listeners", "POST pools", "PUT pools/", "POST healthmonitors"]);
    assert_eq!(world.column("listeners", "protocol_port"), [json!(80), json!(443)]);
    let (world, written) = change("", &two, &web());
    begins(&written, &["DELETE pools/", "DELETE listeners/"]);
    assert_eq!(world.column("members", "protocol_port"), [json!(30_080), json!(30_080)]);
    let (world, written) = change("", &web(), &service(&[(Protocol::Tcp, 80, 31_000)]));
    begins(&written, &["PUT pools/"]);
    assert_eq!(world.column("members", "protocol_port"), [json!(31_000), json!(31_000)]);
}

#[test]
fn members_are_the_nodes_that_the_selector_selects() {
    let names = |world: &World| world.column("members", "name");
    let world = World::new("node-selector = \"pool=even\"\n");
    world.ensure(&web(), &nodes(3)).unwrap();
    assert_eq!(names(&world), ["node-0", "node-2"]);
    world.ensure(&annotated(&[("node-selector", "pool = odd")]), &nodes(3)).unwrap();
    assert_eq!(names(&world), [""; 0], "blanks around = are part of the key, as in the vendor's manager");
    world.ensure(&annotated(&[("node-selector", "pool")]), &nodes(3)).unwrap();
    assert_eq!(names(&world).len(), 3);
}

#[test]
fn a_member_that_the_cloud_is_deleting_is_no_member() {
    let world = World::new("");
    world.ensure(&web(), &nodes(2)).unwrap();
    let pool = world.column("pools", "id").remove(0);
    let going = json!({"id": "m", "pool": pool, "name": "node-2", "address": "10.6.0.12", "protocol_port": 30_080,
        "provisioning_status": "PENDING_DELETE"});
    world.cloud.put(LB, "members", going);
    world.cloud.written();
    world.update(&web(), &nodes(2)).unwrap();
    assert_eq!(world.cloud.written(), [""; 0]);
}

#[test]
fn a_service_without_node_ports_has_empty_pools() {
    let world = World::new("");
    world.ensure(&service(&[(Protocol::Tcp, 80, 0)]), &nodes(2)).unwrap();
    assert_eq!((world.cloud.all(LB, "pools").len(), world.cloud.all(LB, "members").len()), (1, 0));
}

#[test]
fn a_driver_without_batches_gets_one_object_in_a_request() {
    let world = World::new("provider-requires-serial-api-calls = true\ncreate-monitor = true\n");
    world.ensure(&web(), &nodes(2)).unwrap();
    let expected = [
        "POST loadbalancers",
        "POST listeners",
        "POST pools",
        "POST pools/",
        "POST pools/",
        "POST healthmonitors",
        "POST floatingips",
    ];
    begins(&world.cloud.written(), &expected);
    assert_eq!(world.column("members", "name")[0], "member_node-0_10.6.0.10_30080");
    world.update(&web(), &nodes(1)).unwrap();
    begins(&world.cloud.written(), &["DELETE pools/"]);
}

#[test]
fn a_load_balancer_with_the_name_of_an_old_release_is_adopted() {
    let world = World::new("");
    let lb = json!({"id": "old", "name": web().default_load_balancer_name(), "provisioning_status": "ACTIVE",
        "vip_address": "10.6.0.7", "vip_port_id": "port-of-old", "vip_subnet_id": "subnet-nodes", "tags": []});
    world.cloud.put(LB, "loadbalancers", lb);
    world.ensure(&web(), &nodes(1)).unwrap();
    assert_eq!(world.column("loadbalancers", "id"), ["old"]);
    assert_eq!(world.column("loadbalancers", "tags"), [json!(["kube_service_prod_default_web"])]);
    world.delete(&web()).unwrap();
    assert_eq!(world.count(), 0);
}

#[test]
fn certificates_are_checked_in_barbican_unless_they_are_elsewhere() {
    let tls = annotated(&[("default-tls-container-ref", "https://barbican/v1/containers/c-1")]);
    let world = World::new("");
    let error = world.ensure(&tls, &nodes(1)).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("does not exist in Barbican")), "{error:?}");
    world.cloud.put(Api::KeyManager, "containers", json!({"id": "c-1"}));
    world.ensure(&tls, &nodes(1)).unwrap();
    assert_eq!(world.column("listeners", "protocol"), ["TERMINATED_HTTPS"]);
    assert_eq!(world.column("pools", "protocol"), ["HTTP"]);
    let odd = annotated(&[("default-tls-container-ref", "vault:web")]);
    assert!(matches!(world.ensure(&odd, &nodes(1)), Err(Error::Invalid(_))));
    let world = World::new("container-store = external\n");
    world.ensure(&odd, &nodes(1)).unwrap();
    assert_eq!(world.column("listeners", "default_tls_container_ref"), ["vault:web"]);
}

/// The vendor's manager does the same.
#[test]
fn a_new_load_balancer_is_in_the_subnet_of_the_nodes_though_none_of_them_is_selected() {
    for annotation in [("node-selector", "role=none"), ("member-subnet-id", "subnet-9")] {
        let world = World::new("");
        world.ensure(&annotated(&[annotation]), &nodes(2)).unwrap();
        let plain = World::new("");
        plain.ensure(&web(), &nodes(2)).unwrap();
        assert_eq!(world.column("loadbalancers", "vip_subnet_id"), plain.column("loadbalancers", "vip_subnet_id"));
    }
}
