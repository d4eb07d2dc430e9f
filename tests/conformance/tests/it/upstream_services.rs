//! Upstream's tests of the service controller (S1, S6 to S9, S14, S19, H11, H12), expressed by
//! their visible effects.
//!
//! Those of nodes (S2 to S5, S11) are in `upstream_services_nodes`; those of pure predicates (S10,
//! S12, S13, S15 to S18, H10, H13) are next to the functions, in `runtime/controllers`.
//! IDs: tests/conformance/README.md.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use expect_test::expect;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::{Value, json};
use skysail_controllers::EnabledControllers;
use skysail_dev::api::{Fault, RequestInfo};
use skysail_provider::{Code, Error, Ingress, LoadBalancerStatus, Service as ProviderService};
use tokio::time::Instant;

use skysail_test_conformance::world::{S, World, pass};

pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// A world with only the service controller and these nodes.
pub(crate) async fn with_nodes(nodes: &[&str]) -> World {
    let only_services = |controllers: &mut EnabledControllers| {
        controllers.cloud_node = false;
        controllers.cloud_node_lifecycle = false;
    };
    let world = World::new().set(|settings| only_services(&mut settings.controllers));
    for node in nodes {
        world.add_node(node).await;
    }
    world.start().await
}

/// The same with a Service `web` that has its load balancer.
pub(crate) async fn with_web(nodes: &[&str]) -> World {
    let mut world = with_nodes(nodes).await;
    world.add_service("web", json!({})).await;
    pass(10 * S).await;
    drop(world.transcript().await);
    drop(world.fake().take_calls());
    world
}

/// The calls about load balancers since the last call.
pub(crate) fn calls(world: &World) -> Vec<String> {
    let calls = world.fake().take_calls();
    calls.into_iter().filter(|call| !call.starts_with("describe") && !call.contains("-routes")).collect()
}

/// The number of writes of Services since the last call.
async fn patches(world: &mut World) -> usize {
    world.transcript().await.matches("api patch services").count()
}

/// Changes the Service so that `ensure` is necessary.
pub(crate) async fn touch(world: &World, name: &str, value: &str) {
    world.patch_service(name, json!({ "metadata": { "annotations": { "touched": value } } })).await;
}

pub(crate) async fn patch_node(world: &World, name: &str, patch: Value) {
    world.as_user(world.nodes().patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
}

/// When each call of this operation began, in milliseconds from now.
pub(crate) fn times(world: &World, operation: &'static str) -> Arc<Mutex<Vec<u128>>> {
    let (times, start) = (Arc::<Mutex<Vec<u128>>>::default(), Instant::now());
    let taken = Arc::clone(&times);
    world.fake().on_call(move |line| {
        if line.split(' ').next() == Some(operation) {
            taken.lock().unwrap().push(start.elapsed().as_millis());
        }
        Box::pin(async {})
    });
    times
}

#[rstest]
#[case::s1_1_no_load_balancer_wanted(json!({ "type": "ClusterIP" }))]
#[case::s1_5_class_set(json!({ "loadBalancerClass": "another.example/lb" }))]
#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ours_causes_no_call_and_no_write(#[case] spec: Value) {
    let mut world = with_nodes(&["a"]).await;
    world.add_service("web", spec).await;
    world.after(60 * S, expect![""]).await;
    assert_eq!(calls(&world), Vec::<String>::new());
}

