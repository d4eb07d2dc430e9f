//! Tests of `crate::policy`: tables of spellings, and property tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{
    Authority, AuthorityHost, CaBundleSpec, EgressPolicy, EgressRuleSpec, EgressSpec, Origin, Target,
    path::is_ambiguous,
};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn rule(origins: &[&str]) -> EgressRuleSpec {
    EgressRuleSpec { origins: strings(origins), ..EgressRuleSpec::default() }
}

fn policy(rules: Vec<EgressRuleSpec>, allow_cidrs: &[&str]) -> EgressPolicy {
    EgressPolicy::new(&EgressSpec { rules, allow_cidrs: strings(allow_cidrs), ca_bundle: None, proxy: None }).unwrap()
}

/// `allowed`, or the reason of the refusal.
fn verdict(policy: &EgressPolicy, method: &str, url: &str) -> String {
    let target = match Target::parse(url) {
        Ok(target) => target,
        Err(error) => return format!("malformed: {error}"),
    };
    policy.judge(method, &target).map_or_else(|refusal| refusal.to_string(), |()| "allowed".to_owned())
}

#[test]
fn a_request_reads_by_its_method_or_by_the_rule_that_allows_it() {
    let reads = |entries: &[&str]| Some(strings(entries));
    let by_parameter = EgressRuleSpec { reads: reads(&["Action=Describe*"]), ..rule(&["https://query.example.com"]) };
    let policy = policy(vec![rule(&["https://rest.example.com"]), by_parameter], &[]);
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let form = header("content-type", "application/x-www-form-urlencoded");
    let is_read = |method, url, headers: &[_], body: &str| policy.is_read(method, url, headers, body.as_bytes());
    assert!(is_read("GET", "https://rest.example.com/v1?a=b", &[], ""));
    assert!(!is_read("PUT", "https://rest.example.com/v1", &[], "{}"));
    assert!(is_read("POST", "https://query.example.com/", &form, "Action=DescribeVpcs"));
    assert!(!is_read("POST", "https://query.example.com/", &form, "Action=DeleteVpc"));
    assert!(!is_read("GET", "https://other.example.com/", &[], ""), "no rule allows it");
    assert!(!is_read("GET", "/v1", &[], "") && !is_read("GET", "https://rest.example.com/", &header("a b", ""), ""));
}

