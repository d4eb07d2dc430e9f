//! What a Service becomes in a project of Hetzner Cloud, and that every call can be repeated.

mod refusals;

use std::ops::Range;

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, IpMode, Node, NodeSet, Service};

use super::{delete_owned, list_owned};
use crate::fixture::{Scene, port, settled, shown};

const PRIVATE: &str = "network = kube\nload-balancers-use-private-ip = true\n";

/// The reasons of the warnings.
fn reasons<T>(done: &super::Done<T>) -> Vec<&'static str> {
    done.warnings.iter().map(|(reason, _)| *reason).collect()
}

fn ports(balancer: &Value) -> Vec<u64> {
    balancer["services"].as_array().unwrap().iter().map(|service| service["listen_port"].as_u64().unwrap()).collect()
}

fn targets(balancer: &Value) -> Vec<(u64, bool)> {
    let target = |one: &Value| (one["server"]["id"].as_u64().unwrap(), one["use_private_ip"] == true);
    balancer["targets"].as_array().unwrap().iter().map(target).collect()
}

#[test]
fn one_action_makes_the_whole_load_balancer_and_a_second_ensure_writes_nothing() {
    let scene = Scene::new("");
    let done = scene.ensure(2).unwrap();
    assert_eq!(scene.written(), ["POST"]);
    let balancer = scene.balancer();
    assert_eq!(balancer["name"], "a0a1b2c3d4e5f6789abcdef012345678");
    assert_eq!(
        balancer["labels"],
        json!({
            "hcloud-ccm/service-uid": scene.service.uid, "skysail/cluster": "prod",
            "skysail/service-namespace": "default", "skysail/service-name": "web",
        })
    );
    assert_eq!((ports(&balancer), targets(&balancer).len()), (vec![80], 2));
    assert_eq!(balancer["services"][0]["health_check"]["port"], 30_080);
    let addresses = [&balancer["public_net"]["ipv4"]["ip"], &balancer["public_net"]["ipv6"]["ip"]];
    assert_eq!(shown(&done.value), addresses.map(|ip| ip.as_str().unwrap()));
    assert!(done.value.ingress.iter().all(|ingress| ingress.ip_mode == Some(IpMode::Vip)));
    scene.ensure(2).unwrap();
    assert_eq!(scene.written(), Vec::<String>::new());
    assert_eq!(shown(&scene.task().get().unwrap().unwrap()), shown(&done.value));
}

#[test]
fn a_call_ends_while_an_action_runs_and_the_next_one_asks_about_it() {
    let scene = Scene::new("");
    scene.fake().project.borrow_mut().action_requests = 3;
    let nodes = scene.nodes(1);
    let Err(Error::RetryAfter(retry)) = scene.task().ensure(&nodes) else { panic!("the action runs") };
    assert_eq!(retry.after_ms, 1_000);
    let requests = |scene: &Scene| std::mem::take(&mut scene.fake().project.borrow_mut().requests);
    requests(&scene);
    assert!(matches!(scene.task().ensure(&nodes), Err(Error::RetryAfter(_))));
    let asked = requests(&scene);
    assert!(asked.len() == 1 && asked[0].starts_with("GET /actions/"), "{asked:?}");
    scene.ensure(1).unwrap();
    assert!(scene.written().is_empty());
}

#[test]
fn an_action_that_failed_is_reported_once() {
    let mut scene = Scene::new("");
    scene.annotate("protocol", "https");
    scene.annotate("certificate-type", "managed");
    scene.annotate("http-managed-certificate-domains", "example.com, www.example.com");
    scene.fake().project.borrow_mut().issue_fails = true;
    let Err(Error::Invalid(message)) = scene.ensure(1) else { panic!("the certificate was not issued") };
    assert!(message.contains("DNS zone not found") && message.contains("delete the certificate"), "{message}");
    assert_eq!(scene.balancer()["services"], json!([]), "the load balancer has its addresses already");
}

