//! The security group that opens the node ports of a Service's members.

use serde_json::{Value, json};
use skysail_guest_sdk::{Absent as _, Error, Protocol, Result};

use super::{Share, Task};
use crate::{
    client::{BATCH_MAX, Call, Cloud, REQUESTS_MAX},
    distinct, names,
    plan::{Member, Plan},
    settings::Api,
    wire::{Port, SecurityGroup, SecurityGroupRule, Subnet},
};

/// What a port must tell.
const PORT_FIELDS: [&str; 5] = ["id", "fixed_ips", "security_groups", "port_security_enabled", "revision_number"];

/// A rule by what distinguishes it: protocol, first and last port, source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    protocol: &'static str,
    port: u16,
    source: String,
}

impl<C: Cloud> Task<'_, C> {
    /// Makes the security group what the Service asks for. Where the cloud-config switches security
    /// groups off, it deletes the one from before.
    pub(super) fn reconcile_security_group(&self, &Share { plan, lb, members, .. }: &Share<'_>) -> Result<()> {
        let group = self.security_group()?;
        if !self.settings.load_balancer.manage_security_groups {
            return group.map_or(Ok(()), |group| self.delete_security_group(&group));
        }
        let subnet = match self.member_subnet(plan, Some(lb), members)? {
            Some(subnet) => self.cloud.one::<Subnet>(Call::get(Api::Network, &["subnets", &subnet]))?,
            // Without a node there is nothing to open.
            None => return Ok(()),
        };
        let group = match group {
            Some(group) => group,
            None => self.create_security_group()?,
        };
        self.reconcile_rules(plan, &subnet, &group)?;
        self.reconcile_ports(&subnet, &group, members)
    }

    /// Deletes the security group of a deleted Service, whether or not the cloud-config switches
    /// security groups on.
    pub(super) fn forget_security_group(&self) -> Result<()> {
        self.security_group()?.map_or(Ok(()), |group| self.delete_security_group(&group))
    }

    /// As [`Self::forget_security_group`], for a Service of which only namespace and name are
    /// known.
    pub(super) fn forget_security_groups_of(&self, namespace: &str, name: &str) -> Result<()> {
        let description = names::security_group_description(self.cluster, namespace, name);
        let call = Call::get(Api::Network, &["security-groups"]).query("description", &description);
        let found: Vec<SecurityGroup> = self.cloud.list(call)?;
        let is_ours = |group: &&SecurityGroup| group.description == description && group.name.starts_with("lb-sg-");
        found.iter().filter(is_ours).try_for_each(|group| self.delete_security_group(group))
    }

    fn security_group(&self) -> Result<Option<SecurityGroup>> {
        let name = names::security_group(self.service);
        let call = Call::get(Api::Network, &["security-groups"]).query("name", &name);
        let found: Vec<SecurityGroup> = self.cloud.list(call)?;
        Ok(found.into_iter().find(|group| group.name == name))
    }

    fn create_security_group(&self) -> Result<SecurityGroup> {
        let service = self.service;
        let description = names::security_group_description(self.cluster, &service.namespace, &service.name);
        let body = json!({"security_group": {"name": names::security_group(service), "description": description}});
        self.cloud.one(Call::post(Api::Network, &["security-groups"], body))
    }

    fn reconcile_rules(&self, plan: &Plan, subnet: &Subnet, group: &SecurityGroup) -> Result<()> {
        let ethertype = if subnet.cidr.contains(':') { "IPv6" } else { "IPv4" };
        let wanted = self.rules(plan, subnet);
        let is = |rule: &Rule, present: &SecurityGroupRule| {
            present.direction == "ingress"
                && present.ethertype == ethertype
                && present.protocol.eq_ignore_ascii_case(rule.protocol)
                && present.port_range_min == Some(rule.port)
                && present.port_range_max == Some(rule.port)
                && present.remote_ip_prefix == rule.source
        };
        let present = &group.security_group_rules;
        let missing = wanted.iter().filter(|rule| !present.iter().any(|present| is(rule, present)));
        let create = missing.map(|Rule { protocol, port, source }| {
            let body = json!({"security_group_rule": {
                "security_group_id": group.id, "direction": "ingress", "ethertype": ethertype, "protocol": protocol,
                "port_range_min": port, "port_range_max": port, "remote_ip_prefix": source,
            }});
            Call::post(Api::Network, &["security-group-rules"], body)
        });
        // Neutron gives a new group two rules for outgoing traffic; they do no harm and stay.
        let surplus = present.iter().filter(|rule| rule.direction == "ingress" && !wanted.iter().any(|w| is(w, rule)));
        let delete = surplus.map(|rule| Call::delete(Api::Network, &["security-group-rules", &rule.id]));
        self.send_some(create.chain(delete).collect())
    }

    /// The driver `ovn` keeps the client's address, so its rules name the clients; other drivers
    /// reach the members from their subnet.
    fn rules(&self, plan: &Plan, subnet: &Subnet) -> Vec<Rule> {
        let sources: Vec<String> = if self.settings.load_balancer.provider == "ovn" {
            plan.sources.iter().map(ToString::to_string).collect()
        } else {
            vec![subnet.cidr.clone()]
        };
        let mut rules = Vec::new();
        if self.service.health_check_node_port != 0 {
            let port = self.service.health_check_node_port;
            rules.push(Rule { protocol: "tcp", port, source: subnet.cidr.clone() });
        }
        for pool in plan.listeners.iter().map(|listener| &listener.pool).filter(|pool| pool.node_port != 0) {
            let protocol = match pool.transport {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            };
            let rule = |source: &String| Rule { protocol, port: pool.node_port, source: source.clone() };
            rules.extend(sources.iter().map(rule));
        }
        distinct(rules.into_iter())
    }

    /// Puts the group on the members' ports, and takes it from ports that are no members any more.
    fn reconcile_ports(&self, subnet: &Subnet, group: &SecurityGroup, members: &[Member]) -> Result<()> {
        let addresses = distinct(members.iter().map(|member| member.address.as_str()));
        let call = Call::get(Api::Network, &["ports"]).query("fixed_ips", format!("subnet_id={}", subnet.id));
        let ports: Vec<Port> = self.cloud.list(call.queries("fields", PORT_FIELDS))?;
        let is_member = |port: &Port| {
            let here = port.fixed_ips.iter().filter(|fixed| fixed.subnet_id == subnet.id);
            here.into_iter().any(|fixed| addresses.binary_search(&fixed.ip_address.as_str()).is_ok())
        };
        let changes = ports.iter().filter_map(|port| {
            let has = port.security_groups.contains(&group.id);
            let wants = is_member(port) && port.port_security_enabled != Some(false);
            (has != wants).then(|| with_group(port, &group.id, wants))
        });
        self.send_some(changes.collect())
    }

    fn delete_security_group(&self, group: &SecurityGroup) -> Result<()> {
        let call = Call::get(Api::Network, &["ports"]).query("security_groups", &group.id);
        let ports: Vec<Port> = self.cloud.list(call.queries("fields", PORT_FIELDS))?;
        let ports = ports.iter().filter(|port| port.security_groups.contains(&group.id));
        self.send_some(ports.map(|port| with_group(port, &group.id, false)).collect())?;
        self.cloud.send(Call::delete(Api::Network, &["security-groups", &group.id])).absent_ok().map(drop)
    }

    /// Sends as many changes as a call may; the next call sends the others.
    fn send_some(&self, mut calls: Vec<Call>) -> Result<()> {
        let room = REQUESTS_MAX.saturating_sub(self.cloud.sent()).min(BATCH_MAX);
        let left = calls.len().saturating_sub(room);
        calls.truncate(room);
        for answer in self.cloud.send_all(calls) {
            // What does not exist any more needs no change.
            answer.absent_ok()?;
        }
        if left > 0 {
            let message = format!("{left} changes of the security group are left for the next call");
            return Err(Error::retry_after(super::UPDATE_WAIT, message));
        }
        Ok(())
    }
}

/// The change of a port's groups, made only if nobody else changed the port since.
fn with_group(port: &Port, group: &str, wants: bool) -> Call {
    let others = port.security_groups.iter().map(String::as_str).filter(|other| *other != group);
    let groups: Vec<&str> = others.chain(wants.then_some(group)).collect();
    let body: Value = json!({"port": {"security_groups": groups}});
    Call::put(Api::Network, &["ports", &port.id], body).if_revision(port.revision_number)
}
