//! Load balancers by their names, and their removal with everything that belongs to them.

use sha2::{Digest as _, Sha256};
use skysail_guest_sdk::{Error, Result, Service};

use crate::{
    call::Call,
    cloud::{Cloud, list, send, send_every},
    fault::Expected as _,
    groups::{self, Change, Groups},
    plan,
    settings::Settings,
    tagging::{self, Tagging},
    wire::{
        Tags,
        ec2::SecurityGroup,
        elb::{self, LoadBalancer as Classic},
        elb_v2::{self, LoadBalancer as Network, TargetGroup},
    },
};

/// Code of both APIs.
const ABSENT: [&str; 2] = ["LoadBalancerNotFound", "AccessPointNotFound"];
/// AWS refuses more resources in one question about tags.
pub(crate) const TAGGED_PER_CALL: usize = 20;

/// The Network Load Balancer of this name.
///
/// # Errors
///
/// `invalid` where the name is taken by a load balancer of another kind.
pub(crate) fn find_network(cloud: &dyn Cloud, name: &str) -> Result<Option<Network>> {
    let call = Call::elb_v2("DescribeLoadBalancers").list("Names", [name]);
    let Some(found) = list(cloud, &call, &elb_v2::LOAD_BALANCERS, Network::read).unless(&ABSENT)? else {
        return Ok(None);
    };
    let kind = found.first().map(|found| found.kind.clone());
    match (found.into_iter().find(|found| found.kind == "network"), kind) {
        (None, Some(kind)) => {
            Err(Error::Invalid(format!("load balancer {name} is of the kind {kind:?}; rename or delete it")))
        }
        (found, _) => Ok(found),
    }
}

/// The Classic Load Balancer of this name.
pub(crate) fn find_classic(cloud: &dyn Cloud, name: &str) -> Result<Option<Classic>> {
    let call = Call::elb("DescribeLoadBalancers").list("LoadBalancerNames", [name]);
    let found = list(cloud, &call, &elb::LOAD_BALANCERS, Classic::read).unless(&ABSENT)?;
    Ok(found.unwrap_or_default().into_iter().find(|found| found.name == name))
}

/// The tags of each of these resources of the newer API.
pub(crate) fn network_tags(cloud: &dyn Cloud, arns: &[&str]) -> Result<Vec<(String, Tags)>> {
    let call = |arns: &[&str]| Call::elb_v2("DescribeTags").list("ResourceArns", arns);
    let answers = send_every(cloud, arns.chunks(TAGGED_PER_CALL).map(call).collect())?;
    let mut tags = Vec::new();
    for answer in answers {
        tags.extend(answer.read(|root| root.all(&elb_v2::TAGS).map(elb_v2::tagged).collect::<Result<Vec<_>>>())?);
    }
    Ok(tags)
}

/// The tags of each of these Classic Load Balancers.
pub(crate) fn classic_tags(cloud: &dyn Cloud, names: &[&str]) -> Result<Vec<(String, Tags)>> {
    let call = |names: &[&str]| Call::elb("DescribeTags").list("LoadBalancerNames", names);
    let answers = send_every(cloud, names.chunks(TAGGED_PER_CALL).map(call).collect())?;
    let mut tags = Vec::new();
    for answer in answers {
        tags.extend(answer.read(|root| root.all(&elb::TAGS).map(elb::tagged).collect::<Result<Vec<_>>>())?);
    }
    Ok(tags)
}

/// # Errors
///
/// `denied` for a load balancer without the tag of this cluster.
pub(crate) fn check_owner(tagging: &Tagging, name: &str, tags: &Tags) -> Result<()> {
    if tagging.owns(tags) {
        return Ok(());
    }
    let cluster = tagging.cluster();
    let whose = if Tagging::is_claimed(tags) { "belongs to another cluster" } else { "has no owner" };
    Err(Error::Denied(format!(
        "load balancer {name} {whose}, by its tags; add kubernetes.io/cluster/{cluster}=owned if it is of cluster {cluster:?}"
    )))
}

/// The name of the security group of a Classic Load Balancer.
pub(crate) fn classic_group(name: &str) -> String {
    format!("k8s-elb-{name}")
}

/// The name of the security group of a Network Load Balancer, as in the vendor's manager.
pub(crate) fn network_group(cluster: &str, service: &Service) -> String {
    let Service { namespace, name, uid, .. } = service;
    format!("{}{}", readable(namespace, name), digest(&[cluster, name, namespace, uid]))
}

/// The first part of the name of a security group or target group of the newer API.
pub(crate) fn readable(namespace: &str, name: &str) -> String {
    let part = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).take(8).collect::<String>();
    format!("k8s-{}-{}-", part(namespace), part(name))
}

/// Ten characters that depend on all parts.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

/// Removes one Service's load balancer.
pub(crate) struct Deletion<'a> {
    pub(crate) cloud: &'a dyn Cloud,
    pub(crate) settings: &'a Settings,
    pub(crate) tagging: &'a Tagging,
    /// Name of the cluster, and the Service; none for a load balancer whose Service is gone.
    pub(crate) service: Option<(&'a str, &'a Service)>,
}

