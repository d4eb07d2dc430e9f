//! Lists: selectors, pages, versions.

use serde_json::{Value, json};

use crate::env::{Env, config_map, names};

async fn make(env: &Env, name: &str, labels: Value) {
    let mut body = config_map(name, &json!({}));
    body["metadata"]["labels"] = labels;
    env.post(&env.core("configmaps"), &body).await.ok();
}

pub(crate) async fn labels_and_fields_select(env: &Env) {
    make(env, "a", json!({"tier": "web", "env": "prod"})).await;
    make(env, "b", json!({"tier": "db"})).await;
    make(env, "c", json!({})).await;
    for (selector, expected) in [
        ("labelSelector=tier%3Dweb", vec!["a"]),
        ("labelSelector=tier%3D%3Dweb,env%3Dprod", vec!["a"]),
        ("labelSelector=tier!%3Dweb", vec!["b", "c"]),
        ("labelSelector=tier+in+(web,db)", vec!["a", "b"]),
        ("labelSelector=tier+notin+(web)", vec!["b", "c"]),
        ("labelSelector=tier", vec!["a", "b"]),
        ("labelSelector=!tier", vec!["c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db", vec!["a", "c"]),
        ("labelSelector=tier&fieldSelector=metadata.name%3Da", vec!["a"]),
    ] {
        let list = env.get(&env.core(&format!("configmaps?{selector}"))).await.ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
    let wrong = env.get(&env.core("configmaps?labelSelector=a%3D%3D%3Db")).await;
    wrong.refused(400, "BadRequest", "unable to parse requirement");
    let unknown = env.get(&env.core("configmaps?fieldSelector=data.k%3D1")).await;
    unknown.refused(400, "BadRequest", "\"data.k\" is not a known field selector");
    let unknown = env.get(&env.core("services?fieldSelector=spec.foo%3D1")).await;
    unknown.refused(400, "BadRequest", "field label not supported: spec.foo");
    let node = json!({"metadata": {"name": env.ns}, "spec": {"unschedulable": true}});
    env.post("/api/v1/nodes", &node).await.ok();
    let list = env.get("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue").await.ok();
    assert!(names(&list).contains(&env.ns.as_str()));
}

pub(crate) async fn pages_show_one_moment(env: &Env) {
    for name in ["a", "b", "c"] {
        make(env, name, json!({})).await;
    }
    let first = env.get(&env.core("configmaps?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    assert_eq!(first["kind"], "ConfigMapList");
    make(env, "d", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = env.get(&env.core(&format!("configmaps?limit=2&continue={token}"))).await.ok();
    assert_eq!(names(&second), ["c"], "what came later is not in the list that began before");
    assert!(second["metadata"]["continue"].as_str().unwrap_or_default().is_empty());
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    env.get(&env.core("configmaps?continue=xx")).await.refused(400, "BadRequest", "continue key is not valid");
}

pub(crate) async fn versions_of_past_and_future(env: &Env) {
    make(env, "a", json!({})).await;
    let version = env.get(&env.core("configmaps")).await.ok()["metadata"]["resourceVersion"].clone();
    let version = version.as_str().unwrap();
    make(env, "b", json!({})).await;
    let exact = format!("configmaps?resourceVersion={version}&resourceVersionMatch=Exact");
    let past = env.get(&env.core(&exact)).await.ok();
    assert_eq!((names(&past), &past["metadata"]["resourceVersion"]), (vec!["a"], &json!(version)));
    let since = format!("configmaps?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&env.get(&env.core(&since)).await.ok()), ["a", "b"]);
    let future = env.get(&env.core("configmaps?resourceVersion=999999999")).await;
    future.refused(504, "Timeout", "Too large resource version: 999999999, current: ");
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let wrong = env.get(&env.core("configmaps?resourceVersion=bad")).await;
    wrong.refused(400, "BadRequest", "invalid resource version");
}
