//! Work is proportional to what changed.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use serde_json::json;

use skysail_test_conformance::world::{Cloud, S, World, machine, pass};

const NODES: usize = 200;
const SERVICES: usize = 100;

/// The number of reconciles of this provider's Services.
fn reconciles(world: &World, provider: &str) -> u64 {
    let mut text = String::new();
    encode(&mut text, &world.registry).unwrap();
    let of = format!(r#"skysail_reconciles_total{{controller="service-controller",provider="{provider}","#);
    let counts = text.lines().filter(|line| line.starts_with(&of)).filter_map(|line| line.rsplit(' ').next());
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// Counts provider calls, reconciles of Services and requests since `begin`.
struct Work {
    reconciles: Vec<u64>,
    requests: u64,
}

impl Work {
    fn begin(world: &World) -> Self {
        world.clouds.iter().for_each(|cloud| drop(cloud.fake.take_calls()));
        let reconciles = world.clouds.iter().map(|cloud| reconciles(world, cloud.name())).collect();
        Self { reconciles, requests: Self::requests(world) }
    }

    fn requests(world: &World) -> u64 {
        world.server.requests().counts().values().sum()
    }

    /// Calls and reconciles of each provider, and all requests since `begin`, without the calls
    /// about nodes.
    fn done(self, world: &World) -> (Vec<(usize, u64)>, u64) {
        let calls = |cloud: &Cloud| cloud.fake.take_calls().iter().filter(|call| !call.starts_with("describe")).count();
        let clouds = world.clouds.iter().zip(&self.reconciles);
        let work = clouds.map(|(cloud, before)| (calls(cloud), reconciles(world, cloud.name()) - before)).collect();
        (work, Self::requests(world) - self.requests)
    }
}

/// Three providers with forty nodes and thirty Services each: a change of a node affects only the
/// Services of its provider, and only if the node set changes.
#[tokio::test(start_paused = true)]
async fn a_change_of_a_node_reconciles_only_services_whose_node_set_changes() {
    let names = ["one", "two", "three"];
    let cloud = |name: &&str| Cloud::new(name).class(&format!("{name}.example/lb"));
    let mut world = World::with(names.iter().map(cloud).collect());
    for name in names {
        for n in 0..40 {
            world.add_raw_node(&format!("{name}-{n}"), json!({ "providerID": format!("{name}://{n}") })).await;
        }
        for n in 0..30 {
            let class = format!("{name}.example/lb");
            world.add_service(&format!("{name}-{n}"), json!({ "loadBalancerClass": class })).await;
        }
    }
    world = world.start().await;
    pass(20 * S).await;

    let work = Work::begin(&world);
    world.heartbeat("one-7", "True").await;
    pass(40 * S).await;
    assert_eq!(work.done(&world), (vec![(0, 0); 3], 1), "a heartbeat causes only the kubelet's request");

    let work = Work::begin(&world);
    let annotations = json!({ "metadata": { "annotations": { "example.com/beat": "1" } } });
    let patch = kube::api::Patch::Merge(&annotations);
    world.as_user(world.nodes().patch("one-7", &kube::api::PatchParams::default(), &patch)).await;
    pass(40 * S).await;
    assert_eq!(work.done(&world), (vec![(0, 0); 3], 1), "an annotation changes no set");

    let work = Work::begin(&world);
    world.add_raw_node("two-new", json!({ "providerID": "two://new" })).await;
    pass(40 * S).await;
    let (services, requests) = work.done(&world);
    assert_eq!(services, [(0, 0), (30, 30), (0, 0)], "one update for each Service of its provider");
    assert!(requests <= 2 + 30 + 2, "{requests}: two of the test, an Event for each update, and labels");

    let work = Work::begin(&world);
    world.add_raw_node("foreign", json!({ "providerID": "elsewhere://1" })).await;
    pass(40 * S).await;
    assert_eq!(work.done(&world).0, [(0, 0); 3], "a foreign node");
}

/// Nodes that arrive one by one for two minutes never settle: the load balancers are updated every
/// 30 s.
#[tokio::test(start_paused = true)]
async fn nodes_that_arrive_one_by_one_cause_an_update_every_30_s() {
    let world = World::new().start().await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(world.fake().take_calls());
    for n in 0..120 {
        let name = format!("n{n}");
        world.fake().add_instances([name.as_str()]);
        world.add_node(&name).await;
        pass(S).await;
    }
    pass(60 * S).await;
    let updates = world.fake().take_calls().into_iter().filter(|call| call.starts_with("update")).collect::<Vec<_>>();
    assert!((4..=5).contains(&updates.len()), "{updates:?}");
    assert_eq!(updates.last().unwrap(), "update default/web nodes=(120 nodes)");
}

/// Arriving nodes do not delay the removal of a deleted node, to which load balancers still send
/// traffic.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_leaves_the_load_balancers_within_2_s_while_others_arrive() {
    let world = World::new().start().await;
    world.fake().add_instances(["leaving"]);
    world.add_node("leaving").await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(world.fake().take_calls());
    for n in 0..10 {
        let name = format!("n{n}");
        world.fake().add_instances([name.as_str()]);
        world.add_node(&name).await;
        pass(S / 2).await;
    }
    let calls = world.fake().take_calls();
    assert!(!calls.iter().any(|call| call.starts_with("update")), "the nodes have not settled: {calls:?}");
    world.as_user(world.nodes().delete("leaving", &kube::api::DeleteParams::default())).await;
    pass(2 * S).await;
    let updates = world.fake().take_calls().into_iter().filter(|call| call.starts_with("update")).collect::<Vec<_>>();
    assert_eq!(updates, ["update default/web nodes=(10 nodes)"]);
}

/// The manager in Go needs 14 calls for each Service here; this one needs one ensure and, when the
/// nodes have settled, one update.
#[tokio::test(start_paused = true)]
async fn many_new_nodes_and_services_cause_one_ensure_and_one_update_each_and_heartbeats_nothing() {
    let mut world = World::new().set(|settings| settings.concurrent_service_syncs = 4);
    for n in 0..SERVICES {
        world.add_service(&format!("s{n}"), json!({})).await;
    }
    world = world.start().await;
    for n in 0..NODES {
        let name = format!("n{n}");
        world
            .fake()
            .set_instance(&name, Ok(machine(&format!("fake://{name}"), &[&format!("10.0.{}.{}", n / 250, n % 250)])));
        world.add_new_node(&name).await;
    }
    pass(60 * S).await;
    let calls = world.fake().take_calls();
    let count = |what: &str| calls.iter().filter(|line| line.starts_with(what)).count();
    println!("{} ensures, {} updates, {} describes", count("ensure "), count("update "), count("describe"));
    assert_eq!((count("ensure "), count("update ")), (SERVICES, SERVICES));
    assert!(count("describe") <= 10, "{} look-ups for {NODES} nodes", count("describe"));
    assert!(calls.iter().any(|line| line.ends_with("nodes=(200 nodes)")));

    let writes = |world: &World| {
        let requests = world.server.requests();
        ["nodes", "nodes/status", "services/status", "events"].map(|what| requests.count("patch", what))
    };
    let before = writes(&world);
    for n in 0..NODES {
        world.heartbeat(&format!("n{n}"), "True").await;
    }
    pass(Duration::from_mins(2)).await;
    assert_eq!(world.fake().take_calls(), Vec::<String>::new(), "heartbeats cause no calls");
    let [nodes, statuses, services, events] = before;
    let ours = u64::try_from(NODES).unwrap();
    assert_eq!(writes(&world), [nodes, statuses + ours, services, events], "only the heartbeats are written");
}
