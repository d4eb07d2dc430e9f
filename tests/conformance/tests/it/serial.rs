//! Providers that ask for one call at a time, or for small pages of nodes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use skysail_provider::fake::FakeProvider;
use skysail_test_conformance::world::{Cloud, S, World, pass};

const TAKES: u32 = 40;

/// Lets each call that changes a load balancer take [`TAKES`] seconds; returns the largest number
/// of such calls at one time.
fn most_at_once(fake: &FakeProvider) -> Arc<AtomicUsize> {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    fake.on_call(move |line| {
        if !["ensure", "update"].iter().any(|function| line.starts_with(function)) {
            return Box::pin(async {});
        }
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let now = Arc::clone(&now);
        Box::pin(async move {
            pass(TAKES * S).await;
            now.fetch_sub(1, Ordering::SeqCst);
        })
    });
    most
}

/// The names of the Services of these calls, in their order.
fn names(fake: &FakeProvider, function: &str) -> Vec<String> {
    let name = |call: String| Some(call.strip_prefix(function)?.split(['/', ' ']).nth(2)?.to_owned());
    fake.take_calls().into_iter().filter_map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_serial_provider_gets_one_call_at_a_time_in_order_and_delays_no_other_provider() {
    let clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let world = World::with(clouds).set(|settings| settings.concurrent_service_syncs = 10).start().await;
    let [one, two] = [0, 1].map(|index| world.clouds[index].fake.clone());
    one.describe_as(|info| info.serial_load_balancers = true);
    let (most_of_one, most_of_two) = (most_at_once(&one), most_at_once(&two));
    let services: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
    for name in &services {
        world.add_service(name, json!({})).await;
        world.add_service(&format!("of-two-{name}"), json!({ "loadBalancerClass": "two.example/lb" })).await;
    }
    pass((3 * TAKES + TAKES / 2) * S).await;
    assert_eq!((one.cloud().len(), two.cloud().len()), (3, 20));
    pass(18 * TAKES * S).await;
    assert_eq!(one.cloud().len(), 20);
    assert_eq!(names(&one, "ensure"), services, "each once, in the order of the queue");
    assert!(most_of_two.load(Ordering::SeqCst) > 1);
    // A change of the nodes updates all load balancers, and the first Services are deleted.
    world.add_node_of("one", "a", ("10.0.0.1", "")).await;
    pass(4 * TAKES * S).await;
    for name in services.iter().take(3) {
        world.delete_service(name).await;
    }
    pass(40 * TAKES * S).await;
    assert_eq!(one.cloud().len(), 17);
    assert!(one.cloud().values().all(|balancer| balancer.nodes == ["a"]));
    assert_eq!(most_of_one.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_asked_for_as_few_nodes_at_once_as_it_wants() {
    let world = World::with(vec![Cloud::new("fake").default_of_all()]);
    world.fake().describe_as(|info| info.page_nodes = 10);
    let names: Vec<String> = (0..25).map(|n| format!("n{n:02}")).collect();
    world.fake().add_instances(names.iter().map(String::as_str));
    for name in &names {
        world.add_new_node(name).await;
    }
    let world = world.start().await;
    pass(S).await;
    let calls: Vec<_> = world.fake().calls().into_iter().filter(|call| call.starts_with("describe")).collect();
    assert_eq!(
        calls,
        [
            "describe metadata nodes=(10 nodes)",
            "describe metadata nodes=(10 nodes)",
            "describe metadata nodes=n20,n21,n22,n23,n24"
        ]
    );
}
