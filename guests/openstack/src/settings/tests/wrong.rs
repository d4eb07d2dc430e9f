//! What the user reads about a wrong value of each key.

use expect_test::expect;
use skysail_guest_sdk::config::Ini;

use super::GOOD;
use crate::settings::{parse, read};

/// A cloud-config with every section that has names.
const SECTIONS: &str = "[LoadBalancerClass \"x\"]\n";

/// Each key, and lines of its section in which the key is wrong. A text of which nothing can be
/// wrong stands twice.
const WRONG: [(&str, &str); 52] = [
    ("Global.auth-url", "auth-url = keystone"),
    ("Global.region", "region = a b"),
    ("Global.os-endpoint-type", "os-endpoint-type = private"),
    ("Global.password", "password = x"),
    ("Global.trustee-password", "trustee-password = x"),
    ("Global.application-credential-secret", "application-credential-secret = x"),
    ("Global.username", "username = ccm"),
    ("Global.ca-file", "ca-file = /ca.pem"),
    ("Global.cert-file", "cert-file = /c.pem"),
    ("Global.key-file", "key-file = /k.pem"),
    ("Global.clouds-file", "clouds-file = /clouds.yaml"),
    ("Global.cloud", "cloud = prod"),
    ("Global.use-clouds", "use-clouds = true"),
    ("Global.tls-insecure", "tls-insecure = true"),
    ("Networking.ipv6-support-disabled", "ipv6-support-disabled = maybe"),
    ("Networking.public-network-name", "public-network-name = \"ext"),
    ("Networking.internal-network-name", "internal-network-name = \"a\" b"),
    ("Networking.address-sort-order", "address-sort-order = 10.0.0.0/8, 10.0.0.0"),
    ("LoadBalancer.enabled", "enabled = maybe"),
    ("LoadBalancer.lb-version", "lb-version = v1"),
    ("LoadBalancer.lb-provider", "lb-provider = f5"),
    ("LoadBalancer.lb-method", "lb-method = RANDOM"),
    ("LoadBalancer.subnet-id", "subnet-id = my subnet"),
    ("LoadBalancer.member-subnet-id", "member-subnet-id = a/b"),
    ("LoadBalancer.network-id", "network-id = my net"),
    ("LoadBalancer.floating-network-id", "floating-network-id = public net"),
    ("LoadBalancer.floating-subnet-id", "floating-subnet-id = a.b"),
    ("LoadBalancer.floating-subnet", "floating-subnet = !~public"),
    ("LoadBalancer.floating-subnet-tags", "floating-subnet-tags = a\nfloating-subnet-tags = b"),
    ("LoadBalancer.create-monitor", "create-monitor = maybe"),
    ("LoadBalancer.monitor-delay", "monitor-delay = 5"),
    ("LoadBalancer.monitor-timeout", "monitor-timeout = 6s"),
    ("LoadBalancer.monitor-max-retries", "monitor-max-retries = 11"),
    ("LoadBalancer.monitor-max-retries-down", "monitor-max-retries-down = none"),
    ("LoadBalancer.manage-security-groups", "manage-security-groups = 2"),
    ("LoadBalancer.internal-lb", "internal-lb = maybe"),
    ("LoadBalancer.node-selector", "node-selector = pool=a b"),
    ("LoadBalancer.cascade-delete", "cascade-delete ="),
    ("LoadBalancer.flavor-id", "flavor-id = m1 large"),
    ("LoadBalancer.availability-zone", "availability-zone = a\navailability-zone = b"),
    ("LoadBalancer.enable-ingress-hostname", "enable-ingress-hostname = nip.io"),
    ("LoadBalancer.ingress-hostname-suffix", "ingress-hostname-suffix = .nip.io"),
    ("LoadBalancer.max-shared-lb", "max-shared-lb = -1"),
    ("LoadBalancer.container-store", "container-store = vault"),
    ("LoadBalancer.default-tls-container-ref", "default-tls-container-ref = my certificate"),
    ("LoadBalancer.provider-requires-serial-api-calls", "provider-requires-serial-api-calls = x"),
    ("Route.router-id", "router-id ="),
    ("Metadata.search-order", "search-order = configDrive"),
    ("Metadata.request-timeout", "request-timeout = 5s"),
    ("Skysail.credential", "credential = my cloud"),
    ("Skysail.regional-provider-id", "regional-provider-id = maybe"),
    ("Skysail.compute-endpoint", "compute-endpoint = https://user@nova"),
];

