//! Classic Load Balancers: brings one to its plan.

mod policies;

use skysail_guest_sdk::{Error, Result};

use crate::{
    backends::{self, Backend},
    balancing::{Task, changed_tags, lacking, same_set},
    call::Call,
    cloud::send,
    deletion,
    fault::Expected as _,
    groups::{self, Change, Groups, Owned},
    plan::classic::Classic as Plan,
    sources::{Former, Sources},
    subnets,
    wire::{
        ec2::SecurityGroup,
        elb::{Attributes, Listener, LoadBalancer},
        required,
    },
};

/// Security groups that AWS attaches to one load balancer where nobody has raised the quota.
const GROUPS_MAX: usize = 5;

/// The Classic Load Balancer of one Service.
pub(crate) struct ClassicTask<'a> {
    pub(crate) task: &'a Task<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) name: &'a str,
    pub(crate) backends: &'a [Backend],
}

impl ClassicTask<'_> {
    /// Creates or changes the load balancer; its DNS name.
    pub(crate) fn reconcile(&self, found: Option<LoadBalancer>) -> Result<String> {
        let Task { cloud, settings, tagging, .. } = self.task;
        if let Some(found) = &found {
            self.tags(found)?;
        }
        let groups = Groups::list(*cloud, settings)?;
        let own = self.own_group(&groups)?;
        let attached = self.attached(own.as_ref());
        let common = &self.plan.common;
        let subnets = subnets::choose(*cloud, settings, tagging, &common.subnets, common.internal)?;
        if let Some(own) = &own {
            let ports = self.plan.listeners.iter().map(|listener| listener.port);
            groups::apply(*cloud, &[Change::exactly(own, &groups::of_frontend("tcp", ports, &common.sources))])?;
        }
        let mut former = match &found {
            Some(found) if !settings.keep_node_rules => self.former(found, &attached, &groups)?,
            _ => Former::default(),
        };
        former.describe(*cloud)?;
        let balancer = match found {
            Some(found) => {
                self.place(&found, &subnets, &with_former(&attached, &former, &found))?;
                found
            }
            None => self.create(&subnets, &attached)?,
        };
        // Directly after the groups: another step may fail at every call, and the load balancer
        // would have its former groups, and their rules, for so long. Where this step fails, the
        // others that need no node follow all the same.
        let opened = self.open_nodes(&attached, &former, &groups);
        let balancer = self.listen(balancer)?;
        self.policies(&balancer)?;
        self.attributes()?;
        if balancer.health_check.as_ref() != Some(&self.plan.check) {
            self.write(self.health_check())?;
        }
        opened?;
        self.instances(&balancer)?;
        self.forget_replaced_group(own.as_ref(), &groups)?;
        Ok(balancer.dns_name)
    }

    /// Makes the machines of the nodes the backends, and changes nothing else.
    pub(crate) fn update(&self, found: &LoadBalancer) -> Result<()> {
        self.tags(found)?;
        if !self.task.settings.keep_node_rules {
            let groups = Groups::list(self.task.cloud, self.task.settings)?;
            let own = groups.named(&deletion::classic_group(self.name)).filter(|_| self.has_own_group());
            groups::apply(self.task.cloud, &self.node_rules(&self.attached(own), &groups)?)?;
        }
        self.instances(found)
    }

    /// The groups of the load balancer whose rules in the groups of the nodes have to go.
    fn former(&self, found: &LoadBalancer, attached: &[String], groups: &Groups) -> Result<Former> {
        let older = found.security_groups.first().filter(|id| !attached.contains(id));
        self.sources(groups).former(&found.security_groups, older, attached.first())
    }

    /// Lets the load balancer reach the nodes, then ends what its former groups had.
    fn open_nodes(&self, attached: &[String], former: &Former, groups: &Groups) -> Result<()> {
        if self.task.settings.keep_node_rules {
            return Ok(());
        }
        groups::apply(self.task.cloud, &self.node_rules(attached, groups)?)?;
        groups::apply(self.task.cloud, &former.dismiss)?;
        if former.groups.is_empty() {
            return Ok(());
        }
        self.write(self.of("ApplySecurityGroupsToLoadBalancer").list("SecurityGroups", attached))
    }

    /// Checks the owner, and adds tags that are missing.
    fn tags(&self, found: &LoadBalancer) -> Result<()> {
        let tags = deletion::classic_tags(self.task.cloud, &[self.name])?.into_iter().next().unwrap_or_default().1;
        self.task.check_owner(self.name, &tags)?;
        let missing = changed_tags(&self.task.tags(&self.plan.common.tags), &tags);
        if missing.is_empty() {
            return Ok(());
        }
        self.write(Call::elb("AddTags").list("LoadBalancerNames", [&found.name]).pairs("Tags", &missing))
    }

    /// Whether nobody named a group in place of the Service's own one.
    const fn has_own_group(&self) -> bool {
        self.plan.common.security_groups.is_empty() && self.task.settings.elb_security_group.is_none()
    }

    fn of(&self, action: &'static str) -> Call {
        Call::elb(action).set("LoadBalancerName", self.name)
    }

    fn write(&self, call: Call) -> Result<()> {
        send(self.task.cloud, call).map(drop).map_err(Error::from)
    }

    /// The group that this provider makes; none where the user or the operator named one.
    fn own_group(&self, groups: &Groups) -> Result<Option<SecurityGroup>> {
        let Task { cloud, settings, tagging, .. } = self.task;
        if !self.has_own_group() {
            return Ok(None);
        }
        let name = deletion::classic_group(self.name);
        let description = format!("Security group for Kubernetes ELB {} ({})", self.name, self.task.key());
        let tags = tagging.owned(&self.plan.common.tags, None);
        Owned { name: &name, description: &description, tags: &tags }
            .ensure(*cloud, settings, tagging, groups)
            .map(Some)
    }

    /// All groups of the load balancer; the first one gets rules in the groups of the nodes.
    fn attached(&self, own: Option<&SecurityGroup>) -> Vec<String> {
        let named = &self.plan.common.security_groups;
        let configured = self.task.settings.elb_security_group.iter().filter(|_| named.is_empty());
        let mut all: Vec<String> = named.iter().chain(configured).cloned().collect();
        all.extend(own.map(|own| own.id.clone()));
        all.extend(self.plan.extra_groups.iter().cloned());
        all
    }

    fn create(&self, subnets: &[String], groups: &[String]) -> Result<LoadBalancer> {
        let common = &self.plan.common;
        let call = with_listeners(self.of("CreateLoadBalancer"), &self.plan.listeners)
            .set_opt("Scheme", common.internal.then_some("internal"))
            .list("Subnets", subnets)
            .list("SecurityGroups", groups)
            .pairs("Tags", &self.task.tags(&common.tags));
        let answer = send(self.task.cloud, call).map_err(Error::from)?;
        let dns_name = answer.read(|root| required(root, &["CreateLoadBalancerResult", "DNSName"]))?;
        Ok(LoadBalancer {
            name: self.name.to_owned(),
            dns_name,
            scheme: String::new(),
            subnets: subnets.to_vec(),
            security_groups: groups.to_vec(),
            instances: Vec::new(),
            listeners: self.plan.listeners.iter().map(|listener| (listener.clone(), Vec::new())).collect(),
            health_check: None,
            backends: Vec::new(),
            policies: Vec::new(),
        })
    }

    /// Subnets and security groups.
    fn place(&self, found: &LoadBalancer, subnets: &[String], groups: &[String]) -> Result<()> {
        let (surplus, missing) = (lacking(&found.subnets, subnets), lacking(subnets, &found.subnets));
        if !surplus.is_empty() {
            self.write(self.of("DetachLoadBalancerFromSubnets").list("Subnets", surplus))?;
        }
        if !missing.is_empty() {
            self.write(self.of("AttachLoadBalancerToSubnets").list("Subnets", missing))?;
        }
        if !same_set(groups, &found.security_groups) {
            self.write(self.of("ApplySecurityGroupsToLoadBalancer").list("SecurityGroups", groups))?;
        }
        Ok(())
    }

    /// Replaces the listeners that differ; the load balancer afterwards. The new listener of a port
    /// has none of the policies of the old one.
    fn listen(&self, mut found: LoadBalancer) -> Result<LoadBalancer> {
        let wanted = &self.plan.listeners;
        let is_wanted = |there: &Listener| wanted.iter().any(|listener| same(there, listener));
        let (mut kept, surplus): (Vec<_>, Vec<_>) =
            std::mem::take(&mut found.listeners).into_iter().partition(|(there, _)| is_wanted(there));
        let is_there = |listener: &&Listener| kept.iter().any(|(there, _)| same(there, listener));
        let missing: Vec<_> = wanted.iter().filter(|listener| !is_there(listener)).cloned().collect();
        if !surplus.is_empty() {
            let ports = surplus.iter().map(|(there, _)| there.port);
            self.write(self.of("DeleteLoadBalancerListeners").list("LoadBalancerPorts", ports))?;
        }
        if !missing.is_empty() {
            self.write(with_listeners(self.of("CreateLoadBalancerListeners"), &missing))?;
        }
        kept.extend(missing.into_iter().map(|listener| (listener, Vec::new())));
        found.listeners = kept;
        Ok(found)
    }

    fn health_check(&self) -> Call {
        let check = &self.plan.check;
        self.of("ConfigureHealthCheck")
            .set("HealthCheck.Target", &check.target)
            .set("HealthCheck.Interval", check.interval)
            .set("HealthCheck.Timeout", check.timeout)
            .set("HealthCheck.UnhealthyThreshold", check.unhealthy_threshold)
            .set("HealthCheck.HealthyThreshold", check.healthy_threshold)
    }

    /// AWS answers every attribute; only those with a desired value are compared.
    fn attributes(&self) -> Result<()> {
        let answer = send(self.task.cloud, self.of("DescribeLoadBalancerAttributes")).map_err(Error::from)?;
        let present = answer.read(Attributes::read)?;
        let wanted = self.plan.attributes.clone();
        let wanted = Attributes {
            access_log_interval: wanted.access_log_interval.or(present.access_log_interval),
            access_log_bucket: wanted.access_log_bucket.or_else(|| present.access_log_bucket.clone()),
            access_log_prefix: wanted.access_log_prefix.or_else(|| present.access_log_prefix.clone()),
            draining_timeout: wanted.draining_timeout.or(present.draining_timeout),
            ..wanted
        };
        if wanted == present {
            return Ok(());
        }
        let name = |part: &str| format!("LoadBalancerAttributes.{part}");
        let call = self
            .of("ModifyLoadBalancerAttributes")
            .set(name("CrossZoneLoadBalancing.Enabled"), wanted.cross_zone)
            .set(name("AccessLog.Enabled"), wanted.access_log)
            .set_opt(&name("AccessLog.EmitInterval"), wanted.access_log_interval)
            .set_opt(&name("AccessLog.S3BucketName"), wanted.access_log_bucket)
            .set_opt(&name("AccessLog.S3BucketPrefix"), wanted.access_log_prefix)
            .set(name("ConnectionDraining.Enabled"), wanted.draining)
            .set_opt(&name("ConnectionDraining.Timeout"), wanted.draining_timeout)
            .set_opt(&name("ConnectionSettings.IdleTimeout"), wanted.idle_timeout);
        self.write(call)
    }

    /// Lets the load balancer reach the nodes, and no longer reach groups that nodes have left.
    fn node_rules(&self, attached: &[String], groups: &Groups) -> Result<Vec<Change>> {
        let tagging = &self.task.tagging;
        let wanted = groups.of_nodes(tagging, self.backends)?;
        let Some(source) = attached.first() else { return Ok(Vec::new()) };
        let (of_nodes, others): (Vec<&SecurityGroup>, Vec<_>) =
            groups.all.iter().partition(|group| wanted.contains(group.id.as_str()));
        let left = others.into_iter().filter(|group| tagging.has(&group.tags));
        let is_own = self.has_own_group();
        let change = |group: &SecurityGroup| match is_own {
            true => Change::exclude(group, source),
            false => Change::dismiss(group, std::slice::from_ref(source), Some(source)),
        };
        let mut surplus: Vec<_> = left.map(change).filter(|change| !change.revoke.is_empty()).collect();
        // Other Services need the rules about a group that the operator or the user named.
        let is_configured = || Some(source) == self.task.settings.elb_security_group.as_ref();
        if !surplus.is_empty() && !is_own && (is_configured() || self.sources(groups).of_others()?.contains(source)) {
            surplus.clear();
        }
        surplus.extend(of_nodes.into_iter().map(|group| Change::admit(group, source)));
        Ok(surplus)
    }

    fn sources<'g>(&'g self, groups: &'g Groups) -> Sources<'g> {
        let Task { cloud, settings, tagging, .. } = self.task;
        Sources { cloud: *cloud, settings, tagging, groups, name: self.name }
    }

    fn instances(&self, found: &LoadBalancer) -> Result<()> {
        let wanted: Vec<String> = self.backends.iter().map(|backend| backend.id.clone()).collect();
        let call = |action: &'static str, ids: Vec<&String>| {
            let mut call = self.of(action);
            for (n, id) in (1..).zip(&ids) {
                let member = call.member("Instances", n);
                call = call.set(format!("{member}.InstanceId"), id);
            }
            (!ids.is_empty()).then_some(call)
        };
        let missing = lacking(&wanted, &found.instances);
        let is_running = |id: &&String| self.backends.iter().any(|backend| backend.is_running && backend.id == **id);
        let missing = missing.into_iter().filter(is_running).collect();
        let surplus = lacking(&found.instances, &wanted);
        let calls =
            [call("RegisterInstancesWithLoadBalancer", missing), call("DeregisterInstancesFromLoadBalancer", surplus)];
        backends::register(self.task.cloud, calls.into_iter().flatten().collect())
    }

    /// A group that named groups have replaced is deleted once AWS has detached it.
    fn forget_replaced_group(&self, own: Option<&SecurityGroup>, groups: &Groups) -> Result<()> {
        let replaced =
            groups.named(&deletion::classic_group(self.name)).filter(|group| self.task.tagging.owns(&group.tags));
        let Some(group) = replaced.filter(|_| own.is_none()) else { return Ok(()) };
        match groups::delete(self.task.cloud, groups, &[group]) {
            // The next `ensure` finds the group by its name.
            Err(Error::RetryAfter(_)) => Ok(()),
            result => result,
        }
    }

    /// Sends a call whose effect may be there already.
    fn write_once(&self, call: Call, there: &[&str]) -> Result<()> {
        send(self.task.cloud, call).unless(there).map(drop)
    }
}

