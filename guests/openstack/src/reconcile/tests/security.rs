//! Security groups of members.

use super::*;

const ON: &str = "manage-security-groups = true\n";

fn groups_of_ports(world: &World) -> Vec<usize> {
    let ports = world.cloud.all(Api::Network, "ports").into_iter();
    ports
        .filter(|port| port["device_id"] != "router")
        .map(|port| port["security_groups"].as_array().unwrap().len())
        .collect()
}

fn rules(world: &World) -> Vec<(String, u64, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = world.cloud.all(Api::Network, "security-group-rules").into_iter();
    let rule = |rule: Value| {
        (text(&rule["protocol"]), rule["port_range_min"].as_u64().unwrap(), text(&rule["remote_ip_prefix"]))
    };
    all.map(rule).collect()
}

fn owned(protocol: &str, port: u64, source: &str) -> (String, u64, String) {
    (protocol.to_owned(), port, source.to_owned())
}

#[test]
fn members_get_a_group_that_opens_the_node_ports_to_the_subnet() {
    let world = World::new(ON);
    world.ensure(&everything(), &nodes(2)).unwrap();
    assert_eq!(groups_of_ports(&world), [2, 2, 1], "the third server is no member");
    let expected =
        [owned("tcp", 30_080, "10.6.0.0/24"), owned("tcp", 32_000, "10.6.0.0/24"), owned("udp", 30_053, "10.6.0.0/24")];
    assert_eq!(rules(&world), expected);
}

#[test]
fn with_the_driver_ovn_the_rules_name_the_clients() {
    let world = World::new(&format!("lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n{ON}"));
    let ranged = Service { source_ranges: vec!["192.0.2.0/24".to_owned()], ..web() };
    let done = again(|| world.task(&ranged).ensure(&nodes(1))).unwrap();
    assert_eq!(done.warnings, []);
    assert_eq!(rules(&world), [owned("tcp", 30_080, "192.0.2.0/24")]);
    assert_eq!(world.column("listeners", "allowed_cidrs"), [Value::Null]);
    let off = world.with("lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n");
    let done = again(|| off.task(&ranged).ensure(&nodes(1))).unwrap();
    assert_eq!(done.warnings[0].0, "LoadBalancerSourceRangesIgnored");
}

#[test]
fn rules_and_ports_follow_the_service_and_the_nodes() {
    let world = World::new(ON);
    world.ensure(&web(), &nodes(2)).unwrap();
    world.ensure(&service(&[(Protocol::Tcp, 80, 31_000)]), &nodes(2)).unwrap();
    assert_eq!(rules(&world), [owned("tcp", 31_000, "10.6.0.0/24")]);
    world.update(&service(&[(Protocol::Tcp, 80, 31_000)]), &nodes(3)).unwrap();
    assert_eq!(groups_of_ports(&world), [2, 2, 2]);
    world.update(&service(&[(Protocol::Tcp, 80, 31_000)]), &nodes(1)).unwrap();
    assert_eq!(groups_of_ports(&world), [2, 1, 1]);
}

#[test]
fn switching_groups_off_deletes_the_group() {
    let world = World::new(ON);
    world.ensure(&web(), &nodes(2)).unwrap();
    let world = world.with("");
    world.ensure(&web(), &nodes(2)).unwrap();
    assert_eq!(groups_of_ports(&world), [1, 1, 1]);
    assert_eq!(world.cloud.all(Api::Network, "security-groups").len(), 0);
}

#[test]
fn many_ports_are_changed_in_several_calls() {
    let world = World::new(ON);
    for n in 3..60 {
        world.cloud.add_server(n);
    }
    world.ensure(&web(), &nodes(60)).unwrap();
    assert!(groups_of_ports(&world).iter().all(|groups| *groups == 2));
    world.delete(&web()).unwrap();
    assert!(groups_of_ports(&world).iter().all(|groups| *groups == 1));
}

#[test]
fn a_port_without_port_security_is_left_alone() {
    let world = World::new(ON);
    world.cloud.edit(Api::Network, "ports", "port-0", |port| port["port_security_enabled"] = json!(false));
    world.ensure(&web(), &nodes(2)).unwrap();
    assert_eq!(groups_of_ports(&world), [1, 2, 1]);
}
