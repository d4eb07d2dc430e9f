//! Security groups: the ones of load balancers, and the rules in those of the nodes.

use std::collections::BTreeSet;

use skysail_guest_sdk::{Cidr, Error, Result};

use crate::{
    backends::Backend,
    call::Call,
    cloud::{Cloud, list, send, send_every},
    fault::Expected as _,
    plan::network::Network,
    settings::Settings,
    tagging::Tagging,
    wire::{
        Tags,
        ec2::{Rule, SECURITY_GROUPS, SecurityGroup, Source, Traffic},
        required,
    },
};

/// Descriptions of rules; the first two are followed by `=` and the name of the load balancer.
const HEALTH: &str = "kubernetes.io/rule/nlb/health";
const CLIENT: &str = "kubernetes.io/rule/nlb/client";
const MTU: &str = "kubernetes.io/rule/nlb/mtu";
/// Description of the rule that lets a Classic Load Balancer reach the nodes. Without the name of a
/// load balancer, because several of them share the rule about a group that all of them have.
const CLASSIC: &str = "skysail.dev/rule/classic";

/// The security groups of the VPC.
pub(crate) struct Groups {
    pub(crate) all: Vec<SecurityGroup>,
}

impl Groups {
    /// Asks for the groups of the VPC.
    pub(crate) fn list(cloud: &dyn Cloud, settings: &Settings) -> Result<Self> {
        let call = Call::ec2("DescribeSecurityGroups").filter("vpc-id", [&settings.vpc]);
        Ok(Self { all: list(cloud, &call, &SECURITY_GROUPS, SecurityGroup::read)? })
    }

    /// The group with this name, which is unique in a VPC.
    pub(crate) fn named(&self, name: &str) -> Option<&SecurityGroup> {
        self.all.iter().find(|group| group.name == name)
    }

    /// The group with this ID.
    pub(crate) fn get(&self, id: &str) -> Option<&SecurityGroup> {
        self.all.iter().find(|group| group.id == id)
    }

    /// The group of each machine that gets rules: the one with the cluster's tag, else the only
    /// one.
    ///
    /// # Errors
    ///
    /// `invalid` where several groups of a machine could be meant.
    pub(crate) fn of_nodes(&self, tagging: &Tagging, backends: &[Backend]) -> Result<BTreeSet<&str>> {
        let mut found = BTreeSet::new();
        for backend in backends {
            let (tagged, others): (Vec<_>, Vec<_>) =
                backend.groups.iter().partition(|id| self.get(id).is_some_and(|group| tagging.has(&group.tags)));
            let (which, candidates) = if tagged.is_empty() { ("without the", others) } else { ("with the", tagged) };
            match candidates.as_slice() {
                [] => {}
                [id] => {
                    let group = self.get(id).ok_or_else(|| {
                        Error::Invalid(format!(
                            "security group {id} of machine {} is not in the VPC of the cloud-config",
                            backend.id
                        ))
                    })?;
                    found.insert(group.id.as_str());
                }
                [_, _, ..] => {
                    return Err(Error::Invalid(format!(
                        "machine {} has {} security groups {which} tag of cluster {:?}; tag exactly one",
                        backend.id,
                        candidates.len(),
                        tagging.cluster()
                    )));
                }
            }
        }
        Ok(found)
    }
}

/// Rules to add to a group and to remove from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) group: String,
    pub(crate) grant: Vec<Rule>,
    pub(crate) revoke: Vec<Rule>,
}

impl Change {
    /// Makes the group's rules exactly these.
    pub(crate) fn exactly(group: &SecurityGroup, wanted: &[Rule]) -> Self {
        let revoke = without(&group.rules, wanted);
        Self { group: group.id.clone(), grant: without(wanted, &group.rules), revoke }
    }

