//! The security groups that users name for Classic Load Balancers, and the rules about them in the
//! groups of the nodes. Several Services may name the same group and need the same rule.

use std::collections::BTreeSet;

use skysail_guest_sdk::Result;

use crate::{
    call::Call,
    cloud::{Cloud, list},
    deletion,
    groups::{self, Change, Groups},
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

/// Groups of a load balancer that lose their rules in the groups of the nodes.
#[derive(Debug, Default)]
pub(crate) struct Former {
    pub(crate) groups: Vec<String>,
    /// Removes the rules.
    pub(crate) dismiss: Vec<Change>,
}

impl Former {
    /// Gives the rules of older versions the description by which a later call finds them, whatever
    /// other groups the load balancer then has.
    pub(crate) fn describe(&mut self, cloud: &dyn Cloud) -> Result<()> {
        let changes: Vec<_> = self.dismiss.iter_mut().map(Change::describe).collect();
        groups::describe(cloud, &changes)
    }
}

impl Sources<'_> {
    /// The groups of the load balancer with rules of this provider that no load balancer needs: the
    /// group `kept` is the one that this load balancer needs. A rule without a description counts
    /// about the group `older` only. No request if there is no such rule.
    pub(crate) fn former(&self, attached: &[String], older: Option<&String>, kept: Option<&String>) -> Result<Former> {
        // The rules about the Service's own group end with that group. Beside it no older version
        // has made a rule.
        let own = self.groups.named(&deletion::classic_group(self.name)).map(|own| &own.id);
        let older = older.filter(|_| own.is_none_or(|own| !attached.contains(own)));
        let configured = self.settings.elb_security_group.as_ref();
        let is_former = |id: &&String| {
            ![own, configured, kept].contains(&Some(*id))
                && !self.dismissals(std::slice::from_ref(*id), older).is_empty()
        };
        let mut former: Vec<String> = attached.iter().filter(is_former).cloned().collect();
        if !former.is_empty() {
            let needed = self.of_others()?;
            former.retain(|id| !needed.contains(id));
        }
        Ok(Former { dismiss: self.dismissals(&former, older), groups: former })
    }

    /// The groups of all other Classic Load Balancers of the region.
    pub(crate) fn of_others(&self) -> Result<BTreeSet<String>> {
        let all = list(self.cloud, &Call::elb("DescribeLoadBalancers"), &LOAD_BALANCERS, LoadBalancer::read)?;
        Ok(all.into_iter().filter(|one| one.name != self.name).flat_map(|one| one.security_groups).collect())
    }

    /// What removes the rules about these groups from the groups of the nodes.
    fn dismissals(&self, sources: &[String], older: Option<&String>) -> Vec<Change> {
        let of_nodes = self.groups.all.iter().filter(|group| self.tagging.has(&group.tags));
        let changes = of_nodes.map(|group| Change::dismiss(group, sources, older));
        changes.filter(|change| !change.revoke.is_empty()).collect()
    }
}
