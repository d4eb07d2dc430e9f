//! The listeners of a load balancer, each with the target group that it forwards to.

use skysail_guest_sdk::{Error, Result};

use super::{
    NetworkTask,
    ports::{Pass, Wanted},
    targets,
};
use crate::{
    call::Call,
    cloud::{send, send_within},
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
    /// Each port with its target group, its targets and its listener, then the listeners and the
    /// target groups that no port needs any more.
    ///
    /// # Errors
    ///
    /// `retry-after` where the requests of one call do not suffice.
    pub(super) fn reconcile(&self, task: &NetworkTask<'_>, balancer: &LoadBalancer) -> Result<()> {
        let cloud = task.task.cloud;
        let ports: Vec<_> = task.plan.ports.iter().map(|port| self.wanted(task, port)).collect();
        let is_used = |group: &&TargetGroup| ports.iter().filter_map(|one| one.group).any(|one| one.arn == group.arn);
        let unused: Vec<_> = self.targets.iter().filter(|group| !is_used(group)).collect();
        let is_replacing = !unused.is_empty();
        if is_replacing && !self.is_open {
            let tag = Tags::from([(REPLACING.to_owned(), "true".to_owned())]);
            let call = Call::elb_v2("AddTags").list("ResourceArns", [&balancer.arn]).pairs("Tags", &tag);
            send(cloud, call).map_err(Error::from)?;
        }
        let is_kept = |one: &&Listener| ports.iter().filter_map(|port| port.listener).any(|kept| kept.arn == one.arn);
        let surplus = self.listeners.iter().filter(|listener| !is_kept(listener)).collect();
        let mut pass = Pass::new(task, balancer, surplus);
        pass.run(&ports)?;
        let call = |listener: &&Listener| Call::elb_v2("DeleteListener").set("ListenerArn", &listener.arn);
        let deleted = send_within(cloud, pass.surplus.iter().map(call).collect(), &["ListenerNotFound"]);
        let deleted = deleted.and_then(|()| targets::delete(task, &unused, &pass.groups, self.is_open));
        pass.remember_unless_done(deleted)?;
        pass.end();
        if is_replacing || self.is_open {
            let call = Call::elb_v2("RemoveTags").list("ResourceArns", [&balancer.arn]).list("TagKeys", [REPLACING]);
            send(cloud, call).map_err(Error::from)?;
        }
        Ok(())
    }

    fn wanted<'a>(&'a self, task: &NetworkTask<'_>, port: &'a Port) -> Wanted<'a> {
        let listener = self.listeners.iter().find(|listener| {
            listener.port == port.port
                && (listener.protocol == "UDP") == port.is_udp()
                && listener.protocol != "TCP_UDP"
        });
        let group = self.targets.iter().find(|group| targets::can_serve(group, port, &task.plan.check));
        Wanted { port, group, listener }
    }
}

/// Whether the listener does what the port needs, with this target group.
pub(super) fn is_as_wanted(listener: &Listener, port: &Port, group: &str) -> bool {
    let tls = port.tls.as_ref().is_none_or(|tls| {
        // Without the annotation the policy that AWS chose stays.
        listener.certificate.as_deref() == Some(&*tls.certificate)
            && (tls.policy.is_none() || tls.policy == listener.ssl_policy)
    });
    listener.protocol == port.protocol() && tls && listener.target_group.as_deref() == Some(group)
}

/// The call that makes the listener what the port needs.
pub(super) fn modify(listener: &Listener, port: &Port, group: &str) -> Call {
    with_port(Call::elb_v2("ModifyListener").set("ListenerArn", &listener.arn), port, group)
}

/// The call that makes the listener of the port.
pub(super) fn create(task: &NetworkTask<'_>, balancer: &LoadBalancer, port: &Port, group: &str) -> Call {
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
