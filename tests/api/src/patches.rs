//! Patches: merge, JSON, strategic.

use serde_json::{Value, json};

use crate::env::{Env, config_map};

pub(crate) async fn merge_and_json_patches(env: &Env) {
    env.post(&env.core("configmaps"), &config_map("a", &json!({"k": "1", "l": "2"}))).await.ok();
    let path = env.core("configmaps/a");
    let merged = env.patch("merge", &path, &json!({"data": {"k": null, "m": "3"}})).await.ok();
    assert_eq!(merged["data"], json!({"l": "2", "m": "3"}));
    let operations = json!([{"op": "test", "path": "/data/l", "value": "2"}, {"op": "remove", "path": "/data/l"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    let patched = env.patch("json", &path, &operations).await.ok();
    assert_eq!((&patched["data"], &patched["metadata"]["labels"]), (&json!({"m": "3"}), &json!({"a": "b"})));
    let failing = json!([{"op": "test", "path": "/data/m", "value": "x"}]);
    env.patch("json", &path, &failing).await.refused(422, "Invalid", "the server rejected our request");
    env.patch("merge", &env.core("configmaps/z"), &json!({})).await.refused(404, "NotFound", "\"z\" not found");
    let typeless = env.send("PATCH", &path, "application/json", &json!({})).await;
    typeless.refused(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    let renamed = env.patch("merge", &path, &json!({"metadata": {"name": "b"}})).await;
    renamed.refused(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)");
}

pub(crate) async fn strategic_patches_merge_lists_by_key(env: &Env) {
    let ports = json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]);
    env.post(&env.core("services"), &json!({"metadata": {"name": "s"}, "spec": {"ports": ports}})).await.ok();
    let patch =
        json!({"spec": {"ports": [{"port": 443, "targetPort": 8443}, {"name": "dns", "port": 53, "protocol": "UDP"}]}});
    let shown = env.patch("strategic", &env.core("services/s"), &patch).await.ok();
    let seen: Vec<(&Value, &Value)> =
        shown["spec"]["ports"].as_array().unwrap().iter().map(|p| (&p["port"], &p["targetPort"])).collect();
    assert_eq!(seen, [(&json!(80), &json!(80)), (&json!(443), &json!(8443)), (&json!(53), &json!(53))]);
    let node = json!({"metadata": {"name": env.ns}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]}});
    env.post("/api/v1/nodes", &node).await.ok();
    let path = format!("/api/v1/nodes/{}", env.ns);
    let patch = json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}});
    let shown = env.patch("strategic", &format!("{path}/status"), &patch).await.ok();
    assert_eq!(shown["status"]["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(shown["status"]["conditions"][1]["status"], "False");
    let patch = json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}});
    let shown = env.patch("strategic", &path, &patch).await.ok();
    assert_eq!(shown["spec"]["taints"], json!([{"key": "b", "effect": "NoExecute"}]), "taints have no merge key");
}

pub(crate) async fn strategic_directives(env: &Env) {
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}, {"name": "c", "port": 3}]);
    let body = json!({"metadata": {"name": "s", "finalizers": ["example.test/a", "example.test/b"]},
        "spec": {"ports": ports, "selector": {"x": "y"}}});
    env.post(&env.core("services"), &body).await.ok();
    let path = env.core("services/s");
    let numbers = |o: &Value| -> Vec<i64> {
        o["spec"]["ports"].as_array().unwrap().iter().map(|p| p["port"].as_i64().unwrap()).collect()
    };
    let patch = json!({"spec": {"ports": [{"port": 2, "$patch": "delete"}]}});
    assert_eq!(numbers(&env.patch("strategic", &path, &patch).await.ok()), [1, 3]);
    let patch = json!({"spec": {"$setElementOrder/ports": [{"port": 3}, {"port": 1}]}});
    assert_eq!(numbers(&env.patch("strategic", &path, &patch).await.ok()), [3, 1]);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.test/a"]}});
    let shown = env.patch("strategic", &path, &patch).await.ok();
    assert_eq!(shown["metadata"]["finalizers"], json!(["example.test/b"]));
    let patch = json!({"metadata": {"finalizers": ["example.test/c"]}});
    let shown = env.patch("strategic", &path, &patch).await.ok();
    assert_eq!(
        shown["metadata"]["finalizers"],
        json!(["example.test/c", "example.test/b"]),
        "what the patch lists comes first"
    );
    let patch = json!({"spec": {"ports": [{"$patch": "replace"}, {"name": "z", "port": 9}]}});
    assert_eq!(numbers(&env.patch("strategic", &path, &patch).await.ok()), [9]);
    let patch = json!({"spec": {"selector": {"$patch": "replace", "new": "one"}}});
    let shown = env.patch("strategic", &path, &patch).await.ok();
    assert_eq!(shown["spec"]["selector"], json!({"new": "one"}));
    let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]);
    let node = json!({"metadata": {"name": env.ns}, "status": {"addresses": addresses}});
    env.post("/api/v1/nodes", &node).await.ok();
    let patch =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}, {"$patch": "replace"}]}});
    let shown = env.patch("strategic", &format!("/api/v1/nodes/{}/status", env.ns), &patch).await.ok();
    assert_eq!(shown["status"]["addresses"], json!([{"type": "InternalIP", "address": "10.0.0.2"}]));
}
