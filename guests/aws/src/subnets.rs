//! The subnets of a new load balancer, at most one in each zone.

use std::collections::{BTreeMap, BTreeSet};

use skysail_guest_sdk::{Cidr, Error, Result};

use crate::{
    call::Call,
    cloud::{Cloud, list},
    lookup, routes,
    settings::Settings,
    tagging::Tagging,
    wire::ec2::{RouteTable, SUBNETS, Subnet},
};

/// Tags of the subnets for load balancers.
const INTERNAL_ROLE: &str = "kubernetes.io/role/internal-elb";
const PUBLIC_ROLE: &str = "kubernetes.io/role/elb";

/// The subnets of the VPC.
fn of_vpc(cloud: &dyn Cloud, settings: &Settings) -> Result<Vec<Subnet>> {
    let call = Call::ec2("DescribeSubnets").filter("vpc-id", [&settings.vpc]);
    Ok(list(cloud, &call, &SUBNETS, Subnet::read)?)
}

/// The IPv4 ranges of these subnets.
pub(crate) fn ranges(cloud: &dyn Cloud, ids: &[String]) -> Result<Vec<Cidr>> {
    let call = Call::ec2("DescribeSubnets").list("SubnetId", ids);
    let subnets = list(cloud, &call, &SUBNETS, Subnet::read)?;
    if subnets.len() != ids.len() {
        return Err(Error::Internal(format!("EC2 answered {} of the {} subnets {ids:?}", subnets.len(), ids.len())));
    }
    subnets.iter().map(|subnet| subnet.cidr.parse()).collect()
}

/// The subnets that the user names, by ID or by the tag `Name`; else those that fit.
pub(crate) fn choose(
    cloud: &dyn Cloud,
    settings: &Settings,
    tagging: &Tagging,
    named: &[String],
    internal: bool,
) -> Result<Vec<String>> {
    let all = of_vpc(cloud, settings)?;
    if !named.is_empty() {
        return resolve(&all, named, &settings.vpc);
    }
    let usable = |subnet: &&Subnet| tagging.has(&subnet.tags) || !Tagging::is_claimed(&subnet.tags);
    let mut candidates: Vec<&Subnet> = all.iter().filter(usable).collect();
    if candidates.is_empty() {
        candidates = all.iter().filter(|subnet| Some(&subnet.id) == settings.subnet.as_ref()).collect();
    }
    let tables = routes::tables(cloud, settings)?;
    let mut by_zone: BTreeMap<&str, &Subnet> = BTreeMap::new();
    for subnet in candidates {
        if !internal && !is_public(&tables, subnet)? {
            continue;
        }
        let zone = subnet.zone.as_str();
        let better =
            by_zone.get(zone).is_none_or(|other| rank(subnet, internal, tagging) < rank(other, internal, tagging));
        if better {
            by_zone.insert(zone, subnet);
        }
    }
    let zones = lookup::zones(cloud, &by_zone.keys().copied().collect::<BTreeSet<_>>())?;
    // Local zones and wavelength zones have no load balancers of these kinds.
    by_zone
        .retain(|zone, _| zones.get(*zone).is_none_or(|zone| zone.kind.is_empty() || zone.kind == "availability-zone"));
    if by_zone.is_empty() {
        let (kind, role) = if internal { ("", INTERNAL_ROLE) } else { ("public ", PUBLIC_ROLE) };
        return Err(Error::Invalid(format!(
            "VPC {} has no {kind}subnet for load balancers of cluster {:?}; tag subnets with {role}, or name them in the \
             annotation service.beta.kubernetes.io/aws-load-balancer-subnets",
            settings.vpc,
            tagging.cluster()
        )));
    }
    Ok(by_zone.into_values().map(|subnet| subnet.id.clone()).collect())
}

/// Of two subnets in a zone: the one with the role, then the one of the cluster, then the first.
fn rank<'a>(subnet: &'a Subnet, internal: bool, tagging: &Tagging) -> (bool, bool, &'a str) {
    let role = if internal { INTERNAL_ROLE } else { PUBLIC_ROLE };
    (!subnet.tags.contains_key(role), !tagging.has(&subnet.tags), &subnet.id)
}

/// Whether packets to the internet leave through an internet gateway: in the table of the subnet,
/// else in the main one.
fn is_public(tables: &[RouteTable], subnet: &Subnet) -> Result<bool> {
    let own = tables.iter().find(|table| table.subnets.contains(&subnet.id));
    let table = own.or_else(|| tables.iter().find(|table| table.is_main));
    let table =
        table.ok_or_else(|| Error::Internal(format!("EC2 answered no route table for subnet {}", subnet.id)))?;
    Ok(table.routes.iter().filter_map(|route| route.gateway.as_deref()).any(|gateway| gateway.starts_with("igw")))
}

fn resolve(all: &[Subnet], named: &[String], vpc: &str) -> Result<Vec<String>> {
    let find = |named: &String| {
        let matches = |subnet: &&Subnet| {
            if named.starts_with("subnet-") { subnet.id == *named } else { subnet.tags.get("Name") == Some(named) }
        };
        let mut found = all.iter().filter(matches);
        match (found.next(), found.next()) {
            (Some(subnet), None) => Ok(subnet.id.clone()),
            (None, _) => Err(wrong(named, &format!("VPC {vpc} has no such subnet"))),
            (Some(_), Some(_)) => Err(wrong(named, "several subnets have this name; write their IDs")),
        }
    };
    named.iter().map(find).collect()
}

fn wrong(named: &str, why: &str) -> Error {
    Error::Invalid(format!("annotation service.beta.kubernetes.io/aws-load-balancer-subnets: {named:?}: {why}"))
}
