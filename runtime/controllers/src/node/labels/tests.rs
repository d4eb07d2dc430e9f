//! Labels that nodes get.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use skysail_provider::Instance;

use super::{from_instance, mirrored};

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
fn type_zone_and_region_are_written_in_both_spellings_and_further_labels_where_they_may() {
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
fn a_label_that_no_api_server_accepts_is_named() {
    check("", "a//b=c", expect![[r#"the provider gave the label key "a//b", which no API server accepts"#]]);
    check(
        "",
        "UPPER.example/b=c",
        expect![[r#"the provider gave the label key "UPPER.example/b", which no API server accepts"#]],
    );
    check("", "ok=-c", expect![[r#"the provider gave the value "-c" for label "ok", which no API server accepts"#]]);
    check(
        "",
        &format!("ok={}", "v".repeat(64)),
        expect![[
            r#"the provider gave the value "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv" for label "ok", which no API server accepts"#
        ]],
    );
}

/// N2.1 to N2.3.
#[test]
fn the_newer_spelling_follows_the_older() {
    let beta = "failure-domain.beta.kubernetes.io/zone=z failure-domain.beta.kubernetes.io/region=r beta.kubernetes.io/instance-type=t";
    let stable = "topology.kubernetes.io/zone=z topology.kubernetes.io/region=r node.kubernetes.io/instance-type=t";
    assert_eq!(mirrored(&map(beta)), map(stable), "N2.1");
    assert_eq!(mirrored(&map(&format!("{beta} {stable}"))), map(""), "N2.2");
    let other = "topology.kubernetes.io/zone=old topology.kubernetes.io/region=r";
    assert_eq!(
        mirrored(&map(&format!("{beta} {other}"))),
        map("topology.kubernetes.io/zone=z node.kubernetes.io/instance-type=t"),
        "N2.3"
    );
    assert_eq!(mirrored(&map(stable)), map(""), "a node with the newer spelling alone is left alone");
}
