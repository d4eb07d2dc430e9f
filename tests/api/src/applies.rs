//! Server-side apply: creation, ownership, conflicts.

use serde_json::{Value, json};

use crate::env::Env;

fn service(ports: Value, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": labels}, "spec": {"ports": ports}})
}

fn owned<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().find(|e| e["manager"] == manager).map_or(&Value::Null, |e| &e["fieldsV1"])
}

pub(crate) async fn apply_creates_owns_and_removes(env: &Env) {
    let path = env.core("services/s?fieldManager=one");
    let unnamed = env.patch("apply", &env.core("services/s"), &json!({})).await;
    unnamed.refused(422, "Invalid", "fieldManager: Required value: is required for apply patch");
    let wanted = service(json!([{"name": "a", "port": 80}, {"name": "b", "port": 443}]), json!({"x": "1", "y": "2"}));
    let made = env.patch("apply", &path, &wanted).await;
    assert_eq!(made.code, 201);
    let made = made.ok();
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!((&entry["operation"], &entry["apiVersion"]), (&json!("Apply"), &json!("v1")));
    let expected = json!({
        "f:metadata": {"f:labels": {"f:x": {}, "f:y": {}}},
        "f:spec": {"f:ports": {
            "k:{\"port\":443,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}},
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}},
        }},
    });
    assert_eq!(owned(&made, "one"), &expected);
    assert_eq!(env.patch("apply", &path, &wanted).await.ok(), made, "applying the same again changes nothing");
    let fewer = service(json!([{"name": "a", "port": 80}]), json!({"x": "1"}));
    let shown = env.patch("apply", &path, &fewer).await.ok();
    assert_eq!(shown["metadata"]["labels"], json!({"x": "1"}));
    assert_eq!(shown["spec"]["ports"].as_array().unwrap().len(), 1);
    assert!(shown["spec"]["clusterIP"].is_string(), "a field that was not applied was removed");
}

pub(crate) async fn a_conflict_names_owner_and_field(env: &Env) {
    env.patch("apply", &env.core("services/s?fieldManager=one"), &service(json!([{"port": 80}]), json!({"x": "1"})))
        .await
        .ok();
    let other = service(json!([{"port": 80}]), json!({"x": "2"}));
    let path = env.core("services/s?fieldManager=two");
    let refused = env.patch("apply", &path, &other).await;
    refused.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"one\": .metadata.labels.x");
    let cause =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".metadata.labels.x"});
    assert_eq!(refused.body["details"]["causes"], json!([cause]));
    let forced = env.patch("apply", &format!("{path}&force=true"), &other).await.ok();
    assert_eq!(forced["metadata"]["labels"]["x"], "2");
    assert!(owned(&forced, "one")["f:metadata"].is_null(), "the field still has its old owner");
    assert_eq!(owned(&forced, "two")["f:metadata"], json!({"f:labels": {"f:x": {}}}));
    env.patch("merge", &env.core("services/s?fieldManager=three"), &json!({"metadata": {"labels": {"x": "3"}}}))
        .await
        .ok();
    let refused = env.patch("apply", &path, &other).await;
    refused.refused(409, "Conflict", "conflict with \"three\" using v1");
}

pub(crate) async fn shared_fields_stay_until_the_last_owner_goes(env: &Env) {
    let both = service(json!([{"port": 80}]), json!({"x": "1"}));
    let neither = service(json!([{"port": 80}]), json!({"z": "0"}));
    env.patch("apply", &env.core("services/s?fieldManager=one"), &both).await.ok();
    env.patch("apply", &env.core("services/s?fieldManager=two"), &both).await.ok();
    let shown = env.patch("apply", &env.core("services/s?fieldManager=one"), &neither).await.ok();
    assert_eq!(shown["metadata"]["labels"], json!({"x": "1", "z": "0"}));
    let shown = env.patch("apply", &env.core("services/s?fieldManager=two"), &neither).await.ok();
    assert_eq!(shown["metadata"]["labels"], json!({"z": "0"}));
}
