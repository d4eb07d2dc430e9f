//! The budget of deletions: what a component makes of it is not the outcome of its call.

use std::time::Duration;

use skysail_host::http_client::DeletionLimit;
use skysail_provider::{Call, Code};

use super::{World, service};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_deletion_is_held_back_fails_without_a_fault_and_succeeds_when_it_is_let_through() {
    let mut world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let service = service("web");
    world.ensure(&service, &nodes).await.unwrap();
    world.deletions.limit_to(Some(DeletionLimit { deletions: 1, window: Duration::from_secs(5400) }));
    drop(world.requests());
    let error = world.ensure_deleted(&service).await.unwrap_err();
    assert!(error.holds_deletion && error.code == Code::RetryAfter, "{error:?}");
    assert!(error.retry_after.is_some_and(|after| after > Duration::from_secs(5000)), "{error:?}");
    assert_eq!(
        error.message,
        "spec.deletionBudget of the Provider simcloud allows 1 requests that delete something in 1h30m, and they are used up; nothing is deleted before the window has room"
    );
    let deletions = world.writes();
    assert_eq!(deletions.len(), 1, "{deletions:?}");
    assert!(deletions[0].starts_with("DELETE "), "{deletions:?}");
    // Nothing else is held back.
    world.ensure(&service, &nodes).await.unwrap();
    world.call = Call { lets_deletions_through: true, ..Call::default() };
    world.ensure_deleted(&service).await.unwrap();
    assert!(world.cloud.snapshot().has_no_load_balancers());
}
