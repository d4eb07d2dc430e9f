//! The cloud-config: its keys, its defaults and its faults.

use expect_test::expect;
use skysail_guest_sdk::{IpFamily, Severity, config::Ini};

use super::{Labels, parse};

#[test]
fn a_vsphere_conf_without_its_secrets_is_read() {
    let text = "[Global]\nport = \"8443\"\ndatacenters = \"DC0, /F/DC1\"\nip-family = \"\"\n\n\
                [VirtualCenter \"10.0.0.1\"]\n[VirtualCenter \"east\"]\nserver = \"fd00::1\"\nport = \"443\"\n\
                datacenters = DC2\ncredential = east\nip-family = \"IPv6 , ipv4\"\n\n\
                [Labels]\nregion = k8s-region\nzone = k8s-zone\n\n\
                [Nodes]\ninternal-network-subnet-cidr = \"192.0.2.0/24, fd00::/64\"\n\
                internal-vm-network-name = \"Internal K8s Traffic\"\n\
                exclude-external-network-subnet-cidr = \"192.1.2.0/24,fe80::2/128\"\n";
    assert_eq!(parse(text).problems(), []);
    let settings = parse(text).config().unwrap();
    let [first, second] = settings.vcenters.as_slice() else { panic!("{settings:?}") };
    assert_eq!((first.origin.as_str(), first.credential.as_str()), ("https://10.0.0.1:8443", "vsphere"));
    assert_eq!((first.datacenters.len(), first.families.as_slice()), (2, [IpFamily::Ipv4].as_slice()));
    assert_eq!((second.origin.as_str(), second.credential.as_str()), ("https://[fd00::1]", "east"));
    assert_eq!(second.families, [IpFamily::Ipv6, IpFamily::Ipv4]);
    assert_eq!(settings.labels, Some(Labels { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() }));
    assert_eq!(settings.nodes.internal.subnets.len(), 2);
    assert_eq!(settings.nodes.internal.network.as_deref(), Some("Internal K8s Traffic"));
    assert_eq!((settings.nodes.external.excluded.len(), settings.nodes.external.network), (2, None));
}

#[test]
fn the_server_of_global_is_a_vcenter_unless_a_section_names_it() {
    let origins = |text: &str| -> Vec<String> {
        parse(text).config().unwrap().vcenters.into_iter().map(|vcenter| vcenter.origin).collect()
    };
    assert_eq!(origins("[Global]\nserver = a\n[VirtualCenter \"b\"]\n"), ["https://a", "https://b"]);
    assert_eq!(origins("[Global]\nserver = a\n[VirtualCenter \"a\"]\nport = 8443\n"), ["https://a:8443"]);
}

#[test]
fn a_secret_is_refused_with_the_place_where_it_belongs() {
    let text = "[Global]\nuser = u\n[VirtualCenter \"a\"]\npassword = \"p\"\n";
    let problems = parse(text).problems();
    let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key.as_str())).collect();
    assert_eq!(found, [(2, "Global.user"), (4, "VirtualCenter \"a\".password")]);
    assert!(problems.iter().all(|problem| problem.message.contains("`credentials` of the Provider")));
    assert!(problems.iter().all(|problem| problem.severity == Severity::Fatal));
}

#[test]
fn a_key_that_the_host_replaces_is_a_warning() {
    let text = "[Global]\ninsecure-flag = 1\nca-file = /ca.crt\nsecret-name = \"\"\n[VirtualCenter \"a\"]\nthumbprint = AB:CD\n";
    let problems = parse(text).problems();
    let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key.as_str())).collect();
    assert_eq!(found, [(2, "Global.insecure-flag"), (3, "Global.ca-file"), (6, "VirtualCenter \"a\".thumbprint")]);
    assert!(parse(text).config().is_ok());
}

/// A cloud-config with every section.
const SECTIONS: &str = "[VirtualCenter \"a\"]\n";

