//! Tests of the text, of the documents and of the choice by name.

use expect_test::expect;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use skysail_controllers::Finding;

use super::{ProviderList, ProviderObject, choose, page, shown};
use crate::args::StatusFormat;

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": 3,
        "lastTransitionTime": "2026-11-22T19:00:00Z",
    })
}

fn provider(name: &str, status: &Value) -> ProviderObject {
    let object = json!({
        "apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": { "name": name, "generation": 3 },
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn digest(number: u8) -> String {
    format!("sha256:{}", format!("{number:02x}").repeat(32))
}

fn active() -> Value {
    json!({
        "digest": digest(1), "origin": "oci registry.example.com/sim:v1", "name": "simcloud", "version": "1.2.3",
        "contract": "0.1.0", "interfaces": ["instances", "load-balancers"], "providerIdSchemes": ["simcloud"],
        "since": "2026-11-22T19:30:00Z",
    })
}

fn calls() -> Value {
    json!([
        {
            "function": "instances.metadata", "calls": 3, "failed": 0, "outcomes": { "Ok": 3 }, "p50Ms": 1, "p99Ms": 12,
            "fuelP99": 650, "fuelMax": 650, "fuelLimit": 1_000_000_000,
        },
        {
            "function": "load-balancers.ensure", "calls": 1200, "failed": 2,
            "outcomes": { "Ok": 1195, "NotFound": 3, "LimitExceeded": 1, "Unavailable": 1 }, "p50Ms": 41, "p99Ms": 12_345,
            "fuelP99": 23_456_789, "fuelMax": 1_000_000_000, "fuelLimit": 1_000_000_000,
            "limitHits": { "fuel": 1, "logLines": 40 },
            "lastFailure": {
                "code": "Trapped", "time": "2026-11-22T19:59:18Z", "succeededSince": true,
                "message": "the guest trapped: panicked at src/lib.rs:9:9: no pool; in cloud::Cloud::ensure",
            },
        },
    ])
}

/// A provider without problems.
fn ready() -> ProviderObject {
    let status = json!({
        "observedGeneration": 3, "active": active(), "swaps": 1, "calls": calls(),
        "conditions": [
            condition("Ready", "True", "Serving", "simcloud 1.2.3 (sha256:010101010101) serves"),
            condition("Degraded", "False", "AsExpected", "the provider matches its spec, or a rollout is in progress"),
        ],
    });
    provider("sim", &status)
}

/// A provider whose last release was rolled back, with another release in progress.
fn degraded() -> ProviderObject {
    let why = "a call trapped: wasm trap: unreachable";
    let status = json!({
        "observedGeneration": 2, "active": active(), "swaps": 4, "draining": 1,
        "probation": { "predecessor": digest(1), "calls": 20, "timeMs": 300_000 },
        "candidate": { "digest": digest(3), "origin": "oci registry.example.com/sim:v3", "stage": "compiled" },
        "refused": {
            "digest": digest(2), "origin": "oci registry.example.com/sim:v2", "stage": "active", "code": "ProbationTrap",
            "reason": why, "lasting": true,
        },
        "sourceFailure": { "code": "RegistryUnreachable", "reason": "the registry cannot be reached" },
        "conditions": [
            condition("Ready", "True", "Serving", "simcloud 1.2.3 (sha256:010101010101) serves"),
            condition("Degraded", "True", "ProbationTrap", why),
        ],
    });
    provider("sim", &status)
}

fn now() -> Timestamp {
    "2026-11-22T20:00:00Z".parse().unwrap()
}

fn list(items: Vec<ProviderObject>) -> ProviderList {
    ProviderList { api_version: "skysail.dev/v1alpha1".to_owned(), kind: "ProviderList".to_owned(), items }
}

#[test]
fn a_provider_that_serves() {
    expect![[r#"
        Provider sim: ready
          serves      simcloud 1.2.3, since 2026-11-22T19:30:00Z (30m)
          digest      sha256:0101010101010101010101010101010101010101010101010101010101010101
          from        oci registry.example.com/sim:v1
          interfaces  instances, load-balancers; contract 0.1.0
          node IDs    simcloud://
          swaps       1 since the manager started

          CONDITION   STATUS   REASON       SINCE
          Ready       True     Serving      60m
          Degraded    False    AsExpected   60m

          FUNCTION                CALLS   FAILED   P50    P99     FUEL P99   FUEL MAX   OF LIMIT   LIMITS HIT
          instances.metadata      3       0        1ms    12ms    650        650        <0.1%      -
          load-balancers.ensure   1200    2        41ms   12.3s   23.4M      1.0G       100.0%     fuel 1, logLines 40

          failed      load-balancers.ensure 42s ago (a call has succeeded since): Trapped: the guest trapped: panicked at src/lib.rs:9:9: no pool; in cloud::Cloud::ensure
    "#]]
    .assert_eq(&page::of(&ready(), false, now()));
    expect![[r#"
        Provider sim: ready
          serves      simcloud 1.2.3, since 2026-11-22T19:30:00Z (30m)
          digest      sha256:0101010101010101010101010101010101010101010101010101010101010101
          from        oci registry.example.com/sim:v1
          interfaces  instances, load-balancers; contract 0.1.0
          node IDs    simcloud://
          swaps       1 since the manager started

          CONDITION   STATUS   REASON       SINCE   MESSAGE
          Ready       True     Serving      60m     simcloud 1.2.3 (sha256:010101010101) serves
          Degraded    False    AsExpected   60m     the provider matches its spec, or a rollout is in progress

          FUNCTION                CALLS   FAILED   P50    P99     FUEL P99   FUEL MAX   OF LIMIT   LIMITS HIT            OUTCOMES
          instances.metadata      3       0        1ms    12ms    650        650        <0.1%      -                     Ok 3
          load-balancers.ensure   1200    2        41ms   12.3s   23.4M      1.0G       100.0%     fuel 1, logLines 40   LimitExceeded 1, NotFound 3, Ok 1195, Unavailable 1

          failed      load-balancers.ensure 42s ago (a call has succeeded since): Trapped: the guest trapped: panicked at src/lib.rs:9:9: no pool; in cloud::Cloud::ensure
    "#]].assert_eq(&page::of(&ready(), true, now()));
}

#[test]
fn problems_come_first_and_each_once() {
    expect![[r#"
        Provider sim: ready, but degraded
          problem     ProbationTrap: a call trapped: wasm trap: unreachable
          source      RegistryUnreachable: the registry cannot be reached
          refused     sha256:0202020202020202020202020202020202020202020202020202020202020202 at active: ProbationTrap, from oci registry.example.com/sim:v2; the same component would be refused again
          outdated    no manager has applied generation 3 yet; this status is about generation 2
          serves      simcloud 1.2.3, since 2026-11-22T19:30:00Z (30m)
          digest      sha256:0101010101010101010101010101010101010101010101010101010101010101
          from        oci registry.example.com/sim:v1
          interfaces  instances, load-balancers; contract 0.1.0
          node IDs    simcloud://
          probation   for 20 calls and 5m; if it fails, sha256:0101010101010101010101010101010101010101010101010101010101010101 serves again
          candidate   sha256:0303030303030303030303030303030303030303030303030303030303030303 is compiled, from oci registry.example.com/sim:v3
          swaps       4 since the manager started, 1 draining

          CONDITION   STATUS   REASON          SINCE
          Ready       True     Serving         60m
          Degraded    True     ProbationTrap   60m

          No call of the serving release has ended yet.
    "#]].assert_eq(&page::of(&degraded(), false, now()));
}

/// Regression: claims of two providers, contested nodes and held nodes were reported only in
/// Events.
#[test]
fn a_finding_of_the_controllers_is_the_problem_of_a_provider_that_serves() {
    for finding in [Finding::ClaimTaken, Finding::NodeOwnershipConflict, Finding::NodesHeld] {
        let conditions = [
            condition("Ready", "True", "Serving", "simcloud 1.2.3 (sha256:010101010101) serves"),
            condition("Degraded", "True", finding.reason(), "4 nodes, such as node-1"),
        ];
        let status = json!({ "observedGeneration": 3, "active": active(), "swaps": 1, "conditions": conditions });
        let page = page::of(&provider("sim", &status), false, now());
        let reason = finding.reason();
        let problem =
            format!("Provider sim: ready, but degraded\n  problem     {reason}: 4 nodes, such as node-1\n  serves");
        assert!(page.starts_with(&problem), "{page}");
        assert!(page.contains(&format!("Degraded    True     {reason}")), "{page}");
    }
}

#[test]
fn a_paused_provider_says_so_in_the_first_line() {
    for (degraded, first) in [("False", "ready, and paused"), ("True", "ready, but degraded, and paused")] {
        let conditions = [
            condition("Ready", "True", "Serving", "simcloud 1.2.3 (sha256:010101010101) serves"),
            condition("Degraded", degraded, "Any", "any"),
            condition("Paused", "True", "SpecPaused", "spec.paused is true"),
        ];
        let status = json!({ "observedGeneration": 3, "active": active(), "swaps": 1, "conditions": conditions });
        let page = page::of(&provider("sim", &status), false, now());
        assert!(page.starts_with(&format!("Provider sim: {first}\n")), "{page}");
        assert!(page.contains("  paused      spec.paused is true\n"), "{page}");
        assert!(page.contains("Paused      True     SpecPaused"), "{page}");
    }
}

#[test]
fn retained_load_balancers_have_a_line() {
    for (status, is_said) in [("True", true), ("False", false)] {
        let conditions = [
            condition("Ready", "True", "Serving", "simcloud 1.2.3 (sha256:010101010101) serves"),
            condition("LoadBalancersRetained", status, "Any", "Load balancers that stay: 1"),
        ];
        let status = json!({ "observedGeneration": 3, "active": active(), "swaps": 1, "conditions": conditions });
        let page = page::of(&provider("sim", &status), false, now());
        assert_eq!(page.contains("  retained    Load balancers that stay: 1\n"), is_said, "{page}");
    }
}

#[test]
fn a_provider_without_a_serving_release_shows_the_reason() {
    let refused = json!({
        "digest": digest(2), "origin": "file x.wasm", "stage": "offered", "code": "CompileUnavailable",
        "reason": "the compile jail cannot be run", "lasting": false,
    });
    let waits = condition("Ready", "False", "NotServing", "no release serves: the source has not offered one yet");
    let status = json!({ "observedGeneration": 3, "conditions": [waits], "refused": refused });
    expect![[r#"
        Provider sim: not ready
          reason      no release serves: the source has not offered one yet
          refused     sha256:0202020202020202020202020202020202020202020202020202020202020202 at offered: CompileUnavailable, from file x.wasm; it will be tried again
                      the compile jail cannot be run
          serves      nothing
          swaps       0 since the manager started

          CONDITION   STATUS   REASON       SINCE
          Ready       False    NotServing   60m

          No call of the serving release has ended yet.
    "#]].assert_eq(&page::of(&provider("sim", &status), false, now()));
}

#[test]
fn a_provider_without_a_status() {
    expect![[r#"
        Provider sim: unknown
          reason      no manager has reported on the provider; check that the leader runs with --provider-resources
    "#]]
    .assert_eq(&page::of(&provider("sim", &Value::Null), false, now()));
}

/// A guest chooses its name, and a registry chooses the text of its error.
#[test]
fn control_characters_of_untrusted_text_are_not_printed() {
    let hostile = "\x1b[2J\r\n\u{9b}1A\u{202e}";
    let mut provider = serde_json::to_value(degraded()).unwrap();
    fn spoil(value: &mut Value, hostile: &str) {
        match value {
            Value::String(text)
                if !text.starts_with("20") && text != "True" && text != "Ready" && text != "Degraded" =>
            {
                text.push_str(hostile);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| spoil(item, hostile)),
            Value::Object(fields) => fields.values_mut().for_each(|field| spoil(field, hostile)),
            _ => {}
        }
    }
    spoil(&mut provider, hostile);
    let page = page::of(&serde_json::from_value(provider).unwrap(), true, now());
    assert!(page.contains("simcloud [2J   1A "), "{page}");
    assert!(page.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{page:?}");
}

#[test]
fn documents_are_always_lists_of_providers() {
    let list = list(vec![ready()]);
    let json: ProviderList = serde_json::from_str(&shown(&list, StatusFormat::Json, now()).unwrap()).unwrap();
    assert_eq!(json, list);
    let yaml: ProviderList = serde_saphyr::from_str(&shown(&list, StatusFormat::Yaml, now()).unwrap()).unwrap();
    assert_eq!(yaml, list);
    let none =
        serde_json::from_str::<Value>(&shown(&ProviderList::default(), StatusFormat::Json, now()).unwrap()).unwrap();
    assert_eq!(none["items"], json!([]));
}

#[test]
fn without_objects_the_text_says_how_to_ask_a_manager_with_a_provider_file() {
    expect![[r#"
        No Providers in the cluster. If the manager has a provider file, ask the manager with --server.
    "#]]
    .assert_eq(&shown(&list(vec![]), StatusFormat::Text, now()).unwrap());
}

#[test]
fn names_choose_providers_and_an_unknown_name_is_an_error() {
    let all = || list(vec![provider("b", &Value::Null), provider("a", &Value::Null)]);
    let names = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        choose(all(), &names).map(|list| list.items.into_iter().map(|item| item.metadata.name).collect::<Vec<_>>())
    };
    assert_eq!(names(&[]).unwrap(), ["a", "b"]);
    assert_eq!(names(&["b"]).unwrap(), ["b"]);
    let error = names(&["b", "c"]).unwrap_err().to_string();
    expect![[r#"there is no provider "c"; the providers are a, b"#]].assert_eq(&error);
    expect![[r#"there is no provider "c"; there are no providers"#]]
        .assert_eq(&choose(list(vec![]), &["c".to_owned()]).unwrap_err().to_string());
}
