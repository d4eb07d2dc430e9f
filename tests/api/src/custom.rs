//! Custom resources.

use serde_json::{Value, json};

use crate::env::{Env, names};

fn definition(group: &str) -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red", "enum": ["red", "blue"]}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Serves widgets under a group of this test and waits until they are.
pub(crate) async fn serve(env: &Env) -> String {
    let group = format!("{}.example", env.ns);
    env.post(DEFINITIONS, &definition(&group)).await.ok();
    let path = format!("/apis/{group}/v1/namespaces/{}/widgets", env.ns);
    until(env, &path, 200).await;
    path
}

/// Asks until the answer has this code; a real API server serves a definition a moment after
/// accepting it.
async fn until(env: &Env, path: &str, code: u16) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while env.get(path).await.code != code {
        assert!(tokio::time::Instant::now() < deadline, "{path} must answer {code}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

pub(crate) async fn a_definition_serves_and_unserves_its_resource(env: &Env) {
    let path = serve(env).await;
    let group = format!("{}.example", env.ns);
    env.post(
        &path,
        &json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}),
    )
    .await
    .ok();
    let list = env.get(&path).await.ok();
    assert_eq!((names(&list), &list["kind"]), (vec!["w"], &json!("WidgetList")));
    let found = env.get(&format!("/apis/{group}/v1")).await.ok();
    assert_eq!(found["resources"][0]["name"], "widgets");
    let name = format!("{DEFINITIONS}/widgets.{group}");
    let shown = env.get(&name).await.ok();
    assert_eq!(shown["status"]["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(shown["status"]["storedVersions"], json!(["v1"]));
    env.delete(&name, &Value::Null).await.ok();
    until(env, &path, 404).await;
}

pub(crate) async fn a_schema_defaults_prunes_and_refuses(env: &Env) {
    let path = serve(env).await;
    let widget = |spec: Value| {
        json!({"apiVersion": format!("{}.example/v1", env.ns), "kind": "Widget", "metadata": {"name": "w"}, "spec": spec,
            "status": {"ready": true}})
    };
    env.post(&path, &widget(json!({}))).await.refused(422, "Invalid", "spec.size: Required value");
    env.post(&path, &widget(json!({"size": "big"}))).await.refused(
        422,
        "Invalid",
        "spec.size in body must be of type integer",
    );
    env.post(&path, &widget(json!({"size": 0}))).await.refused(
        422,
        "Invalid",
        "spec.size in body should be greater than or equal to 1",
    );
    env.post(&path, &widget(json!({"size": 1, "color": "x"}))).await.refused(
        422,
        "Invalid",
        "spec.color: Unsupported value: \"x\"",
    );
    let made = env.post(&path, &widget(json!({"size": 1, "other": true}))).await;
    assert_eq!(made.warnings, ["299 - \"unknown field \\\"spec.other\\\"\""]);
    let made = made.ok();
    assert_eq!((&made["spec"], &made["status"]), (&json!({"size": 1, "color": "red"}), &Value::Null));
    assert_eq!(made["metadata"]["generation"], 1);
    let one = format!("{path}/w");
    let shown = env
        .patch("merge", &format!("{one}/status"), &json!({"spec": {"size": 9}, "status": {"ready": true}}))
        .await
        .ok();
    assert_eq!((&shown["spec"]["size"], &shown["status"]["ready"]), (&json!(1), &json!(true)));
    assert_eq!(shown["metadata"]["generation"], 1);
    let shown = env.patch("merge", &one, &json!({"spec": {"size": 2}})).await.ok();
    assert_eq!(shown["metadata"]["generation"], 2);
    let unsupported = env.patch("strategic", &one, &json!({})).await;
    unsupported.refused(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
    let mut unversioned = shown.clone();
    unversioned["metadata"]["resourceVersion"] = json!("");
    unversioned["spec"]["size"] = json!(3);
    env.put(&one, &unversioned).await.refused(422, "Invalid", "must be specified for an update");
}
