//! Addresses that a provider may not assign.

use expect_test::expect;
use serde_json::json;
use skysail_provider::{Ingress, LoadBalancerStatus};

use skysail_test_conformance::world::{Cloud, S, World, machine, pass};

fn answer(world: &World, ip: &str) {
    let ip = ip.to_owned();
    world.fake().answer_ensure(move |_| LoadBalancerStatus {
        ingress: vec![Ingress { ip: Some(ip.clone()), ..Ingress::default() }],
    });
}

#[tokio::test(start_paused = true)]
async fn a_refused_address_of_a_load_balancer_is_not_written_and_the_event_names_the_remedy() {
    let mut world = World::new().start().await;
    world.add_node("a").await;
    pass(5 * S).await;
    answer(&world, "127.0.0.1");
    world.add_service("web", json!({})).await;
    world.after(4 * S, expect![[r#"
        api patch services/status web
        provider ensure default/web ports=80/TCP nodes=a
        event web Normal EnsuringLoadBalancer x1: Ensuring load balancer
        event web Warning SyncLoadBalancerFailed x1: Error syncing load balancer: failed to ensure load balancer: the load balancer's address 127.0.0.1 is refused (loopback); if the address is right, add its network to the provider's spec.loadBalancerCidrs
    "#]]).await;
    assert!(world.state("web").await.starts_with("[] "));
}

#[tokio::test(start_paused = true)]
async fn only_addresses_in_the_operators_ranges_are_written() {
    let cloud = Cloud::new("fake").default_of_all().load_balancer_cidrs(&["127.0.0.0/8"]);
    let world = World::with(vec![cloud]).start().await;
    answer(&world, "127.41.0.1");
    world.add_service("web", json!({})).await;
    answer(&world, "127.41.0.1");
    pass(S).await;
    assert!(world.state("web").await.contains("127.41.0.1"));
    answer(&world, "203.0.113.1");
    world.add_service("other", json!({})).await;
    pass(S).await;
    assert!(world.state("other").await.starts_with("[] "));
}

/// kube-proxy would send the traffic of that Service, even of the API server, to this one.
#[tokio::test(start_paused = true)]
async fn the_cluster_ip_of_a_service_is_refused_as_a_load_balancers_address() {
    let mut world = World::new().start().await;
    world.add_service("victim", json!({ "type": "ClusterIP" })).await;
    let victim = world.as_user(world.services().get("victim")).await.spec.unwrap().cluster_ip.unwrap();
    pass(S).await;
    answer(&world, &victim);
    world.add_service("web", json!({})).await;
    pass(S).await;
    let transcript = world.transcript().await;
    assert!(world.state("web").await.starts_with("[] "), "{transcript}");
    assert!(transcript.contains("is the cluster IP of the Service default/victim"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_metadata_service_is_refused_as_a_nodes_address() {
    let mut world = World::new().start().await;
    world.fake().set_instance("n", Ok(machine("fake://n", &["10.0.0.1", "169.254.169.254"])));
    world.add_new_node("n").await;
    pass(S).await;
    let node = world.node("n").await.unwrap();
    assert!(node.spec.unwrap().provider_id.is_none(), "the node keeps its taint");
    let transcript = world.transcript().await;
    assert!(transcript.contains("169.254.169.254 is refused"), "{transcript}");
    world.fake().set_instance("n", Ok(machine("fake://n", &["10.0.0.1"])));
    pass(60 * S).await;
    assert!(world.node("n").await.unwrap().spec.unwrap().provider_id.is_some());
}
