//! What a Service may ask for, and what its status shows.

use skysail_guest_sdk::{Error, IpMode, Node, NodeSet, SessionAffinity};

use super::{Front, Place, Wanted, Warnings, name_of};
use crate::fixture::{Scene, shown};

fn wanted(scene: &Scene, nodes: &NodeSet) -> (skysail_guest_sdk::Result<Wanted>, Vec<&'static str>) {
    let mut warnings = Warnings::new();
    let wanted = Wanted::new(&scene.settings, &scene.service, nodes, &mut warnings);
    (wanted, warnings.into_iter().map(|(reason, _)| reason).collect())
}

#[test]
fn a_node_selector_chooses_the_targets() {
    let mut scene = Scene::new("load-balancers-type = lb11\n");
    let count = |scene: &Scene| wanted(scene, &scene.nodes(3)).0.map(|wanted| wanted.servers.len());
    assert_eq!(count(&scene), Ok(3));
    for (selector, nodes) in [("pool=edge", 1), ("pool in (core),!none", 2), ("pool=none", 0), ("none!=x", 3)] {
        scene.annotate("node-selector", selector);
        assert_eq!(count(&scene), Ok(nodes), "{selector}");
    }
    scene.annotate("node-selector", "pool in edge");
    let Err(Error::Invalid(message)) = count(&scene) else { panic!("it cannot be read") };
    assert!(message.starts_with("annotation load-balancer.hetzner.cloud/node-selector: "), "{message}");
}

#[test]
fn nodes_without_a_cloud_server_are_left_out_with_one_warning() {
    let scene = Scene::new("load-balancers-type = lb11\n");
    let node = |name: &str, id: Option<&str>| Node { provider_id: id.map(str::to_owned), ..Node::new(name) };
    let nodes = NodeSet::of(vec![
        node("a", Some("hcloud://42")),
        node("b", Some("hrobot://7")),
        node("c", Some("hcloud://bm-7")),
        node("d", None),
    ]);
    let (wanted, warnings) = wanted(&scene, &nodes);
    assert_eq!(wanted.unwrap().servers.into_keys().collect::<Vec<_>>(), [42]);
    assert_eq!(warnings, ["UnknownProviderIDPrefix"]);
}

#[test]
fn what_hetzner_cannot_do_is_refused_or_reported() {
    let mut scene = Scene::new("load-balancers-type = lb11\n");
    scene.service.session_affinity = SessionAffinity::ClientIp(60);
    scene.service.load_balancer_ip = Some("198.51.100.1".to_owned());
    scene.service.source_ranges = vec!["0.0.0.0/0".to_owned()];
    let (_, warnings) = wanted(&scene, &scene.nodes(0));
    assert_eq!(warnings, ["SessionAffinityIgnored", "LoadBalancerIPIgnored"]);
    scene.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    assert!(matches!(wanted(&scene, &scene.nodes(0)).0, Err(Error::Unsupported(_))));
}

#[test]
fn a_wrong_value_is_refused_with_the_name_of_its_annotation() {
    let wrong = [
        ("algorithm-type", "random"),
        ("disable-public-network", "yes"),
        ("use-private-ip", "true"),
        ("use-private-ip", "maybe"),
        ("private-ipv4", "fd00::1"),
        ("private-subnet-ip-range", "10.0.0.0/33"),
        ("ipv6-disabled", "no!"),
        ("disable-private-ingress", "2"),
    ];
    for (key, value) in wrong {
        let mut scene = Scene::new("");
        scene.annotate(key, value);
        let Err(Error::Invalid(message)) = wanted(&scene, &scene.nodes(0)).0 else { panic!("{key} = {value}") };
        assert!(message.starts_with(&format!("annotation load-balancer.hetzner.cloud/{key}: ")), "{message}");
    }
}

#[test]
fn a_place_is_a_location_or_a_network_zone() {
    let place = |config: &str, annotations: &[(&str, &str)]| {
        let mut scene = Scene::new(config);
        for (key, value) in annotations {
            scene.annotate(key, value);
        }
        Place::new(&scene.settings.balancers, &scene.service)
    };
    let location = |name: &str| Ok(Place { location: Some(name.to_owned()), network_zone: None });
    let zone = |name: &str| Ok(Place { location: None, network_zone: Some(name.to_owned()) });
    assert_eq!(place("", &[]), location("fsn1"));
    assert_eq!(place("", &[("location", "hel1"), ("network-zone", "us-east")]), location("hel1"));
    assert_eq!(place("", &[("location", ""), ("network-zone", "us-east")]), zone("us-east"));
    assert_eq!(place("load-balancers-network-zone = eu-central\n", &[]), zone("eu-central"));
    let Err(Error::Invalid(message)) = place("", &[("location", "")]) else { panic!("nowhere") };
    assert!(message.contains("network-zone are absent"), "{message}");
}

#[test]
fn the_name_is_upstreams_or_the_users() {
    let mut scene = Scene::new("");
    assert_eq!(name_of(&scene.service), "a0a1b2c3d4e5f6789abcdef012345678");
    scene.annotate("name", "front");
    assert_eq!(name_of(&scene.service), "front");
}

#[test]
fn the_status_shows_what_the_annotations_leave() {
    let mut scene = Scene::new("network = kube\n");
    scene.ensure(1).unwrap();
    let balancer = serde_json::from_value(scene.balancer()).unwrap();
    let count = |scene: &Scene| {
        let status = Front::new(&scene.settings.balancers, &scene.service).unwrap().status(&balancer);
        (shown(&status).len(), status.ingress.first().and_then(|ingress| ingress.ip_mode))
    };
    assert_eq!(count(&scene), (3, Some(IpMode::Vip)));
    scene.annotate("ipv6-disabled", "true");
    assert_eq!(count(&scene), (2, Some(IpMode::Vip)));
    scene.annotate("disable-private-ingress", "true");
    scene.annotate("uses-proxyprotocol", "true");
    assert_eq!(count(&scene), (1, Some(IpMode::Proxy)));
    scene.annotate("hostname", "front.example.com");
    let status = Front::new(&scene.settings.balancers, &scene.service).unwrap().status(&balancer);
    assert_eq!(shown(&status), ["front.example.com"]);
}

#[test]
fn the_cloud_config_decides_what_the_status_shows_by_default() {
    let config = "network = kube\nload-balancers-disable-ipv6 = true\nload-balancers-disable-private-ingress = true\n";
    let scene = Scene::new(config);
    assert_eq!(shown(&scene.ensure(1).unwrap().value).len(), 1);
}