    /// Makes these the group's rules for one Network Load Balancer, and opens the group to the
    /// messages about packets that are too large, for all clients of all load balancers.
    ///
    /// Where kube-proxy answers the health checks of all load balancers, they share the rules for
    /// its port, and the description names the first of them only. These rules stay until no load
    /// balancer has clients.
    pub(crate) fn for_network(group: &SecurityGroup, name: &str, wanted: &[Rule], settings: &Settings) -> Self {
        let ours = [format!("{HEALTH}={name}"), format!("{CLIENT}={name}")];
        let is_ours = |rule: &Rule| ours.contains(&rule.description);
        let has_others = group.rules.iter().any(|rule| rule.description.starts_with(CLIENT) && !is_ours(rule));
        let probe = settings.shared_probe.as_ref().map(|(port, _)| i32::from(*port));
        let is_shared = |rule: &Rule| {
            rule.description.starts_with(HEALTH) && probe.is_some_and(|port| rule.traffic.ports == Some((port, port)))
        };
        let may_go = |rule: &&Rule| if is_shared(rule) { !has_others } else { is_ours(rule) };
        let present: Vec<_> = group.rules.iter().filter(may_go).cloned().collect();
        let (mut revoke, mut grant) = (without(&present, wanted), without(wanted, &group.rules));
        let after = without(&group.rules, &revoke).into_iter().chain(grant.iter().cloned());
        let clients = after.filter(|rule| rule.description.starts_with(CLIENT));
        let fragments: Vec<_> =
            clients.filter(|rule| is_ipv4(&rule.source)).map(|rule| fragments(rule.source, MTU)).collect();
        let present: Vec<_> = group.rules.iter().filter(|rule| rule.description == MTU).cloned().collect();
        revoke.extend(without(&present, &fragments));
        grant.extend(without(&fragments, &group.rules));
        Self { group: group.id.clone(), grant, revoke }
    }

    /// Lets the members of one group reach the members of another one.
    pub(crate) fn admit(group: &SecurityGroup, source: &str) -> Self {
        Self { group: group.id.clone(), grant: without(&[everything_from(source)], &group.rules), revoke: Vec::new() }
    }

    /// Ends what [`Change::admit`] began. Other rules about the sources stay: users may have made
    /// them. A rule without a description is such a rule unless its source is `older`: older
    /// versions of this provider gave the rule no description.
    pub(crate) fn dismiss(group: &SecurityGroup, sources: &[String], older: Option<&String>) -> Self {
        let is_granted = |rule: &Rule, source: &String| {
            let granted = everything_from(source);
            let is_older = older == Some(source) && rule.description.is_empty();
            same(rule, &granted) && (rule.description == granted.description || is_older)
        };
        let is_ours = |rule: &&Rule| sources.iter().any(|source| is_granted(rule, source));
        Self {
            group: group.id.clone(),
            grant: Vec::new(),
            revoke: group.rules.iter().filter(is_ours).cloned().collect(),
        }
    }

    /// Lets what [`Change::dismiss`] made remove described rules only. The change that has to come
    /// before describes the rules of older versions.
    pub(crate) fn describe(&mut self) -> Self {
        let older: Vec<_> = self.revoke.iter().filter(|rule| rule.description.is_empty()).cloned().collect();
        for rule in &mut self.revoke {
            CLASSIC.clone_into(&mut rule.description);
        }
        let described = older.into_iter().map(|rule| Rule { description: CLASSIC.to_owned(), ..rule });
        Self { group: self.group.clone(), grant: described.collect(), revoke: Vec::new() }
    }

    /// Removes every rule whose source is this group.
    pub(crate) fn exclude(group: &SecurityGroup, source: &str) -> Self {
        let is_from = |rule: &&Rule| rule.source == Source::Group(source.to_owned());
        Self {
            group: group.id.clone(),
            grant: Vec::new(),
            revoke: group.rules.iter().filter(is_from).cloned().collect(),
        }
    }
}

/// Removes rules, then adds rules: a group has a maximum number of rules.
pub(crate) fn apply(cloud: &dyn Cloud, changes: &[Change]) -> Result<()> {
    let revoke = calls(changes, |change| &change.revoke, "RevokeSecurityGroupIngress");
    let answers = if revoke.is_empty() { Vec::new() } else { cloud.send_all(revoke) };
    for answer in answers {
        answer.unless(&["InvalidPermission.NotFound", "InvalidGroup.NotFound"])?;
    }
    send_every(cloud, calls(changes, |change| &change.grant, "AuthorizeSecurityGroupIngress")).map(drop)
}

