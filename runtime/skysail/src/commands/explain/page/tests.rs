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
    check(
        &waiting(),
        expect![[r#"
        Service shop/web: failed, next run in 42s
          owner       sim: the Service has no class, and sim is the default provider
          provider    sim: simcloud 1.2.3; nodes: 3
          object      addresses: none; finalizers: service.kubernetes.io/load-balancer-cleanup; annotation names: sim
          state       Unsettled at sim: an ensure or a deletion began and has not succeeded; the state in the cloud is not known
          next step   Ensure: no ensure has succeeded since the last ensure or deletion began
          next run    in 42s; the wait ends earlier at a change of the Service or of the release, or at a rotation of the credentials; failures in a row: 2
          last run    19s ago, Ensure by sim: Denied: failed to ensure load balancer: the token is revoked [2J

          LAST CALLS              AGO   OUTCOME   TIME    FUEL   REQUESTS   PROVIDER   RELEASE
          load-balancers.ensure   19s   Denied    41ms    1.2M   2          sim        sha256:010101010101
            the token is revoked
            GET https://api.example.com/v1/lbs: 200, 12ms
            POST https://api.example.com/v1/lbs: 403, 20ms
            GET (an invalid URL): malformed, 0ms
          load-balancers.ensure   80s   Ok        12.3s   650    0          sim        sha256:010101010101
    "#]],
    );
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
    check(
        &document,
        expect![[r#"
        Service shop/web: up to date
          owner       sim: the Service has no class, and sim is the default provider
          provider    sim: simcloud 1.2.3; nodes: 3
          object      addresses: 203.0.113.7; finalizers: service.kubernetes.io/load-balancer-cleanup; annotation names: sim
          state       Serving at sim: the last ensure succeeded; nodes: Current; addresses: 203.0.113.7
          next step   Nothing: the load balancer is as the Service, the nodes and the release require
          next run    none is planned; a change of the Service, of the nodes or of the release begins the next run
          last run    3m ago, Ensure by sim: Ok

          No call about this Service since the manager started, or newer calls of others took its place.
    "#]],
    );
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
        expect![[r#"
        Service shop/web: no provider owns it
          owner       none: no provider claims the class "x/y"
          object      addresses: none; finalizers: none; class: x/y
          next step   Nothing: no provider owns the Service
          last run    none since the manager started

          No call about this Service since the manager started, or newer calls of others took its place.
    "#]],
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
    check(
        &document,
        expect![[r#"
        Service shop/web: deleted, a run is in progress
          owner       none: the Service is deleted
          provider    sim: no release serves, so each call fails with NotServing; its nodes are not decided
          state       Unsettled at sim (removed): an ensure or a deletion began and has not succeeded; the state in the cloud is not known
          next step   Ensure: no ensure has succeeded since the last ensure or deletion began
          next run    began 3s ago; a run is in progress; failures of the Kubernetes API in a row: 4
          last run    none since the manager started

          LAST CALLS              AGO   OUTCOME   TIME    FUEL   REQUESTS   PROVIDER   RELEASE
          load-balancers.ensure   19s   Denied    41ms    1.2M   2          sim        sha256:010101010101
            the token is revoked
            GET https://api.example.com/v1/lbs: 200, 12ms
            POST https://api.example.com/v1/lbs: 403, 20ms
            GET (an invalid URL): malformed, 0ms
          load-balancers.ensure   80s   Ok        12.3s   650    0          sim        sha256:010101010101
    "#]],
    );
}

#[test]
fn a_paused_service_has_the_pause_in_the_first_line_and_the_command_that_ends_it() {
    let mut document = waiting();
    document["paused"] = json!("The annotation skysail.dev/paused pauses this Service");
    document["plan"] = json!({ "step": "Paused", "reason": "the pause holds the step Ensure back" });
    document["queue"] = json!(null);
    for (deleting, first) in [(false, "paused"), (true, "paused, and is being deleted")] {
        document["object"]["deleting"] = json!(deleting);
        let page = super::of(&serde_json::from_value(document.clone()).unwrap());
        assert!(page.starts_with(&format!("Service shop/web: {first}\n")), "{page}");
        let lines = "  paused      The annotation skysail.dev/paused pauses this Service\n  next step   Paused: the pause holds";
        assert!(page.contains(lines), "{page}");
    }
}

#[test]
fn the_deletion_policy_is_before_the_next_step() {
    let mut document = waiting();
    document["deletionPolicy"] = json!("Retain (spec.deletionPolicy of the Provider sim): the load balancer stays");
    let page = super::of(&serde_json::from_value(document).unwrap());
    let lines = "  on deletion Retain (spec.deletionPolicy of the Provider sim): the load balancer stays\n  next step ";
    assert!(page.contains(lines), "{page}");
}