/// Keys that are read as one of [`WRONG`] is.
const ALIKE: [(&str, &[&str]); 2] = [
    (
        "Global.username",
        &[
            "Global.user-id",
            "Global.user-domain-id",
            "Global.user-domain-name",
            "Global.tenant-id",
            "Global.tenant-name",
            "Global.tenant-domain-id",
            "Global.tenant-domain-name",
            "Global.project-id",
            "Global.project-name",
            "Global.project-domain-id",
            "Global.project-domain-name",
            "Global.domain-id",
            "Global.domain-name",
            "Global.trust-id",
            "Global.trustee-id",
            "Global.application-credential-id",
            "Global.application-credential-name",
        ],
    ),
    (
        "Skysail.compute-endpoint",
        &["Skysail.network-endpoint", "Skysail.load-balancer-endpoint", "Skysail.key-manager-endpoint"],
    ),
];

/// Keys of a class, which are read as those of `[LoadBalancer]`.
const OF_CLASS: [&str; 7] = [
    "network-id",
    "subnet-id",
    "member-subnet-id",
    "floating-network-id",
    "floating-subnet-id",
    "floating-subnet",
    "floating-subnet-tags",
];

fn with(key: &str, lines: &str) -> String {
    let (section, key) = key.rsplit_once('.').unwrap();
    let usual = GOOD.lines().filter(|line| !line.starts_with(&format!("{key} =")));
    let usual = usual.fold(String::new(), |text, line| text + line + "\n");
    if section == "Global" { format!("{usual}{lines}\n") } else { format!("{GOOD}[{section}]\n{lines}\n") }
}

fn said(text: &str) -> String {
    parse(text).problems().into_iter().map(|problem| format!("{problem}\n")).collect()
}

fn lines_of(key: &str) -> &'static str {
    WRONG.iter().find(|(known, _)| *known == key).unwrap().1
}