/// Forbidden URLs, and a word of the reason. `http_client/tests` sends all of them through the
/// whole client, too.
pub(crate) const FORBIDDEN: &[(&str, &str)] = &[
    // The metadata service, by every spelling of its address.
    ("http://169.254.169.254/latest/meta-data/", "metadata"),
    ("http://169.254.169.254:80/", "metadata"),
    ("https://169.254.169.254/", "metadata"),
    ("http://169.254.169.254./", "metadata"),
    ("http://2852039166/", "metadata"),
    ("http://0xa9fea9fe/", "metadata"),
    ("http://0xA9.0xFE.0xA9.0xFE/", "metadata"),
    ("http://0251.0376.0251.0376/", "metadata"),
    ("http://025177524776/", "metadata"),
    ("http://169.254.43518/", "metadata"),
    ("http://169.16689662/", "metadata"),
    ("http://169.0xfe.0251.254/", "metadata"),
    ("http://%31%36%39.254.169.254/", "metadata"),
    ("http://１６９.２５４.１６９.２５４/", "metadata"),
    ("http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/", "metadata"),
    ("http://169。254。169。254/", "metadata"),
    ("http://[::ffff:169.254.169.254]/", "metadata"),
    ("http://[::ffff:a9fe:a9fe]/", "metadata"),
    ("http://[0:0:0:0:0:ffff:a9fe:a9fe]/", "metadata"),
    ("http://[::169.254.169.254]/", "metadata"),
    ("http://[::ffff:0:169.254.169.254]/", "metadata"),
    ("http://[64:ff9b::169.254.169.254]/", "metadata"),
    ("http://[64:ff9b:1::a9fe:a9fe]/", "metadata"),
    ("http://[64:ff9b:1:a9fe:a9:fe00::]/", "metadata"),
    ("http://[2002:a9fe:a9fe::1]/", "metadata"),
    ("http://[2001:0:a9fe:a9fe::1]/", "metadata"),
    ("http://[2001:0:808:808:0:0:5601:5601]/", "metadata"),
    ("http://[2600::5efe:169.254.169.254]/", "metadata"),
    ("http://[2600::200:5efe:a9fe:a9fe]/", "metadata"),
    ("http://[fe80::a9fe:a9fe]/", "metadata"),
    ("http://[fd00:ec2::254]/", "metadata"),
    ("http://[FD00:0EC2:0:0:0:0:0:0254]/", "metadata"),
    ("http://[fd20:ce::254]/", "metadata"),
    ("http://169.254.170.2/v2/credentials", "metadata"),
    ("http://169.254.170.23/v1/credentials", "metadata"),
    ("http://100.100.100.200/latest/meta-data/", "metadata"),
    ("http://168.63.129.16/", "metadata"),
    ("http://192.0.0.192/", "metadata"),
    // Loopback and this host.
    ("http://127.0.0.1/", "loopback"),
    ("http://127.1/", "loopback"),
    ("http://0x7f.1/", "loopback"),
    ("http://017700000001/", "loopback"),
    ("http://2130706433/", "loopback"),
    ("http://127.255.255.254/", "loopback"),
    ("http://[::1]/", "loopback"),
    ("http://[0000:0000:0000:0000:0000:0000:0000:0001]/", "loopback"),
    ("http://[::ffff:127.0.0.1]/", "loopback"),
    ("http://[::7f00:1]/", "loopback"),
    ("http://[64:ff9b::7f00:1]/", "loopback"),
    ("http://0/", "unspecified"),
    ("http://0.0.0.0/", "unspecified"),
    ("http://0x0/", "unspecified"),
    ("http://0.1.2.3/", "unspecified"),
    ("http://[::]/", "unspecified"),
    ("http://[::ffff:0.0.0.0]/", "unspecified"),
    // Inside networks.
    ("http://10.0.0.1/", "private"),
    ("http://10.1/", "private"),
    ("http://012.0.0.1/", "private"),
    ("http://172.16.0.1/", "private"),
    ("http://172.31.255.255/", "private"),
    ("http://192.168.1.1/", "private"),
    ("http://3232235777/", "private"),
    ("http://[::ffff:10.0.0.1]/", "private"),
    ("http://[64:ff9b::10.0.0.1]/", "private"),
    ("http://[2002:c0a8:101::]/", "private"),
    ("http://100.64.0.1/", "carrier-grade"),
    ("http://100.127.255.254/", "carrier-grade"),
    ("http://169.254.1.1/", "link-local"),
    ("http://[fe80::1]/", "link-local"),
    ("http://[febf:ffff::1]/", "link-local"),
    ("http://[fec0::1]/", "site-local"),
    ("http://[fc00::1]/", "unique-local"),
    ("http://[fdff:ffff::1]/", "unique-local"),
    // Addresses that no server has.
    ("http://192.0.0.8/", "protocols"),
    ("http://192.0.2.1/", "documentation"),
    ("http://198.51.100.1/", "documentation"),
    ("http://203.0.113.1/", "documentation"),
    ("http://[2001:db8::1]/", "documentation"),
    ("http://[3fff::1]/", "documentation"),
    ("http://198.18.0.1/", "benchmark"),
    ("http://198.19.255.255/", "benchmark"),
    ("http://[2001:2::1]/", "benchmark"),
    ("http://192.88.99.1/", "6to4"),
    ("http://[2002:808:808::1]/", "6to4"),
    ("http://[2001:0:808:808:0:0:f7f7:f7f7]/", "Teredo"),
    ("http://224.0.0.1/", "multicast"),
    ("http://239.255.255.255/", "multicast"),
    ("http://[ff02::1]/", "multicast"),
    ("http://240.0.0.1/", "reserved"),
    ("http://255.255.255.255/", "broadcast"),
    ("http://4294967295/", "broadcast"),
    ("http://[100::1]/", "discard"),
    ("http://[64:ff9b:1::808:808]/", "NAT64"),
    ("http://[5f00::1]/", "not assigned"),
    ("http://[4000::1]/", "not assigned"),
    // Names and authorities.
    ("https://example.com/", "no rule allows origin"),
    ("https://evil-api.example.com/", "no rule allows origin"),
    ("https://api.example.com.evil.test/", "no rule allows origin"),
    ("https://api.example.com:8443/", "no rule allows origin"),
    ("http://api.example.com/", "no rule allows origin"),
    ("https://wild.example.org/", "no rule allows origin"),
    ("https://a.b.wild.example.org/", "no rule allows origin"),
    ("https://.wild.example.org/", "host"),
    ("https://localhost/", "no rule allows origin"),
    ("https://LOCALHOST./", "no rule allows origin"),
    ("https://аpi.example.com/", "no rule allows origin"),
    ("https://8.8.8.8/", "no rule allows origin"),
    ("https://api.example.com../", "host"),
    ("https://api..example.com/", "host"),
    ("https://api.example.com@evil.test/", "user information"),
    ("https://evil.test@api.example.com/", "user information"),
    ("https://api.example.com:443@169.254.169.254/", "user information"),
    ("https://@api.example.com/", "user information"),
    ("https://api.example.com\\@evil.test/", "backslash"),
    ("https://api.example.com\\.evil.test/", "backslash"),
    ("https:\\\\api.example.com/", "backslash"),
    ("https://api.example.com\t.evil.test/", "control"),
    ("https://api.exam\nple.com/", "control"),
    (" https://api.example.com/", "space"),
    ("https:///api.example.com/", "begin with"),
    ("https:api.example.com/", "begin with"),
    ("//api.example.com/", "begin with"),
    ("ftp://api.example.com/", "begin with"),
    ("file:///etc/passwd", "begin with"),
    ("gopher://127.0.0.1:70/_x", "begin with"),
    ("unix:///var/run/docker.sock", "begin with"),
    ("https://[fe80::1%25eth0]/", "host"),
    ("https://[fe80::1%eth0]/", "host"),
    ("https://[::1/", "host"),
    ("https://256.1.1.1/", "host"),
    ("https://1.2.3.4.5/", "host"),
    ("https://0x100000000/", "host"),
    ("https://api.example.com:0/", "host"),
    ("https://api.example.com:65536/", "host"),
    ("https://api.example.com:x/", "host"),
    ("https://api%00.example.com/", "host"),
    ("https://", "begin with"),
    ("", "begin with"),
    // Paths of a rule with prefixes.
    ("https://paths.example.com/", "no rule allows the path"),
    ("https://paths.example.com/v2/lbx", "no rule allows the path"),
    ("https://paths.example.com/v2", "no rule allows the path"),
    ("https://paths.example.com/V2/lb", "no rule allows the path"),
    ("https://paths.example.com//v2/lb", "no rule allows the path"),
    ("https://paths.example.com/v2/lb/../admin", "no rule allows the path"),
    ("https://paths.example.com/v2/lb/./../../admin", "no rule allows the path"),
    ("https://paths.example.com/v2/lb/%2e%2e/admin", "dot segment"),
    ("https://paths.example.com/v2/lb/.%2E/admin", "dot segment"),
    ("https://paths.example.com/v2/lb/%2e%2e%2fadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%2fadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%2Fadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%5cadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%252e%252e/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%25252e%25252e/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%25/%252e%252e/%252e%252e/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb%252f..%252fadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..;/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..;x=1/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%00", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%zz", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%0d%0aadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%7f", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%20/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%20../admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%09/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%0d%0a/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%2520/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%c2%a0/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/.../admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%c0%ae%c0%ae/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%25c0%25ae%25c0%25ae/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%ff", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..%ef%bc%8fadmin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%ef%bc%8e%ef%bc%8e/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/%e2%80%a5/admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..∕admin", "the ambiguous path"),
    ("https://paths.example.com/v2/lb/..\\admin", "backslash"),
];

