//! Target groups: one for each port, with the machines of the nodes as targets.

use std::collections::{BTreeSet, HashMap};

use skysail_guest_sdk::{Error, Result};

use super::{NetworkTask, listeners::taken};
use crate::{
    balancing::{Task, changed_tags},
    call::Call,
    cloud::{Answer, Cloud, list, send_every, send_within},
    deletion,
    fault::Fault,
    plan::network::{Check, Port},
    tagging,
    wire::{
        Tags,
        elb_v2::{LoadBalancer, TARGET_GROUPS, Target, TargetGroup, attributes},
    },
};

/// Targets of one call, as in the vendor's manager.
pub(super) const TARGETS_PER_CALL: usize = 100;

const INSTANCE: &str = "instance";

/// The target group of a port, and the calls that bring it to its plan.
pub(super) struct Prepared {
    pub(super) arn: String,
    /// Deregisters machines.
    pub(super) leave: Vec<Call>,
    /// Registers machines, and changes the health check and the attributes.
    pub(super) join: Vec<Call>,
}

/// The target groups of these ports, made where the load balancer has none that can serve.
pub(super) fn prepare(
    task: &NetworkTask<'_>,
    balancer: &LoadBalancer,
    ports: &[(&Port, Option<&TargetGroup>)],
) -> Result<Vec<Prepared>> {
    let cloud = task.task.cloud;
    let missing: Vec<&Port> = ports.iter().filter(|(_, group)| group.is_none()).map(|(port, _)| *port).collect();
    let (created, found) = create(task, balancer, &missing)?;
    let mut groups: Vec<&TargetGroup> = Vec::with_capacity(ports.len());
    for (port, present) in ports {
        let made = || found.iter().chain(&created).find(|group| can_serve(group, port, &task.plan.check));
        groups.push(present.or_else(made).ok_or_else(|| {
            Error::Internal(format!("AWS answered another target group than the one for port {}", port.port))
        })?);
    }
    let is_new = |group: &TargetGroup| created.iter().any(|one| one.arn == group.arn);
    let existing: Vec<_> = groups.iter().copied().filter(|group| !is_new(group)).collect();
    let targets = registered(cloud, &existing)?;
    let attributes = attributes_of(task, &groups)?;
    let nothing = Vec::new();
    let prepared = |(((port, _), group), attributes): ((&(&Port, _), &&TargetGroup), Option<Call>)| {
        let there = targets.get(group.arn.as_str()).unwrap_or(&nothing);
        let mut join = register(task, port, group, there);
        join.extend(modify(group, &task.plan.check).filter(|_| !is_new(group)));
        join.extend(attributes);
        Prepared { arn: group.arn.clone(), leave: deregister(task, port, group, there), join }
    };
    Ok(ports.iter().zip(&groups).zip(attributes).map(prepared).collect())
}

/// Deletes target groups that no listener needs, and those of the Service that an earlier call
/// replaced without coming so far.
pub(super) fn delete(task: &NetworkTask<'_>, unused: &[&TargetGroup], kept: &[String], was_open: bool) -> Result<()> {
    let Task { cloud, tagging, service, .. } = task.task;
    let mut doomed: Vec<String> = unused.iter().map(|group| group.arn.clone()).collect();
    if was_open {
        let all = list(*cloud, &Call::elb_v2("DescribeTargetGroups"), &TARGET_GROUPS, TargetGroup::read)?;
        let prefix = deletion::readable(&service.namespace, &service.name);
        let is_left = |group: &&TargetGroup| {
            group.load_balancers.is_empty() && group.name.starts_with(&prefix) && !kept.contains(&group.arn)
        };
        let left: Vec<&str> = all.iter().filter(is_left).map(|group| group.arn.as_str()).collect();
        let key = task.task.key();
        let is_ours = |tags: &Tags| tagging.owns(tags) && tags.get(tagging::SERVICE) == Some(&key);
        let tags = deletion::network_tags(*cloud, &left)?;
        doomed.extend(tags.into_iter().filter(|(_, tags)| is_ours(tags)).map(|(arn, _)| arn));
    }
    doomed.sort_unstable();
    doomed.dedup();
    let call = |arn: &String| Call::elb_v2("DeleteTargetGroup").set("TargetGroupArn", arn);
    send_within(*cloud, doomed.iter().map(call).collect(), &["TargetGroupNotFound"])
}

