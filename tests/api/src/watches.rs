//! Watches: what they show, in what order, and when they end.

use futures::AsyncBufReadExt as _;
use futures::TryStreamExt as _;
use http::Request;
use serde_json::{Value, json};

use crate::env::{Env, config_map};

/// Reads a watch until `enough` says so or it ends by its own timeout, which no test waits for.
async fn watch(env: &Env, query: &str, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    watch_at(env, &env.core("configmaps"), query, enough).await
}

async fn watch_at(env: &Env, path: &str, query: &str, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let request = Request::get(format!("{path}?watch=1&timeoutSeconds=120&{query}")).body(Vec::new()).unwrap();
    let mut lines = env.client.request_stream(request).await.unwrap().lines();
    let mut events = Vec::new();
    while let Some(line) = lines.try_next().await.unwrap() {
        events.push(serde_json::from_str(&line).unwrap());
        if enough(&events) {
            break;
        }
    }
    events
}

fn described(events: &[Value]) -> Vec<String> {
    let one = |e: &Value| {
        let name = e["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", e["type"].as_str().unwrap()).trim().to_owned()
    };
    events.iter().map(one).collect()
}

async fn version(env: &Env) -> String {
    env.get(&env.core("configmaps")).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

pub(crate) async fn a_watch_sees_what_happens_after_its_version(env: &Env) {
    env.post(&env.core("configmaps"), &config_map("before", &json!({}))).await.ok();
    let version = version(env).await;
    env.post(&env.core("configmaps"), &config_map("a", &json!({}))).await.ok();
    env.patch("merge", &env.core("configmaps/a"), &json!({"data": {"k": "v"}})).await.ok();
    env.delete(&env.core("configmaps/a"), &Value::Null).await.ok();
    let events = watch(env, &format!("resourceVersion={version}"), |e| e.len() == 3).await;
    assert_eq!(described(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    assert_eq!(events[2]["object"]["data"], json!({"k": "v"}), "a deletion shows the last state");
    let number = |e: &Value| e["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&events[0]) < number(&events[1]) && number(&events[1]) < number(&events[2]));
    let events = watch(env, "resourceVersion=0", |e| e.len() == 1).await;
    assert_eq!(described(&events), ["ADDED before"], "version 0 begins with what there is");
}

pub(crate) async fn a_selector_turns_changes_into_additions_and_deletions(env: &Env) {
    let version = version(env).await;
    env.post(&env.core("configmaps"), &config_map("a", &json!({}))).await.ok();
    let label = |value: Value| json!({"metadata": {"labels": {"on": value}}});
    env.patch("merge", &env.core("configmaps/a"), &label(json!("yes"))).await.ok();
    env.patch("merge", &env.core("configmaps/a"), &json!({"data": {"k": "v"}})).await.ok();
    env.patch("merge", &env.core("configmaps/a"), &label(Value::Null)).await.ok();
    let events = watch(env, &format!("resourceVersion={version}&labelSelector=on%3Dyes"), |e| e.len() == 3).await;
    assert_eq!(described(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
}

pub(crate) async fn a_streamed_list_ends_with_a_bookmark(env: &Env) {
    env.post(&env.core("configmaps"), &config_map("a", &json!({}))).await.ok();
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = watch(env, query, |e| e.len() == 2).await;
    assert_eq!(described(&events), ["ADDED a", "BOOKMARK"]);
    let metadata = &events[1]["object"]["metadata"];
    assert_eq!(metadata["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 1);
    assert_eq!((&events[1]["object"]["kind"], &events[1]["object"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let wrong = env.get(&env.core("configmaps?watch=1&sendInitialEvents=true")).await;
    wrong.refused(422, "Invalid", "sendInitialEvents");
}

pub(crate) async fn compacted_history_is_expired(env: &Env) {
    // A real server's history of a new resource begins with its definition; ours is thrown away.
    let path = crate::custom::serve(env).await;
    env.compact();
    let events = watch_at(env, &path, "resourceVersion=1", |e| e.len() == 1).await;
    assert_eq!(events[0]["type"], "ERROR", "{events:?}");
    let status = &events[0]["object"];
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert!(status["message"].as_str().unwrap().starts_with("too old resource version: 1 ("), "{status}");
}
