//! The routes of a private network.

use serde_json::json;
use skysail_guest_sdk::{AddressKind, Error, NewRoute, NodeAddress, Result, Route, Target};

use super::Routes;
use crate::fixture::{Scene, settled};

fn new_route(scene: &Scene, n: u8, destination: &str) -> NewRoute {
    NewRoute {
        name_hint: format!("uid-{n}"),
        node: format!("node-{n}"),
        provider_id: Some(format!("hcloud://{}", scene.fake().servers[usize::from(n)])),
        addresses: [("192.0.2.9", AddressKind::ExternalIp), ("10.0.1.1", AddressKind::InternalIp)]
            .map(|(ip, kind)| {
                NodeAddress::new(kind, if ip == "10.0.1.1" { format!("10.0.1.{}", n + 2) } else { ip.to_owned() })
            })
            .to_vec(),
        destination_cidr: destination.to_owned(),
        extra: Vec::new(),
    }
}

fn create(scene: &Scene, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
    Routes::new(&scene.cloud, &scene.settings)?.create(routes.to_vec())
}

/// Repeats the creation until no route has to wait.
fn created(scene: &Scene, routes: &[NewRoute]) -> Vec<Result<()>> {
    settled(|| {
        let results = create(scene, routes)?;
        match results.iter().find(|result| matches!(result, Err(Error::RetryAfter(_)))) {
            Some(waits) => waits.clone().map(|()| Vec::new()),
            None => Ok(results),
        }
    })
    .unwrap()
}

fn listed(scene: &Scene) -> Vec<Route> {
    Routes::new(&scene.cloud, &scene.settings).unwrap().list().unwrap()
}

#[test]
fn routes_are_created_one_after_the_other_and_a_second_creation_writes_nothing() {
    let scene = Scene::new("network = kube\n");
    let routes = [0, 1, 2].map(|n| new_route(&scene, n, &format!("10.244.{n}.0/24")));
    let first = create(&scene, &routes).unwrap();
    assert!(first.iter().all(|result| matches!(result, Err(Error::RetryAfter(_)))), "{first:?}");
    assert_eq!(scene.written(), ["add_route"], "the network changes by one action at a time");
    assert!(created(&scene, &routes).iter().all(Result::is_ok));
    assert_eq!(scene.written(), ["add_route", "add_route"]);
    created(&scene, &routes);
    assert!(scene.written().is_empty());
    let listed = listed(&scene);
    assert_eq!((listed.len(), listed[1].name.as_str()), (3, "10.0.1.3-10.244.1.0/24"));
    assert_eq!((&listed[1].target, listed[1].blackhole), (&Target::Address("10.0.1.3".to_owned()), false));
}

#[test]
fn a_route_to_the_same_destination_is_replaced() {
    let scene = Scene::new("network = kube\n");
    created(&scene, &[new_route(&scene, 0, "10.244.0.0/24")]);
    scene.written();
    created(&scene, &[new_route(&scene, 1, "10.244.0.0/24")]);
    assert_eq!(scene.written(), ["delete_route", "add_route"]);
    assert_eq!(listed(&scene)[0].name, "10.0.1.3-10.244.0.0/24");
}

#[test]
fn routes_are_deleted_as_they_were_listed() {
    let scene = Scene::new("network = kube\n");
    created(&scene, &[new_route(&scene, 0, "10.244.0.0/24"), new_route(&scene, 1, "10.244.1.0/24")]);
    let routes = listed(&scene);
    let delete = || {
        let results = Routes::new(&scene.cloud, &scene.settings)?.delete(routes.clone())?;
        results.into_iter().collect::<Result<Vec<_>>>()
    };
    settled(delete).unwrap();
    assert_eq!(listed(&scene), []);
    scene.written();
    settled(delete).unwrap();
    assert!(scene.written().is_empty());
}

#[test]
fn a_node_that_is_not_in_the_network_gets_no_route_and_the_others_do() {
    let scene = Scene::new("network = kube\n");
    let (server, network) = (scene.fake().servers[0], scene.fake().network);
    scene.by_user("POST", &format!("/servers/{server}/actions/detach_from_network"), &json!({"network": network}));
    let mut outside = new_route(&scene, 2, "10.244.2.0/24");
    outside.addresses.truncate(1);
    let mut robot = new_route(&scene, 1, "10.244.3.0/24");
    robot.provider_id = Some("hrobot://7".to_owned());
    let routes = [
        new_route(&scene, 0, "10.244.0.0/24"),
        outside,
        robot,
        new_route(&scene, 1, "fd00::/64"),
        new_route(&scene, 1, "10.244.1.0/24"),
    ];
    let results = created(&scene, &routes);
    let reason = |n: usize| results[n].as_ref().unwrap_err().message().to_owned();
    assert!(results[..4].iter().all(|result| matches!(result, Err(Error::Invalid(_)))), "{results:?}");
    assert!(reason(0).contains("is not in the network; attach the server of node node-0"), "{}", reason(0));
    assert!(reason(1).contains("no InternalIP in 10.0.0.0/16"), "{}", reason(1));
    assert!(reason(3).contains("no IPv6"), "{}", reason(3));
    assert_eq!((&results[4], listed(&scene).len()), (&Ok(()), 1));
}

#[test]
fn routes_are_off_without_a_network_and_where_the_cloud_config_says_so() {
    for config in ["", "network = kube\nnetwork-routes-enabled = false\n"] {
        let scene = Scene::new(config);
        assert!(matches!(create(&scene, &[]), Err(Error::Unsupported(_))), "{config:?}");
    }
    let scene = Scene::new("network = none\n");
    assert!(matches!(create(&scene, &[]), Err(Error::Denied(text)) if text.contains("no network \"none\"")));
}

#[test]
fn a_network_is_found_by_its_id_and_looked_up_once() {
    let scene = Scene::new("");
    let id = scene.fake().network;
    let settings = crate::settings::parse(&format!("network = {id}\n")).config().unwrap();
    assert_eq!(scene.cloud.configured_network(&settings), Ok(Some(id)));
    assert_eq!(scene.cloud.configured_network(&settings), Ok(Some(id)));
    assert_eq!(scene.fake().project.borrow().requests, [format!("GET /networks/{id}")]);
}