/// Gives rules that exist the descriptions of those to add. The rules stay in force meanwhile.
pub(crate) fn describe(cloud: &dyn Cloud, changes: &[Change]) -> Result<()> {
    send_every(cloud, calls(changes, |change| &change.grant, "UpdateSecurityGroupRuleDescriptionsIngress")).map(drop)
}

fn calls(changes: &[Change], rules: fn(&Change) -> &Vec<Rule>, action: &'static str) -> Vec<Call> {
    let changed = changes.iter().filter(|change| !rules(change).is_empty());
    changed.map(|change| permissions(Call::ec2(action).set("GroupId", &change.group), rules(change))).collect()
}

fn permissions(mut call: Call, rules: &[Rule]) -> Call {
    let describes = !call.action().starts_with("Revoke");
    for (n, Rule { traffic, source, description }) in (1..).zip(rules) {
        let name = format!("IpPermissions.{n}");
        call = call.set(format!("{name}.IpProtocol"), &traffic.protocol);
        if let Some((from, to)) = traffic.ports {
            call = call.set(format!("{name}.FromPort"), from).set(format!("{name}.ToPort"), to);
        }
        let (set, key, value) = match source {
            Source::Range(range) if range.address().is_ipv4() => ("IpRanges", "CidrIp", range.to_string()),
            Source::Range(range) => ("Ipv6Ranges", "CidrIpv6", range.to_string()),
            Source::Group(id) => ("Groups", "GroupId", id.clone()),
            Source::Other(id) => ("PrefixListIds", "PrefixListId", id.clone()),
        };
        call = call.set(format!("{name}.{set}.1.{key}"), value);
        // EC2 finds a rule to revoke without its description.
        if describes && !description.is_empty() {
            call = call.set(format!("{name}.{set}.1.Description"), description);
        }
    }
    call
}

/// EC2 does not count the description: two rules that differ in nothing else are one.
fn same(one: &Rule, other: &Rule) -> bool {
    one.traffic == other.traffic && one.source == other.source
}

/// The first rules without those that the others have.
fn without(rules: &[Rule], others: &[Rule]) -> Vec<Rule> {
    let mut left: Vec<Rule> = Vec::new();
    for rule in rules {
        if !others.iter().chain(&left).any(|other| same(rule, other)) {
            left.push(rule.clone());
        }
    }
    left
}

/// The rules of the nodes for a Network Load Balancer: its clients, whose addresses the nodes see,
/// and its health checks, which come from its subnets.
pub(crate) fn of_network(name: &str, plan: &Network, subnets: &[Cidr]) -> Vec<Rule> {
    let sources = &plan.common.sources;
    let protocol = if plan.ports.iter().any(crate::plan::network::Port::is_udp) { "udp" } else { "tcp" };
    let (client_ports, check_ports) = (plan.node_ports(), plan.check_ports());
    let rules = |protocol: &'static str, ports: BTreeSet<u16>, ranges: &[Cidr], description: String| {
        let of = |port: u16| {
            let description = description.clone();
            ranges.iter().map(move |range| port_from(protocol, port, *range, &description)).collect::<Vec<_>>()
        };
        ports.into_iter().flat_map(of).collect::<Vec<_>>()
    };
    let everybody_reaches_checks = protocol == "tcp"
        && check_ports == client_ports
        && sources.iter().any(|range| range.is_everything() && range.address().is_ipv4());
    let checks = if everybody_reaches_checks { &[] } else { subnets };
    let mut all = rules(protocol, client_ports, sources, format!("{CLIENT}={name}"));
    all.extend(rules("tcp", check_ports, checks, format!("{HEALTH}={name}")));
    all
}

