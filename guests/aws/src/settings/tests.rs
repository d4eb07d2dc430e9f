//! Which cloud-configs are accepted, and what they mean.

use expect_test::expect;
use skysail_guest_sdk::config::Ini;

use super::{Endpoint, Family, Settings, parse};
use crate::fixture::CONFIG;

fn read(more: &str) -> Settings {
    parse(&format!("{CONFIG}{more}")).config().unwrap()
}

fn problems(text: &str) -> Vec<(u32, String)> {
    parse(text).problems().into_iter().map(|problem| (problem.line, problem.key)).collect()
}

#[test]
fn the_shortest_config_has_the_defaults_of_the_vendors_manager() {
    let settings = read("");
    assert_eq!(settings.ec2.url, "https://ec2.us-east-1.amazonaws.com");
    assert_eq!(settings.elb_v2.url, "https://elasticloadbalancing.us-east-1.amazonaws.com");
    assert_eq!((&*settings.ec2.credential, settings.node_ip_families.as_slice()), ("aws", &[Family::Ipv4][..]));
    assert!(!settings.keep_node_rules && !settings.manage_nlb_groups && !settings.legacy_tags);
    assert_eq!((settings.shared_probe.as_ref(), settings.cluster_id.as_deref()), (None, Some("k1")));
    assert_eq!(problems(CONFIG), []);
}

#[test]
fn every_key_is_read() {
    let settings = read(
        "KubernetesClusterTag = k1\nSubnetID = subnet-1\nRouteTableID = rtb-1\nDisableSecurityGroupIngress = true\n\
         ElbSecurityGroup = sg-1\nNodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\nNLBSecurityGroupMode = Managed\n\
         ClusterServiceLoadBalancerHealthProbeMode = Shared\nClusterServiceSharedLoadBalancerHealthProbePort = 8080\n\
         ClusterServiceSharedLoadBalancerHealthProbePath = /ready\nCredential = ccm\nZone = eu-west-1a\n",
    );
    assert_eq!(settings.region, "eu-west-1", "the zone wins");
    assert_eq!((settings.subnet.as_deref(), settings.route_table.as_deref()), (Some("subnet-1"), Some("rtb-1")));
    assert_eq!(settings.elb_security_group.as_deref(), Some("sg-1"));
    assert_eq!(settings.node_ip_families, [Family::Ipv6, Family::Ipv4]);
    assert_eq!(settings.shared_probe, Some((8080, "/ready".to_owned())));
    assert!(settings.keep_node_rules && settings.manage_nlb_groups && settings.legacy_tags);
    assert_eq!(settings.elb.credential, "ccm");
}

#[test]
fn the_region_of_a_zone_is_its_first_words_and_number() {
    for (zone, region) in
        [("eu-west-1a", "eu-west-1"), ("us-west-2-lax-1a", "us-west-2"), ("cn-north-1b", "cn-north-1")]
    {
        let text = format!("[Global]\nVPC = vpc-1\nKubernetesClusterID = k1\nZone = {zone}\n");
        assert_eq!(parse(&text).config().unwrap().region, region);
    }
    assert_eq!(
        problems("[Global]\nVPC = vpc-1\nKubernetesClusterID = k1\nZone = 1a\n"),
        [(4, "Global.Zone".to_owned())]
    );
}

#[test]
fn other_partitions_have_their_own_domains() {
    let url = |region: &str| parse(&format!("[Global]\nRegion = {region}\nVPC = vpc-1\n")).config().unwrap().ec2.url;
    assert_eq!(url("cn-north-1"), "https://ec2.cn-north-1.amazonaws.com.cn");
    assert_eq!(url("us-gov-west-1"), "https://ec2.us-gov-west-1.amazonaws.com");
    assert_eq!(url("us-isob-east-1"), "https://ec2.us-isob-east-1.sc2s.sgov.gov");
}