#[test]
fn update_changes_the_targets_and_reports_a_missing_load_balancer() {
    let scene = Scene::new("");
    assert!(matches!(scene.task().update(&scene.nodes(1)), Err(Error::NotFound(_))));
    scene.ensure(2).unwrap();
    scene.written();
    let update = |nodes: &NodeSet| settled(|| scene.task().update(nodes)).unwrap();
    update(&scene.nodes(3));
    update(&scene.nodes(0));
    let writes = ["add_target", "remove_target", "remove_target", "remove_target"];
    assert_eq!((scene.written(), targets(&scene.balancer())), (writes.map(str::to_owned).to_vec(), vec![]));
    update(&scene.nodes(0));
    assert!(scene.written().is_empty());
}

#[test]
fn services_follow_the_ports_and_free_ones_come_first() {
    let mut scene = Scene::new("");
    scene.service.ports = vec![port(80, 30_080), port(443, 30_443)];
    scene.ensure(1).unwrap();
    scene.written();
    scene.service.ports = vec![port(443, 31_443), port(8_080, 30_808)];
    scene.ensure(1).unwrap();
    assert_eq!(scene.written(), ["delete_service", "update_service", "add_service"]);
    let balancer = scene.balancer();
    assert_eq!((ports(&balancer), &balancer["services"][0]["destination_port"]), (vec![443, 8_080], &json!(31_443)));
}

#[test]
fn a_crash_after_each_write_is_repaired_by_the_next_ensure() {
    let steps: [fn(&mut Scene); 2] = [
        |_| {},
        |scene| {
            scene.service.ports = vec![port(443, 30_443), port(81, 30_081)];
            for (key, value) in [("algorithm-type", "least_connections"), ("type", "lb21"), ("ipv4-rdns", "a.example")]
            {
                scene.annotate(key, value);
            }
            scene.annotate("private-ipv4", "10.0.2.77");
            scene.annotate("use-private-ip", "true");
            scene.annotate("disable-public-network", "true");
        },
    ];
    for writes in 0..20 {
        let mut scene = Scene::new("network = kube\n");
        for step in steps {
            step(&mut scene);
            scene.fake().writes_left.set(Some(writes));
            let crashed = settled(|| scene.task().ensure(&scene.nodes(3)));
            assert!(matches!(crashed, Ok(_) | Err(Error::Unavailable(_))), "{crashed:?}");
            scene.fake().writes_left.set(None);
            scene.ensure(3).unwrap();
            scene.written();
            scene.ensure(3).unwrap();
            assert!(scene.written().is_empty(), "after a crash at write {writes}");
        }
        let balancer = scene.balancer();
        assert_eq!((ports(&balancer), &balancer["private_net"][0]["ip"]), (vec![443, 81], &json!("10.0.2.77")));
        assert!(targets(&balancer).iter().all(|(_, private)| *private) && targets(&balancer).len() == 3);
        assert_eq!(balancer["public_net"]["enabled"], false);
    }
}

#[test]
fn a_crash_during_the_deletion_leaves_nothing_behind() {
    for writes in 0..3 {
        let mut scene = Scene::new("");
        scene.annotate("protocol", "https");
        scene.annotate("certificate-type", "managed");
        scene.annotate("http-managed-certificate-domains", "example.com");
        scene.ensure(1).unwrap();
        assert_eq!(scene.all("certificates").len(), 1);
        scene.fake().writes_left.set(Some(writes));
        let _crashed = scene.delete();
        scene.fake().writes_left.set(None);
        scene.delete().unwrap();
        scene.delete().unwrap();
        assert!(scene.all("load_balancers").is_empty() && scene.all("certificates").is_empty());
    }
}

#[test]
fn deletion_is_complete_after_an_incomplete_ensure_and_without_any() {
    let scene = Scene::new("");
    scene.delete().unwrap();
    assert!(matches!(scene.task().ensure(&scene.nodes(2)), Err(Error::RetryAfter(_))));
    scene.delete().unwrap();
    assert!(scene.all("load_balancers").is_empty());
}

