//! A dry run of all controllers: it shows what a manager would write, and writes nothing.

use kube::api::ListParams;
use serde_json::json;
use skysail_controllers::DryRunObject;
use skysail_test_conformance::world::{Cloud, S, World, machine, pass};

fn lb(port: u16) -> serde_json::Value {
    json!({ "type": "LoadBalancer", "ports": [{ "port": port }] })
}

/// Kind and name of each object with its requests, its writes and its failures in short.
fn lines(objects: &[DryRunObject]) -> Vec<String> {
    let line = |object: &DryRunObject| {
        let DryRunObject { kind, name, requests, writes, failures, .. } = object;
        let requests = requests.iter().map(|held| format!("{} {}", held.method, held.url));
        let writes = writes.iter().map(|write| format!("{} {}", write.method, write.path));
        let all: Vec<String> = requests.chain(writes).chain(failures.iter().cloned()).collect();
        format!("{kind} {name}: {}", all.join(", "))
    };
    objects.iter().map(line).collect()
}

/// The resource versions of all nodes and Services.
async fn versions(world: &World) -> Vec<Option<String>> {
    let nodes = world.as_user(world.nodes().list(&ListParams::default())).await;
    let services = world.as_user(world.services().list(&ListParams::default())).await;
    let nodes = nodes.items.into_iter().map(|node| node.metadata.resource_version);
    nodes.chain(services.items.into_iter().map(|service| service.metadata.resource_version)).collect()
}

/// The manager serves a node, a Service and a route; then the process ends.
async fn settled_and_ended() -> World {
    let world = World::with(vec![Cloud::new("fake").default_of_all()]).set(|settings| {
        settings.configure_cloud_routes = true;
        settings.cluster_cidrs = skysail_controllers::parse_cluster_cidr("10.120.0.0/16").unwrap();
    });
    world.fake().set_instance("n1", Ok(machine("fake://n1", &["10.0.0.1"])));
    world.add_routed("n1 10.0.0.1 10.120.0.0/24").await;
    world.add_service("web", lb(80)).await;
    let mut world = world.start().await;
    pass(60 * S).await;
    world.stop.cancel();
    pass(S).await;
    assert_eq!((world.fake().cloud().len(), world.fake().cloud_routes().len()), (1, 1));
    drop(world.transcript().await);
    world
}

#[tokio::test(start_paused = true)]
async fn nothing_would_change_where_a_manager_has_settled() {
    let world = settled_and_ended().await;
    assert_eq!(lines(&world.dry_run().await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_service_a_node_and_a_route_is_held_back() {
    let world = settled_and_ended().await;
    world.add_service("new", lb(81)).await;
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    world.add_new_node("n2").await;
    world.fake().set_instance("n2", Ok(machine("fake://n2", &["10.0.0.2"])));
    world.add_routed("n3 10.0.0.3 10.120.3.0/24").await;
    world.fake().set_instance("n3", Ok(machine("fake://n3", &["10.0.0.3"])));
    let before = (versions(&world).await, world.fake().cloud(), world.fake().cloud_routes());
    let found = lines(&world.dry_run().await);
    let expected = [
        "Node n2: PATCH /api/v1/nodes/n2/status, PATCH /api/v1/nodes/n2",
        "Routes : POST https://cloud.test/10.120.3.0/24",
        "Service default/new: PUT https://cloud.test/",
        "Service default/web: DELETE https://cloud.test/",
    ];
    for expected in expected {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected} is missing: {found:#?}");
    }
    // A route that is held back is no failure of its node.
    assert!(!found.iter().any(|line| line.contains("dry run")), "{found:#?}");
    assert_eq!(before, (versions(&world).await, world.fake().cloud(), world.fake().cloud_routes()));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_the_cloud_does_not_have_is_a_failure_and_a_deletion_once_its_node_is_not_ready() {
    let world = settled_and_ended().await;
    world
        .fake()
        .set_instance("n1", Err(skysail_provider::Error::new(skysail_provider::Code::NotFound, "no such machine")));
    let found = lines(&world.dry_run().await);
    assert!(
        matches!(found.as_slice(), [line] if line.starts_with("Node n1: ") && line.contains("no such machine")),
        "{found:?}"
    );
    world.add_routed("n3 10.0.0.3 10.120.0.0/24").await;
    world.fake().set_instance("n3", Ok(machine("fake://n3", &["10.0.0.3"])));
    world.heartbeat("n1", "Unknown").await;
    let found = lines(&world.dry_run().await);
    assert!(found.iter().any(|line| line.starts_with("Node n1: DELETE /api/v1/nodes/n1")), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_provider_takes_is_a_failure() {
    let world = World::with(vec![Cloud::new("fake").class("fake.example/lb")]);
    world.add_service("web", lb(80)).await;
    let found = world.dry_run().await;
    assert!(matches!(found.as_slice(), [object] if object.provider.is_empty() && !object.is_changed()), "{found:?}");
}
