//! The route controller, by the cases of upstream's tests and documentation.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use std::time::Duration;

use expect_test::expect;
use rstest::rstest;
use serde_json::json;
use skysail_controllers::{EnabledControllers, parse_cluster_cidr};
use skysail_provider::{Code, Error, Route};
use skysail_test_conformance::{
    routes::routes,
    world::{Cloud, S, World, pass},
};

const N1: &str = "n1 10.0.1.1 10.120.0.0/24";
const N2: &str = "n2 10.0.2.1 10.120.1.0/24";
const N3: &str = "n3 10.0.3.1 10.120.0.0/24,a00:100::/24";
const N4: &str = "n4 10.0.4.1 10.120.1.0/24,a00:200::/24";
const PLAIN: &str = "plain 10.0.9.1";

const RIGHT_OF_3_AND_4: [&str; 4] =
    ["n3 10.120.0.0/24 10.0.3.1", "n3 a00:100::/24 10.0.3.1", "n4 10.120.1.0/24 10.0.4.1", "n4 a00:200::/24 10.0.4.1"];
const RIGHT_OF_1_AND_2: [&str; 2] = ["n1 10.120.0.0/24 10.0.1.1", "n2 10.120.1.0/24 10.0.2.1"];

fn routing() -> World {
    World::routing(vec![Cloud::new("fake").default_of_all()])
}

/// The nodes, and the cloud's routes before and after one pass; a second pass then changes nothing.
/// Each node with a pod CIDR becomes available (upstream lists that too, but its assertion never
/// runs); a node without one stays unchanged.
#[rstest]
#[case::r2_1_dual_stack_addresses_are_missing(
    &[N3, N4],
    &["n3 10.120.0.0/24 =", "n4 10.120.1.0/24 =", "n3 a00:100::/24 =", "n4 a00:200::/24 ="],
    &RIGHT_OF_3_AND_4
)]
#[case::r2_2_dual_stack_addresses_are_old(
    &[N3, N4],
    &["n3 10.120.0.0/24 =10.9.9.1", "n4 10.120.1.0/24 =10.9.9.2", "n3 a00:100::/24 =10.9.9.1", "n4 a00:200::/24 =10.9.9.2"],
    &RIGHT_OF_3_AND_4
)]
#[case::r2_3_dual_stack_no_routes(&[N3, N4], &[], &RIGHT_OF_3_AND_4)]
#[case::r2_4_dual_stack_all_right(&[N3, N4], &RIGHT_OF_3_AND_4, &RIGHT_OF_3_AND_4)]
#[case::r2_5_dual_stack_swapped(
    &[N3, N4],
    &["n4 10.120.0.0/24", "n3 10.120.1.0/24", "n4 a00:100::/24", "n3 a00:200::/24"],
    &RIGHT_OF_3_AND_4
)]
#[case::r2_6_dual_stack_half_is_missing(
    &[N3, N4],
    &["n3 a00:100::/24 10.0.3.1", "n4 10.120.1.0/24 10.0.4.1"],
    &RIGHT_OF_3_AND_4
)]
#[case::r2_7_dual_stack_and_two_of_unknown_nodes(
    &[N3, N4],
    &[&RIGHT_OF_3_AND_4[..], &["x 10.120.2.0/24", "y a00:300::/24"]].concat(),
    &RIGHT_OF_3_AND_4
)]
#[case::r2_8_all_right(&[N1, N2], &RIGHT_OF_1_AND_2, &RIGHT_OF_1_AND_2)]
#[case::r2_9_addresses_are_old(
    &[N1, N2],
    &["n1 10.120.0.0/24 =10.9.9.1", "n2 10.120.1.0/24 =10.9.9.2"],
    &RIGHT_OF_1_AND_2
)]
#[case::r2_10_one_is_missing(&[N1, N2], &["n1 10.120.0.0/24 10.0.1.1"], &RIGHT_OF_1_AND_2)]
#[case::r2_11_no_routes(&[N1, N2], &[], &RIGHT_OF_1_AND_2)]
#[case::r2_12_two_of_unknown_nodes(
    &[N1, N2],
    &[&RIGHT_OF_1_AND_2[..], &["x 10.120.2.0/24", "y 10.120.3.0/24"]].concat(),
    &RIGHT_OF_1_AND_2
)]
#[case::r2_13_one_right_and_one_of_an_unknown_node(
    &[N1, N2],
    &["n1 10.120.0.0/24 10.0.1.1", "x 10.120.1.0/24"],
    &RIGHT_OF_1_AND_2
)]
#[case::r2_14_a_node_without_pod_cidr(&[N1, PLAIN], &[], &RIGHT_OF_1_AND_2[..1])]
#[tokio::test(start_paused = true)]
async fn the_cloud_has_the_routes_of_the_nodes(#[case] nodes: &[&str], #[case] start: &[&str], #[case] end: &[&str]) {
    let world = routing();
    for node in nodes {
        world.add_routed(node).await;
    }
    world.fake().set_routes(routes(start));
    let mut world = world.start().await;
    assert_eq!(world.routes(), end);
    for node in nodes {
        let name = node.split(' ').next().unwrap();
        let expected = if name == "plain" { "-" } else { "False RouteCreated" };
        assert_eq!(world.network_unavailable(name).await, expected, "{name}");
    }
    drop(world.transcript().await);
    world.after(10 * S, expect!["provider list-routes\n"]).await;
}