#[test]
fn endpoints_are_overridden_by_service_and_region() {
    let settings = read(
        "[ServiceOverride \"1\"]\nService = ec2\nRegion = us-east-1\nURL = http://127.0.0.1:5000/\nCredential = ec2\n\
         [ServiceOverride \"2\"]\nService = Elastic Load Balancing v2\nRegion = us-east-1\nURL = https://nlb.example.com\n\
         [ServiceOverride \"3\"]\nService = elasticloadbalancing\nRegion = eu-west-1\nURL = https://other.example.com\n",
    );
    let endpoint = |url: &str, credential: &str| Endpoint { url: url.to_owned(), credential: credential.to_owned() };
    assert_eq!(settings.ec2, endpoint("http://127.0.0.1:5000", "ec2"));
    assert_eq!(settings.elb_v2, endpoint("https://nlb.example.com", "aws"));
    assert_eq!(settings.elb.url, "https://elasticloadbalancing.us-east-1.amazonaws.com", "another region");
    assert_eq!(settings.ec2.origin(), "http://127.0.0.1:5000");
}

/// A cloud-config with every section.
const SECTIONS: &str = "[Global]\n[ServiceOverride \"1\"]\n";

/// Each key, and lines of its section in which the key is wrong.
const WRONG: [(&str, &str); 23] = [
    ("Global.Region", "Region = us east"),
    ("Global.Zone", "Zone = 1a"),
    ("Global.VPC", "VPC = 10.0.0.0/16"),
    ("Global.KubernetesClusterID", "KubernetesClusterID = my cluster"),
    ("Global.KubernetesClusterTag", "KubernetesClusterTag = k2"),
    ("Global.Credential", "Credential = aws key"),
    ("Global.SubnetID", "SubnetID = vpc-1"),
    ("Global.RouteTableID", "RouteTableID = main"),
    ("Global.DisableSecurityGroupIngress", "DisableSecurityGroupIngress = maybe"),
    ("Global.ElbSecurityGroup", "ElbSecurityGroup = sg-"),
    ("Global.NLBSecurityGroupMode", "NLBSecurityGroupMode = Unmanaged"),
    ("Global.NodeIPFamilies", "NodeIPFamilies = ipv4\nNodeIPFamilies = ip6"),
    ("Global.ClusterServiceLoadBalancerHealthProbeMode", "ClusterServiceLoadBalancerHealthProbeMode = shared"),
    ("Global.ClusterServiceSharedLoadBalancerHealthProbePort", "ClusterServiceSharedLoadBalancerHealthProbePort = 0"),
    (
        "Global.ClusterServiceSharedLoadBalancerHealthProbePath",
        "ClusterServiceLoadBalancerHealthProbeMode = Shared\nClusterServiceSharedLoadBalancerHealthProbePath = healthz",
    ),
    ("Global.RoleARN", "RoleARN = arn:aws:iam::1:role/x"),
    ("Global.SourceARN", "SourceARN = arn:aws:iam::1:role/x"),
    ("Global.DisableStrictZoneCheck", "DisableStrictZoneCheck = true"),
    ("Global.SupportedTopologyInstanceTypePattern", "SupportedTopologyInstanceTypePattern = .*"),
    ("ServiceOverride \"1\".Service", "Service =\nRegion = us-east-1\nURL = https://x"),
    ("ServiceOverride \"1\".Region", "Service = EC2\nRegion = eu-west-1\nURL = https://x"),
    ("ServiceOverride \"1\".URL", "Service = EC2\nRegion = us-east-1\nURL = ftp://x"),
    (
        "ServiceOverride \"1\".Credential",
        "Service = EC2\nRegion = us-east-1\nURL = https://x\nCredential = a/b\nSigningRegion = us-east-1",
    ),
];

/// The keys whose wrong values stand beside other ones in [`WRONG`].
const BESIDE: [&str; 3] = ["SigningRegion", "SigningName", "SigningMethod"];