#[test]
fn a_protected_load_balancer_stays_and_a_later_service_takes_it_by_name() {
    let mut scene = Scene::new("");
    scene.annotate("name", "front");
    scene.ensure(1).unwrap();
    let path = format!("/load_balancers/{}", scene.balancer()["id"]);
    scene.by_user("POST", &format!("{path}/actions/change_protection"), &json!({"delete": true}));
    scene.by_user("PUT", &path, &json!({"labels": {"hcloud-ccm/service-uid": scene.service.uid, "team": "net"}}));
    let done = scene.delete().unwrap();
    assert_eq!(reasons(&done), ["LoadBalancerProtected"]);
    assert_eq!(scene.balancer()["labels"], json!({"team": "net"}));
    assert_eq!(list_owned(&scene.cloud, "prod").unwrap().len(), 0, "what the user keeps is no orphan");
    scene.delete().unwrap();
    scene.service.uid = "ffffffff-0000-0000-0000-000000000000".to_owned();
    scene.ensure(1).unwrap();
    assert_eq!(scene.balancer()["labels"]["team"], "net");
    assert_eq!(scene.balancer()["labels"]["hcloud-ccm/service-uid"], scene.service.uid);
}

#[test]
fn a_load_balancer_of_another_service_or_cluster_is_never_touched() {
    let mut scene = Scene::new("");
    scene.annotate("name", "front");
    scene.ensure(1).unwrap();
    scene.written();
    let mut other = Service { uid: "other".to_owned(), name: "api".to_owned(), ..scene.service.clone() };
    let ensure = |cluster: &str, service: &Service| scene.task_of(cluster, service).ensure(&scene.nodes(1));
    let Err(Error::Invalid(message)) = ensure("prod", &other) else { panic!("it is another Service's") };
    assert!(message.contains("belongs to Service default/web"), "{message}");
    // A restored copy of the cluster has the same UID.
    let Err(Error::Invalid(message)) = ensure("copy", &scene.service) else { panic!("it is another cluster's") };
    assert!(message.contains("belongs to cluster \"prod\""), "{message}");
    assert_eq!(scene.task_of("copy", &scene.service).get(), Ok(None));
    scene.task_of("copy", &scene.service).ensure_deleted().unwrap();
    other.uid = "later".to_owned();
    scene.task_of("prod", &other).ensure_deleted().unwrap();
    assert!(scene.written().is_empty());
}

#[test]
fn a_load_balancer_of_the_vendors_manager_is_taken_over_without_a_change_of_its_parts() {
    let scene = Scene::new("");
    scene.ensure(2).unwrap();
    let path = format!("/load_balancers/{}", scene.balancer()["id"]);
    scene.by_user("PUT", &path, &json!({"labels": {"hcloud-ccm/service-uid": scene.service.uid}}));
    scene.ensure(2).unwrap();
    assert_eq!(scene.written(), ["PUT"]);
    assert_eq!(scene.balancer()["labels"]["skysail/cluster"], "prod");
}

#[test]
fn a_new_name_renames_the_load_balancer() {
    let mut scene = Scene::new("");
    scene.ensure(1).unwrap();
    scene.written();
    scene.annotate("name", "front");
    scene.ensure(1).unwrap();
    assert_eq!((scene.written(), &scene.balancer()["name"]), (vec!["PUT".to_owned()], &json!("front")));
}

#[test]
fn properties_of_an_existing_load_balancer_follow_the_annotations() {
    let mut scene = Scene::new("network = kube\n");
    scene.ensure(1).unwrap();
    scene.written();
    let changes = [
        ("algorithm-type", "Least_Connections", "change_algorithm"),
        ("type", "lb21", "change_type"),
        ("ipv4-rdns", "v4.example.com", "change_dns_ptr"),
        ("ipv6-rdns", "v6.example.com", "change_dns_ptr"),
    ];
    for (key, value, verb) in changes {
        scene.annotate(key, value);
        scene.ensure(1).unwrap();
        assert_eq!(scene.written(), [verb], "{key}");
    }
    scene.annotate("private-ipv4", "10.0.2.9");
    scene.ensure(1).unwrap();
    assert_eq!(scene.written(), ["detach_from_network", "attach_to_network"]);
    assert_eq!(scene.balancer()["private_net"][0]["ip"], "10.0.2.9");
    for key in ["algorithm-type", "type"] {
        scene.annotate(key, "");
    }
    scene.ensure(1).unwrap();
    assert!(scene.written().is_empty(), "without an annotation the cloud's value stays");
}

