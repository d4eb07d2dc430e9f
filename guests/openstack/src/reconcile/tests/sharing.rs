//! One load balancer for several Services, and load balancers that a user made.

use super::*;

fn on(id: &str, name: &str, port: u16) -> Service {
    let annotations = annotated(&[("load-balancer-id", id)]).annotations;
    let ports = service(&[(Protocol::Tcp, port, 30_000 + port)]).ports;
    Service { name: name.to_owned(), uid: name.to_owned(), annotations, ports, ..web() }
}

/// A world with Service `web` on load balancer `ID`.
fn shared() -> (World, String) {
    let world = World::new("");
    world.ensure(&web(), &nodes(2)).unwrap();
    let id = world.column("loadbalancers", "id").remove(0).as_str().unwrap().to_owned();
    (world, id)
}

fn by_hand(world: &World) {
    let lb = json!({"id": "mine", "name": "mine", "provisioning_status": "ACTIVE", "vip_address": "10.6.0.7",
        "vip_port_id": "port-of-mine", "vip_subnet_id": "subnet-nodes", "tags": ["team-a"]});
    world.cloud.put(LB, "loadbalancers", lb);
    let floating =
        json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": "port-of-mine", "description": ""});
    world.cloud.put(Api::Network, "floatingips", floating);
}

#[test]
fn two_services_share_a_load_balancer_and_its_address() {
    let (world, id) = shared();
    let address = world.ensure(&web(), &nodes(2)).unwrap();
    assert_eq!(world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap(), address);
    let tags = json!(["kube_service_prod_default_web", "kube_service_prod_default_b"]);
    assert_eq!(world.column("loadbalancers", "tags"), [tags]);
    assert_eq!(world.column("listeners", "tags")[1], json!(["kube_service_prod_default_b"]));
    world.cloud.written();
    world.ensure(&web(), &nodes(2)).unwrap();
    world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap();
    assert_eq!(world.cloud.written(), [""; 0], "neither touches the listeners of the other");
}

#[test]
fn the_last_service_deletes_the_load_balancer_also_if_another_service_made_it() {
    let (world, id) = shared();
    world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap();
    world.delete(&web()).unwrap();
    assert_eq!(world.column("listeners", "protocol_port"), [json!(81)]);
    assert_eq!(world.column("loadbalancers", "tags"), [json!(["kube_service_prod_default_b"])]);
    world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap();
    world.delete(&on(&id, "b", 81)).unwrap();
    assert_eq!(world.count(), 0);
}

#[test]
fn a_service_that_joined_is_deleted_without_harm_to_the_owner() {
    let (world, id) = shared();
    let before = world.contents();
    world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap();
    world.delete(&on(&id, "b", 81)).unwrap();
    assert_eq!(world.contents(), before);
    // Also one whose annotation was removed meanwhile: the tag finds the share.
    world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap();
    world.delete(&Service { annotations: Vec::new(), ..on(&id, "b", 81) }).unwrap();
    assert_eq!(world.contents(), before);
    // And one that never joined.
    world.delete(&on(&id, "c", 82)).unwrap();
    assert_eq!(world.contents(), before);
}

#[test]
fn an_owner_from_before_there_were_tags_keeps_its_load_balancer() {
    let (world, id) = shared();
    world.cloud.edit(LB, "loadbalancers", &id, |lb| lb["tags"] = json!([]));
    let listener = world.column("listeners", "id").remove(0);
    world.cloud.edit(LB, "listeners", listener.as_str().unwrap(), |listener| listener["tags"] = json!([]));
    world.ensure(&on(&id, "b", 81), &nodes(2)).unwrap();
    world.delete(&on(&id, "b", 81)).unwrap();
    assert_eq!(world.column("listeners", "protocol_port"), [json!(80)]);
}

#[test]
fn a_death_while_joining_or_leaving_is_repaired() {
    for writes in 1.. {
        let (world, id) = shared();
        let guest = on(&id, "b", 81);
        let before = world.contents();
        world.cloud.crash_after(writes);
        drop(world.ensure(&guest, &nodes(2)));
        let died = world.cloud.revive();
        world.ensure(&guest, &nodes(2)).unwrap();
        assert_eq!(world.column("listeners", "protocol_port"), [json!(80), json!(81)]);
        world.cloud.crash_after(writes);
        drop(world.delete(&guest));
        let died = world.cloud.revive() || died;
        world.delete(&guest).unwrap();
        assert_eq!(world.contents(), before, "after {writes} writes");
        if !died {
            break;
        }
    }
}

#[test]
fn what_cannot_be_shared_is_refused_with_the_reason() {
    let (world, id) = shared();
    let refused = |service: &Service| world.ensure(service, &nodes(1)).unwrap_err();
    let internal = ("service.beta.kubernetes.io/openstack-internal-load-balancer".to_owned(), "true".to_owned());
    let mut hidden = on(&id, "b", 81);
    hidden.annotations.push(internal);
    assert!(matches!(refused(&hidden), Error::Invalid(text) if text.contains("internal")));
    assert!(matches!(refused(&on(&id, "b", 80)), Error::Invalid(text) if text.contains("port 80")));
    assert!(matches!(refused(&on("lb-none", "b", 81)), Error::Invalid(text) if text.contains("lb-none")));
    world.ensure(&on(&id, "b", 81), &nodes(1)).unwrap();
    assert!(matches!(refused(&on(&id, "c", 82)), Error::Exhausted(text) if text.contains("max-shared-lb")));
}

#[test]
fn the_load_balancer_of_another_cluster_is_not_taken_over() {
    let (world, id) = shared();
    let before = world.contents();
    let answer = again(|| world.of("test", &on(&id, "b", 81)).ensure(&nodes(1)));
    assert!(matches!(&answer, Err(Error::Invalid(text)) if text.contains("another cluster")), "{answer:?}");
    assert_eq!(world.contents(), before);
}

#[test]
fn a_load_balancer_that_a_user_made_is_used_and_stays() {
    let world = World::new("");
    by_hand(&world);
    let before = world.contents();
    assert_eq!(world.ensure(&on("mine", "b", 81), &nodes(1)).unwrap(), ["203.0.113.9"]);
    assert_eq!(world.column("loadbalancers", "tags"), [json!(["team-a", "kube_service_prod_default_b"])]);
    world.delete(&on("mine", "b", 81)).unwrap();
    assert_eq!(world.contents(), before);
}

#[test]
fn only_the_owner_makes_a_load_balancer_public() {
    let world = World::new("");
    by_hand(&world);
    world.cloud.remove(Api::Network, "floatingips", |_| true);
    let error = world.ensure(&on("mine", "b", 81), &nodes(1)).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("owner")), "{error:?}");
}
