//! The cloud-config: the keys of the vendor's manager, and those that replace its questions to the
//! metadata service of its own machine.

mod endpoints;
mod values;

use skysail_guest_sdk::{
    Result,
    config::{Checked, Flag, Ini},
};

use self::values::{Id, Name, Path, Port, ProbeMode, SecurityGroupMode, ZoneName};
pub(crate) use self::{endpoints::Endpoint, values::Family};

const GLOBAL: &str = "Global";

/// Where kube-proxy answers health checks.
const KUBE_PROXY_PATH: &str = "/healthz";

/// Keys whose work the host does, and where the operator configures it.
const OF_THE_HOST: [(&str, &str); 2] = [
    (
        "RoleARN",
        "is not read: the host signs the requests; set `webIdentity.roleArn` of the credential, or give the account the role's permissions",
    ),
    (
        "SourceARN",
        "is not read: the host signs the requests; write the condition into the trust policy of the role in the credential",
    ),
];

/// A valid cloud-config.
#[derive(Debug)]
pub(crate) struct Settings {
    /// For example `eu-west-1`.
    pub(crate) region: String,
    pub(crate) ec2: Endpoint,
    /// Both APIs of Elastic Load Balancing have one origin, but may be overridden separately.
    pub(crate) elb: Endpoint,
    pub(crate) elb_v2: Endpoint,
    /// The VPC of the nodes.
    pub(crate) vpc: String,
    /// Subnet of load balancers where the VPC has no usable one.
    pub(crate) subnet: Option<String>,
    /// The route table of the pods. Default: the one that has the cluster's tag.
    pub(crate) route_table: Option<String>,
    /// Value in the tags of this cluster's resources. Default: the cluster's name.
    pub(crate) cluster_id: Option<String>,
    /// Whether new resources get the tag `KubernetesCluster` too.
    pub(crate) legacy_tags: bool,
    /// Leaves the rules in the security groups of the nodes to the operator.
    pub(crate) keep_node_rules: bool,
    /// The security group of every Classic Load Balancer. Default: one for each Service.
    pub(crate) elb_security_group: Option<String>,
    /// Families of the nodes' addresses, in order. IPv4 by default.
    pub(crate) node_ip_families: Vec<Family>,
    /// The port and path of kube-proxy, if it answers the health checks of all Services whose
    /// traffic policy is `Cluster`.
    pub(crate) shared_probe: Option<(u16, String)>,
    /// Whether each Network Load Balancer gets a security group.
    pub(crate) manage_nlb_groups: bool,
}

/// Reads and checks a cloud-config.
pub(crate) fn parse(text: &str) -> Checked<Settings> {
    let mut ini = Ini::parse(text);
    let settings = read(&mut ini);
    ini.finish(settings)
}

fn read(ini: &mut Ini) -> Settings {
    for (key, why) in OF_THE_HOST {
        if ini.optional::<String>(GLOBAL, key).is_some_and(|value| !value.is_empty()) {
            ini.refuse(GLOBAL, key, why);
        }
    }
    if ini.optional::<String>(GLOBAL, "DisableStrictZoneCheck").is_some() {
        ini.warn(GLOBAL, "DisableStrictZoneCheck", "has no effect: zones are not checked; remove the key");
    }
    if ini.optional::<String>(GLOBAL, "SupportedTopologyInstanceTypePattern").is_some() {
        ini.refuse(
            GLOBAL,
            "SupportedTopologyInstanceTypePattern",
            "is not supported: a component has no regular expressions; remove the key to wait for the topology of the \
             instance types hpc, trn and p",
        );
    }
    let region = region(ini);
    let (ec2, elb, elb_v2) = endpoints::read(ini, &region);
    let (cluster_id, legacy_tags) = cluster(ini);
    Settings {
        ec2,
        elb,
        elb_v2,
        region,
        vpc: ini.required::<Id<'v'>>(GLOBAL, "VPC").0,
        subnet: ini.optional::<Id<'s'>>(GLOBAL, "SubnetID").map(|id| id.0),
        route_table: ini.optional::<Id<'r'>>(GLOBAL, "RouteTableID").map(|id| id.0),
        cluster_id,
        legacy_tags,
        keep_node_rules: ini.optional::<Flag>(GLOBAL, "DisableSecurityGroupIngress").is_some_and(|flag| flag.0),
        elb_security_group: ini.optional::<Id<'g'>>(GLOBAL, "ElbSecurityGroup").map(|id| id.0),
        node_ip_families: families(ini),
        shared_probe: shared_probe(ini),
        manage_nlb_groups: ini.optional::<SecurityGroupMode>(GLOBAL, "NLBSecurityGroupMode").is_some(),
    }
}