#[test]
fn a_wrong_value_of_each_key_is_refused_with_the_reason_and_the_remedy() {
    let mut ini = Ini::parse(SECTIONS);
    read(&mut ini);
    let alike = ALIKE.iter().flat_map(|(_, keys)| *keys).map(|key| (*key).to_owned());
    let of_class = OF_CLASS.iter().map(|key| format!("LoadBalancerClass \"x\".{key}"));
    let mut tested: Vec<_> = WRONG.iter().map(|(key, _)| (*key).to_owned()).chain(alike).chain(of_class).collect();
    tested.sort_unstable();
    assert_eq!(ini.keys(), tested, "every key has a wrong value in this test");
    for (key, lines) in WRONG {
        let problems = parse(&with(key, lines)).problems();
        assert!(problems.iter().any(|problem| problem.key == key), "{key}: {problems:?}");
    }
    expect![[r#"
        line 3, Global.auth-url: "keystone": is not a URL; write https://HOST:PORT/PATH
        line 3, Global.region: "a b": cannot be the value of a label; write at most 63 letters, digits and -_. with a letter or digit at both ends
        warning, line 3, Global.region: is absent: the first endpoint of each service is used, nodes get no region label; write the region
        line 4, Global.os-endpoint-type: "private" is not a type; write public, internal or admin
        line 4, Global.password: a component must not read a secret; move it to spec.credentials.openstack.keystone of the provider, which takes it from a file or a Secret, and remove the key
        line 4, Global.trustee-password: a component must not read a secret; move it to spec.credentials.openstack.keystone of the provider, which takes it from a file or a Secret, and remove the key
        line 4, Global.application-credential-secret: a component must not read a secret; move it to spec.credentials.openstack.keystone of the provider, which takes it from a file or a Secret, and remove the key
        warning, line 4, Global.username: has no effect: the manager logs in with spec.credentials.openstack.keystone; remove the key
        warning, line 4, Global.ca-file: has no effect: a component reads no file; use spec.egress.caBundle of the provider
        warning, line 4, Global.cert-file: has no effect: a component reads no file; use a credential with clientCertificate of the provider
        warning, line 4, Global.key-file: has no effect: a component reads no file; use a credential with clientCertificate of the provider
        warning, line 4, Global.clouds-file: has no effect: a component reads no file; use spec.credentials of the provider
        warning, line 4, Global.cloud: has no effect: a component reads no file; use spec.credentials of the provider
        line 4, Global.use-clouds: a component reads no clouds.yaml; write auth-url and region here, and the login into spec.credentials
        line 4, Global.tls-insecure: the manager checks every certificate; put the cloud's authority into spec.egress.caBundle
        line 5, Networking.ipv6-support-disabled: "maybe": is not a Boolean; write true or false
        line 5, Networking.public-network-name: has a quote that is not closed; write " at the end of the value
        line 5, Networking.internal-network-name: has text behind the closing quote; remove the text, or write \" for a quote in the value
        line 5, Networking.address-sort-order: "10.0.0.0" is not a CIDR such as 10.0.0.0/8
        line 5, LoadBalancer.enabled: "maybe": is not a Boolean; write true or false
        line 5, LoadBalancer.lb-version: "v1": is not supported; write v2, or remove the key
        warning, line 5, LoadBalancer.lb-provider: "f5" is not a tested driver; write amphora, octavia or ovn, or test the driver
        line 5, LoadBalancer.lb-method: "RANDOM": is not a method; write ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP or SOURCE_IP_PORT
        line 5, LoadBalancer.subnet-id: "my subnet": is not an ID; write the ID that `openstack … show` prints, not the name
        line 5, LoadBalancer.member-subnet-id: "a/b": is not an ID; write the ID that `openstack … show` prints, not the name
        line 5, LoadBalancer.network-id: "my net": is not an ID; write the ID that `openstack … show` prints, not the name
        line 5, LoadBalancer.floating-network-id: "public net": is not an ID; write the ID that `openstack … show` prints, not the name
        line 5, LoadBalancer.floating-subnet-id: "a.b": is not an ID; write the ID that `openstack … show` prints, not the name
        line 5, LoadBalancer.floating-subnet: is a regular expression, which is not supported; write a glob such as public-*, or floating-subnet-tags
        line 6, LoadBalancer.floating-subnet-tags: stands here a second time; remove one of the two lines
        line 5, LoadBalancer.create-monitor: "maybe": is not a Boolean; write true or false
        line 5, LoadBalancer.monitor-delay: "5": is not a duration; write a number with a unit, for example 5s
        line 5, LoadBalancer.monitor-timeout: 6s is longer than monitor-delay, 5s; write a shorter time
        line 5, LoadBalancer.monitor-max-retries: "11": is not a number of checks; write a number from 1 to 10
        line 5, LoadBalancer.monitor-max-retries-down: "none": is not a number of checks; write a number from 1 to 10
        line 5, LoadBalancer.manage-security-groups: "2": is not a Boolean; write true or false
        line 5, LoadBalancer.internal-lb: "maybe": is not a Boolean; write true or false
        line 5, LoadBalancer.node-selector: "pool=a b": is not a list of labels; write KEY=VALUE or KEY, with commas between
        line 5, LoadBalancer.cascade-delete: "": is not a Boolean; write true or false
        line 5, LoadBalancer.flavor-id: "m1 large": is not an ID; write the ID that `openstack … show` prints, not the name
        line 6, LoadBalancer.availability-zone: stands here a second time; remove one of the two lines
        line 5, LoadBalancer.enable-ingress-hostname: "nip.io": is not a Boolean; write true or false
        line 5, LoadBalancer.ingress-hostname-suffix: ".nip.io": is not a domain; write for example nip.io
        line 5, LoadBalancer.max-shared-lb: "-1": is not a number of Services; write for example 2
        warning, line 5, LoadBalancer.container-store: "vault" is neither, so nothing is checked; write barbican or external
        line 5, LoadBalancer.default-tls-container-ref: "my certificate" is not a reference to a container or secret; write https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID, or set container-store = external
        line 5, LoadBalancer.provider-requires-serial-api-calls: "x": is not a Boolean; write true or false
        line 5, Route.router-id: "": is not an ID; write the ID that `openstack … show` prints, not the name
        warning, line 5, Metadata.search-order: has no effect: the provider never reads the metadata of the machine that it runs on; remove the key
        warning, line 5, Metadata.request-timeout: has no effect: the provider never reads the metadata of the machine that it runs on; remove the key
        line 5, Skysail.credential: "my cloud": is not a name; write a text without blanks and without / ? # *
        line 5, Skysail.regional-provider-id: "maybe": is not a Boolean; write true or false
        line 5, Skysail.compute-endpoint: "https://user@nova": is not the URL of a service; write https://HOST:PORT/PATH without user, query and fragment
    "#]].assert_eq(&WRONG.map(|(key, lines)| said(&with(key, lines))).concat());
}

#[test]
fn keys_that_are_read_alike_say_the_same() {
    let check = |first: &str, key: &str| {
        let name = |key: &str| key.rsplit_once('.').unwrap().1.to_owned();
        let lines = lines_of(first).replace(&name(first), &name(key));
        let expected = said(&with(first, lines_of(first)));
        let expected = expected.replace(&format!(", {first}:"), &format!(", {key}:"));
        assert_eq!(said(&with(key, &lines)), expected, "{key}");
    };
    for (first, keys) in ALIKE {
        keys.iter().for_each(|key| check(first, key));
    }
    for key in OF_CLASS {
        check(&format!("LoadBalancer.{key}"), &format!("LoadBalancerClass \"x\".{key}"));
    }
}

#[test]
fn combinations_missing_keys_and_unknown_lines_are_refused_with_the_remedy() {
    let texts = [
        "",
        "[Global]\nauth-url = https:///v3\nregoin = x\n[LoadBalancer]\nlb-providr = ovn\n[Skysail]\nregional-provider-id = true\n",
        &with("LoadBalancer.lb-provider", "lb-provider = ovn"),
        &with("LoadBalancer.monitor-delay", "monitor-delay = 1m500ms"),
        &with("LoadBalancer.node-selector", "node-selector = =a"),
        &with("LoadBalancer.default-tls-container-ref", "default-tls-container-ref = https://b/v1/secrets/"),
        &with("BlockStorage.bs-version", "bs-version = v3"),
    ];
    expect![[r#"
        warning, line 0, Global.region: is absent: the first endpoint of each service is used, nodes get no region label; write the region
        line 0, Global.auth-url: is required; write auth-url = VALUE into the section [Global]
        line 2, Global.auth-url: "https:///v3": is not the URL of a service; write https://HOST:PORT/PATH without user, query and fragment
        line 3, Global.regoin: is not a key of this provider; remove the line, or write Global.region if it is meant
        line 5, LoadBalancer.lb-providr: is not a key of this provider; remove the line, or write LoadBalancer.lb-provider if it is meant
        line 7, Skysail.regional-provider-id: needs the key region in [Global]; write it, or remove this key
        warning, line 0, LoadBalancer.lb-method: the driver ovn refuses every pool with another method; write SOURCE_IP_PORT
        line 5, LoadBalancer.monitor-delay: "1m500ms": is not a number of whole seconds; write at least 1s
        line 5, LoadBalancer.node-selector: "=a": is not a list of labels; write KEY=VALUE or KEY, with commas between
        line 5, LoadBalancer.default-tls-container-ref: "https://b/v1/secrets/" is not a reference to a container or secret; write https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID, or set container-store = external
        warning, line 5, BlockStorage.bs-version: has no effect: volumes are the CSI driver's; remove the key
    "#]].assert_eq(&texts.map(said).concat());
}

#[test]
fn a_reference_that_is_not_checked_may_have_any_form() {
    let text = with(
        "LoadBalancer.default-tls-container-ref",
        "container-store = external\ndefault-tls-container-ref = my certificate\nmax-shared-lb = 0\nnode-selector = a=b, c",
    );
    assert_eq!(said(&text), "");
}
