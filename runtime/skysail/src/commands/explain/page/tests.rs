//! The page of a Service in several states.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn check(document: &Value, expected: Expect) {
    expected.assert_eq(&super::of(&serde_json::from_value(document.clone()).unwrap()));
}

fn digest() -> String {
    format!("sha256:{}", "01".repeat(32))
}

/// A Service whose ensure fails.
fn waiting() -> Value {
    json!({
        "namespace": "shop", "name": "web",
        "object": {
            "uid": "u", "wantsLoadBalancer": true, "deleting": false, "ingress": [], "namedProvider": "sim",
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
        },
        "owner": { "provider": "sim", "reason": "the Service has no class, and sim is the default provider" },
        "provider": { "name": "sim", "release": "simcloud 1.2.3", "exportsLoadBalancers": true, "nodes": 3 },
        "loadBalancer": {
            "provider": "sim", "providerExists": true, "state": "Unsettled",
            "explanation": "an ensure or a deletion began and has not succeeded; the state in the cloud is not known",
        },
        "plan": { "step": "Ensure", "reason": "no ensure has succeeded since the last ensure or deletion began" },
        "queue": {
            "place": "Waiting", "dueInMs": 41_500, "failures": 2, "apiFailures": 0, "denied": true,
            "explanation": "the wait ends earlier at a change of the Service or of the release, or at a rotation of the credentials",
        },
        "lastOutcome": {
            "agoMs": 18_200, "provider": "sim", "step": "Ensure", "code": "Denied",
            "message": "failed to ensure load balancer: the token is revoked\u{1b}[2J",
        },
        "calls": [
            {
                "provider": "sim", "digest": digest(), "function": "load-balancers.ensure", "agoMs": 18_200,
                "outcome": "Denied", "message": "the token is revoked", "durationMs": 41, "waitedMs": 0,
                "fuel": 1_234_567, "requestsSent": 2,
                "requests": [
                    { "method": "GET", "url": "https://api.example.com/v1/lbs", "status": 200, "durationMs": 12 },
                    { "method": "POST", "url": "https://api.example.com/v1/lbs", "status": 403, "durationMs": 20 },
                    { "method": "GET", "url": "", "failure": "malformed", "durationMs": 0 },
                ],
            },
            {
                "provider": "sim", "digest": digest(), "function": "load-balancers.ensure", "agoMs": 80_000,
                "outcome": "Ok", "durationMs": 12_345, "waitedMs": 10, "fuel": 650, "requestsSent": 0, "requests": [],
            },
        ],
    })
}

#[test]
fn a_service_that_waits() {
    check(&waiting(), expect![[""]]);
}

#[test]
fn a_service_that_is_up_to_date() {
    let mut document = waiting();
    document["object"]["ingress"] = json!(["203.0.113.7"]);
    document["loadBalancer"] = json!({
        "provider": "sim", "providerExists": true, "state": "Serving", "explanation": "the last ensure succeeded",
        "nodes": "Current", "ingress": ["203.0.113.7"], "statusWritten": true,
    });
    document["plan"] = json!({ "step": "Nothing", "reason": "the load balancer is as the Service, the nodes and the release require" });
    document["queue"] = json!({
        "place": "Absent", "failures": 0, "apiFailures": 0, "denied": false,
        "explanation": "a change of the Service, of the nodes or of the release begins the next run",
    });
    document["lastOutcome"] = json!({ "agoMs": 200_000, "provider": "sim", "step": "Ensure", "code": "Ok" });
    document["calls"] = json!([]);
    check(&document, expect![[""]]);
}

#[test]
fn a_service_without_an_owner() {
    check(
        &json!({
            "namespace": "shop", "name": "web",
            "object": { "uid": "u", "wantsLoadBalancer": true, "class": "x/y", "deleting": false, "ingress": [], "finalizers": [] },
            "owner": { "reason": "no provider claims the class \"x/y\"" },
            "plan": { "step": "Nothing", "reason": "no provider owns the Service" },
            "calls": [],
        }),
        expect![[""]],
    );
}

#[test]
fn a_deleted_service_in_work_whose_provider_has_no_release() {
    let mut document = waiting();
    document["object"] = Value::Null;
    document["owner"] = json!({ "reason": "the Service is deleted" });
    document["provider"] = json!({ "name": "sim" });
    document["loadBalancer"]["providerExists"] = json!(false);
    document["queue"] = json!({
        "place": "Running", "sinceMs": 3_000, "failures": 0, "apiFailures": 4, "denied": false,
        "explanation": "a run is in progress",
    });
    document["lastOutcome"] = Value::Null;
    check(&document, expect![[""]]);
}
