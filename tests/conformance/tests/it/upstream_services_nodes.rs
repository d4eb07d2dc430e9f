//! Upstream's tests of the node sync (S2 to S5, S11): which change of a node causes a call for
//! which Service.
//! IDs: tests/conformance/README.md.

use std::{sync::Arc, time::Duration};

use kube::api::PostParams;
use rstest::rstest;
use serde_json::json;
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{S, World, pass};

use crate::upstream_services::{calls, patch_node, touch, with_nodes, with_web};

/// A new node: each load balancer gets one update with all nodes, whatever the number of workers;
/// nothing is retried.
///
/// Upstream's S2.6 has a cache entry without an object. The ledger has no such entries, so here a
/// Service is deleted at the same moment (which reads the set before it is published).
#[rstest]
#[case::s2_1_none(&[], 1, 0)]
#[case::s2_2_cluster_ip_and_node_port(&["ClusterIP", "NodePort"], 2, 0)]
#[case::s2_3_one(&["LoadBalancer"], 3, 1)]
#[case::s2_4_three(&["LoadBalancer", "LoadBalancer", "LoadBalancer"], 4, 3)]
#[case::s2_5_two_of_four(&["NodePort", "LoadBalancer", "LoadBalancer", "ClusterIP"], 5, 2)]
#[case::s2_6_one_that_is_deleted_meanwhile(&["LoadBalancer", "gone"], 6, 1)]
#[case::s2_7_four_and_two_workers(&["LoadBalancer", "LoadBalancer", "LoadBalancer", "LoadBalancer"], 2, 4)]
#[tokio::test(start_paused = true)]
async fn a_new_node_reaches_each_load_balancer_once(
    #[case] types: &[&str],
    #[case] workers: usize,
    #[case] updates: usize,
) {
    let mut world = World::new().set(|settings| settings.concurrent_service_syncs = workers);
    world.fake().add_instances(["a", "b", "c"]);
    world.add_node("a").await;
    world.add_node("b").await;
    world = world.start().await;
    for (n, service_type) in types.iter().enumerate() {
        let service_type = if *service_type == "gone" { "LoadBalancer" } else { service_type };
        world.add_service(&format!("s{n}"), json!({ "type": service_type })).await;
    }
    pass(10 * S).await;
    drop(calls(&world));
    world.add_node("c").await;
    if let Some(gone) = types.iter().position(|service_type| *service_type == "gone") {
        world.delete_service(&format!("s{gone}")).await;
    }
    pass(60 * S).await;
    let mut made: Vec<String> = calls(&world).into_iter().filter(|call| call.starts_with("update")).collect();
    made.sort();
    let lbs = types.iter().enumerate().filter(|(_, service_type)| **service_type == "LoadBalancer");
    assert_eq!(made, lbs.map(|(n, _)| format!("update default/s{n} nodes=a,b,c")).collect::<Vec<_>>());
    assert_eq!(made.len(), updates);
    assert!(!world.transcript().await.contains("Warning"));
}

async fn change_node(world: &World, change: &str) {
    let taint = |key: &str| json!({ "spec": { "taints": [{ "key": key, "value": "1", "effect": "NoSchedule" }] } });
    match change {
        "nothing" => world.heartbeat("n2", "True").await,
        "n3 added" => world.add_node("n3").await,
        "n3 deleted" => world.delete_node("n3").await,
        "n2 not ready" => world.heartbeat("n2", "False").await,
        "n2 ready again" => {
            world.heartbeat("n2", "False").await;
            pass(30 * S).await;
            world.heartbeat("n2", "True").await;
        }
        "n2 autoscaler taint" => patch_node(world, "n2", taint("ToBeDeletedByClusterAutoscaler")).await,
        "n2 other taint" => patch_node(world, "n2", taint("example.com/other")).await,
        "n2 exclude label" => {
            let labels = json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "" });
            patch_node(world, "n2", json!({ "metadata": { "labels": labels } })).await;
        }
        "n2 being deleted" => {
            patch_node(world, "n2", json!({ "metadata": { "finalizers": ["example.com/slow"] } })).await;
            world.delete_node("n2").await;
        }
        other => panic!("{other}"),
    }
}

