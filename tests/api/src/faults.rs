//! Features of only the in-memory server: faults, the log of requests, a paused clock.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use skysail_dev::api::{ApiOptions, ApiServer, Fault, RequestInfo};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_does_nothing_and_a_lost_answer_did_something() {
    let server = ApiServer::new(&ApiOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let Fault::Refuse(error) = Fault::unavailable() else { panic!("unavailable refuses") };
    server.set_faults(Some(Arc::new(move |request: &RequestInfo| match (request.verb, server_fault(request)) {
        ("create", true) => Fault::unavailable(),
        ("create", false) => Fault::LoseAnswer(error.clone()),
        _ => Fault::None,
    })));
    for _ in 0..2 {
        let failed = maps.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
        assert!(matches!(failed, kube::Error::Api(status) if status.code == 503));
    }
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(server.requests().count("create", "configmaps"), 2);
}

/// The first request of this thread is refused, later ones lose their answers.
fn server_fault(_: &RequestInfo) -> bool {
    thread_local!(static SEEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    SEEN.with(|seen| !seen.replace(true))
}

#[tokio::test(start_paused = true)]
async fn latency_passes_on_the_paused_clock_and_bookmarks_come_each_minute() {
    let server = ApiServer::new(&ApiOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    server.set_faults(Some(Arc::new(|_: &RequestInfo| Fault::Latency(Duration::from_secs(30)))));
    let began = tokio::time::Instant::now();
    maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    server.set_faults(None);
    let version = server.revision().to_string();
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
    let event = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Bookmark(_)), "{event:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_ends_after_its_events() {
    let server = ApiServer::new(&ApiOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    server.set_faults(Some(Arc::new(|_: &RequestInfo| Fault::DropWatchAfter(1))));
    let events: Vec<_> = maps.watch(&WatchParams::default(), "0").await.unwrap().try_collect().await.unwrap();
    assert_eq!(events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_ends_with_an_error_and_the_history_stays() {
    let server = ApiServer::new(&ApiOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let before = server.revision().to_string();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    server.set_faults(Some(Arc::new(|_: &RequestInfo| Fault::ExpireWatch)));
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), &before).await.unwrap());
    let event = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(&event, WatchEvent::Error(error) if error.code == 410), "{event:?}");
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_watch_shows_a_change_later_and_a_stale_list_shows_the_old_state() {
    let server = ApiServer::new(&ApiOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    server.set_faults(Some(Arc::new(|request: &RequestInfo| match request.verb {
        "watch" => Fault::DelayWatch(Duration::from_secs(3)),
        "list" => Fault::StaleList(1),
        _ => Fault::None,
    })));
    let version = server.revision().to_string();
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
    let began = tokio::time::Instant::now();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    for any in [ListParams::default().match_any(), ListParams::default()] {
        let stale = maps.list(&any).await.unwrap();
        assert!(stale.items.is_empty() && stale.metadata.resource_version.as_ref() == Some(&version), "{stale:?}");
    }
    let event = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(_)) && began.elapsed() == Duration::from_secs(3), "{event:?}");
    server.compact();
    assert_eq!(
        maps.list(&ListParams::default().match_any()).await.unwrap().items.len(),
        1,
        "nothing older is remembered"
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_requests_make_the_same_objects() {
    let run = async || {
        let maps: Api<ConfigMap> = Api::default_namespaced(ApiServer::new(&ApiOptions::default()).client());
        maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
        serde_json::to_string(&maps.list(&ListParams::default()).await.unwrap().items).unwrap()
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded() {
    let server = ApiServer::new(&ApiOptions { history_max: 3, ..ApiOptions::default() });
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let before = server.revision().to_string();
    for name in ["a", "b", "c", "d"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), &before).await.unwrap());
    let event = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Error(ref status) if status.code == 410), "{event:?}");
}
