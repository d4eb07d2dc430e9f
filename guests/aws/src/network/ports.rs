//! Brings the ports of a load balancer to their plan, as many in one call as the requests of the
//! call suffice for. A port is finished with its target group, its targets and its listener, so
//! each call makes progress, and the next one continues.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, Result};

use super::{
    NetworkTask, listeners,
    targets::{self, Prepared, TARGETS_PER_CALL},
};
use crate::{
    backends,
    call::Call,
    cloud::{allowance, send_every, to_be_continued},
    deletion,
    fault::Expected as _,
    plan::network::Port,
    wire::elb_v2::{Listener, LoadBalancer, TargetGroup},
};

/// Ports whose targets are read at once: the reads leave requests for the writes that follow.
const READ_TOGETHER: usize = 16;
/// Longer than the pause between two calls; a change by another client is found after this time.
const PROGRESS_TTL: Duration = Duration::from_mins(10);

/// A port with what the load balancer has for it.
pub(super) struct Wanted<'a> {
    pub(super) port: &'a Port,
    pub(super) group: Option<&'a TargetGroup>,
    pub(super) listener: Option<&'a Listener>,
}

impl Wanted<'_> {
    /// Whether the port has all but perhaps its targets and the details of its target group.
    fn is_settled(&self) -> bool {
        let (Some(group), Some(listener)) = (self.group, self.listener) else { return false };
        listeners::is_as_wanted(listener, self.port, &group.arn)
    }
}

/// The work on all ports, which may last several calls.
pub(super) struct Pass<'a> {
    task: &'a NetworkTask<'a>,
    balancer: &'a LoadBalancer,
    /// Listeners that no port needs.
    pub(super) surplus: Vec<&'a Listener>,
    /// ARNs of the target groups of the ports.
    pub(super) groups: Vec<String>,
    /// Ports that this call or an earlier one with the same plan has finished.
    finished: BTreeSet<u16>,
}

/// The writes of several ports, in the order in which AWS needs them.
#[derive(Default)]
struct Writes {
    /// Deregistered first, so that machines can be replaced at the maximum number of targets.
    leave: Vec<Call>,
    join: Vec<Call>,
    /// Listeners in the way of new ones.
    delete: Vec<Call>,
    listen: Vec<Call>,
}

impl<'a> Pass<'a> {
    /// Continues where the last call ended. The progress of another plan is forgotten: this pass
    /// changes the same ports, so a return to that plan has to begin again.
    pub(super) fn new(task: &'a NetworkTask<'a>, balancer: &'a LoadBalancer, surplus: Vec<&'a Listener>) -> Self {
        let cloud = task.task.cloud;
        let known = cloud.recall(&key(task));
        let finished = known.as_ref().and_then(|known| finished(known, &digest(task)));
        if known.is_some() && finished.is_none() {
            cloud.forget(&key(task));
        }
        Self { task, balancer, surplus, groups: Vec::new(), finished: finished.unwrap_or_default() }
    }