#[test]
fn private_targets_need_the_network_and_the_public_interface_can_be_off() {
    let mut scene = Scene::new(PRIVATE);
    scene.annotate("disable-public-network", "true");
    let done = scene.ensure(2).unwrap();
    assert_eq!(scene.written(), ["POST"]);
    let balancer = scene.balancer();
    assert_eq!(shown(&done.value), [balancer["private_net"][0]["ip"].as_str().unwrap()]);
    assert!(targets(&balancer).iter().all(|(_, private)| *private));
    // Back to public addresses: the interface first, then the targets one after the other.
    scene.annotate("disable-public-network", "false");
    scene.annotate("use-private-ip", "false");
    scene.ensure(2).unwrap();
    let replaced = ["remove_target", "add_target", "remove_target", "add_target"];
    assert_eq!(scene.written(), [&["enable_public_interface"][..], &replaced].concat());
    scene.annotate("disable-public-network", "true");
    scene.annotate("use-private-ip", "true");
    scene.ensure(2).unwrap();
    assert_eq!(scene.written(), [&replaced[..], &["disable_public_interface"]].concat());
}

#[test]
fn a_subnet_is_chosen_at_the_attachment() {
    let mut scene = Scene::new(PRIVATE);
    scene.annotate("private-subnet-ip-range", "10.0.2.0/24");
    scene.ensure(1).unwrap();
    assert_eq!(scene.written(), ["POST", "attach_to_network", "add_target"]);
    assert_eq!(scene.balancer()["private_net"][0]["ip"], "10.0.2.2");
}

#[test]
fn a_server_that_cannot_be_a_target_does_not_stop_the_others() {
    let scene = Scene::new(PRIVATE);
    let (server, network) = (scene.fake().servers[0], scene.fake().network);
    scene.by_user("POST", &format!("/servers/{server}/actions/detach_from_network"), &json!({"network": network}));
    let done = scene.ensure(3).unwrap();
    assert_eq!(reasons(&done), ["LoadBalancerTypeUnconfigured", "TargetUnusable"]);
    assert!(done.warnings[1].1.contains("among them node-0"), "{:?}", done.warnings);
    assert_eq!(targets(&scene.balancer()).len(), 2);
}

/// Nodes for new servers with these numbers.
fn more(scene: &Scene, numbers: Range<usize>) -> NodeSet {
    let node = |n: usize| {
        let body = json!({"name": format!("more-{n}"), "server_type": "cpx11"});
        let id = Some(format!("hcloud://{}", scene.by_user("POST", "/servers", &body)["server"]["id"]));
        Node { provider_id: id, ..Node::new(&format!("more-{n}")) }
    };
    NodeSet::of(numbers.map(node).collect())
}

#[test]
fn a_full_load_balancer_leaves_nodes_out_with_a_warning() {
    let scene = Scene::new("");
    let nodes = more(&scene, 0..26);
    let done = settled(|| scene.task().ensure(&nodes)).unwrap();
    assert_eq!(reasons(&done), ["LoadBalancerTypeUnconfigured", "MaxTargetsReached"]);
    assert_eq!(targets(&scene.balancer()).len(), 25);
    scene.written();
    settled(|| scene.task().ensure(&nodes)).unwrap();
    assert!(scene.written().is_empty());
}

/// Other nodes, as after a replacement of all machines.
#[test]
fn new_targets_are_added_before_the_old_ones_are_removed() {
    let scene = Scene::new("");
    scene.ensure(2).unwrap();
    let others = more(&scene, 0..2);
    scene.written();
    settled(|| scene.task().update(&others)).unwrap();
    assert_eq!(scene.written(), ["add_target", "add_target", "remove_target", "remove_target"]);
    assert_eq!(targets(&scene.balancer()).len(), 2);
}

#[test]
fn a_full_load_balancer_loses_one_target_before_each_new_one() {
    let scene = Scene::new("");
    let (before, after) = (more(&scene, 0..25), more(&scene, 25..50));
    settled(|| scene.task().ensure(&before)).unwrap();
    scene.written();
    settled(|| scene.task().update(&after)).unwrap();
    assert_eq!(scene.written(), ["remove_target", "add_target"].repeat(25));
    assert_eq!(targets(&scene.balancer()).len(), 25);
}

