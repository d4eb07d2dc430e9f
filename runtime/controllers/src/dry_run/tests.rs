//! Writes to the Kubernetes API are held back and answered.

use std::{convert::Infallible, sync::Arc};

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};

use super::api::holding;
use crate::held::DryRuns;

/// A client of an API server that has this object and refuses every write.
fn client_of(object: Value) -> Client {
    let object = Arc::new(object);
    let service = tower::service_fn(move |request: Request<Body>| {
        let object = Arc::clone(&object);
        async move {
            assert_eq!(request.method(), Method::GET, "{} was sent", request.uri());
            let body = Body::from(serde_json::to_vec(&*object).unwrap());
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    Client::new(service, "default")
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n1", "resourceVersion": "7", "uid": "u", "labels": { "a": "1", "b": "2" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "NetworkUnavailable", "status": "True" }] },
    })
}

fn held(object: Value) -> (DryRuns, Client) {
    let dry_runs = DryRuns::default();
    let client = holding(&client_of(object), dry_runs.clone());
    (dry_runs, client)
}

/// Method, path, and the values at the pointer before and after, of each write.
fn writes(dry_runs: &DryRuns, pointer: &str) -> Vec<(String, String, Value, Value)> {
    let value = |object: &Value| object.pointer(pointer).cloned().unwrap_or_default();
    let entries = dry_runs.entries();
    let writes = entries.iter().flat_map(|entry| &entry.writes);
    writes.map(|write| (write.method.clone(), write.path.clone(), value(&write.before), value(&write.after))).collect()
}

#[tokio::test]
async fn a_merge_patch_is_answered_with_the_object_as_it_would_be_and_not_sent() {
    let (dry_runs, client) = held(node());
    let nodes = Api::<core::Node>::all(client);
    // An older version than the object has: a manager would plan again.
    let patch = json!({ "metadata": { "labels": { "a": null, "c": "3" }, "resourceVersion": "6", "uid": "u" } });
    let answer = nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let after = json!({ "b": "2", "c": "3" });
    assert_eq!(json!(answer.metadata.labels), after);
    assert_eq!(answer.metadata.resource_version.as_deref(), Some("7"));
    let path = "/api/v1/nodes/n1".to_owned();
    let before = json!({ "a": "1", "b": "2" });
    assert_eq!(writes(&dry_runs, "/metadata/labels"), [("PATCH".to_owned(), path, before, after)]);
}

#[tokio::test]
async fn a_later_patch_changes_the_object_that_an_earlier_one_would_have_left() {
    let (dry_runs, client) = held(node());
    let nodes = Api::<core::Node>::all(client);
    for label in ["x", "y"] {
        let patch = json!({ "metadata": { "labels": { label: "new" } } });
        nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let last = writes(&dry_runs, "/metadata/labels").pop().unwrap();
    assert_eq!(last.2, json!({ "a": "1", "b": "2", "x": "new" }));
    assert_eq!(last.3, json!({ "a": "1", "b": "2", "x": "new", "y": "new" }));
}

#[tokio::test]
async fn a_patch_that_changes_nothing_is_no_change() {
    let (dry_runs, client) = held(node());
    let patch = json!({ "metadata": { "labels": { "a": "1" } } });
    let nodes = Api::<core::Node>::all(client);
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(dry_runs.entries(), []);
}

#[tokio::test]
async fn a_strategic_merge_patch_merges_conditions_by_their_type() {
    let (dry_runs, client) = held(node());
    let patch = json!({ "status": { "conditions": [{ "type": "NetworkUnavailable", "status": "False" }] } });
    let nodes = Api::<core::Node>::all(client);
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    let after = json!([{ "type": "Ready", "status": "True" }, { "type": "NetworkUnavailable", "status": "False" }]);
    let written = writes(&dry_runs, "/status/conditions");
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].1.as_str(), &written[0].3), ("/api/v1/nodes/n1/status", &after));
}

#[tokio::test]
async fn a_deletion_is_answered_with_success_and_not_sent() {
    let (dry_runs, client) = held(node());
    let nodes = Api::<core::Node>::all(client);
    assert!(nodes.delete("n1", &DeleteParams::default()).await.unwrap().is_right());
    let written = writes(&dry_runs, "");
    assert_eq!((written[0].0.as_str(), &written[0].3), ("DELETE", &Value::Null));
}

#[tokio::test]
async fn a_write_of_another_kind_fails_and_is_not_sent() {
    let (dry_runs, client) = held(json!({}));
    let events = Api::<core::Event>::namespaced(client, "default");
    let error = events.create(&PostParams::default(), &core::Event::default()).await.unwrap_err();
    assert!(error.to_string().contains("cannot hold back POST /api/v1/namespaces/default/events"), "{error}");
    assert_eq!(dry_runs.entries(), []);
}