#[rstest]
#[case::s1_2_udp("UDP")]
#[case::s1_3_tcp("TCP")]
#[case::s1_4_sctp("SCTP")]
#[tokio::test(start_paused = true)]
async fn a_wanted_load_balancer_is_created_with_two_patches(#[case] protocol: &str) {
    let mut world = with_nodes(&["a"]).await;
    world.add_service("web", json!({ "ports": [{ "port": 53, "protocol": protocol }] })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), [format!("ensure default/web ports=53/{protocol} nodes=a")]);
    assert_eq!(patches(&mut world).await, 2, "finalizer, status");
    let cloud = world.fake().cloud();
    assert_eq!(cloud.values().map(|lb| lb.service.as_str()).collect::<Vec<_>>(), ["default/web"]);
    assert_eq!(world.state("web").await, format!(r#"["203.0.113.1"] ["{FINALIZER}"]"#));
}

/// Upstream's case expects two PATCH requests: one clears the status, one removes the finalizer.
/// Since Kubernetes 1.29 the API server itself clears the status of a Service that is no longer of
/// type LoadBalancer, so this test expects the second one only.
#[tokio::test(start_paused = true)]
async fn s1_6_a_finalizer_and_no_load_balancer_wanted_is_cleaned_up() {
    let mut world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert_eq!(patches(&mut world).await, 1, "finalizer");
    assert_eq!(world.state("web").await, "[] []");
}

/// The finalizer is removed first; a foreign finalizer keeps the object, so that the following
/// write of the status is visible.
#[tokio::test(start_paused = true)]
async fn s1_7_a_service_being_deleted_is_cleaned_up_with_two_patches() {
    let mut world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "metadata": { "finalizers": [FINALIZER, "example.com/other"] } })).await;
    world.delete_service("web").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert_eq!(patches(&mut world).await, 2, "finalizer, status");
    assert_eq!(world.state("web").await, r#"[] ["example.com/other"]"#);
}