/// A person deleted the certificate while the machines were replaced.
#[test]
fn nodes_are_updated_though_a_certificate_is_missing() {
    let mut scene = Scene::new("");
    let upload = json!({"name": "shop", "type": "uploaded", "certificate": "PEM", "private_key": "PEM"});
    scene.by_user("POST", "/certificates", &upload);
    scene.annotate("protocol", "https");
    scene.annotate("http-certificates", "shop");
    scene.ensure(1).unwrap();
    scene.annotate("http-certificates", "none");
    let nodes = scene.nodes(3);
    let failed = settled(|| scene.task().update(&nodes));
    assert!(matches!(failed, Err(Error::Invalid(text)) if text.contains("http-certificates")));
    assert_eq!(targets(&scene.balancer()).len(), 3);
}

/// The node is kept, because too many machines are missing.
#[test]
fn a_deleted_server_whose_node_remains_delays_no_other_change() {
    let mut scene = Scene::new("");
    scene.ensure(3).unwrap();
    let server = scene.fake().servers[0];
    scene.by_user("DELETE", &format!("/servers/{server}"), &Value::Null);
    scene.service.ports.push(port(8080, 31_080));
    let done = scene.ensure(2).unwrap();
    assert!(reasons(&done).contains(&"TargetAbsent"), "{:?}", done.warnings);
    assert_eq!((ports(&scene.balancer()), targets(&scene.balancer()).len()), (vec![80, 8080], 1));
}

#[test]
fn quotas_and_names_in_use_are_reported_with_the_clouds_words() {
    let mut scene = Scene::new("");
    scene.fake().project.borrow_mut().balancers_max = 0;
    assert!(matches!(scene.ensure(1), Err(Error::Exhausted(text)) if text.contains("load balancer limit exceeded")));
    scene.fake().project.borrow_mut().balancers_max = 9;
    scene.ensure(1).unwrap();
    let other = json!({"name": "taken", "load_balancer_type": "lb11", "location": "fsn1"});
    scene.by_user("POST", "/load_balancers", &other);
    scene.annotate("name", "taken");
    assert!(matches!(scene.ensure(1), Err(Error::Invalid(text)) if text.contains("already used")));
    scene.annotate("name", "");
    scene.annotate("type", "lb99");
    assert!(matches!(scene.ensure(1), Err(Error::Invalid(text)) if text.contains("load_balancer_type")));
}

#[test]
fn certificates_are_found_by_id_and_by_name() {
    let mut scene = Scene::new("");
    let upload = json!({"name": "shop", "type": "uploaded", "certificate": "PEM", "private_key": "PEM"});
    let id = scene.by_user("POST", "/certificates", &upload)["certificate"]["id"].clone();
    scene.annotate("protocol", "https");
    scene.annotate("http-certificates", "shop");
    scene.annotate("http-redirect-http", "true");
    scene.service.ports = vec![port(443, 30_443)];
    scene.ensure(1).unwrap();
    let http = scene.balancer()["services"][0]["http"].clone();
    assert_eq!((&http["certificates"], &http["redirect_http"]), (&json!([id]), &json!(true)));
    scene.written();
    scene.annotate("http-certificates", &id.to_string());
    scene.ensure(1).unwrap();
    assert!(scene.written().is_empty());
    scene.annotate("http-certificates", "none");
    assert!(matches!(scene.ensure(1), Err(Error::Invalid(text)) if text.contains("http-certificates")));
    // The redirection takes port 80.
    scene.annotate("http-certificates", "shop");
    scene.service.ports.push(port(80, 30_080));
    assert!(matches!(scene.ensure(1), Err(Error::Invalid(text)) if text.contains("already in use")));
}

