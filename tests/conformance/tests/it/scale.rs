//! Work is proportional to what changed.

use std::time::Duration;

use serde_json::json;

use skysail_test_conformance::world::{S, World, machine, pass};

const NODES: usize = 200;
const SERVICES: usize = 100;

/// The Go peer needs 14 calls for each Service here (and both cores for minutes): one ensure and, when the nodes have settled, one update.
#[tokio::test(start_paused = true)]
async fn many_nodes_and_services_arriving_cost_one_ensure_and_one_update_each_and_heartbeats_nothing() {
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
    assert_eq!(world.fake().take_calls(), Vec::<String>::new(), "a heartbeat is no work");
    let [nodes, statuses, services, events] = before;
    let ours = u64::try_from(NODES).unwrap();
    assert_eq!(writes(&world), [nodes, statuses + ours, services, events], "nothing is written but the heartbeats");
}