/// Whether AWS can bring the group to what the port needs: the rest of a health check can be
/// modified.
pub(super) fn can_serve(group: &TargetGroup, port: &Port, check: &Check) -> bool {
    group.port == port.node_port
        && group.protocol == port.traffic_protocol
        && group.target_type == INSTANCE
        && group.check_protocol.eq_ignore_ascii_case(&check.protocol)
        && group.check_interval == Some(check.interval)
}

/// Creates the groups. A group that an earlier call made and did not use has the name already.
fn create(
    task: &NetworkTask<'_>,
    balancer: &LoadBalancer,
    ports: &[&Port],
) -> Result<(Vec<TargetGroup>, Vec<TargetGroup>)> {
    let cloud = task.task.cloud;
    if ports.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let answers = cloud.send_all(ports.iter().map(|port| creation(task, port)).collect());
    let mut created = Vec::new();
    let mut taken_names = Vec::new();
    let mut answered = Vec::new();
    for (port, answer) in ports.iter().zip(answers) {
        match answer {
            Err(fault) if fault.is(&["DuplicateTargetGroupName"]) => taken_names.push(name(task, port)),
            answer => answered.push(answer.map_err(|fault: Fault| fault.error)),
        }
    }
    for answer in skysail_guest_sdk::http::every(answered)? {
        created.extend(read_created(&answer)?);
    }
    let mut found = Vec::new();
    if !taken_names.is_empty() {
        let call = Call::elb_v2("DescribeTargetGroups").list("Names", &taken_names);
        found = list(cloud, &call, &TARGET_GROUPS, TargetGroup::read)?;
        if let Some(group) = found.iter().find(|group| group.load_balancers.iter().any(|arn| *arn != balancer.arn)) {
            return Err(taken(group));
        }
    }
    Ok((created, found))
}

fn read_created(answer: &Answer) -> Result<Option<TargetGroup>> {
    answer.read(|root| {
        root.first(&["CreateTargetGroupResult", "TargetGroups", "member"]).map(TargetGroup::read).transpose()
    })
}

fn creation(task: &NetworkTask<'_>, port: &Port) -> Call {
    let check = &task.plan.check;
    Call::elb_v2("CreateTargetGroup")
        .set("Name", name(task, port))
        .set("VpcId", &task.task.settings.vpc)
        .set("Port", port.node_port)
        .set("Protocol", port.traffic_protocol)
        .set("TargetType", INSTANCE)
        .set("HealthCheckProtocol", &check.protocol)
        .set("HealthCheckPort", &check.port)
        .set_opt("HealthCheckPath", check.path.as_ref())
        .set("HealthCheckIntervalSeconds", check.interval)
        .set("HealthyThresholdCount", check.healthy_threshold)
        .set("UnhealthyThresholdCount", check.unhealthy_threshold)
        .pairs("Tags", &task.task.tags(&task.plan.common.tags))
}

/// The name depends on all that AWS cannot modify, so that a group and its successor can exist at
/// the same time.
fn name(task: &NetworkTask<'_>, port: &Port) -> String {
    let service = task.task.service;
    let check = &task.plan.check;
    let numbers = [port.port.into(), port.node_port.into(), check.interval].map(|number: u32| number.to_string());
    let mut parts = vec![task.task.tagging.cluster(), &service.uid, port.traffic_protocol, &check.protocol];
    parts.extend(numbers.iter().map(String::as_str));
    format!("{}{}", deletion::readable(&service.namespace, &service.name), deletion::digest(&[&parts.join("/")]))
}

/// The targets of each group, by its ARN.
fn registered<'g>(cloud: &dyn Cloud, groups: &[&'g TargetGroup]) -> Result<HashMap<&'g str, Vec<Target>>> {
    let call = |group: &&TargetGroup| Call::elb_v2("DescribeTargetHealth").set("TargetGroupArn", &group.arn);
    let answers = send_every(cloud, groups.iter().map(call).collect())?;
    let targets =
        |(group, answer): (&&'g TargetGroup, Answer)| Ok((group.arn.as_str(), answer.read(Target::read_all)?));
    groups.iter().zip(answers).map(targets).collect()
}

