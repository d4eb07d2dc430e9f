//! Deletion and the inventory: everything of the Service, and nothing of others.

use super::{
    super::{delete_owned, list_owned},
    *,
};
use crate::client::{Cloud as _, PENDING_MAX};

fn other() -> Service {
    Service { name: "other".to_owned(), uid: "other".to_owned(), ..service(&[(Protocol::Tcp, 81, 30_081)]) }
}

#[test]
fn deleting_leaves_nothing_of_this_service_and_everything_of_others() {
    for config in ["", "cascade-delete = false\n", "manage-security-groups = true\n"] {
        let world = World::new(config);
        world.ensure(&other(), &nodes(2)).unwrap();
        let before = world.contents();
        world.ensure(&everything(), &nodes(2)).unwrap();
        world.delete(&everything()).unwrap();
        world.delete(&everything()).unwrap();
        assert_eq!(world.contents(), before, "{config}");
    }
}

#[test]
fn deleting_what_was_never_created_is_ok_and_writes_nothing() {
    let world = World::new("");
    world.delete(&web()).unwrap();
    assert_eq!(world.cloud.written(), [""; 0]);
}

#[test]
fn a_list_that_lags_behind_hides_nothing_that_was_just_created() {
    for collection in ["loadbalancers", "floatingips"] {
        let world = World::new("");
        world.cloud.pending_reads.set(3);
        world.cloud.lagging.set(collection);
        let addresses = world.ensure(&web(), &nodes(1)).unwrap();
        assert_eq!(world.ensure(&web(), &nodes(1)).unwrap(), addresses, "{collection}");
        assert_eq!(world.column("loadbalancers", "name").len(), 1, "{collection}");
        assert_eq!(world.cloud.all(Api::Network, "floatingips").len(), 1, "{collection}");
        world.delete(&web()).unwrap();
        assert_eq!(world.count(), 0, "{collection}");
    }
}

/// This provider created a load balancer, another manager deleted that one and created this one.
/// Octavia shows what it has deleted for a while.
#[test]
fn a_new_service_does_not_ask_for_what_was_deleted_before() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    world.delete(&web()).unwrap();
    world.cloud.read();
    world.ensure(&web(), &nodes(1)).unwrap();
    // The reads for a new load balancer, and none for the deleted one.
    assert_eq!(world.cloud.read(), 8);
    world.cloud.remember(&world.task(&web()).name(), "deleted before", PENDING_MAX);
    world.cloud.pending_reads.set(9);
    world.task(&web()).ensure_deleted().unwrap_err();
    let [id] = world.column("loadbalancers", "id").try_into().unwrap();
    world.cloud.edit(LB, "loadbalancers", id.as_str().unwrap(), |lb| lb["provisioning_status"] = json!("DELETED"));
    world.delete(&web()).unwrap();
    world.cloud.remove(LB, "loadbalancers", |_| true);
    world.cloud.pending_reads.set(0);
    world.cloud.read();
    world.ensure(&web(), &nodes(1)).unwrap();
    assert_eq!(world.cloud.read(), 8);
}

#[test]
fn what_was_just_created_is_deleted_also_beside_another_one_that_the_list_shows() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    let [shown] = world.column("loadbalancers", "id").try_into().unwrap();
    world.cloud.edit(LB, "loadbalancers", shown.as_str().unwrap(), |lb| lb["name"] = json!("hidden"));
    world.cloud.edit(LB, "loadbalancers", shown.as_str().unwrap(), |lb| lb["tags"] = json!([]));
    let name = world.task(&web()).name();
    world.cloud.forget(&name);
    world.ensure(&web(), &nodes(1)).unwrap();
    world.cloud.remember(&name, shown.as_str().unwrap(), PENDING_MAX);
    let found = world.task(&web()).marked(&name).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn the_same_service_of_another_cluster_is_another_service() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    world.cloud.written();
    again(|| world.of("test", &web()).ensure_deleted()).unwrap();
    assert!(world.of("test", &web()).get().unwrap().is_none());
    assert_eq!(world.cloud.written(), [""; 0]);
}

#[test]
fn a_deletion_that_the_cloud_is_making_is_waited_for() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    world.cloud.pending_reads.set(4);
    let first = world.task(&web()).ensure_deleted().unwrap_err();
    assert!(matches!(&first, Error::RetryAfter(retry) if retry.after_ms == 2_000), "{first:?}");
    world.delete(&web()).unwrap();
    assert_eq!(world.count(), 0);
}

#[test]
fn a_broken_load_balancer_can_be_deleted() {
    for config in ["", "cascade-delete = false\n"] {
        let world = World::new(config);
        world.ensure(&web(), &nodes(1)).unwrap();
        let id = world.column("loadbalancers", "id").remove(0);
        world.cloud.edit(LB, "loadbalancers", id.as_str().unwrap(), |lb| lb["provisioning_status"] = json!("ERROR"));
        world.delete(&web()).unwrap();
        assert_eq!(world.count(), 0, "{config}");
    }
}

#[test]
fn a_list_that_a_gateway_does_not_find_deletes_nothing_and_says_nothing_about_its_entries() {
    for collection in ["loadbalancers", "floatingips", "security-groups"] {
        let world = World::new("");
        world.ensure(&web(), &nodes(1)).unwrap();
        world.cloud.unrouted.set(collection);
        for answer in [world.update(&web(), &nodes(1)), world.ensure(&web(), &nodes(1)).map(drop), world.delete(&web())]
        {
            assert!(!matches!(answer, Err(Error::NotFound(_))), "{collection}: {answer:?}");
        }
        let answer = world.delete(&web());
        assert!(matches!(&answer, Err(Error::Unavailable(text)) if text.contains("no Route")), "{answer:?}");
    }
}

