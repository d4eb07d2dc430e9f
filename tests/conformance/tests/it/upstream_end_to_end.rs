//! Upstream's end-to-end cases whose Skysail part is tested best in memory.

use std::sync::{Arc, Mutex};

use serde_json::json;
use skysail_provider::{Ingress, LoadBalancerStatus, TrafficPolicy};
use skysail_test_conformance::world::{S, World, pass};

/// The cloud and kube-proxy decide which nodes are healthy and which source address pods see. The
/// provider must receive the fields for it at once.
#[tokio::test(start_paused = true)]
async fn e10_the_external_traffic_policy_and_its_health_check_port_reach_the_provider() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let world = World::new();
    let asked = Arc::clone(&seen);
    world.fake().answer_ensure(move |service| {
        asked.lock().unwrap().push((service.external_traffic_policy, service.health_check_node_port));
        LoadBalancerStatus { ingress: vec![Ingress { ip: Some("203.0.113.1".to_owned()), ..Ingress::default() }] }
    });
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(S).await;
    world.patch_service("web", json!({ "spec": { "externalTrafficPolicy": "Local" } })).await;
    pass(S).await;
    world.patch_service("web", json!({ "spec": { "externalTrafficPolicy": "Cluster" } })).await;
    pass(S).await;
    let seen = seen.lock().unwrap();
    let [first, local, last] = seen[..] else { panic!("asked {} times: {seen:?}", seen.len()) };
    assert_eq!((first, last), ((TrafficPolicy::Cluster, 0), (TrafficPolicy::Cluster, 0)));
    assert_eq!(local.0, TrafficPolicy::Local);
    assert_ne!(local.1, 0, "the API server gives a port for health checks");
}
