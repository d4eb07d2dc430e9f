//! Which cloud-configs are accepted, and what they mean.

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

#[test]
fn each_fault_names_its_line_and_key() {
    let text = "[Global]\nRegion = us east\nVPC = 1\nRoleARN = arn:aws:iam::1:role/x\nNodeIPFamilies = ip4\n\
                KubernetesClusterTag = a\nKubernetesClusterID = b\nNLBSecurityGroupMode = Unmanaged\nVPZ = x\n\
                SupportedTopologyInstanceTypePattern = .*\nClusterServiceLoadBalancerHealthProbeMode = shared\n\
                [ServiceOverride \"1\"]\nRegion = us-east-1\nURL = ftp://x\nSigningRegion = us-east-1\n";
    let expected = [
        (0, "ServiceOverride \"1\".Service"),
        (2, "Global.Region"),
        (3, "Global.VPC"),
        (4, "Global.RoleARN"),
        (5, "Global.NodeIPFamilies"),
        (6, "Global.KubernetesClusterTag"),
        (8, "Global.NLBSecurityGroupMode"),
        (9, "Global.VPZ"),
        (10, "Global.SupportedTopologyInstanceTypePattern"),
        (11, "Global.ClusterServiceLoadBalancerHealthProbeMode"),
        (14, "ServiceOverride \"1\".URL"),
        (15, "ServiceOverride \"1\".SigningRegion"),
    ];
    assert_eq!(problems(text), expected.map(|(line, key)| (line, key.to_owned())));
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