#[test]
fn a_managed_certificate_is_ordered_once_and_a_foreign_one_of_its_name_is_refused() {
    let mut scene = Scene::new("");
    scene.annotate("protocol", "https");
    scene.annotate("certificate-type", "managed");
    scene.annotate("http-managed-certificate-domains", "example.com,www.example.com");
    scene.ensure(1).unwrap();
    assert_eq!(scene.written(), ["POST", "POST", "add_service"]);
    let certificate = scene.all("certificates")[0].clone();
    assert_eq!(certificate["name"], format!("ccm-managed-certificate-{}", scene.service.uid));
    assert_eq!(certificate["domain_names"], json!(["example.com", "www.example.com"]));
    assert_eq!(scene.balancer()["services"][0]["http"]["certificates"], json!([certificate["id"]]));
    scene.ensure(1).unwrap();
    assert!(scene.written().is_empty());
    let mut other = Scene::new("");
    let upload = json!({"name": "shop", "type": "uploaded", "certificate": "PEM", "private_key": "PEM"});
    other.by_user("POST", "/certificates", &upload);
    other.service.annotations = scene.service.annotations.clone();
    other.annotate("http-managed-certificate-name", "shop");
    assert!(matches!(other.ensure(1), Err(Error::Invalid(text)) if text.contains("another certificate \"shop\"")));
}

#[test]
fn the_inventory_lists_this_clusters_services_and_deletes_one_entry() {
    let scene = Scene::new("");
    scene.ensure(1).unwrap();
    let api = Service { ports: vec![port(81, 30_081)], ..Service::new("team", "api", "uid-2") };
    settled(|| scene.task_of("prod", &api).ensure(&scene.nodes(1))).unwrap();
    settled(|| scene.task_of("test", &Service { uid: "uid-3".to_owned(), ..api.clone() }).ensure(&scene.nodes(1)))
        .unwrap();
    let owned = list_owned(&scene.cloud, "prod").unwrap();
    let service = ("team".to_owned(), "api".to_owned(), "uid-2".to_owned());
    assert_eq!((owned.len(), owned[1].name.as_str()), (2, "auid2"));
    assert_eq!(owned[1].service, Some(service.clone()));
    let delete = |cluster: &str, name: &str, uid: &str| {
        let service = (service.0.clone(), service.1.clone(), uid.to_owned());
        delete_owned(&scene.cloud, cluster, name, Some(service))
    };
    assert!(matches!(delete("test", "auid2", "uid-2"), Err(Error::Denied(_))));
    delete("prod", "auid2", "uid-9").unwrap();
    delete_owned(&scene.cloud, "prod", "auid2", None).unwrap();
    assert_eq!(scene.all("load_balancers").len(), 3);
    delete("prod", "auid2", "uid-2").unwrap();
    delete("prod", "auid2", "uid-2").unwrap();
    assert_eq!(scene.all("load_balancers").len(), 2);
}

#[test]
fn two_load_balancers_of_one_service_are_reported_by_each_call() {
    let scene = Scene::new("");
    scene.ensure(1).unwrap();
    let labels = scene.balancer()["labels"].clone();
    let other = json!({"name": "copy", "load_balancer_type": "lb11", "location": "fsn1", "labels": labels});
    scene.by_user("POST", "/load_balancers", &other);
    assert!(matches!(scene.ensure(1), Err(Error::Invalid(text)) if text.contains("remove the label")));
    assert!(matches!(scene.task().get(), Err(Error::Unavailable(_))));
    scene.delete().unwrap();
    assert!(scene.all("load_balancers").is_empty());
}

#[test]
fn no_call_sends_more_requests_than_the_vendors_manager() {
    let scene = Scene::new("");
    scene.fake().project.borrow_mut().action_requests = 1;
    let requests = |scene: &Scene| scene.fake().project.borrow_mut().requests.drain(..).count();
    scene.ensure(3).unwrap();
    assert_eq!(requests(&scene), 5, "by label, by name, create; action, by label");
    scene.ensure(3).unwrap();
    assert_eq!(requests(&scene), 1);
    settled(|| scene.task().update(&scene.nodes(2))).unwrap();
    assert_eq!(requests(&scene), 4, "by label, removal; action, by label");
    scene.delete().unwrap();
    assert_eq!(requests(&scene), 3, "by label, deletion, certificates by label");
}
