//! Network Load Balancers: load balancers, listeners and target groups.

use skysail_guest_sdk::{Result, xml::Element};

use super::{Tags, number, optional, optional_number, required, texts};

pub(crate) const LOAD_BALANCERS: [&str; 3] = ["DescribeLoadBalancersResult", "LoadBalancers", "member"];
pub(crate) const LISTENERS: [&str; 3] = ["DescribeListenersResult", "Listeners", "member"];
pub(crate) const TARGET_GROUPS: [&str; 3] = ["DescribeTargetGroupsResult", "TargetGroups", "member"];
pub(crate) const TAGS: [&str; 3] = ["DescribeTagsResult", "TagDescriptions", "member"];

/// A load balancer of the newer API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadBalancer {
    pub(crate) arn: String,
    pub(crate) name: String,
    pub(crate) dns_name: String,
    /// `network`, `application` or `gateway`.
    pub(crate) kind: String,
    /// `internal` or `internet-facing`.
    pub(crate) scheme: String,
    /// `provisioning`, `active`, `active_impaired` or `failed`.
    pub(crate) state: String,
    pub(crate) state_reason: String,
    pub(crate) subnets: Vec<String>,
    pub(crate) security_groups: Vec<String>,
}

impl LoadBalancer {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        let text = |path: &[&str]| element.text_of(path).to_owned();
        Ok(Self {
            arn: required(element, &["LoadBalancerArn"])?,
            name: required(element, &["LoadBalancerName"])?,
            dns_name: text(&["DNSName"]),
            kind: required(element, &["Type"])?,
            scheme: text(&["Scheme"]),
            state: text(&["State", "Code"]),
            state_reason: text(&["State", "Reason"]),
            subnets: texts(element, &["AvailabilityZones", "member", "SubnetId"]),
            security_groups: texts(element, &["SecurityGroups", "member"]),
        })
    }
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) arn: String,
    pub(crate) port: u16,
    /// `TCP`, `UDP`, `TLS`, `TCP_UDP`.
    pub(crate) protocol: String,
    pub(crate) ssl_policy: Option<String>,
    /// The ARN of the first certificate, which is the default one.
    pub(crate) certificate: Option<String>,
    /// ARN of the target group that it forwards to.
    pub(crate) target_group: Option<String>,
}

impl Listener {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        Ok(Self {
            arn: required(element, &["ListenerArn"])?,
            port: number(element, &["Port"])?,
            protocol: required(element, &["Protocol"])?,
            ssl_policy: optional(element, &["SslPolicy"]),
            certificate: optional(element, &["Certificates", "member", "CertificateArn"]),
            target_group: optional(element, &["DefaultActions", "member", "TargetGroupArn"]),
        })
    }
}

/// A target group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetGroup {
    pub(crate) arn: String,
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) protocol: String,
    /// `instance` or `ip`.
    pub(crate) target_type: String,
    pub(crate) load_balancers: Vec<String>,
    pub(crate) check_protocol: String,
    /// A number or `traffic-port`.
    pub(crate) check_port: String,
    pub(crate) check_path: String,
    pub(crate) check_interval: Option<u32>,
    pub(crate) healthy_threshold: Option<u32>,
    pub(crate) unhealthy_threshold: Option<u32>,
}

impl TargetGroup {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        let text = |path: &[&str]| element.text_of(path).to_owned();
        Ok(Self {
            arn: required(element, &["TargetGroupArn"])?,
            name: required(element, &["TargetGroupName"])?,
            // A group of a function has neither.
            port: optional_number(element, &["Port"]).unwrap_or(0),
            protocol: text(&["Protocol"]),
            target_type: text(&["TargetType"]),
            load_balancers: texts(element, &["LoadBalancerArns", "member"]),
            check_protocol: text(&["HealthCheckProtocol"]),
            check_port: text(&["HealthCheckPort"]),
            check_path: text(&["HealthCheckPath"]),
            check_interval: optional_number(element, &["HealthCheckIntervalSeconds"]),
            healthy_threshold: optional_number(element, &["HealthyThresholdCount"]),
            unhealthy_threshold: optional_number(element, &["UnhealthyThresholdCount"]),
        })
    }
}

/// A registered target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: String,
    pub(crate) port: u16,
    /// Whether it is already deregistered, and finishes its connections.
    pub(crate) is_leaving: bool,
}

impl Target {
    /// The targets of an answer to `DescribeTargetHealth`.
    pub(crate) fn read_all(root: Element<'_>) -> Result<Vec<Self>> {
        let read = |element: Element<'_>| {
            Ok(Self {
                id: required(element, &["Target", "Id"])?,
                port: number(element, &["Target", "Port"])?,
                is_leaving: element.text_of(&["TargetHealth", "Reason"]) == "Target.DeregistrationInProgress",
            })
        };
        root.all(&["DescribeTargetHealthResult", "TargetHealthDescriptions", "member"]).map(read).collect()
    }
}

/// The tags of one resource.
pub(crate) fn tagged(element: Element<'_>) -> Result<(String, Tags)> {
    Ok((required(element, &["ResourceArn"])?, super::tags(element, &["Tags", "member"], "Key", "Value")))
}

/// The attributes of a load balancer or target group.
pub(crate) fn attributes(root: Element<'_>) -> Result<Tags> {
    let result = root.children().find(|child| child.name().ends_with("AttributesResult"));
    Ok(result.map(|result| super::tags(result, &["Attributes", "member"], "Key", "Value")).unwrap_or_default())
}