/// The groups of the load balancer until the rules about the former ones are gone: nobody finds the
/// rule about a group that is not attached. The last groups of the plan wait where AWS does not
/// attach so many.
fn with_former(attached: &[String], former: &Former, found: &LoadBalancer) -> Vec<String> {
    let mut groups = former.groups.clone();
    groups.extend(attached.iter().filter(|id| !former.groups.contains(id)).cloned());
    groups.truncate(GROUPS_MAX.max(attached.len()).max(found.security_groups.len()));
    groups
}

/// AWS answers the certificate of IAM with another spelling.
fn same(there: &Listener, wanted: &Listener) -> bool {
    let lower = |listener: &Listener| listener.certificate.as_ref().map(|arn| arn.to_ascii_lowercase());
    lower(there) == lower(wanted)
        && Listener { certificate: None, ..there.clone() } == Listener { certificate: None, ..wanted.clone() }
}

fn with_listeners(mut call: Call, listeners: &[Listener]) -> Call {
    for (n, listener) in (1..).zip(listeners) {
        let member = call.member("Listeners", n);
        call = call
            .set(format!("{member}.Protocol"), &listener.protocol)
            .set(format!("{member}.LoadBalancerPort"), listener.port)
            .set(format!("{member}.InstanceProtocol"), &listener.instance_protocol)
            .set(format!("{member}.InstancePort"), listener.instance_port)
            .set_opt(&format!("{member}.SSLCertificateId"), listener.certificate.as_ref());
    }
    call
}