impl Deletion<'_> {
    /// Removes both kinds, because the Service may have had another kind before. Also what an
    /// incomplete `ensure` left without a load balancer.
    pub(crate) fn run(&self, name: &str) -> Result<()> {
        let network = find_network(self.cloud, name)?;
        let classic = find_classic(self.cloud, name)?;
        let listed = Call::elb_v2("DescribeTargetGroups");
        let targets = list(self.cloud, &listed, &elb_v2::TARGET_GROUPS, TargetGroup::read)?;
        let groups = Groups::list(self.cloud, self.settings)?;
        let (targets, key) = self.owned(name, network.as_ref(), classic.as_ref(), &targets)?;
        if let Some(network) = &network {
            let call = Call::elb_v2("DeleteLoadBalancer").set("LoadBalancerArn", &network.arn);
            send(self.cloud, call).unless(&ABSENT)?;
        }
        if classic.is_some() {
            send(self.cloud, Call::elb("DeleteLoadBalancer").set("LoadBalancerName", name)).unless(&ABSENT)?;
        }
        let call = |arn: &&str| Call::elb_v2("DeleteTargetGroup").set("TargetGroupArn", arn);
        let answers =
            if targets.is_empty() { Vec::new() } else { self.cloud.send_all(targets.iter().map(call).collect()) };
        for answer in answers {
            answer.unless(&["TargetGroupNotFound"])?;
        }
        if !self.settings.keep_node_rules {
            let ours = groups.all.iter().filter(|group| self.tagging.has(&group.tags));
            let changes: Vec<_> = ours.map(|group| Change::for_network(group, name, &[])).collect();
            groups::apply(self.cloud, &changes)?;
        }
        let attached = network.iter().flat_map(|one| &one.security_groups);
        let attached: Vec<&str> = attached.map(String::as_str).collect();
        // A group that the user named stays; the groups of the nodes no longer admit it.
        let named = self.service.map(|(_, service)| plan::named_groups(service)).unwrap_or_default();
        if let (Some(_), Some(named)) = (&classic, named.first()) {
            let ours = groups.all.iter().filter(|group| self.tagging.has(&group.tags));
            groups::apply(self.cloud, &ours.map(|group| Change::exclude(group, named)).collect::<Vec<_>>())?;
        }
        groups::delete(self.cloud, &groups, &self.doomed(name, key.as_deref(), &attached, &groups))
    }

    /// ARNs of the target groups of the Service, and its key by the tag of the load balancer.
    fn owned<'t>(
        &self,
        name: &str,
        network: Option<&Network>,
        classic: Option<&Classic>,
        targets: &'t [TargetGroup],
    ) -> Result<(Vec<&'t str>, Option<String>)> {
        if classic.is_some() {
            let tags = classic_tags(self.cloud, &[name])?;
            check_owner(self.tagging, name, &tags.into_iter().next().unwrap_or_default().1)?;
        }
        let arn = network.map(|network| network.arn.as_str());
        let attached = |group: &&TargetGroup| arn.is_some_and(|arn| group.load_balancers.iter().any(|one| one == arn));
        let prefix = self.service.map(|(_, service)| readable(&service.namespace, &service.name));
        let left = |group: &&TargetGroup| {
            group.load_balancers.is_empty() && prefix.as_ref().is_some_and(|prefix| group.name.starts_with(prefix))
        };
        let left: Vec<&str> = targets.iter().filter(left).map(|group| group.arn.as_str()).collect();
        let asked: Vec<&str> = arn.into_iter().chain(left.iter().copied()).collect();
        let tags = network_tags(self.cloud, &asked)?;
        let of = |arn: &str| tags.iter().find(|(one, _)| one == arn).map(|(_, tags)| tags);
        let key_of = |tags: &Tags| tags.get(tagging::SERVICE).cloned();
        if let Some(arn) = arn {
            check_owner(self.tagging, name, of(arn).unwrap_or(&Tags::new()))?;
        }
        let key = self.service.map(|(_, service)| service.key()).or_else(|| key_of(of(arn?)?));
        let is_ours = |arn: &&str| of(arn).is_some_and(|tags| self.tagging.owns(tags) && key_of(tags) == key);
        let mut ours: Vec<&str> = targets.iter().filter(attached).map(|group| group.arn.as_str()).collect();
        ours.extend(left.into_iter().filter(is_ours));
        Ok((ours, key))
    }

    /// The groups that `ensure` makes for a load balancer of this name.
    fn doomed<'g>(
        &self,
        name: &str,
        key: Option<&str>,
        attached: &[&str],
        groups: &'g Groups,
    ) -> Vec<&'g SecurityGroup> {
        let classic = classic_group(name);
        let network = self.service.map(|(cluster, service)| network_group(cluster, service));
        let prefix = key.and_then(|key| key.split_once('/')).map(|(namespace, name)| readable(namespace, name));
        let is_made = |group: &&SecurityGroup| {
            group.name == classic
                || Some(&group.name) == network.as_ref()
                || (attached.contains(&group.id.as_str())
                    && prefix.as_ref().is_some_and(|prefix| group.name.starts_with(prefix)))
        };
        groups.all.iter().filter(is_made).filter(|group| self.tagging.owns(&group.tags)).collect()
    }
}