fn register(task: &NetworkTask<'_>, port: &Port, group: &TargetGroup, there: &[Target]) -> Vec<Call> {
    let there: BTreeSet<_> =
        there.iter().filter(|target| !target.is_leaving).map(|target| (target.id.as_str(), target.port)).collect();
    let is_missing = |id: &&str| !there.contains(&(*id, port.node_port));
    let running = task.backends.iter().filter(|backend| backend.is_running);
    let missing: Vec<_> = running.map(|backend| backend.id.as_str()).filter(is_missing).collect();
    calls("RegisterTargets", group, &missing.into_iter().map(|id| (id, port.node_port)).collect::<Vec<_>>())
}

fn deregister(task: &NetworkTask<'_>, port: &Port, group: &TargetGroup, there: &[Target]) -> Vec<Call> {
    let wanted: BTreeSet<_> = task.backends.iter().map(|backend| (backend.id.as_str(), port.node_port)).collect();
    let there = there.iter().filter(|target| !target.is_leaving).map(|target| (target.id.as_str(), target.port));
    let surplus: Vec<_> = there.filter(|target| !wanted.contains(target)).collect();
    calls("DeregisterTargets", group, &surplus)
}

fn calls(action: &'static str, group: &TargetGroup, targets: &[(&str, u16)]) -> Vec<Call> {
    let call = |targets: &[(&str, u16)]| {
        let mut call = Call::elb_v2(action).set("TargetGroupArn", &group.arn);
        for (n, (id, port)) in (1..).zip(targets) {
            let member = call.member("Targets", n);
            call = call.set(format!("{member}.Id"), id).set(format!("{member}.Port"), port);
        }
        call
    };
    targets.chunks(TARGETS_PER_CALL).map(call).collect()
}

/// The call that brings the health check to its plan, if it differs.
fn modify(group: &TargetGroup, check: &Check) -> Option<Call> {
    let port = (group.check_port != check.port).then_some(&check.port);
    let path = check.path.as_ref().filter(|path| group.check_path != **path);
    let thresholds = group.healthy_threshold != Some(check.healthy_threshold)
        || group.unhealthy_threshold != Some(check.unhealthy_threshold);
    if port.is_none() && path.is_none() && !thresholds {
        return None;
    }
    let call = Call::elb_v2("ModifyTargetGroup")
        .set("TargetGroupArn", &group.arn)
        .set_opt("HealthCheckPort", port)
        .set_opt("HealthCheckPath", path)
        .set_opt("HealthyThresholdCount", thresholds.then_some(check.healthy_threshold))
        .set_opt("UnhealthyThresholdCount", thresholds.then_some(check.unhealthy_threshold));
    Some(call)
}

/// The call that sets the attributes which the Service names, for each group; without the
/// annotation nothing is asked.
fn attributes_of(task: &NetworkTask<'_>, groups: &[&TargetGroup]) -> Result<Vec<Option<Call>>> {
    let wanted = &task.plan.target_attributes;
    if wanted.is_empty() {
        return Ok(groups.iter().map(|_| None).collect());
    }
    let of = |action: &'static str, group: &TargetGroup| Call::elb_v2(action).set("TargetGroupArn", &group.arn);
    let asked = groups.iter().map(|group| of("DescribeTargetGroupAttributes", group)).collect();
    let answers = send_every(task.task.cloud, asked)?;
    let call = |(group, answer): (&&TargetGroup, Answer)| {
        let present = answer.read(attributes)?;
        let mut changed = changed_tags(wanted, &present);
        // AWS has other attributes for other protocols.
        changed.retain(|key, _| present.contains_key(key));
        let call = || of("ModifyTargetGroupAttributes", group).pairs("Attributes", &changed);
        Ok((!changed.is_empty()).then(call))
    };
    groups.iter().zip(answers).map(call).collect()
}
