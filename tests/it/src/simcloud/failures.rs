//! Tests of a cloud that fails, refuses and loses responses: the provider returns the right error,
//! and the next call completes the interrupted work.

use skysail_dev::cloud::{Failures, Knobs};
use skysail_provider::{Code, Detail, NodeSet};
use tokio::time::Duration;

use super::{CLUSTER, World, node, service, set};

/// One request fails after `after` requests that succeed; all later ones succeed.
fn one_failure(after: u32, writes_only: bool, carried_out: bool) -> Knobs {
    let fail = Failures { after, count: 1, status: 500, writes_only, carried_out };
    Knobs { fail: Some(fail), ..Knobs::default() }
}

/// Each of the requests that can fail, with and without being carried out.
fn places(requests: u32) -> impl Iterator<Item = (u32, bool)> {
    (0..requests).flat_map(|after| [(after, false), (after, true)])
}

/// Exactly one load balancer with both ports.
#[track_caller]
fn one_whole(world: &World, place: (u32, bool)) {
    let snapshot = world.cloud.snapshot();
    assert_eq!((snapshot.elastic_ips.len(), snapshot.virtual_servers.len()), (1, 2), "{place:?}");
    let whole = |count| snapshot.virtual_servers.iter().all(|server| server.real_servers.len() == count);
    assert!(whole(1), "{place:?}: {snapshot:?}");
}

async fn fails_once(world: &World, nodes: &NodeSet, knobs: Knobs) {
    world.turn(knobs);
    let error = world.ensure(&service("a"), nodes).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert_eq!(world.cloud.knobs().fail, None, "the failure must have occurred");
}

#[tokio::test]
async fn the_next_ensure_completes_an_interrupted_one_without_duplicates() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    // Two requests that list and three that write.
    for place in places(5) {
        fails_once(&world, &nodes, one_failure(place.0, false, place.1)).await;
        let status = world.ensure(&service("a"), &nodes).await.unwrap();
        one_whole(&world, place);
        assert_eq!(status.ingress[0].ip, Some(world.cloud.snapshot().elastic_ips[0].address.to_string()));
        world.ensure_deleted(&service("a")).await.unwrap();
        assert!(world.cloud.snapshot().has_no_load_balancers());
    }
}

#[tokio::test]
async fn ensure_deleted_after_an_interrupted_ensure_leaves_nothing() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    for place in places(3) {
        fails_once(&world, &nodes, one_failure(place.0, true, place.1)).await;
        assert_eq!(world.cloud.snapshot().has_no_load_balancers(), place == (0, false), "{place:?}");
        assert_eq!(world.inventory().list(&world.call, CLUSTER).await.unwrap().len(), usize::from(place != (0, false)));
        assert_eq!(world.ensure_deleted(&service("a")).await, Ok(()));
        assert!(world.cloud.snapshot().has_no_load_balancers(), "{place:?}");
    }
}

#[tokio::test]
async fn the_next_ensure_completes_an_interrupted_change() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let mut changed = service("a");
    changed.ports[1].port += 1;
    changed.source_ranges = vec!["10.0.0.0/8".to_owned()];
    // The requests delete the old port, change the remaining port and create the new port.
    for place in places(3) {
        world.ensure(&service("a"), &nodes).await.unwrap();
        world.turn(one_failure(place.0, true, place.1));
        assert_eq!(world.ensure(&changed, &nodes).await.unwrap_err().code, Code::Unavailable);
        world.ensure(&changed, &nodes).await.unwrap();
        one_whole(&world, place);
        let servers = world.cloud.snapshot().virtual_servers;
        assert!(servers.iter().all(|server| server.allowed_sources == ["10.0.0.0/8"]));
        assert!(servers.iter().any(|server| server.port == changed.ports[1].port));
        world.ensure_deleted(&changed).await.unwrap();
    }
}

#[tokio::test]
async fn the_next_ensure_deleted_completes_an_interrupted_one() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    for place in places(3) {
        world.ensure(&service("a"), &nodes).await.unwrap();
        world.turn(one_failure(place.0, true, place.1));
        let error = world.ensure_deleted(&service("a")).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "an interrupted deletion must not succeed");
        assert_eq!(world.ensure_deleted(&service("a")).await, Ok(()));
        assert!(world.cloud.snapshot().has_no_load_balancers(), "{place:?}");
    }
}

#[tokio::test]
async fn too_many_requests_return_retry_after() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    world.turn(Knobs { requests_per_second: Some(0), ..Knobs::default() });
    let error = world.ensure(&service("a"), &nodes).await.unwrap_err();
    assert_eq!((error.code, error.retry_after), (Code::RetryAfter, Some(Duration::from_secs(1))));
    assert!(world.cloud.requests().iter().all(|record| record.status == 429));
    world.turn(Knobs::default());
    world.ensure(&service("a"), &nodes).await.unwrap();
    one_whole(&world, (0, false));
}

#[tokio::test]
async fn an_expired_token_is_denied_and_never_not_found() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    world.ensure(&service("a"), &nodes).await.unwrap();
    world.cloud.expire_token();
    let describe = world.instances().describe(&world.call, &nodes, Detail::State).await;
    let codes = [
        describe.map(drop),
        world.ensure(&service("a"), &nodes).await.map(drop),
        world.ensure_deleted(&service("a")).await,
        world.balancers().get(&world.call, CLUSTER, &service("a")).await.map(drop),
        world.routes().list(&world.call, CLUSTER).await.map(drop),
        world.inventory().list(&world.call, CLUSTER).await.map(drop),
    ]
    .map(|result| result.unwrap_err().code);
    assert_eq!(codes, [Code::Denied; 6]);
    assert!(world.cloud.requests().iter().rev().take(6).all(|record| record.status == 401));
    one_whole(&world, (0, false));

    // The guest never sees the token: after the operator replaces it, the same guest succeeds.
    world.use_token(&world.cloud.renew_token());
    assert_eq!(world.ensure_deleted(&service("a")).await, Ok(()));
    assert!(world.cloud.snapshot().has_no_load_balancers());
}

#[tokio::test]
async fn a_read_only_token_is_denied_writes() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    world.ensure(&service("a"), &nodes).await.unwrap();
    world.use_token("sim-read-only");
    world.cloud.clear_requests();
    assert_eq!(world.ensure_deleted(&service("a")).await.unwrap_err().code, Code::Denied);
    assert_eq!(world.ensure(&service("b"), &nodes).await.unwrap_err().code, Code::Denied);
    assert!(
        world.cloud.requests().iter().all(|record| record.status == if record.method == "GET" { 200 } else { 403 })
    );
    let found = world.instances().describe(&world.call, &nodes, Detail::Metadata).await.unwrap();
    assert!(found[0].is_ok());
    one_whole(&world, (0, false));
}

#[tokio::test]
async fn a_broken_cloud_is_unavailable_and_says_nothing_about_any_node() {
    let world = World::new().await;
    let machine = world.cloud.add_instance("a", "zone-a").unwrap();
    let nodes = set(vec![node("a", Some(&machine.id)), node("gone", Some("i-999999"))]);
    for status in [500, 502, 503] {
        world.turn(Knobs { fail: Some(Failures { status, ..all() }), ..Knobs::default() });
        let outer = world.instances().describe(&world.call, &nodes, Detail::State).await.unwrap_err();
        assert_eq!(outer.code, Code::Unavailable);
        assert_eq!(world.ensure_deleted(&service("a")).await.unwrap_err().code, Code::Unavailable);
    }
}

fn all() -> Failures {
    Failures { after: 0, count: u32::MAX, status: 500, writes_only: false, carried_out: false }
}
