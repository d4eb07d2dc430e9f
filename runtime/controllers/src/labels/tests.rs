//! The labels of nodes.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use skysail_provider::{Instance, StringMap};

use super::{from_instance, mirrored, refreshed};

fn map(text: &str) -> BTreeMap<String, String> {
    let pair = |word: &str| {
        let (key, value) = word.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    text.split_whitespace().map(pair).collect()
}

fn line(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

#[track_caller]
fn check(present: &str, further: &str, expected: Expect) {
    let instance = Instance {
        instance_type: "t1.micro".to_owned(),
        zone: "us-west-1a".to_owned(),
        region: "us-west".to_owned(),
        labels: map(further),
        ..Instance::default()
    };
    match from_instance(&map(present), &instance) {
        Ok(labels) => expected.assert_eq(&line(&labels)),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

/// N1.15, N1.18, N1.19.
#[test]
fn type_zone_and_region_are_written_in_both_spellings_and_additional_labels_where_allowed() {
    check(
        "topology.kubernetes.io/zone=old my.custom.label/taken=mine",
        "topology.k8s.cp/zone-id=az1 my.custom.label/taken=theirs topology.kubernetes.io/region=x topology.k8s.io/region=x \
         kubernetes.io/region=x k8s.io/region=x app.k8snio/bar=a k8snio/bar=b",
        expect![[r#"
            app.k8snio/bar=a
            beta.kubernetes.io/instance-type=t1.micro
            failure-domain.beta.kubernetes.io/region=us-west
            failure-domain.beta.kubernetes.io/zone=us-west-1a
            k8snio/bar=b
            node.kubernetes.io/instance-type=t1.micro
            topology.k8s.cp/zone-id=az1
            topology.kubernetes.io/region=us-west
            topology.kubernetes.io/zone=us-west-1a
        "#]],
    );
}

#[test]
fn the_error_names_a_label_that_is_not_valid() {
    check(
        "",
        "a//b=c",
        expect![[r#"the provider returned the label key "a//b", which is not a valid label key in Kubernetes"#]],
    );
    check(
        "",
        "UPPER.example/b=c",
        expect![[
            r#"the provider returned the label key "UPPER.example/b", which is not a valid label key in Kubernetes"#
        ]],
    );
    check(
        "",
        "ok=-c",
        expect![[
            r#"the provider returned the value "-c" for the label "ok", which is not a valid label value in Kubernetes"#
        ]],
    );
    check(
        "",
        &format!("ok={}", "v".repeat(64)),
        expect![[
            r#"the provider returned the value "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv" for the label "ok", which is not a valid label value in Kubernetes"#
        ]],
    );
}

const BETA: &str = "failure-domain.beta.kubernetes.io/zone=z failure-domain.beta.kubernetes.io/region=r beta.kubernetes.io/instance-type=t";
const STABLE: &str = "topology.kubernetes.io/zone=z topology.kubernetes.io/region=r node.kubernetes.io/instance-type=t";

#[test]
fn n2_1_the_newer_spelling_is_added() {
    assert_eq!(mirrored(&map(BETA)), map(STABLE));
}

#[test]
fn n2_2_equal_spellings_stay_unchanged() {
    assert_eq!(mirrored(&map(&format!("{BETA} {STABLE}"))), map(""));
}

#[test]
fn n2_3_the_newer_spelling_follows_the_older() {
    let other = "topology.kubernetes.io/zone=old topology.kubernetes.io/region=r";
    let changed = map("topology.kubernetes.io/zone=z node.kubernetes.io/instance-type=t");
    assert_eq!(mirrored(&map(&format!("{BETA} {other}"))), changed);
}

#[test]
fn a_node_with_only_the_newer_spelling_stays_unchanged() {
    assert_eq!(mirrored(&map(STABLE)), map(""));
}

/// Lesson 31: a machine that moved or was resized.
#[test]
fn a_refresh_changes_different_labels_and_removes_none() {
    let instance = Instance {
        instance_type: "t2.large".to_owned(),
        zone: "z".to_owned(),
        labels: map("rack=7 kubernetes.io/role=x"),
        ..Instance::default()
    };
    let present = format!("{BETA} {STABLE} rack=6 mine=yes");
    let changed = "beta.kubernetes.io/instance-type=t2.large node.kubernetes.io/instance-type=t2.large rack=7";
    assert_eq!(refreshed(&StringMap::from(&map(&present)), &instance), Ok(map(changed)));
    // `map` keeps the last value of a repeated key.
    let there = format!("{BETA} {STABLE} {changed}");
    assert_eq!(refreshed(&StringMap::from(&map(&there)), &instance), Ok(map("")), "a second refresh changes nothing");
    let bad = Instance { labels: map("a//b=c"), ..instance };
    assert!(refreshed(&StringMap::from(&map("")), &bad).is_err());
}
