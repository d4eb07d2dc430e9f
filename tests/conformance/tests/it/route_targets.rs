//! Routes whose target the cloud names in its own terms.

use rstest::rstest;
use skysail_provider::{NewRoute, Route, Target};
use skysail_test_conformance::{
    routes::routes,
    world::{Cloud, S, World, pass},
};

fn by_name(route: &NewRoute) -> Target {
    Target::Node(route.node.clone())
}

fn by_provider_id(route: &NewRoute) -> Target {
    Target::ProviderId(route.provider_id.clone().unwrap())
}

fn by_address(route: &NewRoute) -> Target {
    Target::Address(route.addresses[0].address.clone())
}

fn untold(_: &NewRoute) -> Target {
    Target::None
}

/// Two nodes with their routes, in a cloud that names the targets like this.
async fn routed(target: fn(&NewRoute) -> Target) -> World {
    let world = World::routing(vec![Cloud::new("fake").default_of_all()]);
    world.fake().target_routes_by(target);
    world.add_routed("n1 10.0.1.1 10.120.0.0/24").await;
    world.add_routed("n2 10.0.2.1 10.120.1.0/24,a00:100::/24").await;
    world.start().await
}

/// Destinations of the routes in the cloud, sorted, each once.
fn destinations(world: &World) -> Vec<String> {
    let mut all: Vec<String> = world.fake().cloud_routes().into_iter().map(|route| route.destination_cidr).collect();
    all.sort();
    all.dedup();
    all
}

const ALL: [&str; 3] = ["10.120.0.0/24", "10.120.1.0/24", "a00:100::/24"];

/// Nodes lose and get addresses and provider IDs, a node comes, and the manager restarts.
#[rstest]
#[case::by_name(by_name)]
#[case::by_provider_id(by_provider_id)]
#[case::by_address(by_address)]
#[case::untold(untold)]
#[tokio::test(start_paused = true)]
async fn no_live_route_is_deleted_however_the_cloud_names_its_target(#[case] target: fn(&NewRoute) -> Target) {
    let world = routed(target).await;
    pass(60 * S).await;
    world.readdress("n1", "10.0.1.99").await;
    pass(60 * S).await;
    world.readdress("n1", "10.0.1.1").await;
    // An uninitialised node.
    world.add_raw_node("n3", serde_json::json!({})).await;
    pass(60 * S).await;
    let world = world.restart(|_| ()).await;
    pass(60 * S).await;
    assert_eq!(destinations(&world), ALL);
    for node in ["n1", "n2"] {
        assert_eq!(world.network_unavailable(node).await, "False RouteCreated", "{node}");
    }
    let deletions: Vec<_> = world.fake().calls().into_iter().filter(|call| call.starts_with("delete")).collect();
    assert_eq!(deletions, Vec::<String>::new());
}

/// The routes of a deleted node, once every other node is known.
#[rstest]
#[case::by_name(by_name, &[])]
#[case::by_provider_id(by_provider_id, &ALL[1..])]
#[case::by_address(by_address, &ALL[1..])]
#[tokio::test(start_paused = true)]
async fn routes_that_lead_to_no_node_are_deleted_as_soon_as_that_is_certain(
    #[case] target: fn(&NewRoute) -> Target,
    #[case] uncertain: &[&str],
) {
    let world = routed(target).await;
    world.add_raw_node("n3", serde_json::json!({})).await;
    world.delete_node("n2").await;
    pass(30 * S).await;
    assert_eq!(destinations(&world), [&ALL[..1], uncertain].concat(), "n3 may be the machine");
    world.delete_node("n3").await;
    pass(30 * S).await;
    assert_eq!(destinations(&world), ALL[..1]);
}

/// The provider may know better than the host.
#[tokio::test(start_paused = true)]
async fn a_route_of_unknown_target_stays_unless_it_is_a_blackhole() {
    let world = routed(untold).await;
    world.delete_node("n2").await;
    pass(30 * S).await;
    assert_eq!(destinations(&world), ALL);
    let holes = world.fake().cloud_routes().into_iter();
    let holes = holes.map(|route| Route { blackhole: route.destination_cidr == ALL[1], ..route });
    world.fake().set_routes(holes.chain(routes(&["- 10.120.7.0/24"])).collect());
    pass(30 * S).await;
    assert_eq!(destinations(&world), [ALL[0], "10.120.7.0/24", ALL[2]]);
}