    /// The ports without a listener first.
    pub(super) fn run(&mut self, ports: &[Wanted<'a>]) -> Result<()> {
        self.groups.extend(ports.iter().filter_map(|one| one.group).map(|group| group.arn.clone()));
        let is_finished = |one: &&Wanted<'a>| one.is_settled() && self.finished.contains(&one.port.port);
        let mut pending: Vec<&Wanted<'a>> = ports.iter().filter(|one| !is_finished(one)).collect();
        pending.sort_by_key(|one| one.is_settled());
        let mut is_first = true;
        while !pending.is_empty() {
            // One port at least: otherwise no call would make progress.
            let len = self.affordable(&pending).max(usize::from(is_first));
            let batch: Vec<_> = pending.drain(..len.min(pending.len())).collect();
            let done = if batch.is_empty() { Ok(0) } else { self.batch(&batch, is_first) };
            let done = self.remember_unless_done(done)?;
            is_first = false;
            if done < batch.len() || batch.is_empty() {
                let text = format!("{} of {} ports are done", self.finished.len(), ports.len());
                return self.remember_unless_done(Err(to_be_continued(&text)));
            }
        }
        Ok(())
    }

    /// How many of the first ports the requests of this call suffice for.
    fn affordable(&self, pending: &[&Wanted<'a>]) -> usize {
        let plan = self.task.plan;
        let is_settled = pending.first().is_some_and(|one| one.is_settled());
        let alike = pending.iter().take_while(|one| one.is_settled() == is_settled).count();
        // Targets, and attributes where the Service names some.
        let reads = 1 + usize::from(!plan.target_attributes.is_empty());
        let (each, most) = if is_settled {
            (reads, READ_TOGETHER)
        } else {
            // A group that is made or found by its name, its details, its targets, and a listener
            // in the place of another one.
            (2 * reads + 3 + self.task.backends.len().div_ceil(TARGETS_PER_CALL), usize::MAX)
        };
        (allowance(self.task.task.cloud) / each).min(most).min(alike)
    }

    /// Brings ports to their plan as far as the requests suffice; the number of these ports.
    fn batch(&mut self, batch: &[&Wanted<'a>], is_first: bool) -> Result<usize> {
        let cloud = self.task.task.cloud;
        let ports: Vec<_> = batch.iter().map(|one| (one.port, one.group)).collect();
        let prepared = targets::prepare(self.task, self.balancer, &ports)?;
        self.groups.extend(prepared.iter().map(|prepared| prepared.arn.clone()));
        let (mut left, mut writes, mut done) = (allowance(cloud), Writes::default(), Vec::new());
        for (wanted, Prepared { arn, leave, join }) in batch.iter().zip(prepared) {
            let listen = self.listen(wanted, &arn);
            let replaced = if wanted.listener.is_none() { self.replaced(wanted.port) } else { 0 };
            let requests = leave.len() + join.len() + usize::from(listen.is_some()) + replaced;
            if requests > left && !(is_first && done.is_empty()) {
                break;
            }
            left = left.saturating_sub(requests);
            writes.leave.extend(leave);
            writes.join.extend(join);
            writes.listen.extend(listen);
            let delete = |one: &Listener| Call::elb_v2("DeleteListener").set("ListenerArn", &one.arn);
            writes.delete.extend(self.surplus.drain(..replaced).map(delete));
            done.push(wanted.port.port);
        }
        send_every(cloud, writes.leave)?;
        backends::register(cloud, writes.join)?;
        let answers = if writes.delete.is_empty() { Vec::new() } else { cloud.send_all(writes.delete) };
        for answer in answers {
            answer.unless(&["ListenerNotFound"])?;
        }
        send_every(cloud, writes.listen)?;
        let count = done.len();
        self.finished.extend(done);
        Ok(count)
    }

    fn listen(&self, wanted: &Wanted<'a>, group: &str) -> Option<Call> {
        match wanted.listener {
            Some(listener) if listeners::is_as_wanted(listener, wanted.port, group) => None,
            Some(listener) => Some(listeners::modify(listener, wanted.port, group)),
            None => Some(listeners::create(self.task, self.balancer, wanted.port, group)),
        }
    }

    /// How many of the first listeners make way for the one of this port: those with its number,
    /// else any, because a load balancer has a maximum number of listeners.
    fn replaced(&mut self, port: &Port) -> usize {
        self.surplus.sort_by_key(|listener| listener.port != port.port);
        let same = self.surplus.iter().take_while(|listener| listener.port == port.port).count();
        same.max(1).min(self.surplus.len())
    }

    /// Passes a result on. Keeps what this call has finished if the next call has to continue.
    pub(super) fn remember_unless_done<T>(&self, result: Result<T>) -> Result<T> {
        let (cloud, key) = (self.task.task.cloud, key(self.task));
        if matches!(result, Err(Error::RetryAfter(_))) {
            cloud.remember(&key, &json!([digest(self.task), self.finished]), PROGRESS_TTL);
        }
        result
    }

    /// Ends the pass: the next call looks at all ports again.
    pub(super) fn end(&self) {
        self.task.task.cloud.forget(&key(self.task));
    }
}

fn key(task: &NetworkTask<'_>) -> String {
    format!("ports/{}", task.name)
}

/// Differs for another plan and for other machines.
fn digest(task: &NetworkTask<'_>) -> String {
    deletion::digest(&[&format!("{:?}", task.plan), &format!("{:?}", task.backends)])
}

fn finished(known: &Value, digest: &str) -> Option<BTreeSet<u16>> {
    if known.get(0)?.as_str()? != digest {
        return None;
    }
    known.get(1)?.as_array()?.iter().map(|port| port.as_u64().and_then(|port| port.try_into().ok())).collect()
}
