//! The listeners of a load balancer, each with the target group that it forwards to.

use std::collections::HashSet;

use skysail_guest_sdk::{Error, Result};

use super::{NetworkTask, targets};
use crate::{
    call::Call,
    cloud::{send, send_every},
    fault::Expected as _,
    plan::network::Port,
    wire::{
        Tags,
        elb_v2::{Listener, LoadBalancer, TargetGroup},
    },
};

/// The tag of a load balancer whose target groups are being replaced. AWS lists the target groups
/// of a load balancer by its listeners, so a call that ends after it changed a listener leaves
/// target groups that only the list of the whole account has.
const REPLACING: &str = "skysail.dev/replacing-target-groups";

/// What a load balancer has.
pub(super) struct Listeners {
    pub(super) listeners: Vec<Listener>,
    pub(super) targets: Vec<TargetGroup>,
    /// Whether an earlier call did not finish the replacement of target groups.
    pub(super) is_open: bool,
}

/// Whether the tags say that target groups are being replaced.
pub(super) fn is_open(tags: &Tags) -> bool {
    tags.contains_key(REPLACING)
}

impl Listeners {
    /// Target groups with their targets first, then the listeners that forward to them, then the
    /// target groups that no listener needs any more.
    pub(super) fn reconcile(self, task: &NetworkTask<'_>, balancer: &LoadBalancer) -> Result<()> {
        let cloud = task.task.cloud;
        let groups = targets::ensure(task, balancer, &self.targets)?;
        let mut kept = HashSet::new();
        let (mut writes, mut creations) = (Vec::new(), Vec::new());
        for (port, group) in task.plan.ports.iter().zip(&groups) {
            let listener = self.listeners.iter().find(|listener| {
                listener.port == port.port
                    && (listener.protocol == "UDP") == port.is_udp()
                    && listener.protocol != "TCP_UDP"
            });
            match listener {
                Some(listener) => {
                    kept.insert(&listener.arn);
                    writes.extend((!is_as_wanted(listener, port, group)).then(|| modify(listener, port, group)));
                }
                None => creations.push(create(task, balancer, port, group)),
            }
        }
        let unused: Vec<_> = self.targets.iter().filter(|group| !groups.contains(&group.arn)).collect();
        let is_replacing = !unused.is_empty();
        if is_replacing && !self.is_open {
            let tag = Tags::from([(REPLACING.to_owned(), "true".to_owned())]);
            let call = Call::elb_v2("AddTags").list("ResourceArns", [&balancer.arn]).pairs("Tags", &tag);
            send(cloud, call).map_err(Error::from)?;
        }
        let surplus = self.listeners.iter().filter(|listener| !kept.contains(&listener.arn));
        let deletions: Vec<_> =
            surplus.map(|listener| Call::elb_v2("DeleteListener").set("ListenerArn", &listener.arn)).collect();
        let answers = if deletions.is_empty() { Vec::new() } else { cloud.send_all(deletions) };
        for answer in answers {
            answer.unless(&["ListenerNotFound"])?;
        }
        writes.extend(creations);
        send_every(cloud, writes)?;
        targets::delete(task, &unused, &groups, self.is_open)?;
        if is_replacing || self.is_open {
            let call = Call::elb_v2("RemoveTags").list("ResourceArns", [&balancer.arn]).list("TagKeys", [REPLACING]);
            send(cloud, call).map_err(Error::from)?;
        }
        Ok(())
    }
}

fn is_as_wanted(listener: &Listener, port: &Port, group: &str) -> bool {
    let tls = port.tls.as_ref().is_none_or(|tls| {
        // Without the annotation the policy that AWS chose stays.
        listener.certificate.as_deref() == Some(&*tls.certificate)
            && (tls.policy.is_none() || tls.policy == listener.ssl_policy)
    });
    listener.protocol == port.protocol() && tls && listener.target_group.as_deref() == Some(group)
}

fn modify(listener: &Listener, port: &Port, group: &str) -> Call {
    with_port(Call::elb_v2("ModifyListener").set("ListenerArn", &listener.arn), port, group)
}

fn create(task: &NetworkTask<'_>, balancer: &LoadBalancer, port: &Port, group: &str) -> Call {
    let call = Call::elb_v2("CreateListener").set("LoadBalancerArn", &balancer.arn);
    with_port(call, port, group).pairs("Tags", &task.task.tags(&task.plan.common.tags))
}

fn with_port(call: Call, port: &Port, group: &str) -> Call {
    let tls = port.tls.as_ref();
    call.set("Port", port.port)
        .set("Protocol", port.protocol())
        .set("DefaultActions.member.1.Type", "forward")
        .set("DefaultActions.member.1.TargetGroupArn", group)
        .set_opt("SslPolicy", tls.and_then(|tls| tls.policy.as_ref()))
        .set_opt("Certificates.member.1.CertificateArn", tls.map(|tls| &tls.certificate))
}

/// The error of a target group that another load balancer uses.
pub(super) fn taken(group: &TargetGroup) -> Error {
    Error::Unavailable(format!("target group {} belongs to another load balancer; delete it there", group.name))
}
