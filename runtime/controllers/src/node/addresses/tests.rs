//! H1, H2 and N3 of the catalogue: which addresses a node shall have.

use expect_test::{Expect, expect};
use skysail_provider::{AddressKind, NodeAddress};

use super::{ADDRESSES_MAX, desired};

/// `H:host I:10.0.0.1 E:192.0.2.1`
fn parse(text: &str) -> Vec<NodeAddress> {
    let address = |word: &str| {
        let (kind, address) = word.split_once(':').unwrap();
        let kind = match kind {
            "H" => AddressKind::Hostname,
            "I" => AddressKind::InternalIp,
            "E" => AddressKind::ExternalIp,
            _ => AddressKind::InternalDns,
        };
        NodeAddress { kind, address: address.to_owned() }
    };
    text.split_whitespace().map(address).collect()
}

#[track_caller]
fn check(present: &str, cloud: &str, node_ip: Option<&str>, expected: Expect) {
    let line = match desired(&parse(present), &parse(cloud), node_ip) {
        Ok(addresses) => addresses
            .iter()
            .map(|a| {
                let kind = match a.kind {
                    AddressKind::Hostname => "H",
                    AddressKind::InternalIp => "I",
                    AddressKind::ExternalIp => "E",
                    _ => "D",
                };
                format!("{kind}:{}", a.address)
            })
            .collect::<Vec<_>>()
            .join(" "),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&line);
}

/// N1.1, N1.2.
#[test]
fn the_clouds_host_name_wins_and_else_the_kubelets_is_kept() {
    check("H:old", "H:new I:10.0.0.1 E:192.0.2.1", None, expect!["H:new I:10.0.0.1 E:192.0.2.1"]);
    check("H:old I:10.9.9.9", "I:10.0.0.1 E:192.0.2.1", None, expect!["I:10.0.0.1 E:192.0.2.1 H:old"]);
}

/// N1.12, lesson 35.
#[test]
fn a_cloud_without_addresses_takes_none_away() {
    check("H:old I:10.0.0.1", "", None, expect![""]);
}

/// H2.
#[test]
fn the_node_ip_comes_first_and_hides_others_of_its_type() {
    check("", "I:10.0.0.1 I:10.0.0.2 E:192.0.2.1 H:h", Some("10.0.0.2"), expect!["I:10.0.0.2 E:192.0.2.1 H:h"]);
    check("", "I:10.0.0.1 E:192.0.2.1 E:192.0.2.2", Some("192.0.2.2"), expect!["E:192.0.2.2 I:10.0.0.1"]);
    let dual = "I:10.0.0.1 E:192.0.2.1 I:2001:db8::1 E:2001:db8::2 H:h";
    check("", dual, Some("2001:db8::1,10.0.0.1"), expect!["I:2001:db8::1 I:10.0.0.1 E:192.0.2.1 E:2001:db8::2 H:h"]);
    check("", "I:2001:db8::1 H:h", Some("2001:db8:0:0::1"), expect!["I:2001:db8::1 H:h"]);
    check("", "I:10.0.0.1", Some("010.000.0.01"), expect!["I:10.0.0.1"]);
}

/// N1.9, N1.10, H1.
#[test]
fn a_node_ip_that_is_wrong_or_unknown_is_an_error() {
    check(
        "",
        "I:10.0.0.1",
        Some("10.0.0.2"),
        expect!["the cloud does not know the node IP 10.0.0.2 that the kubelet was given"],
    );
    for annotation in
        ["", "x", "10.0.0.1,", "10.0.0.1, 2001:db8::1", "10.0.0.1,10.0.0.2", "0.0.0.0,2001:db8::1", "1.2.3.4,::1,::2"]
    {
        let error = desired(&[], &parse("I:10.0.0.1"), Some(annotation)).unwrap_err().to_string();
        assert!(error.starts_with("annotation alpha.kubernetes.io/provided-node-ip"), "{annotation}: {error}");
    }
}

#[test]
fn what_a_provider_gives_is_judged() {
    check(
        "",
        "I:10.0.0.300",
        None,
        expect![[r#"the provider gave the address "10.0.0.300", which is not valid for its type"#]],
    );
    check("", "E:host", None, expect![[r#"the provider gave the address "host", which is not valid for its type"#]]);
    let many = vec![NodeAddress { kind: AddressKind::InternalIp, address: "10.0.0.1".to_owned() }; ADDRESSES_MAX + 1];
    assert_eq!(
        desired(&[], &many, None).unwrap_err().to_string(),
        "the provider gave 65 addresses; at most 64 are written"
    );
}
