//! H3, H4 and H5: taints of a node.
//! IDs: tests/conformance/README.md.

use k8s_openapi::api::core::v1::Taint;
use rstest::rstest;

use super::{exists, without};

/// `key=value:effect`
fn taint(text: &str) -> Taint {
    let (key, rest) = text.split_once('=').unwrap();
    let (value, effect) = rest.split_once(':').unwrap();
    let value = Some(value.to_owned());
    Taint { key: key.to_owned(), value, effect: effect.to_owned(), ..Taint::default() }
}

fn taints(text: &str) -> Vec<Taint> {
    text.split_whitespace().map(taint).collect()
}

const PRESENT: &str = "foo_1=bar_1:NoExecute foo_2=bar_2:NoSchedule";

#[rstest]
#[case::h3_same_key_and_effect("foo_1=other:NoExecute", true)]
#[case::h3_another_key("foo_4=bar_1:NoExecute", false)]
#[case::h3_another_effect("foo_2=bar_2:NoExecute", false)]
fn a_taint_is_found_by_key_and_effect(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(exists(&taints(PRESENT), &taint(text)), expected);
}

#[rstest]
#[case::h4_an_absent_key(PRESENT, "foo_3=:NoSchedule", None)]
#[case::h4_a_present_one(PRESENT, "foo_1=:NoExecute", Some("foo_2=bar_2:NoSchedule"))]
#[case::h4_an_empty_list("", "foo_1=:NoExecute", None)]
#[case::h5_another_key("foo=bar:NoSchedule", "foo_1=:NoSchedule", None)]
#[case::h5_another_effect("foo=bar:NoSchedule", "foo=:NoExecute", None)]
#[case::h5_the_same("foo=bar:NoSchedule", "foo=:NoSchedule", Some(""))]
#[case::h5_an_empty_list("", "foo=:NoSchedule", None)]
fn a_taint_is_removed_by_key_and_effect(#[case] present: &str, #[case] off: &str, #[case] expected: Option<&str>) {
    assert_eq!(without(&taints(present), &taint(off)), expected.map(taints));
}