/// Two Services with the policy Local and one with Cluster get the same nodes. S3.5 and S3.9 take
/// effect at once; upstream waits for another trigger.
#[rstest]
#[case::s3_1_no_change(3, "nothing", None)]
#[case::s3_2_node_added(2, "n3 added", Some("n1,n2,n3"))]
#[case::s3_4_not_ready(3, "n2 not ready", None)]
#[case::s3_5_autoscaler_taint(3, "n2 autoscaler taint", Some("n1,n3"))]
#[case::s3_6_ready_again(3, "n2 ready again", None)]
#[case::s3_7_exclude_label(3, "n2 exclude label", Some("n1,n3"))]
#[case::s3_8_node_gone(3, "n3 deleted", Some("n1,n2"))]
#[case::s3_9_node_being_deleted(3, "n2 being deleted", Some("n1,n3"))]
#[case::s3_10_unrelated_taint(3, "n2 other taint", None)]
#[tokio::test(start_paused = true)]
async fn a_changed_node(#[case] nodes: usize, #[case] change: &str, #[case] update: Option<&str>) {
    let world = with_nodes(&["n1", "n2", "n3"][..nodes]).await;
    world.add_service("one", json!({ "externalTrafficPolicy": "Local" })).await;
    world.add_service("two", json!({ "externalTrafficPolicy": "Local" })).await;
    world.add_service("three", json!({})).await;
    pass(10 * S).await;
    drop(calls(&world));
    change_node(&world, change).await;
    pass(Duration::from_mins(5)).await;
    let mut made = calls(&world);
    made.sort();
    let expected: Vec<String> = match update {
        Some(nodes) => ["one", "three", "two"].iter().map(|s| format!("update default/{s} nodes={nodes}")).collect(),
        None => vec![],
    };
    assert_eq!(made, expected);
}