/// The rules of a load balancer's own group: its ports, for those who may reach it.
pub(crate) fn of_frontend(protocol: &str, ports: impl Iterator<Item = u16> + Clone, sources: &[Cidr]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for range in sources {
        rules.extend(ports.clone().map(|port| port_from(protocol, port, *range, "")));
        if range.address().is_ipv4() {
            rules.push(fragments(Source::Range(*range), ""));
        }
    }
    rules
}

fn port_from(protocol: &str, port: u16, range: Cidr, description: &str) -> Rule {
    let traffic = Traffic { protocol: protocol.to_owned(), ports: Some((port.into(), port.into())) };
    Rule { traffic, source: Source::Range(range), description: description.to_owned() }
}

/// The ICMP messages 3 and 4, by which routers ask for smaller packets.
fn fragments(source: Source, description: &str) -> Rule {
    let traffic = Traffic { protocol: "icmp".to_owned(), ports: Some((3, 4)) };
    Rule { traffic, source, description: description.to_owned() }
}

fn everything_from(group: &str) -> Rule {
    let traffic = Traffic { protocol: "-1".to_owned(), ports: None };
    Rule { traffic, source: Source::Group(group.to_owned()), description: CLASSIC.to_owned() }
}

fn is_ipv4(source: &Source) -> bool {
    matches!(source, Source::Range(range) if range.address().is_ipv4())
}

/// A group that a load balancer owns.
pub(crate) struct Owned<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) tags: &'a Tags,
}

impl Owned<'_> {
    /// The group, made if it is missing.
    ///
    /// # Errors
    ///
    /// `invalid` where another cluster has a group of this name.
    pub(crate) fn ensure(
        &self,
        cloud: &dyn Cloud,
        settings: &Settings,
        tagging: &Tagging,
        groups: &Groups,
    ) -> Result<SecurityGroup> {
        if let Some(group) = groups.named(self.name) {
            if tagging.owns(&group.tags) {
                return Ok(group.clone());
            }
            return Err(Error::Invalid(format!(
                "security group {} has the name {} and is not owned by cluster {:?}; delete it, or set its tags",
                group.id,
                self.name,
                tagging.cluster()
            )));
        }
        let call = Call::ec2("CreateSecurityGroup")
            .set("GroupName", self.name)
            .set("GroupDescription", self.description)
            .set("VpcId", &settings.vpc)
            .set("TagSpecification.1.ResourceType", "security-group")
            .pairs("TagSpecification.1.Tag", self.tags);
        let id = send(cloud, call).map_err(Error::from)?.read(|root| required(root, &["groupId"]))?;
        Ok(SecurityGroup { id, name: self.name.to_owned(), tags: self.tags.clone(), rules: Vec::new() })
    }
}

/// Deletes groups, and the rules of other groups about them. A group that AWS still uses for a load
/// balancer, which it deletes slowly, is `retry-after`.
pub(crate) fn delete(cloud: &dyn Cloud, groups: &Groups, doomed: &[&SecurityGroup]) -> Result<()> {
    let is_doomed = |group: &&SecurityGroup| doomed.iter().any(|doomed| doomed.id == group.id);
    let others = || groups.all.iter().filter(|group| !is_doomed(group));
    let changes: Vec<_> =
        doomed.iter().flat_map(|doomed| others().map(|group| Change::exclude(group, &doomed.id))).collect();
    apply(cloud, &merged(changes))?;
    let call = |group: &&SecurityGroup| Call::ec2("DeleteSecurityGroup").set("GroupId", &group.id);
    let answers = if doomed.is_empty() { Vec::new() } else { cloud.send_all(doomed.iter().map(call).collect()) };
    for answer in answers {
        answer.unless(&["InvalidGroup.NotFound", "InvalidGroupId.NotFound"])?;
    }
    Ok(())
}

/// One change for each group.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    let mut merged: Vec<Change> = Vec::new();
    for change in changes {
        match merged.iter_mut().find(|one| one.group == change.group) {
            Some(one) => {
                one.grant.extend(change.grant);
                one.revoke.extend(change.revoke);
            }
            None => merged.push(change),
        }
    }
    merged
}
