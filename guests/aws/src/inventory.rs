//! The load balancers that the cluster owns.

use skysail_guest_sdk::{Owned, Result};

use crate::{
    call::Call,
    cloud::{Cloud, list as list_all},
    deletion::{Deletion, classic_tags, network_tags},
    settings::Settings,
    tagging::{self, Tagging},
    wire::{
        Tags,
        elb::{self, LoadBalancer as Classic},
        elb_v2::{self, LoadBalancer as Network},
    },
};

/// Characters of a name that come from a Service's UID, after the `a`.
const UID_CHARACTERS: usize = 31;

/// As `load-balancer-inventory.list`. The name has the Service's UID, and the tags its namespace
/// and name: the host finds the Service by the name.
pub(crate) fn list(cloud: &dyn Cloud, settings: &Settings, cluster: &str) -> Result<Vec<Owned>> {
    let tagging = Tagging::new(settings, cluster);
    let owned = |name: &str| Owned { name: name.to_owned(), service: None, extra: Vec::new() };
    let is_ours = |tags: &Tags| tagging.owns(tags) && tags.contains_key(tagging::SERVICE);

    let call = Call::elb_v2("DescribeLoadBalancers");
    let mut networks = list_all(cloud, &call, &elb_v2::LOAD_BALANCERS, Network::read)?;
    networks.retain(|one| one.kind == "network" && is_name(&one.name));
    let arns: Vec<&str> = networks.iter().map(|one| one.arn.as_str()).collect();
    let tags = network_tags(cloud, &arns)?;
    let name = |arn: &str| networks.iter().find(|one| one.arn == arn).map(|one| owned(&one.name));
    let mut found: Vec<_> = tags.iter().filter(|(_, tags)| is_ours(tags)).filter_map(|(arn, _)| name(arn)).collect();

    let call = Call::elb("DescribeLoadBalancers");
    let classics = list_all(cloud, &call, &elb::LOAD_BALANCERS, Classic::read)?;
    let names: Vec<&str> = classics.iter().map(|one| one.name.as_str()).filter(|name| is_name(name)).collect();
    let tags = classic_tags(cloud, &names)?;
    found.extend(tags.iter().filter(|(_, tags)| is_ours(tags)).map(|(name, _)| owned(name)));
    Ok(found)
}

/// As `load-balancer-inventory.delete`.
pub(crate) fn delete(cloud: &dyn Cloud, settings: &Settings, cluster: &str, name: &str) -> Result<()> {
    let tagging = Tagging::new(settings, cluster);
    Deletion { cloud, settings, tagging: &tagging, service: None }.run(name)
}

/// Whether a Service's load balancer can have this name.
fn is_name(name: &str) -> bool {
    let uid = name.strip_prefix('a').unwrap_or_default();
    uid.len() == UID_CHARACTERS && uid.chars().all(|c| c.is_ascii_hexdigit())
}
