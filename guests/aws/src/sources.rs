//! The security groups that users name for Classic Load Balancers, and the rules about them in the
//! groups of the nodes. Several Services may name the same group and need the same rule.

use std::collections::BTreeSet;

use skysail_guest_sdk::Result;

use crate::{
    call::Call,
    cloud::{Cloud, list},
    deletion,
    groups::{Change, Groups},
    settings::Settings,
    tagging::Tagging,
    wire::elb::{LOAD_BALANCERS, LoadBalancer},
};

/// The groups that let one Classic Load Balancer reach the nodes.
pub(crate) struct Sources<'a> {
    pub(crate) cloud: &'a dyn Cloud,
    pub(crate) settings: &'a Settings,
    pub(crate) tagging: &'a Tagging,
    pub(crate) groups: &'a Groups,
    /// The load balancer's name.
    pub(crate) name: &'a str,
}

impl Sources<'_> {
    /// The groups of the load balancer, without those that it keeps, that have rules in the groups
    /// of the nodes which no other load balancer needs. No request if there is no such rule.
    pub(crate) fn former(&self, attached: &[String], kept: &[String]) -> Result<Vec<String>> {
        let own = self.groups.named(&deletion::classic_group(self.name));
        // Beside the Service's own group the others have no rule of this provider.
        if own.is_some_and(|own| attached.contains(&own.id)) {
            return Ok(Vec::new());
        }
        let configured = self.settings.elb_security_group.as_ref();
        let is_former = |id: &&String| {
            !kept.contains(id) && Some(*id) != configured && !self.dismissals(std::slice::from_ref(*id)).is_empty()
        };
        let mut former: Vec<String> = attached.iter().filter(is_former).cloned().collect();
        if !former.is_empty() {
            let needed = self.of_others()?;
            former.retain(|id| !needed.contains(id));
        }
        Ok(former)
    }

    /// The groups of all other Classic Load Balancers of the region.
    pub(crate) fn of_others(&self) -> Result<BTreeSet<String>> {
        let all = list(self.cloud, &Call::elb("DescribeLoadBalancers"), &LOAD_BALANCERS, LoadBalancer::read)?;
        Ok(all.into_iter().filter(|one| one.name != self.name).flat_map(|one| one.security_groups).collect())
    }

    /// What removes the rules about these groups from the groups of the nodes.
    pub(crate) fn dismissals(&self, sources: &[String]) -> Vec<Change> {
        let of_nodes = self.groups.all.iter().filter(|group| self.tagging.has(&group.tags));
        let changes = of_nodes.map(|group| Change::dismiss(group, sources));
        changes.filter(|change| !change.revoke.is_empty()).collect()
    }
}
