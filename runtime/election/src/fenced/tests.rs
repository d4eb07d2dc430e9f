//! Which requests a closed fence allows, on the in-memory API.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use skysail_dev::api::{ApiOptions, ApiServer, Fault, RequestInfo};
use skysail_provider::{Fence, FenceClosed};
use tokio::time::Instant;

use super::fenced;

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

fn is_blocked<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> bool {
    matches!(result, Err(kube::Error::Service(cause)) if cause.is::<FenceClosed>())
}

#[tokio::test]
async fn a_closed_fence_blocks_each_write_and_no_read() {
    let server = ApiServer::new(&ApiOptions::default());
    let hand = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&hand);
    let fence = Fence::until(move || Duration::from_secs(clock.load(Ordering::SeqCst)), Duration::from_secs(1));
    let api: Api<ConfigMap> = Api::namespaced(fenced(&server.client(), fence), "default");
    api.create(&PostParams::default(), &map("before")).await.unwrap();
    let revision = server.revision();

    hand.store(1, Ordering::SeqCst);
    assert!(is_blocked(api.create(&PostParams::default(), &map("after")).await));
    assert!(is_blocked(api.replace("before", &PostParams::default(), &map("before")).await));
    let patch = Patch::Merge(json!({ "data": { "a": "b" } }));
    assert!(is_blocked(api.patch("before", &PatchParams::default(), &patch).await));
    assert!(is_blocked(api.delete("before", &DeleteParams::default()).await));
    assert!(is_blocked(api.delete_collection(&DeleteParams::default(), &ListParams::default()).await));
    assert_eq!(server.revision(), revision, "nothing was written");
    assert_eq!(api.get("before").await.unwrap().metadata.name.unwrap(), "before");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

/// As in a process that was frozen between two steps of a request.
#[tokio::test(start_paused = true)]
async fn a_running_write_is_aborted_when_the_fence_closes() {
    let server = ApiServer::new(&ApiOptions::default());
    let slow = |request: &RequestInfo| match request.verb {
        "create" => Fault::Latency(Duration::from_secs(5)),
        _ => Fault::None,
    };
    server.set_faults(Some(Arc::new(slow)));
    let begin = Instant::now();
    let fence = Fence::until(move || begin.elapsed(), Duration::from_secs(3));
    let api: Api<ConfigMap> = Api::namespaced(fenced(&server.client(), fence), "default");
    assert!(is_blocked(api.create(&PostParams::default(), &map("late")).await));
    assert_eq!(api.get_opt("late").await.unwrap(), None);
}

#[tokio::test]
async fn errors_of_the_api_are_returned_unchanged() {
    let server = ApiServer::new(&ApiOptions::default());
    let api: Api<ConfigMap> = Api::namespaced(fenced(&server.client(), Fence::default()), "default");
    api.create(&PostParams::default(), &map("a")).await.unwrap();
    let error = api.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
}
