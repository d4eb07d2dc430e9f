//! Addresses that a provider may and may not assign, with the texts of the refusals.

use expect_test::{Expect, expect};

use super::ProviderAddresses;

#[track_caller]
fn check(cidrs: &[&str], address: &str, load_balancer: Expect, node: Expect) {
    let cidrs: Vec<String> = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
    let empty = Vec::new();
    let address = address.parse().unwrap();
    let text = |refusal: Option<String>| refusal.unwrap_or_else(|| "ok".to_owned());
    // The list is tested for load balancers and for nodes separately, because it may be invalid for
    // one of them.
    let of_load_balancers = ProviderAddresses::new(&cidrs, &empty);
    load_balancer.assert_eq(
        &of_load_balancers.map_or_else(|e| format!("{}: {e}", e.place), |a| text(a.refuse_load_balancer(address))),
    );
    let of_nodes = ProviderAddresses::new(&empty, &cidrs);
    node.assert_eq(&of_nodes.map_or_else(|e| format!("{}: {e}", e.place), |a| text(a.refuse_node(address))));
}

#[test]
fn unspecified_multicast_and_reserved_addresses_are_always_refused() {
    for address in ["0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:224.0.0.1"] {
        for cidrs in [vec![], vec!["128.0.0.0/1".to_owned(), "::/0".to_owned(), "0.0.0.0/0".to_owned()]] {
            let addresses = ProviderAddresses::new(&cidrs, &cidrs).unwrap();
            let refusals = [
                addresses.refuse_load_balancer(address.parse().unwrap()),
                addresses.refuse_node(address.parse().unwrap()),
            ];
            assert!(refusals.iter().flatten().count() == 2, "{address} with {cidrs:?}: {refusals:?}");
        }
    }
}

#[test]
fn a_metadata_service_is_refused_even_if_its_network_is_listed() {
    let cidrs = ["168.63.0.0/16", "169.254.0.0/16", "fd00::/8", "100.64.0.0/10"].map(str::to_owned);
    let addresses = ProviderAddresses::new(&[], &cidrs).unwrap();
    for address in ["168.63.129.16", "169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "100.100.100.200"] {
        let refusal = addresses.refuse_node(address.parse().unwrap()).unwrap();
        assert!(refusal.contains("metadata"), "{refusal}");
    }
    check(
        &[],
        "168.63.129.16",
        expect![
            "168.63.129.16 is refused: it is the address of a cloud's metadata service, which a load balancer cannot have"
        ],
        expect!["168.63.129.16 is refused: it is the address of a cloud's metadata service, which a node cannot have"],
    );
}

#[test]
fn loopback_is_refused_unless_it_is_listed() {
    check(
        &[],
        "127.0.0.1",
        expect![
            "127.0.0.1 is refused (loopback); if the address is right, add its network to the provider's spec.loadBalancerCidrs"
        ],
        expect![
            "127.0.0.1 is refused (loopback); if the address is right, add its network to the provider's spec.nodeCidrs"
        ],
    );
    check(
        &["0.0.0.0/0"],
        "127.0.0.1",
        expect![
            "127.0.0.1 is refused (loopback); if the address is right, add its network to the provider's spec.loadBalancerCidrs"
        ],
        expect![
            "127.0.0.1 is refused (loopback); if the address is right, add its network to the provider's spec.nodeCidrs"
        ],
    );
    check(&["127.0.0.0/8"], "127.41.0.1", expect!["ok"], expect!["ok"]);
    check(&["127.0.0.0/8"], "::ffff:127.0.0.1", expect!["ok"], expect!["ok"]);
}

#[test]
fn a_node_may_have_a_listed_link_local_address_and_a_load_balancer_never() {
    check(
        &[],
        "fe80::1",
        expect!["fe80::1 is refused (link-local): a load balancer cannot have such an address"],
        expect![
            "fe80::1 is refused (link-local); if the address is right, add its network to the provider's spec.nodeCidrs"
        ],
    );
    check(
        &["fe80::/64"],
        "fe80::1",
        expect!["loadBalancerCidrs[0]: fe80::/64 is link-local, which a load balancer cannot have; remove the entry"],
        expect!["ok"],
    );
}

#[test]
fn without_a_list_public_and_private_addresses_pass_and_with_a_list_only_listed_ones() {
    for address in ["203.0.113.1", "10.0.0.1", "192.168.1.1", "2001:db8::1", "fd00::1"] {
        check(&[], address, expect!["ok"], expect!["ok"]);
    }
    check(&["198.51.100.0/24", "2001:db8::/32"], "2001:db8:1::1", expect!["ok"], expect!["ok"]);
    check(
        &["198.51.100.0/24"],
        "10.96.0.1",
        expect![
            "10.96.0.1 is in none of the provider's spec.loadBalancerCidrs; if the address is right, add its network there"
        ],
        expect![
            "10.96.0.1 is in none of the provider's spec.nodeCidrs; if the address is right, add its network there"
        ],
    );
    check(&["0.0.0.0/0"], "10.96.0.1", expect!["ok"], expect!["ok"]);
}

#[test]
fn an_invalid_range_is_refused_with_its_place_in_the_list() {
    let refusal = |text: &str| {
        let error = ProviderAddresses::new(&["10.0.0.0/8".to_owned(), text.to_owned()], &[]).unwrap_err();
        assert_eq!(error.place, "loadBalancerCidrs[1]");
        error.to_string()
    };
    for wrong in ["", "10.0.0.1", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "a/8", "::/129"] {
        assert!(refusal(wrong).contains("is not a CIDR"), "{wrong}");
    }
    assert!(refusal("10.0.0.1/8").contains("behind the prefix"));
    assert!(refusal("::ffff:10.0.0.0/104").contains("as IPv6"));
    assert!(refusal("224.1.0.0/16").contains("multicast"));
}
