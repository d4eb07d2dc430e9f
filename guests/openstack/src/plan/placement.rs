//! Where a load balancer, its members and its floating IP are.

use skysail_guest_sdk::{Result, annotations::Annotations};

use super::floating::SubnetFilter;
use crate::settings::{Class, LoadBalancer, is_id};

/// Networks and subnets of one Service's load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) vip_port: Option<String>,
    pub(crate) network: Option<String>,
    pub(crate) subnet: Option<String>,
    pub(crate) member_subnet: MemberSubnet,
    /// None: the first external network of the cloud.
    pub(crate) floating_network: Option<String>,
    pub(crate) floating_subnet: SubnetFilter,
}

/// The subnet of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberSubnet {
    Of(String),
    /// The subnet of the first node.
    OfNodes,
    /// Octavia reaches the members through the load balancer's own subnet.
    OfVip,
}

/// Reads the annotations over the cloud-config. A class goes before the annotations, as the
/// vendor's documentation says.
pub(super) fn read(lb: &LoadBalancer, annotations: &Annotations<'_>) -> Result<Place> {
    let none = Class::default();
    let class = match annotations.text("class") {
        None => &none,
        Some(name) => lb.classes.iter().find(|(known, _)| known == name).map(|(_, class)| class).ok_or_else(|| {
            let known: Vec<&str> = lb.classes.iter().map(|(known, _)| known.as_str()).collect();
            let why =
                format!("the cloud-config has no [LoadBalancerClass {name:?}]; its classes are: {}", known.join(", "));
            annotations.invalid("class", why)
        })?,
    };
    let defaults = &lb.placement;
    let pick = |class: &Option<String>, key: &str, default: &Option<String>| -> Result<Option<String>> {
        let annotation = id(annotations, key)?;
        Ok(class.clone().or(annotation).or_else(|| default.clone()))
    };
    let network = pick(&class.network, "network-id", &defaults.network)?;
    let subnet = pick(&class.subnet, "subnet-id", &defaults.subnet)?;
    let member_subnet = id(annotations, "member-subnet-id")?
        .or_else(|| class.member_subnet.clone())
        .or_else(|| defaults.member_subnet.clone())
        .or_else(|| defaults.subnet.clone())
        .or_else(|| subnet.clone());
    let vip_port = id(annotations, "port-id")?;
    let member_subnet = match member_subnet {
        Some(subnet) => MemberSubnet::Of(subnet),
        None if network.is_none() => MemberSubnet::OfNodes,
        None => MemberSubnet::OfVip,
    };
    let annotated = Class {
        floating_subnet: id(annotations, "floating-subnet-id")?,
        floating_subnet_name: annotations.text("floating-subnet").map(str::to_owned),
        floating_subnet_tags: annotations.text("floating-subnet-tags").map(str::to_owned),
        ..Class::default()
    };
    if annotated.floating_subnet_name.as_deref().is_some_and(|name| name.trim_start_matches('!').starts_with('~')) {
        let why = "regular expressions are not supported; write a glob such as public-*, or floating-subnet-tags";
        return Err(annotations.invalid("floating-subnet", why));
    }
    Ok(Place {
        vip_port,
        network,
        subnet,
        member_subnet,
        floating_network: pick(&class.floating_network, "floating-network-id", &defaults.floating_network)?,
        floating_subnet: [class, &annotated, defaults]
            .into_iter()
            .find_map(SubnetFilter::of)
            .unwrap_or(SubnetFilter::Any),
    })
}

fn id(annotations: &Annotations<'_>, key: &str) -> Result<Option<String>> {
    match annotations.text(key) {
        Some(id) if !is_id(id) => {
            Err(annotations.invalid(key, format_args!("{id:?} is not an ID; write the ID, not the name")))
        }
        id => Ok(id.map(str::to_owned)),
    }
}