#[test]
fn a_load_balancer_with_a_name_that_the_vendors_manager_cut_is_not_forgotten() {
    let world = World::new("");
    let long = "c".repeat(250);
    let cut = crate::names::load_balancer(&long, "default", "web");
    let lb = |name: &str, tag: &str, service: &str| {
        json!({"id": "old", "name": name, "provisioning_status": "ACTIVE", "vip_address": "10.6.0.7", "tags": [tag],
            "description": format!("Kubernetes external service {service} from cluster old")})
    };
    for (name, tag, service, is_free) in [
        (cut.as_str(), "", "default/web", false),
        ("mine", cut.as_str(), "default/other", false),
        (&cut, &cut, "default/other", true),
    ] {
        world.cloud.put(LB, "loadbalancers", lb(name, tag, service));
        assert!(world.of(&long, &web()).get().unwrap().is_some(), "the host asks before it deletes");
        let answer = again(|| world.of(&long, &web()).ensure_deleted());
        match answer {
            Ok(()) => assert!(is_free, "{name} {tag} {service}"),
            Err(Error::Denied(text)) => assert!(!is_free && text.contains("old"), "{text}"),
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(world.cloud.remove(LB, "loadbalancers", |lb| lb["id"] == "old"), 1, "nothing was deleted");
    }
    again(|| world.of(&long, &web()).ensure_deleted()).unwrap();
}

#[test]
fn an_orphans_security_group_is_deleted_while_and_after_the_cloud_deletes_the_load_balancer() {
    let unknown = Service::new("", "", "");
    let name = "kube_service_prod_default_web";
    for is_gone in [false, true] {
        let world = World::new("manage-security-groups = true\n");
        world.ensure(&web(), &nodes(1)).unwrap();
        world.cloud.pending_reads.set(3);
        // A call of an older release that deleted the load balancer only.
        let id = world.column("loadbalancers", "id").remove(0);
        let going = |lb: &mut Value| {
            lb["provisioning_status"] = json!("PENDING_DELETE");
            lb["left"] = json!(2);
        };
        world.cloud.edit(LB, "loadbalancers", id.as_str().unwrap(), going);
        if is_gone {
            world.cloud.remove(LB, "loadbalancers", |_| true);
        } else {
            let answer = delete_owned(&world.task(&unknown), name);
            assert!(matches!(answer, Err(Error::RetryAfter(_))), "{answer:?}");
            assert_eq!(world.cloud.all(Api::Network, "security-groups").len(), 0, "also if no call follows");
        }
        again(|| delete_owned(&world.task(&unknown), name)).unwrap();
        assert_eq!(world.cloud.all(Api::Network, "security-groups").len(), 0, "{is_gone}");
        assert_eq!(world.cloud.all(LB, "loadbalancers").len(), 0, "{is_gone}");
    }
}

#[test]
fn an_annotation_that_cannot_be_read_does_not_keep_a_service_and_keeps_the_address() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    world
        .delete(&annotated(&[("keep-floatingip", "ja"), ("connection-limit", "x"), ("load-balancer-id", "a b")]))
        .unwrap();
    assert_eq!(world.cloud.all(LB, "loadbalancers").len(), 0);
    assert_eq!(world.cloud.all(Api::Network, "floatingips").len(), 1);
}

#[test]
fn a_service_that_cannot_be_read_is_still_found_before_its_deletion() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    let odd = annotated(&[("keep-floatingip", "ja")]);
    assert!(world.task(&odd).get().unwrap().is_some());
    world.delete(&odd).unwrap();
    assert!(world.task(&odd).get().unwrap().is_none());
}

#[test]
fn the_inventory_lists_and_deletes_this_cluster_only() {
    let world = World::new("manage-security-groups = true\n");
    world.ensure(&web(), &nodes(1)).unwrap();
    let twin = Service { uid: "twin".to_owned(), ..web() };
    again(|| world.of("prod_b", &twin).ensure(&nodes(1))).unwrap();
    let owned = list_owned(&world.cloud, CLUSTER).unwrap();
    let names: Vec<_> = owned.iter().map(|owned| owned.name.as_str()).collect();
    assert_eq!(names, ["kube_service_prod_default_web"]);
    let unknown = Service::new("", "", "");
    let denied = delete_owned(&world.of("test", &unknown), names[0]);
    assert!(matches!(denied, Err(Error::Denied(_))), "{denied:?}");
    for _ in 0..2 {
        again(|| delete_owned(&world.task(&unknown), names[0])).unwrap();
    }
    assert_eq!(world.column("loadbalancers", "name"), ["kube_service_prod_b_default_web"]);
    let groups = world.cloud.column(Api::Network, "security-groups", "description");
    assert_eq!(groups, ["Security Group for default/web Service LoadBalancer in cluster prod_b"]);
}

#[test]
fn a_share_is_an_entry_of_the_inventory_and_is_deleted_alone() {
    let world = World::new("");
    world.ensure(&web(), &nodes(1)).unwrap();
    let id = world.column("loadbalancers", "id").remove(0);
    let key = format!("{}load-balancer-id", crate::plan::ANNOTATIONS);
    let guest = Service { annotations: vec![(key, id.as_str().unwrap().to_owned())], ..other() };
    world.ensure(&guest, &nodes(1)).unwrap();
    let owned = list_owned(&world.cloud, CLUSTER).unwrap();
    assert_eq!(owned.len(), 2);
    let unknown = Service::new("", "", "");
    again(|| delete_owned(&world.task(&unknown), "kube_service_prod_default_web")).unwrap();
    assert_eq!(world.column("listeners", "protocol_port"), [json!(81)]);
    assert_eq!(list_owned(&world.cloud, CLUSTER).unwrap().len(), 1);
}