/// Upstream stores the set despite the failure and never repeats the update: the Service gets an
/// ensure instead. Here the update is repeated with the Service's backoff, and a heartbeat without
/// a change causes no call.
#[tokio::test(start_paused = true)]
async fn s3_3_a_failed_update_is_repeated_and_a_heartbeat_causes_no_call() {
    let world = with_web(&["n1", "n2"]).await;
    world.fake().fail_next("update", Error::new(Code::Unavailable, "busy"));
    world.add_node("n3").await;
    pass(4 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=n1,n2,n3"]);
    world.heartbeat("n1", "True").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=n1,n2,n3"]);
}

#[rstest]
#[case::s4_1_one_node_three_workers(1, 3)]
#[case::s4_2_two_nodes_one_worker(2, 1)]
#[case::s4_3_four_nodes_three_workers(4, 3)]
#[tokio::test(start_paused = true)]
async fn four_services_and_their_first_nodes(#[case] nodes: usize, #[case] workers: usize) {
    let mut world = World::new().set(|settings| settings.concurrent_service_syncs = workers).start().await;
    for n in 1..=4 {
        world.add_service(&format!("s{n}"), json!({})).await;
    }
    pass(10 * S).await;
    drop(calls(&world));
    let names = &["n1", "n2", "n3", "n4"][..nodes];
    world.fake().add_instances(names.iter().copied());
    for name in names {
        world.add_node(name).await;
    }
    pass(60 * S).await;
    let mut made = calls(&world);
    made.sort();
    let all = names.join(",");
    assert_eq!(made, [1, 2, 3, 4].map(|n| format!("update default/s{n} nodes={all}")));
    assert!(!world.transcript().await.contains("UpdateLoadBalancerFailed"));
}

/// Upstream's node lister fails, and all Services are requeued. Here the set stays unchanged while
/// nodes cannot be listed, and each Service is updated once afterwards.
#[rstest]
#[case::s4_4_three_workers(3)]
#[case::s4_5_one_worker(1)]
#[tokio::test(start_paused = true)]
async fn while_nodes_cannot_be_listed_nothing_is_called(#[case] workers: usize) {
    let world = World::new().set(|settings| settings.concurrent_service_syncs = workers).start().await;
    world.fake().add_instances(["n1", "n2"]);
    world.add_node("n1").await;
    pass(5 * S).await;
    for n in 1..=4 {
        world.add_service(&format!("s{n}"), json!({})).await;
    }
    pass(10 * S).await;
    let blind = |request: &RequestInfo| match (request.verb, request.resource.as_str()) {
        ("list" | "watch", "nodes") => Fault::unavailable(),
        _ => Fault::None,
    };
    world.server.set_faults(Some(Arc::new(blind)));
    world.server.end_watches();
    let node = json!({ "metadata": { "name": "n2" }, "spec": { "providerID": "fake://n2" } });
    world.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    drop(calls(&world));
    pass(Duration::from_mins(2)).await;
    assert_eq!(calls(&world), Vec::<String>::new());
    world.server.set_faults(None);
    pass(Duration::from_mins(2)).await;
    let mut made = calls(&world);
    made.sort();
    assert_eq!(made, [1, 2, 3, 4].map(|n| format!("update default/s{n} nodes=n1,n2")));
}

/// A provider ID is immutable, so these are other nodes with the same names.
#[tokio::test(start_paused = true)]
async fn s5_1_other_provider_ids_of_the_same_names_are_another_set() {
    let world = with_web(&["a", "b"]).await;
    world.add_service("two", json!({})).await;
    pass(10 * S).await;
    drop(calls(&world));
    for name in ["a", "b"] {
        world.delete_node(name).await;
        world.add_raw_node(name, json!({ "providerID": format!("fake://new-{name}") })).await;
    }
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/two nodes=a,b", "update default/web nodes=a,b"]);
}

#[tokio::test(start_paused = true)]
async fn s5_2_identical_nodes_cause_no_update() {
    let world = with_web(&["a"]).await;
    world.add_raw_node("b", json!({ "providerID": "fake:///a/special/id" })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/web nodes=a,b"]);
    world.delete_node("b").await;
    world.add_raw_node("b", json!({ "providerID": "fake:///a/special/id" })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s5_3_a_node_replaced_by_one_of_another_name_is_another_set() {
    let world = with_web(&["a", "b"]).await;
    world.add_service("two", json!({})).await;
    pass(10 * S).await;
    drop(calls(&world));
    world.delete_node("b").await;
    world.add_raw_node("c", json!({ "providerID": "fake://b" })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["update default/two nodes=a,c", "update default/web nodes=a,c"]);
}

/// A slow update of A must not write the older set to B after B's newer ensure: each call uses the
/// current set, not that of its trigger. Upstream's test ends before A gets the third node.
#[tokio::test(start_paused = true)]
async fn s11_a_slow_node_sync_writes_no_older_set_after_a_newer_ensure() {
    let world = with_nodes(&["n1"]).await;
    world.add_service("a", json!({})).await;
    world.add_service("b", json!({})).await;
    pass(10 * S).await;
    drop(calls(&world));
    world.fake().on_call(|line| {
        let slow = line == "update default/a nodes=n1,n2";
        Box::pin(async move {
            if slow {
                pass(30 * S).await;
            }
        })
    });
    world.add_node("n2").await;
    pass(5 * S).await;
    world.add_node("n3").await;
    touch(&world, "b", "1").await;
    pass(60 * S).await;
    let expected = [
        "update default/a nodes=n1,n2",
        "ensure default/b ports=80/TCP nodes=n1,n2,n3",
        "update default/a nodes=n1,n2,n3",
    ];
    assert_eq!(calls(&world), expected);
}
