//! Floating IPs.

use super::*;
use crate::fixture::PUBLIC;

fn floating(world: &World) -> Vec<Value> {
    world.cloud.all(Api::Network, "floatingips")
}

fn reserved(port: Value) -> Value {
    json!({"id": "mine", "floating_ip_address": "203.0.113.7", "port_id": port, "description": "mine"})
}

#[test]
fn an_internal_service_has_no_floating_ip() {
    let internal = annotated(&[("service.beta.kubernetes.io/openstack-internal-load-balancer", "true")]);
    let world = World::new("");
    assert_eq!(world.ensure(&internal, &nodes(1)).unwrap(), ["10.6.0.200"]);
    assert_eq!(floating(&world).len(), 0);
    let world = World::new("internal-lb = true\n");
    assert_eq!(world.ensure(&web(), &nodes(1)).unwrap(), ["10.6.0.200"]);
    let fixed = Service { load_balancer_ip: Some("10.6.0.77".to_owned()), ..web() };
    let world = World::new("internal-lb = true\n");
    assert_eq!(world.ensure(&fixed, &nodes(1)).unwrap(), ["10.6.0.77"]);
}

#[test]
fn a_service_that_becomes_internal_loses_its_floating_ip() {
    let internal = |more: &[(&str, &str)]| {
        annotated(&[&[("service.beta.kubernetes.io/openstack-internal-load-balancer", "true")], more].concat())
    };
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    world.ensure(&internal(&[]), &nodes(1)).unwrap();
    assert_eq!(floating(&world).len(), 0);
    world.ensure(&web(), &nodes(1)).unwrap();
    world.ensure(&internal(&[("keep-floatingip", "true")]), &nodes(1)).unwrap();
    assert_eq!(floating(&world)[0]["port_id"], Value::Null);
}

#[test]
fn a_reserved_address_is_used_and_survives_the_service() {
    let world = World::new("");
    world.cloud.put(Api::Network, "floatingips", reserved(Value::Null));
    let fixed = Service { load_balancer_ip: Some("203.0.113.7".to_owned()), ..web() };
    assert_eq!(world.ensure(&fixed, &nodes(1)).unwrap(), ["203.0.113.7"]);
    world.delete(&fixed).unwrap();
    assert_eq!(floating(&world), [reserved(Value::Null)]);
}

#[test]
fn an_address_in_use_is_refused_and_not_taken() {
    let world = World::new("");
    world.cloud.put(Api::Network, "floatingips", reserved(json!("elsewhere")));
    let fixed = Service { load_balancer_ip: Some("203.0.113.7".to_owned()), ..web() };
    let error = world.ensure(&fixed, &nodes(1)).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("elsewhere")), "{error:?}");
    assert_eq!(floating(&world), [reserved(json!("elsewhere"))]);
}

#[test]
fn the_users_address_is_created_where_the_cloud_allows_it() {
    let world = World::new("");
    let fixed = Service { load_balancer_ip: Some("203.0.113.8".to_owned()), ..web() };
    assert_eq!(world.ensure(&fixed, &nodes(1)).unwrap(), ["203.0.113.8"]);
    world.delete(&fixed).unwrap();
    assert_eq!(floating(&world).len(), 0);
}

#[test]
fn keep_floatingip_keeps_the_address_of_a_deleted_service() {
    let world = World::new("");
    let keep = annotated(&[("keep-floatingip", "true")]);
    world.ensure(&keep, &nodes(1)).unwrap();
    world.delete(&keep).unwrap();
    assert_eq!(floating(&world).len(), 1);
    assert_eq!(world.cloud.all(LB, "loadbalancers").len(), 0);
}

#[test]
fn the_network_and_the_subnet_come_from_class_annotation_and_cloud_config() {
    let place = |config: &str, annotations: &[(&str, &str)]| {
        let world = World::new(config);
        world.ensure(&annotated(annotations), &nodes(1)).map(|_| {
            let floating = floating(&world).remove(0);
            (floating["floating_network_id"].clone(), floating["subnet_id"].clone())
        })
    };
    let class = "[LoadBalancerClass \"dmz\"]\nfloating-subnet = *-2\n";
    let of = |subnet: &str| (json!(PUBLIC), json!(subnet));
    assert_eq!(place("", &[]).unwrap(), (json!(PUBLIC), Value::Null));
    assert_eq!(place("", &[("floating-network-id", "n-1")]).unwrap().0, "n-1");
    assert_eq!(place("floating-network-id = n-2\n", &[]).unwrap().0, "n-2");
    assert_eq!(place("floating-subnet-id = subnet-public\n", &[]).unwrap(), of("subnet-public"));
    assert_eq!(place("", &[("floating-subnet-tags", "b")]).unwrap(), of("subnet-public-2"));
    assert_eq!(
        place(class, &[("class", "dmz"), ("floating-subnet-id", "subnet-public")]).unwrap(),
        of("subnet-public-2")
    );
    let error = place("", &[("floating-subnet", "nothing-*")]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("nothing-*")), "{error:?}");
    let error = place("", &[("floating-subnet-id", "subnet-nodes")]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("net-nodes")), "{error:?}");
    let error = place(class, &[("class", "office")]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("dmz")), "{error:?}");
}

#[test]
fn a_full_subnet_is_passed_over() {
    let world = World::new("floating-subnet = public-*\n");
    world.cloud.full.set("subnet-public");
    world.ensure(&web(), &nodes(1)).unwrap();
    assert_eq!(floating(&world)[0]["subnet_id"], "subnet-public-2");
    let world = World::new("floating-subnet = public-1\n");
    world.cloud.full.set("subnet-public");
    assert!(matches!(world.ensure(&web(), &nodes(1)), Err(Error::Exhausted(_))));
}

#[test]
fn without_an_external_network_the_service_is_internal_and_an_event_says_so() {
    let world = World::new("");
    world.cloud.remove(Api::Network, "networks", |_| true);
    let done = again(|| world.task(&web()).ensure(&nodes(1))).unwrap();
    assert_eq!(done.value.ingress[0].ip.as_deref(), Some("10.6.0.200"));
    assert_eq!(done.warnings[0].0, "LoadBalancerForcedInternal");
}

#[test]
fn ipv6_has_no_floating_ip() {
    let world = World::new("subnet-id = subnet-v6\n");
    let v6 = Service {
        ip_families: vec![skysail_guest_sdk::IpFamily::Ipv6],
        load_balancer_ip: Some("2001:db8::7".to_owned()),
        ..web()
    };
    let done = again(|| world.task(&v6).ensure(&nodes(1))).unwrap();
    assert_eq!(done.value.ingress[0].ip.as_deref(), Some("2001:db8::7"));
    assert_eq!(done.warnings[0].0, "LoadBalancerFloatingIPSkipped");
    assert_eq!(world.column("listeners", "allowed_cidrs"), [json!(["::/0"])]);
    assert_eq!(world.cloud.all(LB, "members").len(), 0, "the nodes have no IPv6 address");
}