/// The accepted cloud-config of this call.
pub(crate) fn load() -> Result<Settings> {
    skysail_guest_sdk::config::load(parse)
}

/// A zone names its region, and wins over the key `Region`, as in the vendor's manager.
fn region(ini: &mut Ini) -> String {
    let zone = ini.optional::<ZoneName>(GLOBAL, "Zone");
    let region = ini.optional::<Name>(GLOBAL, "Region").map(|name| name.0);
    match (zone, region) {
        (Some(ZoneName { region }), _) => region,
        (None, Some(region)) => region,
        (None, None) => {
            if ini.line(GLOBAL, "Zone") == 0 && ini.line(GLOBAL, "Region") == 0 {
                ini.refuse(
                    GLOBAL,
                    "Region",
                    "is required, because a component cannot ask the metadata service; write Region or Zone",
                );
            }
            String::new()
        }
    }
}

/// The cluster's ID, and whether resources get the older tag too.
fn cluster(ini: &mut Ini) -> (Option<String>, bool) {
    let legacy = ini.optional::<Name>(GLOBAL, "KubernetesClusterTag").map(|name| name.0);
    let id = ini.optional::<Name>(GLOBAL, "KubernetesClusterID").map(|name| name.0);
    if let (Some(legacy), Some(id)) = (&legacy, &id)
        && legacy != id
    {
        ini.refuse(
            GLOBAL,
            "KubernetesClusterTag",
            format!("{legacy:?} differs from KubernetesClusterID {id:?}; write one ID"),
        );
    }
    let is_legacy = legacy.is_some();
    if legacy.is_none() && id.is_none() {
        ini.warn(
            GLOBAL,
            "KubernetesClusterID",
            "is absent: the name of the cluster is in the tags, and all machines of the account are looked at; write the ID",
        );
    }
    (legacy.or(id), is_legacy)
}

fn families(ini: &mut Ini) -> Vec<Family> {
    let families = ini.list::<Family>(GLOBAL, "NodeIPFamilies");
    if families.is_empty() { vec![Family::Ipv4] } else { families }
}

fn shared_probe(ini: &mut Ini) -> Option<(u16, String)> {
    const KUBE_PROXY_PORT: u16 = 10_256;
    const PORT: &str = "ClusterServiceSharedLoadBalancerHealthProbePort";
    const PATH: &str = "ClusterServiceSharedLoadBalancerHealthProbePath";
    let mode = ini.optional::<ProbeMode>(GLOBAL, "ClusterServiceLoadBalancerHealthProbeMode");
    let port = ini.optional::<Port>(GLOBAL, PORT);
    let path = ini.optional::<Path>(GLOBAL, PATH);
    if mode == Some(ProbeMode::Shared) {
        return Some((
            port.map_or(KUBE_PROXY_PORT, |port| port.0),
            path.map_or_else(|| KUBE_PROXY_PATH.to_owned(), |path| path.0),
        ));
    }
    for key in [PORT, PATH] {
        if ini.line(GLOBAL, key) != 0 {
            let why =
                "has no effect without ClusterServiceLoadBalancerHealthProbeMode = Shared; add it, or remove the key";
            ini.warn(GLOBAL, key, why);
        }
    }
    None
}

#[cfg(test)]
mod tests;