/// The policy for the tables.
pub(crate) fn table_spec() -> EgressSpec {
    let paths = EgressRuleSpec {
        methods: Some(strings(&["GET", "DELETE"])),
        path_prefixes: Some(strings(&["/v2/lb", "/v3/"])),
        ..rule(&["https://paths.example.com"])
    };
    let rules = vec![rule(&["https://api.example.com", "https://*.wild.example.org:8443"]), paths];
    EgressSpec { rules, allow_cidrs: Vec::new(), ca_bundle: None, proxy: None }
}

#[test]
fn forbidden_targets_are_refused_in_every_spelling() {
    assert!(FORBIDDEN.len() >= 60);
    let policy = EgressPolicy::new(&table_spec()).unwrap();
    let mut wrong = Vec::new();
    for (url, reason) in FORBIDDEN {
        let verdict = verdict(&policy, "GET", url);
        if verdict == "allowed" || !verdict.contains(reason) {
            wrong.push(format!("{url} -> {verdict}, not {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn allowed_targets_are_allowed_in_every_unambiguous_spelling() {
    let policy = EgressPolicy::new(&table_spec()).unwrap();
    for url in [
        "https://api.example.com",
        "https://api.example.com/",
        "https://api.example.com:443/v1?x=1#fragment",
        "HTTPS://API.Example.COM/",
        "https://api.example.com./",
        "https://api.example.com:0443/",
        "https://%61pi.example.com/",
        "https://ａｐｉ.example.com/",
        "https://api.example.com/a%2fb/..;/%zz",
        "https://a.wild.example.org:8443/x",
        "https://paths.example.com/v2/lb",
        "https://paths.example.com/v2/lb/",
        "https://paths.example.com/v2/lb/1?next=/admin/../x",
        "https://paths.example.com/v2/l%62/1",
        "https://paths.example.com/v2/x/../lb/1",
        "https://paths.example.com/v2/lb/100%25",
        "https://paths.example.com/v3/anything/a.b/..c/%20",
        "https://paths.example.com/v3/a%20b/M%C3%BCnchen/東京",
    ] {
        assert_eq!(verdict(&policy, "GET", url), "allowed", "{url}");
    }
}

#[test]
fn a_method_is_judged_with_the_rule_that_has_the_origin_and_the_path() {
    let policy = EgressPolicy::new(&table_spec()).unwrap();
    let check = |method, url, expected: Expect| expected.assert_eq(&verdict(&policy, method, url));
    check("DELETE", "https://paths.example.com/v2/lb/1", expect!["allowed"]);
    check(
        "POST",
        "https://paths.example.com/v2/lb/1",
        expect!["no rule allows method POST at https://paths.example.com"],
    );
    check("TRACE", "https://api.example.com/", expect!["no rule allows method TRACE at https://api.example.com"]);
    // A method that one rule allows for its path is not allowed for the path of another rule.
    let other = EgressRuleSpec {
        methods: Some(strings(&["POST"])),
        path_prefixes: Some(strings(&["/tasks"])),
        ..rule(&["https://paths.example.com"])
    };
    let mut spec = table_spec();
    spec.rules.push(other);
    let policy = EgressPolicy::new(&spec).unwrap();
    assert_eq!(verdict(&policy, "POST", "https://paths.example.com/tasks"), "allowed");
    assert_ne!(verdict(&policy, "POST", "https://paths.example.com/v2/lb"), "allowed");
    assert_ne!(verdict(&policy, "GET", "https://paths.example.com/tasks"), "allowed");
}

#[test]
fn a_policy_without_rules_refuses_everything() {
    let policy = EgressPolicy::new(&EgressSpec::default()).unwrap();
    assert_eq!(verdict(&policy, "GET", "https://api.example.com/"), "no rule allows origin https://api.example.com");
}

#[test]
fn an_allowed_cidr_opens_what_it_covers_in_every_spelling_and_nothing_else() {
    let policy = policy(
        vec![rule(&["http://10.1.2.3", "http://[fd00:1::5]:8443", "http://127.0.0.1:9000"])],
        &["10.1.0.0/16", "fd00:1::/32", "127.0.0.1/32", "169.254.0.0/16"],
    );
    for url in [
        "http://10.1.2.3/",
        "http://167838211/",
        "http://0x0a010203/",
        "http://[fd00:1:0:0::5]:8443/",
        "http://127.1:9000/",
    ] {
        assert_eq!(verdict(&policy, "GET", url), "allowed", "{url}");
    }
    for (url, reason) in [
        ("http://10.2.0.1/", "private"),
        ("http://[fd00:2::1]/", "unique-local"),
        ("http://[fd00:ec2::254]/", "metadata"),
        ("http://127.0.0.2/", "loopback"),
        ("http://[::1]/", "loopback"),
        ("http://[2002:a01:203::]/", "6to4"),
        // Link-local is open here; the metadata service is not.
        ("http://169.254.169.254/", "only as 169.254.169.254/32"),
        ("http://169.254.1.1/", "no rule allows origin"),
        // The carried IPv4 address is allowed, but the origin differs from the rule's.
        ("http://[64:ff9b::10.1.2.3]/", "no rule allows origin"),
        ("http://[::ffff:10.1.2.3]/", "no rule allows origin"),
    ] {
        let verdict = verdict(&policy, "GET", url);
        assert!(verdict.contains(reason), "{url} -> {verdict}");
    }
}

#[test]
fn the_metadata_service_opens_only_by_its_own_address() {
    let address: IpAddr = "169.254.169.254".parse().unwrap();
    assert!(policy(vec![], &["169.254.0.0/16", "169.254.169.0/24"]).judge_address(address).is_err());
    assert_eq!(policy(vec![], &["169.254.169.254/32"]).judge_address(address), Ok(address));
    let mapped: IpAddr = "::ffff:169.254.169.254".parse().unwrap();
    assert_eq!(policy(vec![], &["169.254.169.254/32"]).judge_address(mapped), Ok(address));
    // Those of Oracle, Alibaba and Akamai are unique-local, as is the network of a private cloud.
    for text in ["fd00:c1::a9fe:a9fe", "fd00:100::100:200", "fd00:a9fe:a9fe::1"] {
        let address: IpAddr = text.parse().unwrap();
        assert!(policy(vec![], &["fd00::/8"]).judge_address(address).is_err(), "{text}");
        assert_eq!(policy(vec![], &[&format!("{text}/128")]).judge_address(address), Ok(address));
    }
}

#[test]
fn public_addresses_are_allowed_and_returned_in_canonical_form() {
    let policy = policy(vec![], &[]);
    for (address, plain) in [
        ("8.8.8.8", "8.8.8.8"),
        ("::ffff:8.8.8.8", "8.8.8.8"),
        ("2001:4860:4860::8888", "2001:4860:4860::8888"),
        ("64:ff9b::8.8.8.8", "64:ff9b::808:808"),
        ("172.32.0.1", "172.32.0.1"),
        ("100.128.0.1", "100.128.0.1"),
        ("192.0.1.1", "192.0.1.1"),
        ("198.20.0.1", "198.20.0.1"),
        ("223.255.255.255", "223.255.255.255"),
    ] {
        assert_eq!(policy.judge_address(address.parse().unwrap()), Ok(plain.parse().unwrap()), "{address}");
    }
}

#[track_caller]
fn wrong(spec: &EgressSpec, expected: Expect) {
    expected.assert_eq(&EgressPolicy::new(spec).unwrap_err().to_string());
}

#[test]
fn the_error_of_a_bad_origin_names_the_place_the_reason_and_the_remedy() {
    let mut lines = String::new();
    for origin in [
        "api.example.com",
        "ftp://api.example.com",
        "https://",
        "https://*",
        "https://*:8443",
        "https://*.com",
        "https://*.co.uk",
        "https://*.*.example.com",
        "https://api.*.com",
        "https://a*.example.com",
        "https://*.10.0.0.1",
        "https://api.example.com/",
        "https://api.example.com/v1",
        "https://api.example.com?x",
        "https://user@api.example.com",
        "https://api.example.com:0",
        "https://api.example.com:99999",
        "http://0x7f.1",
        "http://2130706433",
        "http://[::ffff:127.0.0.1]",
        "http://127.0.0.1",
        "https://a..b",
        "https://api example.com",
    ] {
        let spec = EgressSpec { rules: vec![rule(&["https://ok.example.com", origin])], ..EgressSpec::default() };
        let error = EgressPolicy::new(&spec).expect_err(origin).to_string();
        lines.push_str(&error.replacen("rules[0].origins[1]: ", "", 1));
        lines.push('\n');
        assert!(error.starts_with("rules[0].origins[1]: "), "{error}");
    }
    expect![[r#"
        origin "api.example.com" has no scheme; write https://HOST or http://HOST
        origin "ftp://api.example.com" has an unsupported scheme; write https://HOST or http://HOST
        origin "https://" has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets
        origin "https://*" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com
        origin "https://*:8443" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com
        origin "https://*.com" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com
        origin "https://*.co.uk" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com
        origin "https://*.*.example.com" has a misplaced wildcard; only the whole first label may be one, as in https://*.example.com
        origin "https://api.*.com" has a misplaced wildcard; only the whole first label may be one, as in https://*.example.com
        origin "https://a*.example.com" has a misplaced wildcard; only the whole first label may be one, as in https://*.example.com
        origin "https://*.10.0.0.1" has a misplaced wildcard; only the whole first label may be one, as in https://*.example.com
        origin "https://api.example.com/" has a path, query or fragment; an origin ends after the host or port, use pathPrefixes for paths
        origin "https://api.example.com/v1" has a path, query or fragment; an origin ends after the host or port, use pathPrefixes for paths
        origin "https://api.example.com?x" has a path, query or fragment; an origin ends after the host or port, use pathPrefixes for paths
        origin "https://user@api.example.com" has user information; give the provider a credential instead
        origin "https://api.example.com:0" has no usable port; write a number from 1 to 65535
        origin "https://api.example.com:99999" has no usable port; write a number from 1 to 65535
        origin "http://0x7f.1" has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets
        origin "http://2130706433" has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets
        origin "http://[::ffff:127.0.0.1]" has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets
        origin http://127.0.0.1 can never be reached: address 127.0.0.1 is refused (loopback); an operator can open it in allowCidrs
        origin "https://a..b" has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets
        origin "https://api example.com" has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets
    "#]]
    .assert_eq(&lines);
}

#[test]
fn the_error_of_a_bad_cidr_names_the_place_the_reason_and_the_remedy() {
    let mut lines = String::new();
    for cidr in [
        "10.0.0.0",
        "10.0.0.1/8",
        "0.0.0.0/0",
        "::/0",
        "10.0.0.0/7",
        "8.8.8.0/24",
        "0.0.0.0/8",
        "224.0.0.0/4",
        "::ffff:10.0.0.0/104",
        "64:ff9b::/96",
        "2002::/16",
        "4000::/8",
        "localhost",
    ] {
        let spec = EgressSpec { allow_cidrs: strings(&["10.0.0.0/8", cidr]), ..EgressSpec::default() };
        lines.push_str(&EgressPolicy::new(&spec).expect_err(cidr).to_string());
        lines.push('\n');
    }
    expect![[r#"
        allowCidrs[1]: "10.0.0.0" is not a CIDR; write an address and a prefix length, as in 10.20.0.0/16 or 127.0.0.1/32
        allowCidrs[1]: "10.0.0.1/8" has bits set after the prefix length; write 10.0.0.0/8
        allowCidrs[1]: "0.0.0.0/0" is wider than any range that may be opened; allow each network by itself, for example 10.0.0.0/8 (private)
        allowCidrs[1]: "::/0" is wider than any range that may be opened; allow each network by itself, for example fc00::/7 (unique-local)
        allowCidrs[1]: "10.0.0.0/7" is wider than any range that may be opened; allow each network by itself, for example 10.0.0.0/8 (private)
        allowCidrs[1]: "8.8.8.0/24" is public; public addresses need no permission, leave it out
        allowCidrs[1]: "0.0.0.0/8" is unspecified, and such addresses can never be allowed; leave it out
        allowCidrs[1]: "224.0.0.0/4" is multicast, and such addresses can never be allowed; leave it out
        allowCidrs[1]: "::ffff:10.0.0.0/104" spells IPv4 addresses as IPv6; write them as IPv4
        allowCidrs[1]: "64:ff9b::/96" spells IPv4 addresses as IPv6; write them as IPv4
        allowCidrs[1]: "2002::/16" is 6to4, and such addresses can never be allowed; leave it out
        allowCidrs[1]: "4000::/8" is not assigned, and such addresses can never be allowed; leave it out
        allowCidrs[1]: "localhost" is not a CIDR; write an address and a prefix length, as in 10.20.0.0/16 or 127.0.0.1/32
    "#]].assert_eq(&lines);
}

#[test]
fn the_error_of_a_bad_method_path_or_list_names_the_place() {
    let with = |methods: Option<&[&str]>, paths: Option<&[&str]>| EgressSpec {
        rules: vec![EgressRuleSpec {
            methods: methods.map(strings),
            path_prefixes: paths.map(strings),
            ..rule(&["https://api.example.com"])
        }],
        ..EgressSpec::default()
    };
    wrong(
        &with(Some(&["GET", "get"]), None),
        expect![[
            r#"rules[0].methods[1]: method "get" cannot be allowed; write one of ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]"#
        ]],
    );
    wrong(
        &with(Some(&["CONNECT"]), None),
        expect![[
            r#"rules[0].methods[0]: method "CONNECT" cannot be allowed; write one of ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]"#
        ]],
    );
    wrong(
        &with(Some(&[]), None),
        expect!["rules[0].methods: is empty, which allows nothing; leave it out to allow the usual methods"],
    );
    wrong(
        &with(None, Some(&["v2"])),
        expect![[
            r#"rules[0].pathPrefixes[0]: path prefix "v2" does not begin with /; write it from the root, as in /v1"#
        ]],
    );
    wrong(
        &with(None, Some(&["/v2/../x"])),
        expect![[
            r#"rules[0].pathPrefixes[0]: path prefix "/v2/../x" is ambiguous; write it without dot segments, backslashes, encoded slashes and empty segments"#
        ]],
    );
    wrong(
        &with(None, Some(&["/v2?x"])),
        expect![[
            r#"rules[0].pathPrefixes[0]: path prefix "/v2?x" has a query, a fragment, a space or a control character; write only the path"#
        ]],
    );
    wrong(
        &EgressSpec { rules: vec![rule(&[])], ..EgressSpec::default() },
        expect!["rules[0].origins: is empty, which allows nothing; name at least one origin"],
    );
    let many = EgressSpec { rules: vec![rule(&["https://api.example.com"]); 65], ..EgressSpec::default() };
    wrong(&many, expect!["rules: has 65 entries, at most 64 are allowed; join rules"]);
}

#[test]
fn a_bad_ca_bundle_is_refused() {
    let with = |ca_bundle| EgressSpec { ca_bundle: Some(ca_bundle), ..EgressSpec::default() };
    wrong(
        &with(CaBundleSpec::Pem("no certificate".to_owned())),
        expect!["caBundle: no certificate found; it must be PEM with at least one certificate"],
    );
    wrong(
        &with(CaBundleSpec::File("/nowhere/ca.pem".into())),
        expect!["caBundle: read /nowhere/ca.pem; check that the file exists, is readable and is at most 1 MiB"],
    );
}

#[test]
fn an_unknown_key_of_the_file_is_an_error() {
    let read =
        serde_json::from_str::<EgressSpec>(r#"{"rules": [{"origins": ["https://a.example"], "method": ["GET"]}]}"#);
    assert!(read.unwrap_err().to_string().contains("unknown field `method`"));
    let read = serde_json::from_str::<EgressSpec>(
        r#"{"rules": [{"origins": ["https://a.example"], "pathPrefixes": ["/x"]}], "allowCidrs": ["10.0.0.0/8"],
            "caBundle": {"file": "/etc/ca.pem"}}"#,
    );
    assert_eq!(read.unwrap().ca_bundle, Some(CaBundleSpec::File("/etc/ca.pem".into())));
}

#[test]
fn an_origin_prints_as_it_is_written() {
    for text in
        ["https://api.example.com", "http://127.0.0.1:9000", "https://*.example.com:8443", "https://[fd00::1]:8443"]
    {
        assert_eq!(Origin::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Origin::parse("HTTPS://Bücher.Example:443").unwrap().to_string(), "https://xn--bcher-kva.example");
}

// === properties ===

fn forbidden_v4() -> impl Strategy<Value = Ipv4Addr> {
    let ranges: [(u32, u8); 8] = [
        (0x7f00_0000, 8),
        (0x0a00_0000, 8),
        (0xa9fe_0000, 16),
        (0xac10_0000, 12),
        (0xc0a8_0000, 16),
        (0x6440_0000, 10),
        (0xe000_0000, 4),
        (0x0000_0000, 8),
    ];
    (0..ranges.len(), any::<u32>()).prop_map(move |(index, bits)| {
        let (net, prefix) = ranges[index];
        let mask = u32::MAX << (32 - prefix);
        Ipv4Addr::from_bits(net | (bits & !mask))
    })
}

/// One of the spellings that C's `inet_aton` reads: one to four parts, each decimal, octal or
/// hexadecimal.
fn spell(address: Ipv4Addr, parts: usize, bases: [u8; 4]) -> String {
    let bits = address.to_bits();
    let mut numbers: Vec<u32> = (0..parts - 1).map(|index| (bits >> (24 - 8 * index)) & 0xff).collect();
    let left = 32 - 8 * (parts - 1);
    numbers.push(if left == 32 { bits } else { bits & ((1 << left) - 1) });
    let spelled = numbers.iter().zip(bases).map(|(number, base)| match base % 4 {
        0 => number.to_string(),
        1 => format!("0{number:o}"),
        2 => format!("0x{number:x}"),
        _ => format!("0X{number:X}"),
    });
    spelled.collect::<Vec<_>>().join(".")
}

proptest! {
    #[test]
    fn any_numeric_spelling_of_a_forbidden_address_is_refused(
        address in forbidden_v4(), parts in 1_usize..=4, bases in any::<[u8; 4]>(), dot in any::<bool>(),
    ) {
        let url = format!("http://{}{}/", spell(address, parts, bases), if dot { "." } else { "" });
        let target = Target::parse(&url).unwrap();
        prop_assert_eq!(&target.authority.host, &AuthorityHost::Address(IpAddr::V4(address)), "{}", url);
        let policy = policy(vec![], &[]);
        prop_assert!(policy.judge_address(address.into()).is_err(), "{}", url);
    }

    #[test]
    fn any_ipv6_address_that_carries_a_forbidden_one_is_refused(address in forbidden_v4(), form in 0..8, noise in any::<u16>()) {
        let [a, b, c, d] = address.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let carrier = match form {
            0 => address.to_ipv6_mapped(),
            1 => Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            2 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            3 => Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            4 => Ipv6Addr::new(0x2002, high, low, noise, 0, 0, 0, noise),
            5 => Ipv6Addr::new(0x2001, 0, noise, noise, 0, noise, !high, !low),
            6 => Ipv6Addr::new(0x2600, noise, noise, noise, 0, 0x5efe, high, low),
            _ => Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        };
        prop_assert!(policy(vec![], &[]).judge_address(carrier.into()).is_err(), "{carrier}");
    }

    #[test]
    fn no_url_is_read_as_another_authority_than_the_one_it_shows(tail in "[ -~]{0,24}") {
        // An allowed URL that begins with the rule's origin goes to that origin.
        let url = format!("https://api.example.com{tail}");
        if let Ok(target) = Target::parse(&url) {
            let again = Authority::of(&target.url).unwrap();
            prop_assert_eq!(&again, &target.authority);
            let policy = policy(vec![rule(&["https://api.example.com"])], &[]);
            if policy.judge("GET", &target).is_ok() {
                prop_assert_eq!(target.url.host_str(), Some("api.example.com"));
                prop_assert_eq!(target.url.port_or_known_default(), Some(443));
                prop_assert!(target.url.username().is_empty());
            }
        }
    }

    #[test]
    fn a_path_under_a_prefix_stays_there_however_often_a_server_decodes_it(tail in "(%2[eEfF]|%5c|%25|\\.|/|;|a|%41){0,10}") {
        let url = format!("https://paths.example.com/v2/lb/{tail}");
        let policy = EgressPolicy::new(&table_spec()).unwrap();
        if verdict(&policy, "GET", &url) == "allowed" {
            let target = Target::parse(&url).unwrap();
            let mut path = target.url.path().to_owned();
            prop_assert!(!is_ambiguous(&path));
            for _ in 0..4 {
                path = percent_encoding::percent_decode_str(&path).decode_utf8_lossy().replace('\\', "/");
                let resolved = url::Url::parse(&format!("https://x{path}")).unwrap();
                let resolved = resolved.path();
                prop_assert!(resolved == "/v2/lb" || resolved.starts_with("/v2/lb/") || resolved.starts_with("/v3/"), "{} -> {}", url, resolved);
            }
        }
    }
}