fn blackhole(cidr: &str) -> Route {
    Route { name: "hole".to_owned(), blackhole: true, destination_cidr: cidr.to_owned(), ..Route::default() }
}

#[rstest]
#[case::r2_15_in_the_cluster("10.120.2.0/24", false)]
#[case::r2_16_outside_of_the_cluster("10.1.2.0/24", true)]
#[tokio::test(start_paused = true)]
async fn a_blackhole_is_deleted_if_it_lies_in_the_cluster(#[case] cidr: &str, #[case] stays: bool) {
    let world = routing();
    world.add_routed(N1).await;
    world.add_routed(N2).await;
    world.fake().set_routes([routes(&RIGHT_OF_1_AND_2), vec![blackhole(cidr)]].concat());
    let world = world.start().await;
    let mut expected: Vec<String> = RIGHT_OF_1_AND_2.map(str::to_owned).into();
    if stays {
        expected.insert(0, format!("- {cidr}"));
    }
    assert_eq!(world.routes(), expected);
}

/// Upstream tries to create the second route in each pass, and marks the node as unavailable.
#[tokio::test(start_paused = true)]
async fn r2_17_a_repeated_pod_cidr_gets_one_route_and_one_event() {
    let world = routing();
    world.add_routed("n1 10.0.1.1 10.120.0.0/24,10.120.0.0/24").await;
    let mut world = world.start().await;
    world
        .after(
            60 * S,
            expect![[r#"
        provider list-routes
        provider create-routes n1=10.120.0.0/24
        api patch nodes/status n1
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        event n1 Warning InvalidPodCIDR x1: spec.podCIDRs contains 10.120.0.0/24 more than once; it gets one route
    "#]],
        )
        .await;
    assert_eq!(world.network_unavailable("n1").await, "False RouteCreated");
}

/// A world with the feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`, after the
/// first pass and its repetition.
async fn watched() -> World {
    let world = routing().set(|settings| settings.watch_based_routes = true);
    world.add_routed(N1).await;
    let mut world = world.start().await;
    pass(300 * S).await;
    drop(world.transcript().await);
    world
}

#[tokio::test(start_paused = true)]
async fn r3_1_with_the_gate_a_new_address_begins_a_pass() {
    let mut world = watched().await;
    world.readdress("n1", "10.0.1.2").await;
    world.after(S, expect!["provider list-routes\n"]).await;
    assert_eq!(
        world.metrics("route_controller_route_sync_total"),
        [
            r#"route_controller_route_sync_total{trigger="node_change",outcome="changed"} 1"#,
            r#"route_controller_route_sync_total{trigger="node_change",outcome="noop"} 2"#,
        ]
    );
    assert_eq!(
        world.metrics(r#"workqueue_adds_total{name="Routes""#),
        [r#"workqueue_adds_total{name="Routes",provider="fake"} 3"#]
    );
}

#[tokio::test(start_paused = true)]
async fn r3_2_with_the_gate_a_new_pod_cidr_begins_a_pass() {
    let mut world = watched().await;
    world.add_routed(PLAIN).await;
    pass(60 * S).await;
    drop(world.transcript().await);
    world.patch_node("plain", json!({ "spec": { "podCIDR": "10.120.9.0/24", "podCIDRs": ["10.120.9.0/24"] } })).await;
    world
        .after(
            S,
            expect![[r#"
        provider list-routes
        provider create-routes plain=10.120.9.0/24
        api patch nodes/status plain
    "#]],
        )
        .await;
}

/// Upstream's informer resyncs all nodes after 12 to 24 h. Here a timer triggers the pass.
#[tokio::test(start_paused = true)]
async fn r3_3_with_the_gate_a_pass_begins_after_twelve_hours_without_changes() {
    let mut world = watched().await;
    world.after(Duration::from_mins(12 * 60 - 4), expect![""]).await;
    world.after(2 * 60 * S, expect!["provider list-routes\n"]).await;
}

/// Upstream's test has equal resource versions, which count as a resync; with real versions this
/// change begins no pass.
#[tokio::test(start_paused = true)]
async fn r3_4_with_the_gate_images_and_heartbeats_begin_no_pass() {
    let mut world = watched().await;
    world.patch_status("n1", json!({ "images": [{ "names": ["pause"], "sizeBytes": 1 }] })).await;
    world.heartbeat("n1", "False").await;
    world.after(60 * 60 * S, expect![""]).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_gate_many_changes_cause_one_pass_in_ten_seconds() {
    let mut world = watched().await;
    for n in 0..20 {
        world.add_routed_node(&format!("m{n}"), "10.0.5.1", &format!("10.120.{}.0/24", 100 + n)).await;
        pass(S).await;
    }
    let passes = world.transcript().await.matches("list-routes").count();
    assert!((2..=3).contains(&passes), "{passes}");
    pass(10 * S).await;
    assert_eq!(world.routes().len(), 21);
    drop(world.transcript().await);
    // A deleted node begins a pass too.
    world.delete_node("m7").await;
    world
        .after(
            11 * S,
            expect![[r#"
        provider list-routes
        provider delete-routes m7=10.120.107.0/24
    "#]],
        )
        .await;
}

/// Upstream waits for the next event or resync, 12 to 24 h.
#[tokio::test(start_paused = true)]
async fn with_the_gate_a_failed_creation_of_a_route_is_retried() {
    let world = routing().set(|settings| settings.watch_based_routes = true);
    world.fake().fail_next("create-routes", Error::new(Code::Unavailable, "the cloud is away"));
    world.add_routed(N1).await;
    let world = world.start().await;
    assert_eq!(world.network_unavailable("n1").await, "True NoRouteCreated");
    pass(11 * S).await;
    assert_eq!(world.network_unavailable("n1").await, "False RouteCreated");
}

/// The other cases of R4 are next to the function, in `runtime/controllers/src/route/condition.rs`.
#[tokio::test(start_paused = true)]
async fn r4_1_a_node_without_conditions_gets_the_condition_of_its_routes_in_one_patch() {
    let world = routing();
    world.add_routed(N1).await;
    world.patch_status("n1", json!({ "conditions": null })).await;
    assert_eq!(world.node("n1").await.unwrap().status.unwrap().conditions, None);
    let mut world = world.start().await;
    let text = world.transcript().await;
    assert_eq!(text.matches("api patch nodes/status n1").count(), 1, "{text}");
    let conditions = world.node("n1").await.unwrap().status.unwrap().conditions.unwrap();
    let [ours] = conditions.as_slice() else { panic!("{conditions:?}") };
    assert_eq!((ours.type_.as_str(), ours.status.as_str()), ("NetworkUnavailable", "False"));
    assert_eq!(ours.reason.as_deref(), Some("RouteCreated"));
    assert_eq!(ours.message.as_deref(), Some("RouteController created a route"));
    assert!(ours.last_transition_time.is_some() && ours.last_heartbeat_time == ours.last_transition_time);
}

#[tokio::test(start_paused = true)]
async fn r4_9_a_condition_of_calico_is_replaced_once_and_other_conditions_stay() {
    let world = routing();
    world.add_routed(N1).await;
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m" });
    let since = "2026-01-01T00:00:00Z";
    let calico =
        json!({ "type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp", "lastTransitionTime": since });
    world.patch_status("n1", json!({ "conditions": [ready, calico] })).await;
    let mut world = world.start().await;
    let conditions = world.node("n1").await.unwrap().status.unwrap().conditions.unwrap();
    let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    assert_eq!(conditions.len(), 2);
    assert_eq!(condition("Ready").reason.as_deref(), Some("KubeletReady"));
    let ours = condition("NetworkUnavailable");
    assert_eq!(
        (ours.status.as_str(), ours.reason.as_deref(), ours.message.as_deref()),
        ("False", Some("RouteCreated"), Some("RouteController created a route"))
    );
    // Upstream sets the time of the write; the status did not change.
    assert_eq!(ours.last_transition_time.as_ref().unwrap().0.to_string(), since);
    assert!(ours.last_heartbeat_time.is_some());
    drop(world.transcript().await);
    world.after(20 * S, expect!["provider list-routes\nprovider list-routes\n"]).await;
}

/// Lessons 24 and 25: the cloud's list decides, and existing routes are not created again, also
/// after a restart.
#[tokio::test(start_paused = true)]
async fn a_restart_lists_the_routes_and_writes_nothing() {
    let world = routing();
    world.add_routed(N1).await;
    let world = world.start().await;
    let mut world = world.restart(|_| ()).await;
    drop(world.transcript().await);
    world
        .after(
            30 * S,
            expect![[r#"
        provider list-routes
        provider list-routes
        provider list-routes
    "#]],
        )
        .await;
    // Routes that were deleted in the cloud are created again.
    world.fake().set_routes(Vec::new());
    world
        .after(
            10 * S,
            expect![[r#"
        provider list-routes
        provider create-routes n1=10.120.0.0/24
    "#]],
        )
        .await;
    assert_eq!(world.routes(), RIGHT_OF_1_AND_2[..1]);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_causes_no_write_and_no_call() {
    let world = routing();
    world.add_routed(N1).await;
    let mut world = world.start().await;
    drop(world.transcript().await);
    for _ in 0..30 {
        world.beat("n1").await;
        pass(S).await;
    }
    assert_eq!(world.transcript().await, "provider list-routes\n".repeat(3));
}

/// The period is measured from begin to begin.
#[tokio::test(start_paused = true)]
async fn a_pass_that_takes_longer_than_the_period_is_followed_by_the_next_at_once() {
    let world = routing().set(|settings| settings.route_reconciliation_period = 20 * S);
    let world = world.start().await;
    let fake = world.fake().clone();
    fake.on_call(|_| Box::pin(pass(5 * S)));
    pass(Duration::from_millis(100 * 1000 - 500)).await;
    assert_eq!(fake.take_calls().len(), 5, "at 0, 20, 40, 60 and 80 s");
    fake.on_call(|_| Box::pin(pass(30 * S)));
    pass(100 * S).await;
    assert_eq!(fake.take_calls().len(), 4, "at 100, 130, 160 and 190 s");
}

#[tokio::test(start_paused = true)]
async fn b18_a_list_that_fails_ends_the_pass_and_deletes_nothing() {
    let world = routing();
    world.add_routed(N1).await;
    world.fake().set_routes(routes(&["x 10.120.7.0/24"]));
    world.fake().fail_next("list-routes", Error::new(Code::Unavailable, "the cloud is away"));
    let mut world = world.start().await;
    world.after(S, expect!["provider list-routes\n"]).await;
    assert_eq!(world.network_unavailable("n1").await, "-");
    world
        .after(
            10 * S,
            expect![[r#"
        provider list-routes
        provider delete-routes x=10.120.7.0/24
        provider create-routes n1=10.120.0.0/24
        api patch nodes/status n1
    "#]],
        )
        .await;
    assert_eq!(
        world.metrics("route_controller_route_sync_total"),
        [
            r#"route_controller_route_sync_total{trigger="periodic",outcome="changed"} 1"#,
            r#"route_controller_route_sync_total{trigger="periodic",outcome="error"} 1"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn b18_a_failed_creation_of_a_route_is_an_event_on_its_node_and_delays_no_other_route() {
    let world = routing();
    world.add_routed(N1).await;
    world.add_routed(N2).await;
    let refusal = Error::new(Code::Exhausted, "no more than 50 routes in this table");
    world.fake().fail_always("create-route 10.120.0.0/24", Some(refusal));
    let mut world = world.start().await;
    world.after(S, expect![[r#"
        provider list-routes
        provider create-routes n1=10.120.0.0/24,n2=10.120.1.0/24
        api patch nodes/status n1
        api patch nodes/status n2
        event n1 Warning FailedToCreateRoute x1: Could not create route 10.120.0.0/24 for node n1: no more than 50 routes in this table
    "#]]).await;
    assert_eq!(world.network_unavailable("n1").await, "True NoRouteCreated");
    assert_eq!(world.network_unavailable("n2").await, "False RouteCreated");
    // Each pass retries it; the condition is not written again.
    world.after(10 * S, expect![[r#"
        provider list-routes
        provider create-routes n1=10.120.0.0/24
        event n1 Warning FailedToCreateRoute x2: Could not create route 10.120.0.0/24 for node n1: no more than 50 routes in this table
    "#]]).await;
    world.fake().fail_always("create-route 10.120.0.0/24", None);
    world
        .after(
            10 * S,
            expect![[r#"
        provider list-routes
        provider create-routes n1=10.120.0.0/24
        api patch nodes/status n1
    "#]],
        )
        .await;
    assert_eq!(world.network_unavailable("n1").await, "False RouteCreated");
}

/// Upstream never deletes the second of two routes; routes that do not parse cause no error.
#[tokio::test(start_paused = true)]
async fn b18_routes_that_do_not_parse_stay_and_duplicates_are_deleted() {
    let world = routing();
    world.add_routed(N1).await;
    let lines = ["n1 10.120.0.0/24 10.0.1.1", "n1 10.120.0.0/24 10.0.1.1", "x pods", "x 10.120.7.0", "x 10.120.7.0/99"];
    world.fake().set_routes(routes(&lines));
    let mut world = world.start().await;
    world
        .after(
            S,
            expect![[r#"
        provider list-routes
        provider delete-routes n1=10.120.0.0/24
        api patch nodes/status n1
    "#]],
        )
        .await;
    assert_eq!(world.routes(), ["n1 10.120.0.0/24 10.0.1.1", "x 10.120.7.0", "x 10.120.7.0/99", "x pods"]);
}

#[tokio::test(start_paused = true)]
async fn b18_a_failed_deletion_of_a_route_delays_no_other_route() {
    let world = routing();
    world.add_routed(N1).await;
    world.fake().set_routes(routes(&["x 10.120.7.0/24", "x 10.120.8.0/24"]));
    world.fake().fail_always("delete-route 10.120.7.0/24", Some(Error::new(Code::Internal, "what")));
    let world = world.start().await;
    assert_eq!(world.routes(), ["n1 10.120.0.0/24 10.0.1.1", "x 10.120.7.0/24"]);
    assert_eq!(world.network_unavailable("n1").await, "False RouteCreated");
}

/// B20: each way to disable routes.
#[rstest]
#[case::b20_configure_cloud_routes_is_off(true, false, true)]
#[case::b20_the_controller_is_off(false, true, true)]
#[case::b20_the_provider_has_no_routes(true, true, false)]
#[tokio::test(start_paused = true)]
async fn without_routes_nothing_is_called_and_nothing_is_written(
    #[case] route: bool,
    #[case] configure_cloud_routes: bool,
    #[case] has_routes: bool,
) {
    let cloud = Cloud::new("fake").default_of_all();
    let cloud = if has_routes { cloud } else { cloud.without_routes() };
    let world = World::routing(vec![cloud]).set(|settings| {
        settings.controllers = EnabledControllers { route, ..settings.controllers };
        settings.configure_cloud_routes = configure_cloud_routes;
    });
    world.add_routed(N1).await;
    let mut world = world.start().await;
    world.after(60 * S, expect![""]).await;
}

/// Upstream's process does not start; here one provider must not end the process for the others. An
/// invalid value is refused (`parse_cluster_cidr`).
#[tokio::test(start_paused = true)]
async fn b20_without_a_cluster_cidr_no_node_gets_a_route_and_one_event_reports_it() {
    let world = routing().set(|settings| settings.cluster_cidrs.clear());
    world.add_routed(N1).await;
    world.fake().set_routes(routes(&["x 10.120.7.0/24"]));
    let mut world = world.start().await;
    world.after(60 * S, expect![[r#"
        event kube-system Warning RoutesNotConfigured x1: fake: The provider supports routes, but --cluster-cidr is not set, so no node gets a route. Set --cluster-cidr to the network of the pods, or disable routes with --configure-cloud-routes=false
    "#]]).await;
}

/// Lessons 49 and 50: the routes are not ours, so the condition is not written either.
#[tokio::test(start_paused = true)]
async fn a_wrong_cluster_cidr_is_an_event_on_each_node_and_taints_none() {
    let world = routing().set(|settings| settings.cluster_cidrs = parse_cluster_cidr("10.244.0.0/16").unwrap());
    world.add_routed(N1).await;
    world.add_routed(N3).await;
    world.fake().set_routes(routes(&["n1 10.120.0.0/24", "x 10.120.7.0/24"]));
    let mut world = world.start().await;
    world.after(60 * S, expect![[r#"
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        event n1 Warning InvalidPodCIDR x1: no route for the pod CIDR 10.120.0.0/24: it lies outside of --cluster-cidr 10.244.0.0/16. Correct --cluster-cidr, or disable routes with --configure-cloud-routes=false
        event n3 Warning InvalidPodCIDR x1: no route for the pod CIDR 10.120.0.0/24: it lies outside of --cluster-cidr 10.244.0.0/16. Correct --cluster-cidr, or disable routes with --configure-cloud-routes=false; no route for the pod CIDR a00:100::/24: it lies outside of --cluster-cidr 10.244.0.0/16. Correct --cluster-cidr, or disable routes with --configure-cloud-routes=false
    "#]]).await;
    assert_eq!(world.network_unavailable("n1").await, "-");
    assert_eq!(world.routes(), ["n1 10.120.0.0/24", "x 10.120.7.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_or_duplicate_pod_cidr_is_an_event_and_delays_no_other_node() {
    let world = routing();
    world.add_routed("bad 10.0.9.1 pods").await;
    world.add_routed("twin 10.0.9.2 10.120.0.0/24").await;
    world.add_routed(N1).await;
    let mut world = world.start().await;
    world.after(60 * S, expect![[r#"
        provider list-routes
        provider create-routes n1=10.120.0.0/24
        api patch nodes/status n1
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        provider list-routes
        event bad Warning InvalidPodCIDR x1: no route for "pods" in spec.podCIDRs: it is not a CIDR such as 10.244.3.0/24
        event twin Warning InvalidPodCIDR x1: no route for 10.120.0.0/24: the node n1 has the same pod CIDR and keeps its route. Delete one of the two nodes, so that it registers again with its own pod CIDR
    "#]]).await;
}
