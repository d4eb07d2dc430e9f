//! H1, H2 and N3: the desired addresses of a node.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

use expect_test::{Expect, expect};
use rstest::rstest;
use skysail_provider::{AddressKind, NodeAddress};

use super::{ADDRESSES_MAX, AddressError, add, desired, is_changed, update};

/// `H:host I:10.0.0.1 E:192.0.2.1`
fn parse(text: &str) -> Vec<NodeAddress> {
    let address = |word: &str| {
        let (kind, address) = word.split_once(':').unwrap();
        let kind = match kind {
            "H" => AddressKind::Hostname,
            "I" => AddressKind::InternalIp,
            "E" => AddressKind::ExternalIp,
            "X" => AddressKind::ExternalDns,
            _ => AddressKind::InternalDns,
        };
        NodeAddress { kind, address: address.to_owned() }
    };
    text.split_whitespace().map(address).collect()
}

fn print(addresses: &[NodeAddress]) -> String {
    let word = |a: &NodeAddress| {
        let kind = match a.kind {
            AddressKind::Hostname => "H",
            AddressKind::InternalIp => "I",
            AddressKind::ExternalIp => "E",
            AddressKind::ExternalDns => "X",
            _ => "D",
        };
        format!("{kind}:{}", a.address)
    };
    addresses.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(present: &str, cloud: &str, node_ip: Option<&str>, expected: Expect) {
    let line = match desired(&parse(present), &parse(cloud), node_ip) {
        Ok(addresses) => print(&addresses),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&line);
}

#[test]
fn n1_1_the_clouds_host_name_takes_precedence() {
    check("H:old", "H:new I:10.0.0.1 E:192.0.2.1", None, expect!["H:new I:10.0.0.1 E:192.0.2.1"]);
}

#[test]
fn n1_2_where_the_cloud_has_no_host_name_the_kubelets_is_kept() {
    check("H:old I:10.9.9.9", "I:10.0.0.1 E:192.0.2.1", None, expect!["I:10.0.0.1 E:192.0.2.1 H:old"]);
}

/// N1.12, lesson 35.
#[test]
fn an_empty_list_from_the_cloud_removes_no_address() {
    check("H:old I:10.0.0.1", "", None, expect![""]);
}

#[rstest]
#[case::h1_1_nothing_and_nothing("", "", "")]
#[case::h1_2_two_into_none("", "I:1.1.1.1 E:2.2.2.2", "I:1.1.1.1 E:2.2.2.2")]
#[case::h1_3_the_same_twice("", "I:1.1.1.1 I:1.1.1.1", "I:1.1.1.1")]
#[case::h1_4_one_old_one_new("I:1.1.1.1", "I:1.1.1.1 E:2.2.2.2", "I:1.1.1.1 E:2.2.2.2")]
fn an_address_is_added_once(#[case] present: &str, #[case] more: &str, #[case] expected: &str) {
    let mut addresses = parse(present);
    add(&mut addresses, parse(more).iter());
    assert_eq!(print(&addresses), expected);
}

#[test]
fn a_repeated_address_of_the_cloud_is_written_once() {
    check("H:h", "I:10.0.0.1 I:10.0.0.1", None, expect!["I:10.0.0.1 H:h"]);
}

/// Each case: the node IP, the cloud's list, the result.
#[rstest]
#[case::h2_1_the_only_one("10.1.1.1", "I:10.1.1.1 H:h", Some("I:10.1.1.1 H:h"))]
#[case::h2_2_an_external_one("55.55.55.55", "I:10.1.1.1 E:55.55.55.55 H:h", Some("E:55.55.55.55 I:10.1.1.1 H:h"))]
#[case::h2_3_of_two_types(
    "55.5.5.5",
    "I:44.4.4.4 E:44.4.4.4 I:55.5.5.5 E:55.5.5.5 H:h",
    Some("I:55.5.5.5 E:55.5.5.5 H:h")
)]
#[case::h2_4_other_types_stay(
    "10.1.1.1",
    "I:10.1.1.1 E:55.5.5.5 D:i X:e H:h",
    Some("I:10.1.1.1 E:55.5.5.5 D:i X:e H:h")
)]
#[case::h2_5_one_of_three(
    "10.1.1.1",
    "I:10.1.1.1 I:10.2.2.2 I:10.3.3.3 E:55.5.5.5 H:h",
    Some("I:10.1.1.1 E:55.5.5.5 H:h")
)]
#[case::h2_6_unknown("10.2.2.2", "I:10.1.1.1 E:55.5.5.5 H:h", None)]
#[case::h2_7_another_spelling("fd00::1", "I:10.1.1.1 I:fd00:0:0:0:0:0:0:1 H:h", Some("I:fd00:0:0:0:0:0:0:1 H:h"))]
#[case::h2_8_one_of_a_pair("10.1.1.1,fd00::1", "I:10.1.1.1 H:h", None)]
#[case::h2_9_a_pair("10.1.1.1,fd00::1", "I:10.1.1.1 I:fd00::1 H:h", Some("I:10.1.1.1 I:fd00::1 H:h"))]
#[case::h2_10_a_pair_the_other_way_round(
    "10.1.1.1,fd00::1",
    "I:fd00::1 I:10.1.1.1 H:h",
    Some("I:10.1.1.1 I:fd00::1 H:h")
)]
#[case::h2_11_a_pair_of_many(
    "10.1.1.1,fd00::1",
    "I:10.1.1.1 I:10.1.1.2 I:fd00::2 I:fd00::1 H:h",
    Some("I:10.1.1.1 I:fd00::1 H:h")
)]
#[case::h2_12_a_pair_and_an_external_one(
    "10.1.1.1,fd00::1",
    "I:10.1.1.1 E:55.5.5.5 I:fd00::2 I:fd00::1 H:h",
    Some("I:10.1.1.1 I:fd00::1 E:55.5.5.5 H:h")
)]
#[case::h2_13_a_pair_with_ipv6_first(
    "fd00::1,10.1.1.1",
    "I:10.1.1.1 E:55.5.5.5 I:fd00::1 E:fd01::1 H:h",
    Some("I:fd00::1 I:10.1.1.1 E:55.5.5.5 E:fd01::1 H:h")
)]
#[case::h2_14_a_pair_of_two_types(
    "55.5.5.5,fd00::1",
    "I:10.1.1.1 E:55.5.5.5 I:fd00::1 E:fd01::1 H:h",
    Some("E:55.5.5.5 I:fd00::1 H:h")
)]
fn the_node_ip_comes_first_and_hides_others_of_its_type(
    #[case] node_ip: &str,
    #[case] cloud: &str,
    #[case] expected: Option<&str>,
) {
    let addresses = desired(&[], &parse(cloud), Some(node_ip)).ok();
    assert_eq!(addresses.map(|addresses| print(&addresses)).as_deref(), expected);
}

