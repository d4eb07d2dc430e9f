//! The definition is complete and equals the committed file. `tests/e2e` tests it with an API
//! server.

use std::collections::BTreeSet;

use expect_test::expect_file;
use rstest::rstest;
use serde_json::{Map, Value};
use skysail_host::slot::{
    ActiveStatus, CanaryStatus, CandidateStatus, ProbationStatus, Refusal, ShadowStatus, SlotStatus, SourceFailure,
    Stage,
};

use super::{definition, root, schema, yaml};

/// The schema of `spec` or `status`.
fn part(name: &str) -> Map<String, Value> {
    root().unwrap()["properties"][name].as_object().unwrap().clone()
}

/// `UPDATE_EXPECT=1 cargo test -p skysail custom_resource` writes the file.
#[test]
fn the_committed_file_is_the_definition() {
    expect_file!["../../../../deploy/manifests/crd.yaml"].assert_eq(&yaml().unwrap());
}

#[test]
fn nothing_is_lost_between_the_schema_and_the_definition() {
    let definition = super::plain(serde_json::to_value(definition().unwrap()).unwrap());
    let written = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
    assert_eq!(*written, super::plain(root().unwrap()));
}

#[rstest]
#[case("spec")]
#[case("status")]
fn every_field_has_a_description(#[case] name: &str) {
    let mut undescribed = Vec::new();
    let mut look = |place: &str, schema: &mut Map<String, Value>| {
        let described = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let is_field = !place.ends_with(']') && !place.ends_with('*');
        // No links and code marks of Rust's documentation.
        if is_field
            && (!described.ends_with('.')
                || described.contains(['`', '['].as_slice()) && !described.contains("[fd00::1]"))
        {
            undescribed.push(format!("{place}: {described}"));
        }
        Ok(())
    };
    schema::walk(&mut part(name), name, &mut look).unwrap();
    assert_eq!(undescribed, Vec::<String>::new());
}

/// `kubectl explain` must not offer what only a provider file has.
#[test]
fn no_description_names_a_file() {
    let mut named = Vec::new();
    let mut look = |place: &str, schema: &mut Map<String, Value>| {
        let described = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        if described.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "file") {
            named.push(format!("{place}: {described}"));
        }
        Ok(())
    };
    schema::walk(&mut part("spec"), "spec", &mut look).unwrap();
    assert_eq!(named, Vec::<String>::new());
}

#[test]
fn every_field_of_the_spec_has_a_bound_and_only_false_is_a_default() {
    let (mut without, mut off) = (Vec::new(), Vec::new());
    let mut look = |place: &str, schema: &mut Map<String, Value>| {
        let has = |keyword| schema.contains_key(keyword);
        let bounded = match schema.get("type").and_then(Value::as_str) {
            Some("string") => has("maxLength") || has("enum"),
            Some("array") => has("maxItems"),
            Some("object") => has("properties") || has("maxProperties"),
            Some("integer") => has("minimum"),
            Some("boolean") => true,
            other => panic!("{place} has type {other:?}"),
        };
        // The API server writes defaults into stored objects, where a later release cannot change
        // them.
        let default = schema.get("default");
        if default == Some(&Value::Bool(false)) {
            off.push(place.to_owned());
        } else if default.is_some() {
            without.push(place.to_owned());
        }
        if !bounded || has("nullable") || has("oneOf") || has("anyOf") {
            without.push(place.to_owned());
        }
        Ok(())
    };
    schema::walk(&mut part("spec"), "spec", &mut look).unwrap();
    assert_eq!(without, Vec::<String>::new());
    assert_eq!(
        off,
        ["allowIdentityChange", "allowInterfaceLoss", "allowUnmetEgress", "default"]
            .map(|field| format!("spec.{field}"))
    );
}

#[test]
fn an_entry_without_a_field_is_an_error() {
    let error = schema::add(&mut part("spec"), &[("sources", Value::Null), ("source", Value::Null)]).unwrap_err();
    assert_eq!(error.to_string(), "no field at sources");
}

/// A slot in which every field is set.
fn slot_status() -> SlotStatus {
    let (digest, origin) = ("sha256:00".to_owned(), "file x.wasm".to_owned());
    SlotStatus {
        provider: "sim".to_owned(),
        active: Some(ActiveStatus {
            swap: 1,
            digest: digest.clone(),
            origin: origin.clone(),
            name: "sim".to_owned(),
            version: "1.0.0".to_owned(),
            contract: "0.1.0",
            interfaces: vec!["instances"],
            provider_id_schemes: vec!["sim".to_owned()],
            since_ms: 0,
            passed: true,
        }),
        canary: Some(CanaryStatus {
            digest: digest.clone(),
            origin: origin.clone(),
            version: "1.0.1".to_owned(),
            percent: 10,
            calls: 20,
            time_ms: 300_000,
        }),
        shadow: Some(ShadowStatus { digest: digest.clone(), ..ShadowStatus::default() }),
        probation: Some(ProbationStatus { predecessor: digest.clone(), calls: 20, time_ms: 300_000 }),
        candidate: Some(CandidateStatus { digest: digest.clone(), origin: origin.clone(), stage: Stage::Offered }),
        refused: Some(Refusal {
            digest,
            origin,
            stage: Stage::Offered,
            code: "LinkFailed",
            reason: "why".to_owned(),
            lasting: true,
            retried: false,
        }),
        quarantine: Vec::new(),
        source_failure: Some(SourceFailure { code: "FileMissing", reason: "why".to_owned() }),
        swaps: 1,
        draining: 0,
        generation: 1,
    }
}

#[test]
fn the_status_has_every_field_of_a_slots_status() {
    let slot = serde_json::to_value(slot_status()).unwrap();
    let status = Value::Object(part("status"));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let differ = |slot: &Value, schema: &Value| {
        let (slot, schema) = (keys(slot), keys(&schema["properties"]));
        slot.symmetric_difference(&schema).cloned().collect::<Vec<_>>()
    };
    // Only a slot has `generation` and `provider`; only an object has the others.
    let others = ["calls", "conditions", "generation", "observedGeneration", "provider", "providerIdSchemes"];
    assert_eq!(differ(&slot, &status), others);
    for part in ["probation", "canary", "shadow", "candidate", "refused", "sourceFailure"] {
        assert_eq!(differ(&slot[part], &status["properties"][part]), Vec::<String>::new(), "{part}");
    }
    // The object has a date in place of milliseconds. The archive needs `passed`, and the events
    // need `swap`.
    assert_eq!(differ(&slot["active"], &status["properties"]["active"]), ["passed", "since", "sinceMs", "swap"]);
}
