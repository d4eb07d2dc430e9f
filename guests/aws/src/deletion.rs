//! Load balancers by their names, and their removal with everything that belongs to them.

use sha2::{Digest as _, Sha256};
use skysail_guest_sdk::{Error, Result, Service};

use crate::{
    call::Call,
    cloud::{Cloud, list, send, send_every, send_within},
    fault::Expected as _,
    groups::{self, Change, Groups},
    plan,
    settings::Settings,
    sources::Sources,
    tagging::{self, Tagging},
    wire::{
        Tags,
        ec2::SecurityGroup,
        elb::{self, LoadBalancer as Classic},
        elb_v2::{self, Listener, LoadBalancer as Network, TargetGroup},
    },
};

/// Code of both APIs.
const ABSENT: [&str; 2] = ["LoadBalancerNotFound", "AccessPointNotFound"];
/// The attribute by which a person protects a load balancer.
const PROTECTION: &str = "deletion_protection.enabled";
/// The tag of a security group whose load balancer was deleted before it: the load balancer's name.
const LOAD_BALANCER: &str = "skysail.dev/load-balancer";
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

/// The same for the namespace and name in the tag of a Service.
fn prefix_of(key: &str) -> Option<String> {
    key.split_once('/').map(|(namespace, name)| readable(namespace, name))
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
        let attached = network.iter().flat_map(|one| &one.security_groups);
        let attached: Vec<&str> = attached.map(String::as_str).collect();
        let doomed = self.doomed(name, key.as_deref(), &attached, &groups);
        match (&network, self.service) {
            // Without its Service a load balancer is the only trace of what belongs to it, so the
            // load balancer goes last.
            (Some(found), None) => {
                self.check_protection(found)?;
                // Before all deletions: a policy may allow tags for new groups only, and a load
                // balancer that cannot be deleted keeps its listeners.
                self.mark(name, &doomed)?;
                self.close_nodes(name, &groups)?;
                self.delete_listeners(found)?;
                self.delete_targets(&targets)?;
                self.delete_balancers(name, network.as_ref(), classic.as_ref(), &groups)?;
            }
            _ => {
                self.delete_balancers(name, network.as_ref(), classic.as_ref(), &groups)?;
                self.close_nodes(name, &groups)?;
                self.delete_targets(&targets)?;
            }
        }
        groups::delete(self.cloud, &groups, &doomed)
    }

    /// # Errors
    ///
    /// `denied` where a person protected the load balancer: AWS would refuse its deletion after
    /// everything else was deleted.
    fn check_protection(&self, network: &Network) -> Result<()> {
        let call = Call::elb_v2("DescribeLoadBalancerAttributes").set("LoadBalancerArn", &network.arn);
        let attributes = send(self.cloud, call).map_err(Error::from)?.read(elb_v2::attributes)?;
        if attributes.get(PROTECTION).is_some_and(|value| value == "true") {
            return Err(Error::Denied(format!(
                "load balancer {}: AWS protects it from deletion; set its attribute {PROTECTION} to false",
                network.name
            )));
        }
        Ok(())
    }

    /// Removes the rules of a Network Load Balancer from the groups of the nodes.
    fn close_nodes(&self, name: &str, groups: &Groups) -> Result<()> {
        if self.settings.keep_node_rules {
            return Ok(());
        }
        let ours = groups.all.iter().filter(|group| self.tagging.has(&group.tags));
        let changes: Vec<_> = ours.map(|group| Change::for_network(group, name, &[], self.settings)).collect();
        groups::apply(self.cloud, &changes)
    }

    fn delete_listeners(&self, network: &Network) -> Result<()> {
        let call = Call::elb_v2("DescribeListeners").set("LoadBalancerArn", &network.arn);
        let listeners = list(self.cloud, &call, &elb_v2::LISTENERS, Listener::read)?;
        let call = |one: &Listener| Call::elb_v2("DeleteListener").set("ListenerArn", &one.arn);
        send_within(self.cloud, listeners.iter().map(call).collect(), &["ListenerNotFound"])
    }

    fn delete_targets(&self, targets: &[&str]) -> Result<()> {
        let call = |arn: &&str| Call::elb_v2("DeleteTargetGroup").set("TargetGroupArn", arn);
        send_within(self.cloud, targets.iter().map(call).collect(), &["TargetGroupNotFound"])
    }

    /// Lets a later call find the groups without the load balancer, for which AWS may use them
    /// longer than this call lasts.
    fn mark(&self, name: &str, doomed: &[&SecurityGroup]) -> Result<()> {
        if doomed.is_empty() {
            return Ok(());
        }
        let tag = Tags::from([(LOAD_BALANCER.to_owned(), name.to_owned())]);
        let call = Call::ec2("CreateTags").list("ResourceId", doomed.iter().map(|group| &group.id));
        send(self.cloud, call.pairs("Tag", &tag)).map(drop).map_err(Error::from)
    }

    fn delete_balancers(
        &self,
        name: &str,
        network: Option<&Network>,
        classic: Option<&Classic>,
        groups: &Groups,
    ) -> Result<()> {
        let Self { cloud, settings, tagging, .. } = self;
        if let Some(network) = network {
            let call = Call::elb_v2("DeleteLoadBalancer").set("LoadBalancerArn", &network.arn);
            send(*cloud, call).unless(&ABSENT)?;
        }
        let Some(classic) = classic else { return Ok(()) };
        // A group that the user named stays; the groups of the nodes no longer admit it.
        if !settings.keep_node_rules {
            let sources = Sources { cloud: *cloud, settings, tagging, groups, name };
            let named = self.service.map(|(_, service)| plan::named_groups(service)).unwrap_or_default();
            let attached = &classic.security_groups;
            // Only the first group gets a rule. The load balancer lacks the group that the Service
            // names first if no `ensure` has finished since the annotation changed.
            let first = named.first().filter(|id| attached.contains(id)).or_else(|| attached.first());
            groups::apply(*cloud, &sources.former(attached, first, None)?.dismiss)?;
        }
        send(*cloud, Call::elb("DeleteLoadBalancer").set("LoadBalancerName", name)).unless(&ABSENT).map(drop)
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
        let tags_of = |arns: &[&str]| network_tags(self.cloud, arns);
        let own = tags_of(arn.as_slice())?.into_iter().next().unwrap_or_default().1;
        if arn.is_some() {
            check_owner(self.tagging, name, &own)?;
        }
        let key = self.service.map(|(_, service)| service.key()).or_else(|| own.get(tagging::SERVICE).cloned());
        let prefix = key.as_deref().and_then(prefix_of);
        let attached = |group: &&TargetGroup| arn.is_some_and(|arn| group.load_balancers.iter().any(|one| one == arn));
        let left = |group: &&TargetGroup| {
            group.load_balancers.is_empty() && prefix.as_ref().is_some_and(|prefix| group.name.starts_with(prefix))
        };
        let left: Vec<&str> = targets.iter().filter(left).map(|group| group.arn.as_str()).collect();
        let tags = tags_of(&left)?;
        let is_ours = |arn: &&str| {
            let tags = tags.iter().find(|(one, _)| one == arn).map(|(_, tags)| tags);
            tags.is_some_and(|tags| self.tagging.owns(tags) && tags.get(tagging::SERVICE) == key.as_ref())
        };
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
        let prefix = key.and_then(prefix_of);
        let is_made = |group: &&SecurityGroup| {
            group.name == classic
                || Some(&group.name) == network.as_ref()
                || group.tags.get(LOAD_BALANCER).is_some_and(|marked| marked == name)
                || (attached.contains(&group.id.as_str())
                    && prefix.as_ref().is_some_and(|prefix| group.name.starts_with(prefix)))
        };
        groups.all.iter().filter(is_made).filter(|group| self.tagging.owns(&group.tags)).collect()
    }
}
