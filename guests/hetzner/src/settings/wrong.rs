//! What the user reads about a wrong value of each key.

use expect_test::expect;
use skysail_guest_sdk::config::Ini;

use super::{parse, read};

/// Each key, and lines in which the key is wrong.
const WRONG: [(&str, &str); 20] = [
    ("endpoint", "endpoint = api.hetzner.cloud"),
    ("credential", "credential = my token"),
    ("network", "network = a/b"),
    ("network-routes-enabled", "network-routes-enabled = true"),
    ("instances-address-family", "instances-address-family = ipv5"),
    ("instances-zone-label-enabled", "instances-zone-label-enabled = yes"),
    ("load-balancers-enabled", "load-balancers-enabled = on"),
    ("load-balancers-location", "load-balancers-location ="),
    ("load-balancers-network-zone", "load-balancers-location = fsn1\nload-balancers-network-zone = eu-central"),
    ("load-balancers-type", "load-balancers-type = lb 11"),
    ("load-balancers-algorithm-type", "load-balancers-algorithm-type = random"),
    ("load-balancers-disable-public-network", "load-balancers-disable-public-network = no"),
    ("load-balancers-disable-ipv6", "load-balancers-disable-ipv6 = maybe"),
    ("load-balancers-disable-private-ingress", "load-balancers-disable-private-ingress = off"),
    ("load-balancers-use-private-ip", "load-balancers-use-private-ip = true"),
    ("load-balancers-private-subnet-ip-range", "load-balancers-private-subnet-ip-range = fd00::/64"),
    ("load-balancers-uses-proxyprotocol", "load-balancers-uses-proxyprotocol = 2"),
    ("load-balancers-health-check-interval", "load-balancers-health-check-interval = 15"),
    ("load-balancers-health-check-timeout", "load-balancers-health-check-timeout = 10ms"),
    ("load-balancers-health-check-retries", "load-balancers-health-check-retries = 0"),
];

/// More wrong values, and lines that no key has.
const MORE: [&str; 9] = [
    "endpoint = https://user@api.hetzner.cloud/v1",
    "network = kube\nnetwork-routes-enabled = maybe",
    "load-balancers-network-zone = eu central",
    "load-balancers-use-private-ip = 2",
    "load-balancers-private-subnet-ip-range = 10.0.1.0",
    "load-balancers-health-check-retries = three",
    "HCLOUD_TOKEN = x",
    "load-balancer-type = lb11",
    "network = a\nnetwork = b",
];

fn said(text: &str) -> String {
    parse(text).problems().into_iter().map(|problem| format!("{problem}\n")).collect()
}

#[test]
fn a_wrong_value_of_each_key_is_refused_with_the_reason_and_the_remedy() {
    let mut ini = Ini::parse("");
    read(&mut ini);
    let mut tested: Vec<_> = WRONG.iter().map(|(key, _)| *key).collect();
    tested.sort_unstable();
    assert_eq!(ini.keys(), tested, "every key has a wrong value in this test");
    for (key, lines) in WRONG {
        let problems = parse(lines).problems();
        assert!(problems.iter().any(|problem| problem.key == key), "{key}: {problems:?}");
    }
    expect![[r#"
        line 1, endpoint: "api.hetzner.cloud": is not a URL; write https://HOST:PORT/PATH
        line 1, credential: "my token": is not a name; write a text without blanks and without / ? # *
        line 1, network: "a/b": is not a name; write a text without blanks and without / ? # *
        line 1, network-routes-enabled: routes need a network; write the key network, too
        line 1, instances-address-family: "ipv5": is not an address family; write ipv4, ipv6 or dualstack
        line 1, instances-zone-label-enabled: "yes": is not a Boolean; write true or false
        line 1, load-balancers-enabled: "on": is not a Boolean; write true or false
        line 1, load-balancers-location: "": is not a name; write a text without blanks and without / ? # *
        line 2, load-balancers-network-zone: stands beside load-balancers-location; write only one of the two
        line 1, load-balancers-type: "lb 11": is not a name; write a text without blanks and without / ? # *
        line 1, load-balancers-algorithm-type: "random": is not an algorithm; write round_robin or least_connections
        line 1, load-balancers-disable-public-network: "no": is not a Boolean; write true or false
        line 1, load-balancers-disable-ipv6: "maybe": is not a Boolean; write true or false
        line 1, load-balancers-disable-private-ingress: "off": is not a Boolean; write true or false
        line 1, load-balancers-use-private-ip: private addresses need a network; write the key network, too
        line 1, load-balancers-private-subnet-ip-range: "fd00::/64": is not a range of a private network, which has IPv4 only; write for example 10.0.1.0/24
        line 1, load-balancers-uses-proxyprotocol: "2": is not a Boolean; write true or false
        line 1, load-balancers-health-check-interval: "15": is not a number of seconds; write for example 15s or 1m30s
        line 1, load-balancers-health-check-timeout: "10ms": is not a number of seconds; write for example 15s or 1m30s
        line 1, load-balancers-health-check-retries: "0": is not a number of failures; write for example 3
    "#]].assert_eq(&WRONG.map(|(_, lines)| said(lines)).concat());
}

#[test]
fn more_wrong_values_and_unknown_lines_are_refused_with_the_reason_and_the_remedy() {
    expect![[r#"
        line 1, endpoint: "https://user@api.hetzner.cloud/v1": is not the URL of a service; write https://HOST:PORT/PATH without user, query and fragment
        line 2, network-routes-enabled: "maybe": is not a Boolean; write true or false
        line 1, load-balancers-network-zone: "eu central": is not a name; write a text without blanks and without / ? # *
        line 1, load-balancers-use-private-ip: "2": is not a Boolean; write true or false
        line 1, load-balancers-private-subnet-ip-range: "10.0.1.0": "10.0.1.0" is not a CIDR such as 10.0.0.0/8
        line 1, load-balancers-health-check-retries: "three": is not a number of failures; write for example 3
        line 1, HCLOUD_TOKEN: is not a key of this provider; remove the line
        line 1, load-balancer-type: is not a key of this provider; remove the line, or write load-balancers-type if it is meant
        line 2, network: stands here a second time; remove one of the two lines
    "#]].assert_eq(&MORE.map(said).concat());
}