/// The usual cloud-config with these lines in place of those with the same key.
fn with(key: &str, lines: &str) -> String {
    let (section, key) = key.rsplit_once('.').unwrap();
    let usual: String = CONFIG
        .lines()
        .filter(|line| !line.starts_with(&format!("{key} =")))
        .fold(String::new(), |text, line| text + line + "\n");
    if section == "Global" { format!("{usual}{lines}\n") } else { format!("{CONFIG}[{section}]\n{lines}\n") }
}

fn said(text: &str) -> String {
    parse(text).problems().into_iter().map(|problem| format!("{problem}\n")).collect()
}

/// What the user reads about each key.
#[test]
fn a_wrong_value_of_each_key_is_refused_with_the_reason_and_the_remedy() {
    let mut ini = Ini::parse(SECTIONS);
    super::read(&mut ini);
    let beside = BESIDE.map(|key| format!("ServiceOverride \"1\".{key}"));
    let mut tested: Vec<_> = WRONG.iter().map(|(key, _)| (*key).to_owned()).chain(beside).collect();
    tested.sort_unstable();
    assert_eq!(ini.keys(), tested, "every key has a wrong value in this test");
    for (key, lines) in WRONG {
        let problems = parse(&with(key, lines)).problems();
        assert!(problems.iter().any(|problem| problem.key == key), "{key}: {problems:?}");
    }
    let said: String = WRONG.iter().map(|(key, lines)| said(&with(key, lines))).collect();
    expect![[r#"
        line 4, Global.Region: "us east": is not a name; write letters, digits, dashes, dots and underscores
        line 5, Global.Zone: "1a": is not a zone; write for example eu-west-1a, or write the key Region
        line 4, Global.VPC: "10.0.0.0/16": is not an ID; write the whole ID as the AWS console shows it, beginning with vpc-
        line 4, Global.KubernetesClusterID: "my cluster": is not a name; write letters, digits, dashes, dots and underscores
        warning, line 4, Global.KubernetesClusterID: is absent: the name of the cluster is in the tags, and all machines of the account are looked at; write the ID
        line 5, Global.KubernetesClusterTag: "k2" differs from KubernetesClusterID "k1"; write one ID
        line 5, Global.Credential: "aws key": is not a name; write letters, digits, dashes, dots and underscores
        line 5, Global.SubnetID: "vpc-1": is not an ID; write the whole ID as the AWS console shows it, beginning with subnet-
        line 5, Global.RouteTableID: "main": is not an ID; write the whole ID as the AWS console shows it, beginning with rtb-
        line 5, Global.DisableSecurityGroupIngress: "maybe": is not a Boolean; write true or false
        line 5, Global.ElbSecurityGroup: "sg-": is not an ID; write the whole ID as the AWS console shows it, beginning with sg-
        line 5, Global.NLBSecurityGroupMode: "Unmanaged": is not a mode; write Managed, or remove the key
        line 6, Global.NodeIPFamilies: "ip6": is not an IP family; write ipv4 or ipv6, one key for each family
        line 5, Global.ClusterServiceLoadBalancerHealthProbeMode: "shared": is not a mode; write Shared or ServiceNodePort
        line 5, Global.ClusterServiceSharedLoadBalancerHealthProbePort: "0": is not a port; write a number from 1 to 65535
        warning, line 5, Global.ClusterServiceSharedLoadBalancerHealthProbePort: has no effect without ClusterServiceLoadBalancerHealthProbeMode = Shared; add it, or remove the key
        line 6, Global.ClusterServiceSharedLoadBalancerHealthProbePath: "healthz": is not a path; write for example /healthz
        line 5, Global.RoleARN: is not read: the host signs the requests; set `webIdentity.roleArn` of the credential, or give the account the role's permissions
        line 5, Global.SourceARN: is not read: the host signs the requests; write the condition into the trust policy of the role in the credential
        warning, line 5, Global.DisableStrictZoneCheck: has no effect: zones are not checked; remove the key
        line 5, Global.SupportedTopologyInstanceTypePattern: is not supported: a component has no regular expressions; remove the key to wait for the topology of the instance types hpc, trn and p
        line 6, ServiceOverride "1".Service: "": is not a service; write EC2, Elastic Load Balancing or Elastic Load Balancing v2
        warning, line 7, ServiceOverride "1".Region: "eu-west-1" is not the region "us-east-1", so the section has no effect; write us-east-1, or remove the section
        line 8, ServiceOverride "1".URL: "ftp://x": is not the URL of an API; write https://HOST or https://HOST:PORT
        line 9, ServiceOverride "1".Credential: "a/b": is not a name; write letters, digits, dashes, dots and underscores
        warning, line 10, ServiceOverride "1".SigningRegion: has no effect: the host signs; set `region` and `service` of the credential
    "#]].assert_eq(&said);
}

#[test]
fn an_unknown_an_unreadable_and_a_repeated_line_are_refused_with_the_remedy() {
    expect![[r#"
        line 5, Global.VPZ: is not a key of this provider; remove the line, or write Global.VPC if it is meant
        line 6, Global.VPC: stands here a second time; remove one of the two lines
        line 7, foo: is not a setting; write key = value
        line 8, Global.SubnetID: has a quote that is not closed; write " at the end of the value
        line 9, : "[ServiceOverride" is not a section; write [NAME]
        line 11, Globl.Zone: is not a key of this provider; remove the line, or write Global.Zone if it is meant
    "#]]
    .assert_eq(&said(&format!(
        "{CONFIG}VPZ = x\nVPC = vpc-2\nfoo\nSubnetID = \"subnet-1\n[ServiceOverride\n[Globl]\nZone = eu-west-1a\n"
    )));
    expect![[r#"
        line 0, Global.Region: is required, because a component cannot ask the metadata service; write Region or Zone
        line 0, ServiceOverride "1".Service: is required; write EC2, Elastic Load Balancing or Elastic Load Balancing v2
        line 0, ServiceOverride "1".Region: is required; write Region = VALUE into the section [ServiceOverride "1"]
        line 0, ServiceOverride "1".URL: is required; write URL = VALUE into the section [ServiceOverride "1"]
        warning, line 0, Global.KubernetesClusterID: is absent: the name of the cluster is in the tags, and all machines of the account are looked at; write the ID
        line 0, Global.VPC: is required; write VPC = VALUE into the section [Global]
        line 1, KubernetesClusterID: is not a key of this provider; remove the line
    "#]].assert_eq(&said("KubernetesClusterID = k1\n[ServiceOverride \"1\"]\n"));
}

#[test]
fn where_kube_proxy_answers_has_no_effect_without_the_mode_that_asks_it() {
    let port = "ClusterServiceSharedLoadBalancerHealthProbePort = 8080\n";
    expect![[r#"
        warning, line 5, Global.ClusterServiceSharedLoadBalancerHealthProbePort: has no effect without ClusterServiceLoadBalancerHealthProbeMode = Shared; add it, or remove the key
    "#]].assert_eq(&said(&format!("{CONFIG}{port}")));
    assert_eq!(read(port).shared_probe, None);
}

/// As `gcfg` of the vendor's manager reads a Boolean.
#[test]
fn a_boolean_may_be_yes() {
    assert!(read("DisableSecurityGroupIngress = yes\n").keep_node_rules);
}

#[test]
fn a_config_without_region_and_vpc_says_what_is_missing() {
    let missing = [(0, "Global.Region"), (0, "Global.KubernetesClusterID"), (0, "Global.VPC")];
    assert_eq!(problems(""), missing.map(|(line, key)| (line, key.to_owned())));
}

#[test]
fn the_same_service_is_overridden_once() {
    let section = |n: u8| format!("[ServiceOverride \"{n}\"]\nService = EC2\nRegion = us-east-1\nURL = https://x\n");
    let found = problems(&format!("{CONFIG}{}{}", section(1), section(2)));
    assert_eq!(found, [(10, "ServiceOverride \"2\".Service".to_owned())]);
}
