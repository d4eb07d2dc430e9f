//! Objects of every kind: creation, refusals, versions, deletion, subresources.

use serde_json::{Value, json};

use crate::env::{Env, config_map, names};

pub(crate) async fn a_new_object_has_uid_time_and_version(env: &Env) {
    let answer = env.post(&env.core("configmaps"), &config_map("a", &json!({"k": ""}))).await;
    assert_eq!(answer.code, 201);
    let metadata = &answer.body["metadata"];
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 1);
    assert_eq!(metadata["creationTimestamp"].as_str().unwrap().len(), 20);
    assert_eq!(metadata["namespace"], env.ns.as_str());
    assert_eq!(answer.body["data"], json!({"k": ""}));
    let entry = &metadata["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("suite"), &json!("Update")));
    assert_eq!(entry["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
    assert_eq!(env.get(&env.core("configmaps/a")).await.ok(), answer.body);
}

pub(crate) async fn refusals_have_kubernetes_reasons_and_codes(env: &Env) {
    let maps = env.core("configmaps");
    env.post(&maps, &config_map("a", &json!({}))).await.ok();
    let again = env.post(&maps, &config_map("a", &json!({}))).await;
    again.refused(409, "AlreadyExists", "configmaps \"a\" already exists");
    assert_eq!(again.body["details"], json!({"name": "a", "kind": "configmaps"}));
    let absent = env.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/nope").await;
    absent.refused(404, "NotFound", "leases.coordination.k8s.io \"nope\" not found");
    let details = json!({"name": "nope", "group": "coordination.k8s.io", "kind": "leases"});
    assert_eq!(absent.body["details"], details);
    env.get("/api/v1/foos").await.refused(404, "NotFound", "the server could not find the requested resource");
    assert_eq!(env.get("/apis/foo.example/v1/bars").await.code, 404);
    env.put(&maps, &json!({})).await.refused(405, "MethodNotAllowed", "does not allow this method");
    let elsewhere = json!({"metadata": {"name": "b", "namespace": "default"}});
    env.post(&maps, &elsewhere).await.refused(400, "BadRequest", "the namespace of the provided object does not match");
    let unborn = env.post("/api/v1/namespaces/no-such-namespace/configmaps", &config_map("a", &json!({}))).await;
    unborn.refused(404, "NotFound", "namespaces \"no-such-namespace\" not found");
    let versioned = json!({"metadata": {"name": "c", "resourceVersion": "5"}});
    env.post(&maps, &versioned).await.refused(500, "", "resourceVersion should not be set on objects to be created");
    let other = env.put(&env.core("configmaps/a"), &config_map("b", &json!({}))).await;
    other.refused(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)");
    env.put(&env.core("configmaps/zz"), &config_map("zz", &json!({}))).await.refused(
        404,
        "NotFound",
        "\"zz\" not found",
    );
    let invalid = env.post(&maps, &config_map("A_b", &json!({}))).await;
    invalid.refused(422, "Invalid", "metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain");
    assert_eq!(invalid.body["details"]["causes"][0]["field"], "metadata.name");
    assert_eq!(invalid.body["details"]["causes"][0]["reason"], "FieldValueInvalid");
    env.post(&maps, &config_map("", &json!({}))).await.refused(422, "Invalid", "name or generateName is required");
    let mistyped = env.post(&maps, &config_map("d", &json!("text"))).await;
    mistyped.refused(400, "BadRequest", "ConfigMap in version \"v1\" cannot be handled as a ConfigMap");
    let plain = env.send("POST", &maps, "text/plain", &json!("x")).await;
    plain.refused(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
}

pub(crate) async fn a_stale_update_conflicts(env: &Env) {
    let first = env.post(&env.core("configmaps"), &config_map("a", &json!({"n": "1"}))).await.ok();
    let mut second = first.clone();
    second["data"]["n"] = json!("2");
    env.put(&env.core("configmaps/a"), &second).await.ok();
    let mut late = first.clone();
    late["data"]["n"] = json!("3");
    let refused = env.put(&env.core("configmaps/a"), &late).await;
    refused.refused(409, "Conflict", "Operation cannot be fulfilled on configmaps \"a\": the object has been modified");
    assert_eq!(refused.body["details"], json!({"name": "a", "kind": "configmaps"}));
    let patch = json!({"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}});
    env.patch("merge", &env.core("configmaps/a"), &patch).await.refused(409, "Conflict", "has been modified");
    late["metadata"]["resourceVersion"] = json!("");
    assert_eq!(env.put(&env.core("configmaps/a"), &late).await.ok()["data"]["n"], "3");
    late["metadata"]["uid"] = json!("another");
    env.put(&env.core("configmaps/a"), &late).await.refused(
        409,
        "Conflict",
        "Precondition failed: UID in precondition",
    );
}

pub(crate) async fn a_write_that_changes_nothing_keeps_the_version(env: &Env) {
    let first = env.post(&env.core("configmaps"), &config_map("a", &json!({"n": "1"}))).await.ok();
    assert_eq!(env.put(&env.core("configmaps/a"), &first).await.ok(), first);
    assert_eq!(env.patch("merge", &env.core("configmaps/a"), &json!({"data": {"n": "1"}})).await.ok(), first);
}

pub(crate) async fn generate_name_makes_names_that_differ(env: &Env) {
    let body = json!({"metadata": {"generateName": "made-"}});
    let one = env.post(&env.core("configmaps"), &body).await.ok();
    let two = env.post(&env.core("configmaps"), &body).await.ok();
    let name = |o: &Value| o["metadata"]["name"].as_str().unwrap().to_owned();
    assert_ne!(name(&one), name(&two));
    assert!(name(&one).starts_with("made-") && name(&one).len() == 10, "{}", name(&one));
    assert_eq!(one["metadata"]["generateName"], "made-");
}

pub(crate) async fn deletion_honours_preconditions(env: &Env) {
    let made = env.post(&env.core("configmaps"), &config_map("a", &json!({}))).await.ok();
    let path = env.core("configmaps/a");
    let wrong = env.delete(&path, &json!({"preconditions": {"uid": "x"}})).await;
    wrong.refused(409, "Conflict", "the UID in the precondition (x) does not match the UID in record");
    let wrong = env.delete(&path, &json!({"preconditions": {"resourceVersion": "1"}})).await;
    wrong.refused(409, "Conflict", "the ResourceVersion in the precondition (1) does not match");
    let right = json!({"preconditions": {
        "uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}});
    let gone = env.delete(&path, &right).await.ok();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(gone["details"], json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}));
    env.delete(&path, &Value::Null).await.refused(404, "NotFound", "configmaps \"a\" not found");
}

pub(crate) async fn finalizers_hold_an_object_until_they_are_gone(env: &Env) {
    let mut body = config_map("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.test/hold"]);
    env.post(&env.core("configmaps"), &body).await.ok();
    let path = env.core("configmaps/a");
    let waiting = env.delete(&path, &Value::Null).await.ok();
    assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = env.delete(&path, &Value::Null).await.ok();
    assert_eq!(again["metadata"]["deletionTimestamp"], waiting["metadata"]["deletionTimestamp"]);
    let added = json!({"metadata": {"finalizers": ["example.test/hold", "example.test/late"]}});
    let refused = env.patch("merge", &path, &added).await;
    refused.refused(422, "Invalid", "no new finalizers can be added if the object is being deleted");
    let freed = env.patch("merge", &path, &json!({"metadata": {"finalizers": null}})).await.ok();
    assert!(freed["metadata"]["finalizers"].is_null());
    assert_eq!(env.get(&path).await.code, 404);
}

pub(crate) async fn a_collection_is_deleted_by_selector(env: &Env) {
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut body = config_map(name, &json!({}));
        body["metadata"]["labels"] = json!({"color": color});
        env.post(&env.core("configmaps"), &body).await.ok();
    }
    env.delete(&env.core("configmaps?labelSelector=color%3Dred"), &Value::Null).await.ok();
    assert_eq!(names(&env.get(&env.core("configmaps")).await.ok()), ["b"]);
}

pub(crate) async fn a_dry_run_leaves_no_trace(env: &Env) {
    let made = env.post(&env.core("configmaps?dryRun=All"), &config_map("a", &json!({}))).await;
    assert_eq!(made.code, 201);
    assert_eq!(env.get(&env.core("configmaps/a")).await.code, 404);
    env.post(&env.core("configmaps"), &config_map("a", &json!({}))).await.ok();
    env.delete(&env.core("configmaps/a?dryRun=All"), &Value::Null).await.ok();
    env.get(&env.core("configmaps/a")).await.ok();
}

pub(crate) async fn status_and_spec_are_written_apart(env: &Env) {
    let body = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    let made = env.post(&env.core("services"), &body).await.ok();
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
    let patch = json!({"metadata": {"finalizers": ["example.test/f"]}, "spec": {"sessionAffinity": "ClientIP"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    let shown = env.patch("strategic", &env.core("services/s/status"), &patch).await.ok();
    assert_eq!(shown["spec"]["sessionAffinity"], "None");
    assert_eq!(shown["status"]["loadBalancer"]["ingress"], json!([{"ip": "192.0.2.9", "ipMode": "VIP"}]));
    assert_eq!(shown["metadata"]["finalizers"], json!(["example.test/f"]));
    let patch = json!({"metadata": {"finalizers": null}, "status": {"loadBalancer": {"ingress": []}}});
    let shown = env.patch("merge", &env.core("services/s"), &patch).await.ok();
    assert_eq!(shown["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.9");
    let node =
        json!({"metadata": {"name": env.ns}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    let made = env.post("/api/v1/nodes", &node).await.ok();
    assert_eq!(made["status"]["addresses"][0]["address"], "10.0.0.1");
    let path = format!("/api/v1/nodes/{}", env.ns);
    let patch = json!({"spec": {"unschedulable": true}, "status": {"addresses": []}});
    let shown = env.patch("merge", &path, &patch).await.ok();
    assert_eq!(
        (&shown["spec"]["unschedulable"], &shown["status"]["addresses"]),
        (&json!(true), &made["status"]["addresses"])
    );
}

pub(crate) async fn provider_id_is_set_once(env: &Env) {
    env.post("/api/v1/nodes", &json!({"metadata": {"name": env.ns}})).await.ok();
    let path = format!("/api/v1/nodes/{}", env.ns);
    env.patch("merge", &path, &json!({"spec": {"providerID": "sim://1"}})).await.ok();
    let other = env.patch("merge", &path, &json!({"spec": {"providerID": "sim://2"}})).await;
    other.refused(
        422,
        "Invalid",
        "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
    );
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "Nonsense"}]}});
    env.patch("merge", &path, &taint).await.refused(422, "Invalid", "Unsupported value: \"Nonsense\"");
}

pub(crate) async fn events_have_two_views(env: &Env) {
    let core = json!({"metadata": {"name": "old"}, "involvedObject": {"kind": "Service", "name": "web", "namespace": env.ns},
        "reason": "Tested", "message": "said", "type": "Normal", "count": 2, "source": {"component": "suite"}});
    env.post(&env.core("events"), &core).await.ok();
    let new = format!("/apis/events.k8s.io/v1/namespaces/{}/events", env.ns);
    let shown = env.get(&format!("{new}/old")).await.ok();
    assert_eq!((&shown["note"], &shown["regarding"]["name"]), (&json!("said"), &json!("web")));
    assert_eq!((&shown["deprecatedCount"], &shown["deprecatedSource"]["component"]), (&json!(2), &json!("suite")));
    assert_eq!(shown["apiVersion"], "events.k8s.io/v1");
    let body = json!({"metadata": {"name": "new"}, "regarding": {"kind": "Service", "name": "web", "namespace": env.ns},
        "reason": "Tested", "note": "said", "type": "Warning", "action": "Testing", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "suite", "reportingInstance": "suite-1"});
    env.post(&new, &body).await.ok();
    let shown = env.get(&env.core("events/new")).await.ok();
    assert_eq!((&shown["message"], &shown["involvedObject"]["name"]), (&json!("said"), &json!("web")));
    assert_eq!(shown["reportingComponent"], "suite");
    let list = env.get(&env.core("events?fieldSelector=involvedObject.name%3Dweb,type%3DWarning")).await.ok();
    assert_eq!(names(&list), ["new"]);
    let list = env.get(&format!("{new}?fieldSelector=regarding.name%3Dweb,reason%3DTested")).await.ok();
    assert_eq!(names(&list), ["new", "old"]);
    let astray = json!({"metadata": {"name": "x"}, "involvedObject": {"kind": "Service", "namespace": "elsewhere"}});
    env.post(&env.core("events"), &astray).await.refused(422, "Invalid", "does not match event.namespace");
    let incomplete = json!({"metadata": {"name": "y"}, "regarding": {"namespace": env.ns}});
    env.post(&new, &incomplete).await.refused(422, "Invalid", "eventTime: Required value");
}

pub(crate) async fn leases_are_taken_by_version(env: &Env) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", env.ns);
    let body = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z"}});
    let held = env.post(&path, &body).await.ok();
    assert_eq!(held["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    let mut taken = held.clone();
    taken["spec"]["holderIdentity"] = json!("b");
    env.put(&format!("{path}/l"), &taken).await.ok();
    taken["spec"]["holderIdentity"] = json!("c");
    env.put(&format!("{path}/l"), &taken).await.refused(409, "Conflict", "leases.coordination.k8s.io \"l\"");
    taken["metadata"]["resourceVersion"] = Value::Null;
    let unversioned = env.put(&format!("{path}/l"), &taken).await;
    unversioned.refused(422, "Invalid", "metadata.resourceVersion: Invalid value: 0: must be specified for an update");
    let wrong = json!({"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0}});
    env.post(&path, &wrong).await.refused(
        422,
        "Invalid",
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    );
}

pub(crate) async fn secrets_take_clear_text(env: &Env) {
    let body = json!({"metadata": {"name": "s"}, "stringData": {"k": "clear"}});
    let made = env.post(&env.core("secrets"), &body).await.ok();
    assert_eq!((&made["data"], &made["type"]), (&json!({"k": "Y2xlYXI="}), &json!("Opaque")));
    assert!(made["stringData"].is_null());
    let frozen = env.patch("merge", &env.core("secrets/s"), &json!({"immutable": true})).await.ok();
    assert_eq!(frozen["immutable"], true);
    let refused = env.patch("merge", &env.core("secrets/s"), &json!({"stringData": {"k": "other"}})).await;
    refused.refused(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set");
}

pub(crate) async fn unknown_fields_warn_or_refuse(env: &Env) {
    let mut body = config_map("a", &json!({}));
    body["spec"] = json!({"x": 1});
    let strict = env.post(&env.core("configmaps?fieldValidation=Strict"), &body).await;
    strict.refused(400, "BadRequest", "strict decoding error: unknown field \"spec\"");
    let warned = env.post(&env.core("configmaps?fieldValidation=Warn"), &body).await;
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"spec\\\"\""]);
    assert!(warned.ok()["spec"].is_null());
}