/// Creates a Service with the finalizer and, if there is one, this name of its provider; returns
/// how many patches its load balancer costs.
async fn patches_with_the_finalizer(provider: Option<&str>) -> usize {
    let mut world = with_nodes(&["a"]).await;
    let named = provider.map(|name| json!({ "skysail.dev/load-balancer-provider": name }));
    let metadata = json!({ "name": "web", "finalizers": [FINALIZER], "annotations": named });
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    let object = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
    world.as_user(world.services().create(&PostParams::default(), &object)).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a"]);
    assert_eq!(world.state("web").await, format!(r#"["203.0.113.1"] ["{FINALIZER}"]"#));
    let holder = world.as_user(world.services().get("web")).await.metadata.annotations.unwrap_or_default();
    assert_eq!(holder.get("skysail.dev/load-balancer-provider").map(String::as_str), Some("fake"));
    patches(&mut world).await
}

/// Upstream writes only the status. Here the annotation with the provider's name is written first:
/// `holder.rs`.
#[tokio::test(start_paused = true)]
async fn s1_8_a_service_with_the_finalizer_gets_its_providers_name_and_its_status_in_two_patches() {
    assert_eq!(patches_with_the_finalizer(None).await, 2, "annotation, status");
}

#[tokio::test(start_paused = true)]
async fn a_service_with_the_finalizer_and_its_providers_name_gets_its_status_in_one_patch() {
    assert_eq!(patches_with_the_finalizer(Some("fake")).await, 1, "status");
}

#[tokio::test(start_paused = true)]
async fn s6_1_a_valid_service_is_reconciled_without_an_error() {
    let mut world = with_nodes(&["a"]).await;
    world.add_service("web", json!({})).await;
    world
        .after(
            60 * S,
            expect![[r#"
                api patch services/status web
                provider ensure default/web ports=80/TCP nodes=a
                api patch services/status web
                event web Normal EnsuringLoadBalancer x1: Ensuring load balancer
                event web Normal EnsuredLoadBalancer x1: Ensured load balancer
            "#]],
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn s6_2_a_changed_load_balancer_ip_reaches_the_provider_and_the_status() {
    let world = with_web(&["a"]).await;
    let wanted = |service: &ProviderService| Ingress { ip: service.load_balancer_ip.clone(), ..Ingress::default() };
    world.fake().answer_ensure(move |service| LoadBalancerStatus { ingress: vec![wanted(service)] });
    world.patch_service("web", json!({ "spec": { "loadBalancerIP": "192.0.2.77" } })).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a"]);
    assert!(world.state("web").await.contains("192.0.2.77"));
}

/// Upstream fails with "failed to update load balancer status", emits an Event and ensures again.
/// Here only the status is written again, from the new object, without a second call and without an
/// Event.
#[tokio::test(start_paused = true)]
async fn s7_1_a_status_is_written_again_after_a_conflict_without_a_second_ensure() {
    let mut world = with_nodes(&["a"]).await;
    let services = world.services();
    world.fake().on_call(move |line| {
        let (ensuring, services) = (line.starts_with("ensure "), services.clone());
        Box::pin(async move {
            if ensuring {
                let patch = json!({ "metadata": { "labels": { "somebody": "else" } } });
                services.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            }
        })
    });
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a"]);
    assert!(world.state("web").await.contains("203.0.113.1"));
    assert!(!world.transcript().await.contains("Warning"));
    let refused = |r: &&skysail_dev::api::Request| r.info.subresource == "status" && r.status.as_u16() == 409;
    assert_eq!(world.server.requests().recent().iter().filter(refused).count(), 1);
}

/// Removes the finalizer and deletes the object while its load balancer is being ensured.
pub(crate) fn vanish_during_ensure(world: &World, name: &'static str) {
    let services = world.services();
    world.fake().on_call(move |line| {
        let (ensuring, services) = (line.starts_with("ensure "), services.clone());
        Box::pin(async move {
            if ensuring {
                let patch = json!({ "metadata": { "finalizers": null } });
                services.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
                services.delete(name, &DeleteParams::default()).await.unwrap();
            }
        })
    });
}

#[tokio::test(start_paused = true)]
async fn s7_2_a_status_of_a_deleted_object_is_no_failure() {
    let mut world = with_nodes(&["a"]).await;
    vanish_during_ensure(&world, "web");
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    assert!(world.server.requests().recent().iter().any(|r| r.info.verb == "patch" && r.status.as_u16() == 404));
    assert!(!world.transcript().await.contains("Warning"));
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a", "ensure-deleted default/web"]);
}

#[tokio::test(start_paused = true)]
async fn s8_2_the_load_balancer_of_a_deleted_service_is_deleted_and_its_ledger_entry_removed() {
    let mut world = with_nodes(&["a"]).await;
    vanish_during_ensure(&world, "web");
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    assert!(world.fake().cloud().is_empty());
    let events = world.transcript().await;
    let (deleting, deleted) = (events.find("DeletingLoadBalancer"), events.find("DeletedLoadBalancer"));
    assert!(deleting.is_some() && deleting < deleted, "{events}");
    drop(calls(&world));
    world.add_node("b").await;
    pass(60 * S).await;
    assert_eq!(calls(&world), Vec::<String>::new(), "the ledger entry is removed");
}

#[tokio::test(start_paused = true)]
async fn s9_1_a_service_without_a_load_balancer_is_deleted_without_a_call() {
    let mut world = with_nodes(&["a"]).await;
    world.add_service("plain", json!({ "type": "ClusterIP" })).await;
    world.add_service("others", json!({ "loadBalancerClass": "another.example/lb" })).await;
    world.delete_service("plain").await;
    world.delete_service("others").await;
    world.after(60 * S, expect![""]).await;
    assert_eq!(calls(&world), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s9_2_a_failed_deletion_is_reported_with_its_error_and_retried() {
    let mut world = with_nodes(&["a"]).await;
    vanish_during_ensure(&world, "web");
    world.fake().fail_next("ensure-deleted", Error::new(Code::Unavailable, "the cloud is down"));
    world.add_service("web", json!({})).await;
    pass(4 * S).await;
    let events = world.transcript().await;
    let text = "event web Warning DeleteLoadBalancerFailed x1: Error deleting load balancer: failed to delete load balancer: the cloud is down\n";
    assert!(events.contains(text), "{events}");
    drop(calls(&world));
    pass(4 * S).await;
    assert_eq!(calls(&world), ["ensure-deleted default/web"]);
}

#[tokio::test(start_paused = true)]
async fn s9_3_a_deletion_that_succeeds_is_done_once() {
    let world = with_nodes(&["a"]).await;
    vanish_during_ensure(&world, "web");
    world.add_service("web", json!({})).await;
    pass(Duration::from_hours(1)).await;
    assert_eq!(calls(&world), ["ensure default/web ports=80/TCP nodes=a", "ensure-deleted default/web"]);
}

#[tokio::test(start_paused = true)]
async fn s14_1_a_present_finalizer_is_not_written_again() {
    let mut world = with_web(&["a"]).await;
    answer(&world, &["192.0.2.1"]);
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(patches(&mut world).await, 1, "status");
}

#[tokio::test(start_paused = true)]
async fn s14_5_a_present_address_is_not_written_again() {
    let mut world = with_web(&["a"]).await;
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(calls(&world).len(), 1, "ensured again");
    assert_eq!(patches(&mut world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn s14_2_an_absent_finalizer_is_written() {
    let world = with_nodes(&["a"]).await;
    world.fake().on_call(|_| Box::pin(pending()));
    world.add_service("web", json!({})).await;
    pass(S).await;
    assert_eq!(world.state("web").await, format!(r#"[] ["{FINALIZER}"]"#));
}

/// A user removed the finalizer of a Service that is being deleted.
#[tokio::test(start_paused = true)]
async fn s14_3_an_absent_finalizer_is_not_removed() {
    let mut world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "metadata": { "finalizers": [FINALIZER, "example.com/kept"] } })).await;
    world.fake().fail_always("ensure-deleted", Some(Error::new(Code::Internal, "the cloud is down")));
    world.delete_service("web").await;
    world.patch_service("web", json!({ "metadata": { "finalizers": ["example.com/kept"] } })).await;
    pass(S).await;
    world.fake().fail_always("ensure-deleted", None);
    pass(60 * S).await;
    assert!(world.fake().cloud().is_empty(), "the load balancer is found by the UID of the Service");
    assert_eq!(patches(&mut world).await, 1, "status");
    assert_eq!(world.state("web").await, r#"[] ["example.com/kept"]"#);
}

/// One write removed the finalizer and changed the type. Upstream deletes the load balancer too,
/// and leaks it if the process ends before.
#[tokio::test(start_paused = true)]
async fn before_a_deletion_the_finalizer_that_a_user_removed_is_written() {
    let mut world = with_web(&["a"]).await;
    let patch = json!({ "metadata": { "finalizers": null }, "spec": { "type": "ClusterIP" } });
    world.patch_service("web", patch).await;
    pass(60 * S).await;
    assert_eq!(calls(&world), ["get default/web", "ensure-deleted default/web"]);
    assert!(world.fake().cloud().is_empty(), "the load balancer is found by the UID of the Service");
    assert_eq!(patches(&mut world).await, 2, "the finalizer is written, and removed");
    assert_eq!(world.state("web").await, "[] []");
}

#[tokio::test(start_paused = true)]
async fn s14_4_a_present_finalizer_is_removed() {
    let mut world = with_web(&["a"]).await;
    world.patch_service("web", json!({ "spec": { "type": "NodePort" } })).await;
    pass(60 * S).await;
    assert_eq!(patches(&mut world).await, 1);
    assert_eq!(world.state("web").await, "[] []");
}

fn answer(world: &World, ips: &'static [&str]) {
    let ingress = |ip: &&str| Ingress { ip: Some((*ip).to_owned()), ..Ingress::default() };
    world.fake().answer_ensure(move |_| LoadBalancerStatus { ingress: ips.iter().map(ingress).collect() });
}

#[tokio::test(start_paused = true)]
async fn s14_6_an_empty_status_gets_its_address() {
    let mut world = with_nodes(&["a"]).await;
    answer(&world, &[]);
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    assert_eq!(patches(&mut world).await, 1, "finalizer");
    answer(&world, &["192.0.2.1"]);
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(patches(&mut world).await, 1, "status");
    assert!(world.state("web").await.contains("192.0.2.1"));
}

#[tokio::test(start_paused = true)]
async fn s14_7_an_empty_status_that_stays_empty_is_not_written() {
    let mut world = with_nodes(&["a"]).await;
    answer(&world, &[]);
    world.add_service("web", json!({})).await;
    pass(60 * S).await;
    drop(world.transcript().await);
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(patches(&mut world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn s14_8_a_removed_address_is_written() {
    let mut world = with_web(&["a"]).await;
    answer(&world, &[]);
    touch(&world, "web", "1").await;
    pass(60 * S).await;
    assert_eq!(patches(&mut world).await, 1);
    assert_eq!(world.state("web").await, format!(r#"[] ["{FINALIZER}"]"#));
}

#[tokio::test(start_paused = true)]
async fn s19_1_a_successful_reconcile_is_not_requeued() {
    let world = with_nodes(&["a"]).await;
    let times = times(&world, "ensure");
    world.add_service("web", json!({})).await;
    pass(Duration::from_hours(2)).await;
    assert_eq!(*times.lock().unwrap(), [0]);
}

#[tokio::test(start_paused = true)]
async fn s19_2_a_plain_error_waits_5_s_doubled_up_to_300_s() {
    let world = with_nodes(&["a"]).await;
    let times = times(&world, "ensure");
    world.fake().fail_always("ensure", Some(Error::new(Code::Internal, "a surprise")));
    world.add_service("web", json!({})).await;
    pass(Duration::from_mins(16)).await;
    let seconds: Vec<u128> = times.lock().unwrap().iter().map(|ms| ms / 1000).collect();
    assert_eq!(seconds, [0, 5, 15, 35, 75, 155, 315, 615, 915]);
}

/// Upstream also emits a Warning; here a retry-after emits none.
#[tokio::test(start_paused = true)]
async fn s19_3_a_retry_after_is_exact_and_does_not_count_as_a_failure() {
    let mut world = with_nodes(&["a"]).await;
    let times = times(&world, "ensure");
    let fake = world.fake();
    fake.fail_next("ensure", Error::retry_after(42 * S, "being built"));
    fake.fail_next("ensure", Error::new(Code::Internal, "a surprise"));
    world.add_service("web", json!({})).await;
    pass(41 * S).await;
    assert!(!world.transcript().await.contains("Warning"));
    pass(60 * S).await;
    assert_eq!(*times.lock().unwrap(), [0, 42_000, 47_000], "after the retry-after the first failure waits 5 s");
}

async fn object(world: &World) -> Value {
    let object: Service = world.as_user(world.services().get("web")).await;
    let mut object = serde_json::to_value(object).unwrap();
    for bookkeeping in ["resourceVersion", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().remove(bookkeeping);
    }
    object
}

/// Writes of other clients during a call are kept, and no field of the spec is ever written.
#[tokio::test(start_paused = true)]
async fn h11_patches_apply_finalizer_and_status_and_keep_other_fields() {
    let world = with_nodes(&["a"]).await;
    let services = world.services();
    world.fake().on_call(move |line| {
        let (ensuring, services) = (line.starts_with("ensure "), services.clone());
        Box::pin(async move {
            if ensuring {
                let patch =
                    json!({ "metadata": { "annotations": { "theirs": "1" } }, "spec": { "selector": { "app": "new" } } });
                services.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            }
        })
    });
    world.add_service("web", json!({ "selector": { "app": "old" } })).await;
    let cluster_ip = object(&world).await["spec"]["clusterIP"].clone();
    pass(60 * S).await;
    let object = object(&world).await;
    assert_eq!(object["metadata"]["annotations"]["theirs"], "1");
    assert_eq!(object["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(object["status"]["loadBalancer"]["ingress"][0]["ip"], "203.0.113.1");
    assert_eq!(object["spec"]["selector"], json!({ "app": "new" }));
    assert_eq!(object["spec"]["clusterIP"], cluster_ip);
}

/// Upstream sends a strategic patch with an element-order directive and without a resource version;
/// here the patch has the whole list and the resource version. The effect is the same: one more
/// finalizer at the end, and additionally our annotations.
#[tokio::test(start_paused = true)]
async fn h12_the_finalizer_patch_changes_nothing_but_the_finalizers() {
    let world = with_nodes(&["a"]).await;
    world.fake().on_call(|_| Box::pin(pending()));
    world.add_service("web", json!({ "type": "ClusterIP" })).await;
    world.patch_service("web", json!({ "metadata": { "finalizers": ["example.com/foo"] } })).await;
    world.server.set_faults(Some(Arc::new(|r: &RequestInfo| match r.subresource.as_str() {
        "status" => Fault::unavailable(),
        _ => Fault::None,
    })));
    let wish = json!({ "spec": { "type": "LoadBalancer" } });
    world.services().patch("web", &PatchParams::default(), &Patch::Merge(&wish)).await.unwrap();
    pass(S).await;
    let mut before = object(&world).await;
    pass(10 * S).await;
    let after = object(&world).await;
    before["metadata"]["finalizers"] = json!(["example.com/foo", FINALIZER]);
    before["metadata"]["annotations"] = json!({
        "skysail.dev/load-balancer-provider": "fake", "skysail.dev/load-balancer-made-for": before["metadata"]["uid"],
    });
    assert_eq!(after, before);
}