#[test]
fn leading_zeros_of_a_node_ip_are_read_as_decimal() {
    check("", "I:10.0.0.1", Some("010.000.0.01"), expect!["I:10.0.0.1"]);
}

#[rstest]
#[case::n3_1_the_same("I:10.0.0.1 E:132.143.154.163", "I:10.0.0.1 E:132.143.154.163", false)]
#[case::n3_2_another_ip("I:10.0.0.1 E:132.143.154.163", "I:10.0.0.1 E:132.143.154.164", true)]
#[case::n3_3_one_less("I:10.0.0.1 E:132.143.154.163 H:h", "I:10.0.0.1 E:132.143.154.163", true)]
#[case::n3_4_one_more("I:10.0.0.1 E:132.143.154.163", "I:10.0.0.1 E:132.143.154.163 H:h", true)]
#[case::n3_5_types_swapped("I:10.0.0.1 E:132.143.154.163", "I:132.143.154.163 E:10.0.0.1", true)]
// Upstream's result is the opposite for these two: lesson 32.
#[case::dual_stack("I:10.0.0.1 I:fd00::1", "I:10.0.0.1 I:fd00::1", false)]
#[case::a_new_order("I:10.0.0.1 E:132.143.154.163", "E:132.143.154.163 I:10.0.0.1", true)]
#[case::nothing("I:10.0.0.1", "", false)]
fn lists_are_compared_in_order(#[case] present: &str, #[case] desired: &str, #[case] changed: bool) {
    assert_eq!(is_changed(&parse(present), &parse(desired)), changed);
}

/// Lesson 35.
#[test]
fn a_partial_answer_removes_no_internal_ip() {
    let kept = |present: &str, cloud: &str| update(&parse(present), &parse(cloud), None);
    assert_eq!(kept("I:10.0.0.1 E:192.0.2.1", "E:192.0.2.1"), Err(AddressError::Partial));
    let update = kept("I:10.0.0.1 E:192.0.2.1 H:h", "I:10.0.0.2").unwrap().unwrap();
    assert_eq!(
        (print(&update.addresses), print(&update.removed)),
        ("I:10.0.0.2 H:h".into(), "I:10.0.0.1 E:192.0.2.1".into())
    );
    assert_eq!(
        kept("E:192.0.2.1", "E:192.0.2.2").unwrap().unwrap().removed,
        parse("E:192.0.2.1"),
        "the node never had an InternalIP"
    );
    assert_eq!(kept("I:10.0.0.1", ""), Ok(None));
}

/// N1.9, N1.10.
#[test]
fn a_node_ip_that_is_wrong_or_unknown_is_an_error() {
    check(
        "",
        "I:10.0.0.1",
        Some("10.0.0.2"),
        expect![
            "the cloud's addresses of the machine do not include the kubelet's --node-ip 10.0.0.2; correct --node-ip or the machine's addresses"
        ],
    );
    for annotation in
        ["", "x", "10.0.0.1,", "10.0.0.1, 2001:db8::1", "10.0.0.1,10.0.0.2", "0.0.0.0,2001:db8::1", "1.2.3.4,::1,::2"]
    {
        let error = desired(&[], &parse("I:10.0.0.1"), Some(annotation)).unwrap_err().to_string();
        assert!(error.starts_with("annotation alpha.kubernetes.io/provided-node-ip"), "{annotation}: {error}");
    }
}

#[test]
fn invalid_addresses_of_a_provider_are_refused() {
    check(
        "",
        "I:10.0.0.300",
        None,
        expect![[r#"the provider returned the address "10.0.0.300", which is not valid for its type"#]],
    );
    check(
        "",
        "E:host",
        None,
        expect![[r#"the provider returned the address "host", which is not valid for its type"#]],
    );
    // A guest can return lists of any length: 10,000 addresses are refused as 65 are.
    let many = vec![NodeAddress { kind: AddressKind::InternalIp, address: "10.0.0.1".to_owned() }; ADDRESSES_MAX + 1];
    assert_eq!(
        desired(&[], &many, None).unwrap_err().to_string(),
        "the provider returned 65 addresses; at most 64 are allowed"
    );
}
