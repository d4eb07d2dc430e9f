//! Tests of routes to pods: creation and deletion are idempotent, and routes of other clusters are
//! not touched.

use skysail_dev::cloud::{Failures, Knobs};
use skysail_provider::{Code, NewRoute, Target};

use super::{CLUSTER, World};

/// A route to a node without a provider ID: the machine is found by its name.
fn wanted(node: &str, cidr: &str) -> NewRoute {
    NewRoute {
        name_hint: format!("hint-{node}"),
        node: node.to_owned(),
        provider_id: None,
        addresses: Vec::new(),
        destination_cidr: cidr.to_owned(),
    }
}

/// The machine name and the destination of each route in the cloud.
fn present(world: &World) -> Vec<(String, String)> {
    let snapshot = world.cloud.snapshot();
    let name = |id: &str| snapshot.instances.iter().find(|machine| machine.id == id).unwrap().name.clone();
    let mut routes: Vec<_> =
        snapshot.routes.iter().map(|route| (name(&route.instance), route.destination_cidr.clone())).collect();
    routes.sort();
    routes
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, cidr)| ((*name).to_owned(), (*cidr).to_owned())).collect()
}

#[tokio::test]
async fn creating_and_deleting_routes_is_idempotent() {
    let world = World::new().await;
    let [a, _] = ["a", "b"].map(|name| world.cloud.add_instance(name, "zone-a").unwrap());
    let both = [wanted("a", "10.244.1.0/24"), wanted("b", "10.244.2.0/24")];
    for _ in 0..2 {
        assert_eq!(world.routes().create(&world.call, CLUSTER, &both).await, Ok(vec![Ok(()), Ok(())]));
        assert_eq!(present(&world), pairs(&[("a", "10.244.1.0/24"), ("b", "10.244.2.0/24")]));
    }
    let listed = world.routes().list(&world.call, CLUSTER).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].target, Target::ProviderId(format!("simcloud://{}", a.id)));
    assert_eq!((listed[0].destination_cidr.as_str(), listed[0].blackhole), ("10.244.1.0/24", false));
    for _ in 0..2 {
        assert_eq!(world.routes().delete(&world.call, CLUSTER, &listed[..1]).await, Ok(vec![Ok(())]));
        assert_eq!(present(&world), pairs(&[("b", "10.244.2.0/24")]));
    }
}

#[tokio::test]
async fn a_route_without_its_machine_is_a_blackhole_and_a_new_machine_takes_it_over() {
    let world = World::new().await;
    let old = world.cloud.add_instance("old", "zone-a").unwrap();
    let route = |node| [wanted(node, "10.244.1.0/24")];
    world.routes().create(&world.call, CLUSTER, &route("old")).await.unwrap();
    world.cloud.delete_instance(&old.id).await.unwrap();
    let listed = world.routes().list(&world.call, CLUSTER).await.unwrap();
    let target = Target::ProviderId(format!("simcloud://{}", old.id));
    assert_eq!((listed.len(), listed[0].blackhole, &listed[0].target), (1, true, &target));
    world.cloud.add_instance("new", "zone-a").unwrap();
    let answers = world.routes().create(&world.call, CLUSTER, &[route("new"), route("never")].concat()).await.unwrap();
    assert_eq!(answers[0], Ok(()));
    assert_eq!(answers[1].as_ref().unwrap_err().code, Code::NotFound);
    assert_eq!(present(&world), pairs(&[("new", "10.244.1.0/24")]));
}

/// The name of a node may differ from that of its machine.
#[tokio::test]
async fn a_route_leads_to_the_machine_of_the_nodes_provider_id() {
    let world = World::new().await;
    let [a, _] = ["a", "b"].map(|name| world.cloud.add_instance(name, "zone-a").unwrap());
    let by_id = |id: &str| NewRoute { provider_id: Some(format!("simcloud://{id}")), ..wanted("b", "10.244.1.0/24") };
    assert_eq!(world.routes().create(&world.call, CLUSTER, &[by_id(&a.id)]).await, Ok(vec![Ok(())]));
    assert_eq!(present(&world), pairs(&[("a", "10.244.1.0/24")]));
    let answers = world.routes().create(&world.call, CLUSTER, &[by_id("i-none")]).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn routes_of_other_clusters_are_ignored() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.cloud.add_instance(name, "zone-a").unwrap();
    }
    world.routes().create(&world.call, "other", &[wanted("a", "10.244.1.0/24")]).await.unwrap();
    world.routes().create(&world.call, CLUSTER, &[wanted("b", "10.244.2.0/24")]).await.unwrap();
    let theirs = world.routes().list(&world.call, "other").await.unwrap();
    let ours = world.routes().list(&world.call, CLUSTER).await.unwrap();
    assert_eq!((theirs.len(), ours.len()), (1, 1));
    // A route with the destination of another cluster's route is refused, and so is the deletion of
    // such a route by its name.
    let made = world.routes().create(&world.call, CLUSTER, &[wanted("b", "10.244.1.0/24")]).await.unwrap();
    assert!(made[0].is_err());
    let answers = world.routes().delete(&world.call, CLUSTER, &[theirs, ours].concat()).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().code, Code::Denied);
    assert_eq!(answers[1], Ok(()));
    assert_eq!(present(&world), pairs(&[("a", "10.244.1.0/24")]));
}

#[tokio::test]
async fn a_lost_response_duplicates_no_route_and_each_route_has_its_own_result() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.cloud.add_instance(name, "zone-a").unwrap();
    }
    let both = [wanted("a", "10.244.1.0/24"), wanted("b", "10.244.2.0/24")];
    for carried_out in [false, true] {
        let fail = Failures { after: 0, count: 1, status: 500, writes_only: true, carried_out };
        world.turn(Knobs { fail: Some(fail), ..Knobs::default() });
        let answers = world.routes().create(&world.call, CLUSTER, &both).await.unwrap();
        let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert_eq!(failed.iter().map(|error| error.code).collect::<Vec<_>>(), [Code::Unavailable]);
        assert_eq!(world.cloud.snapshot().routes.len(), if carried_out { 2 } else { 1 });
        assert_eq!(world.routes().create(&world.call, CLUSTER, &both).await, Ok(vec![Ok(()), Ok(())]));
        assert_eq!(present(&world).len(), 2);
        let listed = world.routes().list(&world.call, CLUSTER).await.unwrap();
        assert_eq!(world.routes().delete(&world.call, CLUSTER, &listed).await, Ok(vec![Ok(()), Ok(())]));
        assert_eq!(present(&world), Vec::new());
    }
}
