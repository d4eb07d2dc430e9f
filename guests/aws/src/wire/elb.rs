//! Classic Load Balancers.

use skysail_guest_sdk::{Result, xml::Element};

use super::{Tags, number, optional, optional_number, required, texts};

pub(crate) const LOAD_BALANCERS: [&str; 3] = ["DescribeLoadBalancersResult", "LoadBalancerDescriptions", "member"];
pub(crate) const TAGS: [&str; 3] = ["DescribeTagsResult", "TagDescriptions", "member"];

/// A load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadBalancer {
    pub(crate) name: String,
    pub(crate) dns_name: String,
    /// `internal` or `internet-facing`.
    pub(crate) scheme: String,
    pub(crate) subnets: Vec<String>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) instances: Vec<String>,
    /// Each listener with the names of its policies.
    pub(crate) listeners: Vec<(Listener, Vec<String>)>,
    pub(crate) health_check: Option<HealthCheck>,
    /// The policies of each port of the machines.
    pub(crate) backends: Vec<(u16, Vec<String>)>,
    /// Policies that exist, except those for sticky sessions.
    pub(crate) policies: Vec<String>,
}

/// A listener. Protocols are in upper case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) instance_protocol: String,
    pub(crate) instance_port: u16,
    pub(crate) certificate: Option<String>,
}

/// How machines are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    /// `TCP:30080`, `HTTP:30080/healthz`.
    pub(crate) target: String,
    pub(crate) interval: u32,
    pub(crate) timeout: u32,
    pub(crate) unhealthy_threshold: u32,
    pub(crate) healthy_threshold: u32,
}

impl LoadBalancer {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        let listener = |element: Element<'_>| {
            let policies = texts(element, &["PolicyNames", "member"]);
            element.first(&["Listener"]).map(|listener| Ok((Listener::read(listener)?, policies)))
        };
        let backend = |element: Element<'_>| {
            Ok((number(element, &["InstancePort"])?, texts(element, &["PolicyNames", "member"])))
        };
        Ok(Self {
            name: required(element, &["LoadBalancerName"])?,
            dns_name: element.text_of(&["DNSName"]).to_owned(),
            scheme: element.text_of(&["Scheme"]).to_owned(),
            subnets: texts(element, &["Subnets", "member"]),
            security_groups: texts(element, &["SecurityGroups", "member"]),
            instances: texts(element, &["Instances", "member", "InstanceId"]),
            listeners: element.all(&["ListenerDescriptions", "member"]).filter_map(listener).collect::<Result<_>>()?,
            health_check: element.first(&["HealthCheck"]).map(HealthCheck::read).transpose()?,
            backends: element.all(&["BackendServerDescriptions", "member"]).map(backend).collect::<Result<_>>()?,
            policies: texts(element, &["Policies", "OtherPolicies", "member"]),
        })
    }
}

impl Listener {
    fn read(element: Element<'_>) -> Result<Self> {
        Ok(Self {
            protocol: required(element, &["Protocol"])?.to_ascii_uppercase(),
            port: number(element, &["LoadBalancerPort"])?,
            instance_protocol: element.text_of(&["InstanceProtocol"]).to_ascii_uppercase(),
            instance_port: number(element, &["InstancePort"])?,
            certificate: optional(element, &["SSLCertificateId"]),
        })
    }
}

impl HealthCheck {
    fn read(element: Element<'_>) -> Result<Self> {
        Ok(Self {
            target: element.text_of(&["Target"]).to_owned(),
            interval: number(element, &["Interval"])?,
            timeout: number(element, &["Timeout"])?,
            unhealthy_threshold: number(element, &["UnhealthyThreshold"])?,
            healthy_threshold: number(element, &["HealthyThreshold"])?,
        })
    }
}

/// The attributes of a load balancer, those that a user set and those that AWS answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) cross_zone: bool,
    pub(crate) access_log: bool,
    /// Minutes between two deliveries of the access log.
    pub(crate) access_log_interval: Option<u32>,
    pub(crate) access_log_bucket: Option<String>,
    pub(crate) access_log_prefix: Option<String>,
    pub(crate) draining: bool,
    /// Seconds that an existing connection may last while a machine is removed.
    pub(crate) draining_timeout: Option<u32>,
    /// Seconds after which an idle connection is closed.
    pub(crate) idle_timeout: Option<u32>,
}

impl Attributes {
    /// Reads the answer to `DescribeLoadBalancerAttributes`.
    pub(crate) fn read(root: Element<'_>) -> Result<Self> {
        let Some(element) = root.first(&["DescribeLoadBalancerAttributesResult", "LoadBalancerAttributes"]) else {
            return Ok(Self::default());
        };
        let is = |path: &[&str]| element.text_of(path) == "true";
        Ok(Self {
            cross_zone: is(&["CrossZoneLoadBalancing", "Enabled"]),
            access_log: is(&["AccessLog", "Enabled"]),
            access_log_interval: optional_number(element, &["AccessLog", "EmitInterval"]),
            access_log_bucket: optional(element, &["AccessLog", "S3BucketName"]),
            access_log_prefix: optional(element, &["AccessLog", "S3BucketPrefix"]),
            draining: is(&["ConnectionDraining", "Enabled"]),
            draining_timeout: optional_number(element, &["ConnectionDraining", "Timeout"]),
            idle_timeout: optional_number(element, &["ConnectionSettings", "IdleTimeout"]),
        })
    }
}

/// The tags of one load balancer, by its name.
pub(crate) fn tagged(element: Element<'_>) -> Result<(String, Tags)> {
    Ok((required(element, &["LoadBalancerName"])?, super::tags(element, &["Tags", "member"], "Key", "Value")))
}