/// Each key of `[Global]` and of `[VirtualCenter]`, and a wrong value. A text of which nothing can
/// be wrong stands twice.
const OF_SERVERS: [(&str, &str); 16] = [
    ("server", "server = https://vcenter/sdk"),
    ("port", "port = 99999"),
    ("credential", "credential = my account"),
    ("datacenters", "datacenters = DC0\ndatacenters = DC1"),
    ("ip-family", "ip-family = ipv4, ipv5"),
    ("user", "user = administrator@vsphere.local"),
    ("password", "password = secret"),
    ("ca-file", "ca-file = /ca.crt"),
    ("thumbprint", "thumbprint = AB:CD"),
    ("secret-name", "secret-name = vsphere"),
    ("secret-namespace", "secret-namespace = kube-system"),
    ("secrets-directory", "secrets-directory = /etc/secrets"),
    ("insecure-flag", "insecure-flag = 1"),
    ("soap-roundtrip-count", "soap-roundtrip-count = 3"),
    ("api-disable", "api-disable = true"),
    ("api-binding", "api-binding = :43001"),
];

/// The same for the other sections.
const OF_ALL: [(&str, &str); 8] = [
    ("Labels.zone", "zone = k8s-zone"),
    ("Labels.region", "zone = k8s-zone\nregion = a\nregion = b"),
    ("Nodes.internal-network-subnet-cidr", "internal-network-subnet-cidr = 10.0.0.0"),
    ("Nodes.external-network-subnet-cidr", "external-network-subnet-cidr = 192.0.2.0/24, 2001:db8::/129"),
    ("Nodes.internal-vm-network-name", "internal-vm-network-name = a\ninternal-vm-network-name = b"),
    ("Nodes.external-vm-network-name", "external-vm-network-name = \"VM Network"),
    ("Nodes.exclude-internal-network-subnet-cidr", "exclude-internal-network-subnet-cidr = fe80::"),
    ("Nodes.exclude-external-network-subnet-cidr", "exclude-external-network-subnet-cidr = none"),
];

fn said(text: &str) -> String {
    parse(text).problems().into_iter().map(|problem| format!("{problem}\n")).collect()
}

