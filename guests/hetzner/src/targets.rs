//! The targets of a load balancer: the servers of the nodes.

use serde_json::json;
use skysail_guest_sdk::{Error, Result};

use crate::{
    balancers::{LOAD_BALANCERS, Task},
    hcloud::Host,
    plan::{Wanted, Warnings, left_out},
    wire::{Id, LoadBalancer, Target},
};

/// Codes of the cloud for a server that cannot be a target; the other servers can.
const UNUSABLE: [&str; 3] = ["missing_ipv4", "server_not_attached_to_network", "target_already_defined"];

impl Target {
    /// A server as a target.
    pub(crate) fn server(id: u64, use_private_ip: bool) -> Self {
        Self { r#type: "server".to_owned(), server: Some(Id { id }), ip: None, use_private_ip: Some(use_private_ip) }
    }

    /// The ID of the server, for a target of this type.
    fn server_id(&self) -> Option<u64> {
        self.server.as_ref().filter(|_| self.r#type == "server").map(|server| server.id)
    }

    /// The same without the field that a removal does not have.
    fn removal(&self) -> Self {
        Self { use_private_ip: None, ..self.clone() }
    }
}

/// Adds the missing targets, removes targets that are no nodes, and replaces those that are reached
/// by the wrong address. A target is removed first only where the load balancer is full, so that a
/// replacement of all nodes leaves the load balancer with targets.
///
/// Label selectors stay: a user made them. Targets by address go, as with the vendor's manager
/// without dedicated servers. A server that cannot be a target is left out with a warning.
pub(crate) fn change<H: Host>(
    task: &Task<'_, H>,
    balancer: &LoadBalancer,
    wanted: &Wanted,
    warnings: &mut Warnings,
) -> Result<()> {
    let Wanted { servers, use_private_ip, .. } = wanted;
    let use_private_ip = *use_private_ip;
    let mut room = balancer.load_balancer_type.max_targets.saturating_sub(balancer.targets.len());
    let (mut present, mut wrong, mut surplus) = (Vec::new(), Vec::new(), Vec::new());
    for target in &balancer.targets {
        match target.server_id() {
            Some(id) if servers.contains_key(&id) && target.use_private_ip.unwrap_or(false) == use_private_ip => {
                present.push(id);
            }
            Some(id) if servers.contains_key(&id) => wrong.push(id),
            None if target.r#type != "ip" => {}
            _ => surplus.push(target),
        }
    }
    let (mut full, mut unusable, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    let missing = servers.iter().filter(|(id, _)| !present.contains(id) && !wrong.contains(id));
    for (id, node) in missing {
        let added = loop {
            if room == 0 {
                let Some(target) = surplus.pop() else { break Added::Full };
                remove(task, balancer, target)?;
                room += 1;
            }
            match add(task, balancer, *id, use_private_ip)? {
                // The cloud counts other targets, too.
                Added::Full => room = 0,
                added => break added,
            }
        };
        match added {
            Added::Yes => room -= 1,
            Added::Full => full.push(node.clone()),
            Added::Unusable => unusable.push(node.clone()),
            Added::Absent => absent.push(node.clone()),
        }
    }
    for target in surplus {
        remove(task, balancer, target)?;
    }
    // One after the other, so that the load balancer is never without targets.
    for id in wrong {
        remove(task, balancer, &Target::server(id, !use_private_ip))?;
        add(task, balancer, id, use_private_ip)?;
    }
    if !full.is_empty() {
        let kind = &balancer.load_balancer_type;
        let why = format!("type {} has at most {} targets; choose a larger type", kind.name, kind.max_targets);
        warnings.push(("MaxTargetsReached", left_out(&full, &why)));
    }
    if !unusable.is_empty() {
        let why = if use_private_ip {
            "the servers are not attached to the network of the load balancer"
        } else {
            "the servers have no public IPv4 address; write use-private-ip, or give them one"
        };
        warnings.push(("TargetUnusable", left_out(&unusable, why)));
    }
    if !absent.is_empty() {
        // The load balancer may be what is absent.
        task.cloud.balancer(balancer.id).map_err(Error::never_gone)?;
        warnings.push(("TargetAbsent", left_out(&absent, "their servers do not exist; delete the nodes")));
    }
    Ok(())
}

enum Added {
    Yes,
    /// The load balancer has all targets that its type may have.
    Full,
    /// This server cannot be a target.
    Unusable,
    /// The server was deleted, and its node is still there.
    Absent,
}

fn add<H: Host>(task: &Task<'_, H>, balancer: &LoadBalancer, id: u64, use_private_ip: bool) -> Result<Added> {
    let body = serde_json::to_value(Target::server(id, use_private_ip))?;
    match task.cloud.act(LOAD_BALANCERS, balancer.id, "add_target", Some(&body)) {
        Ok(action) => task.cloud.ended(&task.owner.uid, &action).map(|()| Added::Yes),
        Err(refusal) if refusal.code == "resource_limit_exceeded" => Ok(Added::Full),
        Err(refusal) if UNUSABLE.contains(&refusal.code.as_str()) => Ok(Added::Unusable),
        Err(refusal) if matches!(refusal.error, Error::NotFound(_)) => Ok(Added::Absent),
        Err(refusal) => Err(refusal.error),
    }
}

fn remove<H: Host>(task: &Task<'_, H>, balancer: &LoadBalancer, target: &Target) -> Result<()> {
    let body = json!(target.removal());
    match task.cloud.act(LOAD_BALANCERS, balancer.id, "remove_target", Some(&body)) {
        Ok(action) => task.cloud.ended(&task.owner.uid, &action),
        // The cloud removes the target of a deleted server itself.
        Err(refusal) if matches!(refusal.error, Error::NotFound(_)) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}
