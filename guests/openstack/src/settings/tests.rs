//! Which cloud-configs are good, and what is said about the others.

mod wrong;

use skysail_guest_sdk::Severity;

use super::{ContainerStore, parse};

const GOOD: &str = "[Global]\nauth-url = https://keystone:5000/v3/\nregion = RegionOne\n";

fn with(rest: &str) -> String {
    format!("{GOOD}{rest}")
}

fn fatal(text: &str) -> Vec<(u32, String)> {
    let problems = parse(text).problems().into_iter();
    problems.filter(|problem| problem.severity == Severity::Fatal).map(|problem| (problem.line, problem.key)).collect()
}

#[test]
fn the_defaults_are_those_of_the_vendors_manager() {
    let settings = parse(GOOD).config().unwrap();
    assert_eq!((settings.auth_url.as_str(), settings.region.as_str()), ("https://keystone:5000", "RegionOne"));
    assert_eq!((settings.interface, settings.credential.as_str()), ("public", "openstack"));
    let lb = settings.load_balancer;
    assert!(lb.enabled && lb.cascade_delete && !lb.monitor.create && !lb.manage_security_groups && !lb.internal);
    assert_eq!((lb.method.as_str(), lb.provider.as_str()), ("ROUND_ROBIN", "amphora"));
    let monitor = lb.monitor;
    assert_eq!((monitor.delay_seconds, monitor.timeout_seconds), (5, 3));
    assert_eq!((monitor.max_retries, monitor.max_retries_down), (1, 3));
    assert_eq!((lb.max_shared, lb.container_store, lb.ingress_hostname_suffix), (2, ContainerStore::Barbican, None));
    assert_eq!(settings.router, None);
    assert_eq!(parse(GOOD).problems(), []);
}

#[test]
fn sections_and_keys_are_read_by_the_names_of_the_vendors_manager() {
    let text = with(concat!(
        "os-endpoint-type = internal\n",
        "[Networking]\nipv6-support-disabled = true\npublic-network-name = ext\npublic-network-name = ext2\n",
        "address-sort-order = \"10.0.0.0/8, fd00::/8\"\n",
        "[LoadBalancer]\nlb-provider = ovn\nlb-method = SOURCE_IP_PORT\nmonitor-delay = 1m\nmonitor-timeout = 30s\n",
        "floating-network-id = \"\"\nsubnet-id = fa6a4e6c-6ae4-4dde-ae86-3e2f452c1f03\n",
        "enable-ingress-hostname = true\n",
        "[LoadBalancerClass \"dmz\"]\nfloating-subnet-tags = a,b\n",
        "[Route]\nrouter-id = r-1\n[Metadata]\nsearch-order = configDrive\n[BlockStorage]\nbs-version = v3\n",
        "[Skysail]\ncredential = cloud\nnetwork-endpoint = http://neutron:9696/\nregional-provider-id = true\n",
    ));
    let settings = parse(&text).config().unwrap();
    assert_eq!((settings.interface, settings.credential.as_str()), ("internal", "cloud"));
    assert!(settings.networking.ipv6_disabled && settings.regional_provider_id);
    assert_eq!(settings.networking.public_networks, ["ext", "ext2"]);
    assert_eq!(settings.networking.sort_order.len(), 2);
    let lb = settings.load_balancer;
    assert_eq!((lb.monitor.delay_seconds, lb.monitor.timeout_seconds), (60, 30));
    assert_eq!(lb.placement.floating_network, None);
    assert!(lb.placement.subnet.is_some());
    assert_eq!(lb.ingress_hostname_suffix.as_deref(), Some("nip.io"));
    assert_eq!(lb.classes[0].1.floating_subnet_tags.as_deref(), Some("a,b"));
    assert_eq!(settings.endpoints[1].as_deref(), Some("http://neutron:9696"));
    let warnings: Vec<_> = parse(&text).problems().into_iter().map(|problem| problem.key).collect();
    assert_eq!(warnings, ["Metadata.search-order", "BlockStorage.bs-version"]);
}

#[test]
fn a_secret_is_refused_with_the_place_where_it_belongs() {
    for key in ["password", "trustee-password", "application-credential-secret"] {
        let text = with(&format!("{key} = \"hunter2\"\n"));
        assert_eq!(fatal(&text), [(4, format!("Global.{key}"))]);
        let problem = parse(&text).problems().remove(0);
        assert!(problem.message.contains("spec.credentials.openstack.keystone"), "{}", problem.message);
        assert!(!problem.message.contains("hunter2"), "{}", problem.message);
    }
}

#[test]
fn the_other_keys_of_a_login_are_reported_and_have_no_effect() {
    let text = with("username = ccm\ntenant-name = k8s\nca-file = /etc/ca.pem\nuse-clouds = false\n");
    assert_eq!(fatal(&text), []);
    let keys: Vec<_> = parse(&text).problems().into_iter().map(|problem| problem.key).collect();
    assert_eq!(keys, ["Global.username", "Global.tenant-name", "Global.ca-file"]);
    assert_eq!(fatal(&with("use-clouds = true\ntls-insecure = true\n")).len(), 2);
}

#[test]
fn keystone_is_found_with_and_without_a_version_in_its_url() {
    for url in
        ["http://cloud/identity", "http://cloud/identity/", "http://cloud/identity/v3", "http://cloud/identity/v3/"]
    {
        let settings = parse(&format!("[Global]\nauth-url = {url}\n")).config().unwrap();
        assert_eq!(settings.auth_url, "http://cloud/identity");
    }
}