/// What the user reads about each key.
#[test]
fn a_wrong_value_of_each_key_is_refused_with_the_reason_and_the_remedy() {
    let mut ini = Ini::parse(SECTIONS);
    super::read(&mut ini);
    let of_server = |section: &str| OF_SERVERS.map(|(key, _)| format!("{section}.{key}"));
    let of_all = OF_ALL.map(|(key, _)| key.to_owned());
    let mut tested = [&of_server("Global")[..], &of_server("VirtualCenter \"a\""), &of_all].concat();
    tested.sort_unstable();
    assert_eq!(ini.keys(), tested, "every key has a wrong value in this test");

    let in_section = OF_SERVERS.map(|(_, line)| format!("[VirtualCenter \"a\"]\n{line}\n"));
    let in_global = OF_SERVERS.map(|(_, line)| format!("[VirtualCenter \"a\"]\n[Global]\n{line}\n"));
    for (here, there) in in_section.iter().zip(&in_global) {
        let problems =
            |text: &str| parse(text).problems().into_iter().map(|problem| problem.message).collect::<Vec<_>>();
        assert_eq!(problems(here), problems(there), "both sections read a key alike");
    }
    let others = OF_ALL.map(|(key, line)| {
        let (section, _) = key.split_once('.').unwrap();
        format!("[VirtualCenter \"a\"]\n[{section}]\n{line}\n")
    });
    expect![[r#"
        line 2, VirtualCenter "a".server: "https://vcenter/sdk": is not a host; write a host name or an address, and the port into the key port
        line 2, VirtualCenter "a".port: "99999": is not a port; write a number from 1 to 65535
        line 2, VirtualCenter "a".credential: "my account": is not a name; write a text without blanks and without / ? # *
        line 3, VirtualCenter "a".datacenters: stands here a second time; remove one of the two lines
        line 2, VirtualCenter "a".ip-family: "ipv4, ipv5": is not a list of IP families; write ipv4, ipv6, or both with a comma between
        line 2, VirtualCenter "a".user: does not belong here, where the component reads it; write the account into `credentials` of the Provider, with the scheme `vsphere`, and its name as `credential`
        line 2, VirtualCenter "a".password: does not belong here, where the component reads it; write the account into `credentials` of the Provider, with the scheme `vsphere`, and its name as `credential`
        warning, line 2, VirtualCenter "a".ca-file: has no effect: write the certificate into `egress.caBundle` of the Provider
        warning, line 2, VirtualCenter "a".thumbprint: has no effect: write the certificate of the CA into `egress.caBundle` of the Provider
        warning, line 2, VirtualCenter "a".secret-name: has no effect: write the account into `credentials` of the Provider
        warning, line 2, VirtualCenter "a".secret-namespace: has no effect: write the account into `credentials` of the Provider
        warning, line 2, VirtualCenter "a".secrets-directory: has no effect: write the account into `credentials` of the Provider
        warning, line 2, VirtualCenter "a".insecure-flag: has no effect: certificates are always verified; write the CA into `egress.caBundle` of the Provider
        warning, line 2, VirtualCenter "a".soap-roundtrip-count: has no effect: the manager repeats failed calls; remove the key
        warning, line 2, VirtualCenter "a".api-disable: has no effect: there is no such API; remove the key
        warning, line 2, VirtualCenter "a".api-binding: has no effect: there is no such API; remove the key
        warning, line 0, Labels.region: is absent: nodes get a zone and a region only where both keys are set; write both, or none
        line 5, Labels.region: stands here a second time; remove one of the two lines
        line 3, Nodes.internal-network-subnet-cidr: "10.0.0.0": "10.0.0.0" is not a CIDR such as 10.0.0.0/8
        line 3, Nodes.external-network-subnet-cidr: "192.0.2.0/24, 2001:db8::/129": "2001:db8::/129" is not a CIDR such as 10.0.0.0/8
        line 4, Nodes.internal-vm-network-name: stands here a second time; remove one of the two lines
        line 3, Nodes.external-vm-network-name: has a quote that is not closed; write " at the end of the value
        line 3, Nodes.exclude-internal-network-subnet-cidr: "fe80::": "fe80::" is not a CIDR such as 10.0.0.0/8
        line 3, Nodes.exclude-external-network-subnet-cidr: "none": "none" is not a CIDR such as 10.0.0.0/8
    "#]].assert_eq(&in_section.iter().chain(&others).map(|text| said(text)).collect::<String>());
}

#[test]
fn a_missing_vcenter_unknown_lines_and_too_many_vcenters_are_refused_with_the_remedy() {
    let many: String = (0..17).map(|n| format!("[VirtualCenter \"v{n}\"]\n")).collect();
    let texts = [
        "",
        "[VirtualCenter \"a b\"]\n",
        "[VirtualCenter \"a\"]\nip-famly = ipv4\n[LoadBalancer]\nip-pool-id = x\n",
        "[VirtualCentre \"a\"]\nport = 443\n",
        &many,
    ];
    expect![[r#"
        line 0, VirtualCenter: is required; write a section [VirtualCenter "HOST"]
        line 0, VirtualCenter "a b".server: "a b": is not a host; write a host name or an address, and the port into the key port, or write the host as `server`
        line 0, VirtualCenter: is required; write a section [VirtualCenter "HOST"]
        line 2, VirtualCenter "a".ip-famly: is not a key of this provider; remove the line, or write VirtualCenter "a".ip-family if it is meant
        line 4, LoadBalancer.ip-pool-id: is not a key of this provider; remove the line
        line 0, VirtualCenter: is required; write a section [VirtualCenter "HOST"]
        line 2, VirtualCentre "a".port: is not a key of this provider; remove the line
        line 0, VirtualCenter: at most 16 vCenters are supported; write several Providers
    "#]].assert_eq(&texts.map(said).concat());
}

#[test]
fn half_of_the_labels_is_a_warning() {
    let checked = || parse("[VirtualCenter \"a\"]\n[Labels]\nzone = k8s-zone\n");
    assert_eq!(checked().problems()[0].key, "Labels.region");
    assert_eq!(checked().config().unwrap().labels, None);
}

#[test]
fn yaml_is_refused_with_the_form_to_write() {
    for text in ["# c\nglobal:\n  port: 443\n", "---\nvcenter: {}\n"] {
        let problems = parse(text).problems();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("INI"), "{problems:?}");
    }
    assert!(yaml_refused("a = b:c\n").is_none());
}

fn yaml_refused(text: &str) -> Option<String> {
    parse(text).problems().into_iter().map(|problem| problem.message).find(|message| message.contains("YAML"))
}
