//! Network Load Balancers: brings one to its plan.

mod listeners;
mod ports;
mod targets;

use skysail_guest_sdk::{Error, Result};

use self::listeners::Listeners;
use crate::{
    backends::Backend,
    balancing::{Task, changed_tags, same_set},
    call::Call,
    cloud::{list, send},
    deletion,
    fault::Expected as _,
    groups::{self, Change, Groups, Owned},
    plan::network::Network as Plan,
    subnets,
    wire::{
        Tags,
        ec2::SecurityGroup,
        elb_v2::{self, LISTENERS, Listener, LoadBalancer, TARGET_GROUPS, TargetGroup},
    },
};

/// The Network Load Balancer of one Service.
pub(crate) struct NetworkTask<'a> {
    pub(crate) task: &'a Task<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) name: &'a str,
    pub(crate) backends: &'a [Backend],
}

impl NetworkTask<'_> {
    /// Creates or changes the load balancer.
    pub(crate) fn reconcile(&self, found: Option<LoadBalancer>) -> Result<LoadBalancer> {
        let Task { cloud, settings, .. } = self.task;
        let needs_groups = settings.manage_nlb_groups || !settings.keep_node_rules;
        let groups = if needs_groups { Groups::list(*cloud, settings)? } else { Groups { all: Vec::new() } };
        let (own, attached) = self.security_groups(found.as_ref(), &groups)?;
        let balancer = match found {
            Some(found) => self.change(found, &attached)?,
            None => self.create(&attached)?,
        };
        let mut changes = Vec::new();
        if let Some(own) = &own {
            let protocol = if self.plan.ports.iter().any(crate::plan::network::Port::is_udp) { "udp" } else { "tcp" };
            let ports = self.plan.ports.iter().map(|port| port.port);
            changes.push(Change::exactly(own, &groups::of_frontend(protocol, ports, &self.plan.common.sources)));
        }
        if !settings.keep_node_rules {
            changes.extend(self.node_rules(&balancer, &groups)?);
        }
        groups::apply(*cloud, &changes)?;
        self.forget_replaced_group(own.as_ref(), &groups)?;
        Ok(balancer)
    }

    /// The group that this provider keeps, and the groups of the load balancer.
    fn security_groups(
        &self,
        found: Option<&LoadBalancer>,
        groups: &Groups,
    ) -> Result<(Option<SecurityGroup>, Vec<String>)> {
        let Task { cloud, settings, tagging, .. } = self.task;
        let present = || found.map(|found| found.security_groups.clone()).unwrap_or_default();
        // AWS attaches no group to a load balancer that was made without one.
        let cannot_have_any = found.is_some_and(|found| found.security_groups.is_empty());
        if !settings.manage_nlb_groups || cannot_have_any {
            return Ok((None, present()));
        }
        if !self.plan.common.security_groups.is_empty() {
            return Ok((None, self.plan.common.security_groups.clone()));
        }
        let name = deletion::network_group(self.task.cluster, self.task.service);
        let tags = tagging.owned(&self.plan.common.tags, None);
        let owned = Owned { name: &name, description: "[k8s] Managed SecurityGroup for LoadBalancer", tags: &tags };
        let group = owned.ensure(*cloud, settings, tagging, groups)?;
        let id = group.id.clone();
        Ok((Some(group), vec![id]))
    }

    fn create(&self, security_groups: &[String]) -> Result<LoadBalancer> {
        let Task { cloud, settings, tagging, .. } = self.task;
        let common = &self.plan.common;
        let subnets = subnets::choose(*cloud, settings, tagging, &common.subnets, common.internal)?;
        let mut call = Call::elb_v2("CreateLoadBalancer")
            .set("Name", self.name)
            .set("Type", "network")
            .set_opt("Scheme", common.internal.then_some("internal"))
            .list("SecurityGroups", security_groups)
            .pairs("Tags", &self.task.tags(&common.tags));
        let addresses = [
            ("eip-allocations", "AllocationId", &self.plan.allocations),
            ("private-ipv4-addresses", "PrivateIPv4Address", &self.plan.private_addresses),
        ];
        for (annotation, _, addresses) in addresses {
            if !addresses.is_empty() && addresses.len() != subnets.len() {
                return Err(Error::Invalid(format!(
                    "annotation service.beta.kubernetes.io/aws-load-balancer-{annotation}: {} entries for {} subnets; write one \
                     for each of {subnets:?}",
                    addresses.len(),
                    subnets.len()
                )));
            }
        }
        for (n, subnet) in subnets.iter().enumerate() {
            let member = format!("SubnetMappings.member.{}", n + 1);
            call = call.set(format!("{member}.SubnetId"), subnet);
            for (_, name, addresses) in addresses {
                if let Some(address) = addresses.get(n) {
                    call = call.set(format!("{member}.{name}"), address);
                }
            }
        }
        let answer = send(*cloud, call).map_err(Error::from)?;
        let created = answer.read(|root| {
            let member = root.first(&["CreateLoadBalancerResult", "LoadBalancers", "member"]);
            LoadBalancer::read(member.ok_or_else(|| Error::Internal("no load balancer".to_owned()))?)
        })?;
        let listeners = Listeners { listeners: Vec::new(), targets: Vec::new(), is_open: false };
        listeners.reconcile(self, &created)?;
        self.attributes(&created)?;
        Ok(created)
    }

    fn change(&self, found: LoadBalancer, security_groups: &[String]) -> Result<LoadBalancer> {
        let cloud = self.task.cloud;
        let tags = deletion::network_tags(cloud, &[&found.arn])?.into_iter().next().unwrap_or_default().1;
        self.task.check_owner(self.name, &tags)?;
        if !same_set(security_groups, &found.security_groups) {
            let call = Call::elb_v2("SetSecurityGroups").set("LoadBalancerArn", &found.arn);
            send(cloud, call.list("SecurityGroups", security_groups)).map_err(Error::from)?;
        }
        let of = |action: &'static str| Call::elb_v2(action).set("LoadBalancerArn", &found.arn);
        let listeners = list(cloud, &of("DescribeListeners"), &LISTENERS, Listener::read)?;
        // A load balancer without listeners, which an incomplete `ensure` left, has no target
        // groups.
        let targets = list(cloud, &of("DescribeTargetGroups"), &TARGET_GROUPS, TargetGroup::read);
        let targets = targets.unless(&["TargetGroupNotFound"])?.unwrap_or_default();
        let is_open = listeners::is_open(&tags);
        Listeners { listeners, targets, is_open }.reconcile(self, &found)?;
        self.attributes(&found)?;
        let missing = changed_tags(&self.task.tags(&self.plan.common.tags), &tags);
        if !missing.is_empty() {
            let call = Call::elb_v2("AddTags").list("ResourceArns", [&found.arn]).pairs("Tags", &missing);
            send(cloud, call).map_err(Error::from)?;
        }
        Ok(found)
    }

    fn attributes(&self, balancer: &LoadBalancer) -> Result<()> {
        let of = |action: &'static str| Call::elb_v2(action).set("LoadBalancerArn", &balancer.arn);
        let answer = send(self.task.cloud, of("DescribeLoadBalancerAttributes")).map_err(Error::from)?;
        let present = answer.read(elb_v2::attributes)?;
        let mut changed: Tags = changed_tags(&self.plan.attributes, &present);
        // AWS has no value for an attribute that was never set.
        changed.retain(|key, value| !value.is_empty() || present.contains_key(key));
        if changed.is_empty() {
            return Ok(());
        }
        let call = of("ModifyLoadBalancerAttributes").pairs("Attributes", &changed);
        send(self.task.cloud, call).map(drop).map_err(Error::from)
    }

    /// Opens the groups of the nodes, and closes the groups that nodes have left.
    fn node_rules(&self, balancer: &LoadBalancer, groups: &Groups) -> Result<Vec<Change>> {
        let tagging = &self.task.tagging;
        let wanted = groups.of_nodes(tagging, self.backends)?;
        if balancer.subnets.is_empty() {
            return Err(Error::Internal(format!("AWS answered no subnet of load balancer {}", self.name)));
        }
        let ranges = subnets::ranges(self.task.cloud, &balancer.subnets)?;
        let rules = groups::of_network(self.name, self.plan, &ranges);
        let change = |group: &SecurityGroup| {
            let is_wanted = wanted.contains(group.id.as_str());
            let is_ours = is_wanted || tagging.has(&group.tags);
            let rules = if is_wanted { rules.as_slice() } else { &[] };
            is_ours.then(|| Change::for_network(group, self.name, rules, self.task.settings))
        };
        Ok(groups.all.iter().filter_map(change).collect())
    }

    /// A group that the user's groups have replaced is deleted once AWS has detached it.
    fn forget_replaced_group(&self, own: Option<&SecurityGroup>, groups: &Groups) -> Result<()> {
        let replaced = own.is_none() && !self.plan.common.security_groups.is_empty();
        if !replaced || !self.task.settings.manage_nlb_groups {
            return Ok(());
        }
        let name = deletion::network_group(self.task.cluster, self.task.service);
        let Some(group) = groups.named(&name).filter(|group| self.task.tagging.owns(&group.tags)) else {
            return Ok(());
        };
        match groups::delete(self.task.cloud, groups, &[group]) {
            // The next `ensure` finds the group by its name.
            Err(Error::RetryAfter(_)) => Ok(()),
            result => result,
        }
    }
}
