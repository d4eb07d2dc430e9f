//! The cloud-config: its keys, its defaults and its faults.

use skysail_guest_sdk::{IpFamily, Severity};

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

#[test]
fn each_fault_names_its_line_and_key() {
    let text = "[Global]\nport = 99999\nregoin = x\nip-family = ipv5\n[VirtualCenter \"a b\"]\n[VirtualCenter \"c\"]\n\
                server = c:443\n[Nodes]\ninternal-network-subnet-cidr = 10.0.0.0\n";
    let found: Vec<_> = parse(text).problems().into_iter().map(|p| (p.line, p.key)).collect();
    let expected = [
        (0, "VirtualCenter \"a b\".server"),
        (2, "Global.port"),
        (3, "Global.regoin"),
        (4, "Global.ip-family"),
        (7, "VirtualCenter \"c\".server"),
        (9, "Nodes.internal-network-subnet-cidr"),
    ];
    assert_eq!(found, expected.map(|(line, key)| (line, key.to_owned())));
    assert!(parse("").config().is_err());
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
