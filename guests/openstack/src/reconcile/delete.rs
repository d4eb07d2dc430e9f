//! Deleting a Service's load balancer, or its share of one.

use skysail_guest_sdk::{Absent as _, Error, Result};

use super::{DELETE_WAIT, State, Task, listeners::is_ours, named, pending};
use crate::{
    client::{Call, Cloud},
    names::{self, PREFIX},
    plan,
    settings::Api,
    wire::{LbListener, LoadBalancer},
};

impl<C: Cloud> Task<'_, C> {
    /// As `load-balancers.ensure-deleted`.
    ///
    /// # Errors
    ///
    /// Never `not-found`, which the host takes for a finished deletion.
    pub(crate) fn ensure_deleted(&self) -> Result<()> {
        self.delete_all().map_err(Error::never_gone)
    }

    fn delete_all(&self) -> Result<()> {
        // An annotation that cannot be read must not keep a Service from being deleted, and must
        // not delete an address that the user may want to keep.
        let keep_floating_ip = plan::keep_floating_ip(self.service).unwrap_or(true);
        let (name, legacy_name) = (self.name(), self.service.default_load_balancer_name());
        let mut found = self.marked(&name)?;
        if names::load_balancer_of(self.cluster, self.service).is_err() {
            self.refuse_cut_name(&name, &found)?;
            found.clear();
        }
        if found.is_empty() {
            found = self.cloud.list(named(&legacy_name))?;
            found.retain(|lb| lb.name == legacy_name);
        }
        for lb in found {
            self.delete_share(&lb, &name, lb.name == name || lb.name == legacy_name, keep_floating_ip)?;
        }
        // A new Service of the same name need not ask for what is deleted.
        self.cloud.forget(&name);
        self.forget_security_group()
    }

    /// `ensure` refuses a name that OpenStack would cut. The vendor's manager cut such names, so
    /// a load balancer with the cut name or tag may be that of this Service or of another one.
    fn refuse_cut_name(&self, name: &str, found: &[LoadBalancer]) -> Result<()> {
        let is_of_another = |lb: &LoadBalancer| {
            let described = lb.description.strip_prefix("Kubernetes external service ");
            let described = described.and_then(|rest| rest.split_once(" from cluster "));
            lb.name == name && described.is_some_and(|(key, _)| key != self.service.key())
        };
        let mut possible = found.iter().filter(|lb| (lb.name == name || lb.has_tag(name)) && !is_of_another(lb));
        possible.next().map_or(Ok(()), |lb| {
            Err(Error::Denied(format!(
                "load balancer {} has the name or tag {name:?}, which is cut at 255 bytes, so it may be that of Service \
                 {} or of another one; delete it in Octavia if it is this Service's, else rename it and remove the tag",
                lb.id,
                self.service.key()
            )))
        })
    }

    /// The load balancers that have the Service's name or tag, and the one that the Service names.
    pub(super) fn marked(&self, name: &str) -> Result<Vec<LoadBalancer>> {
        let tagged = Call::get(Api::LoadBalancer, &["loadbalancers"]).query("tags", name);
        let lists = self.cloud.lists::<LoadBalancer>(vec![named(name), tagged]);
        let mut found: Vec<LoadBalancer> = Vec::new();
        for list in lists {
            for lb in list?.into_iter().filter(|lb| lb.name == name || lb.has_tag(name)) {
                if found.iter().all(|other| other.id != lb.id) {
                    found.push(lb);
                }
            }
        }
        // Also beside another one: the lists may not show yet what was created a moment ago.
        if self.cloud.remembered(name).is_some_and(|id| found.iter().all(|lb| lb.id != id)) {
            found.extend(self.just_created(name)?);
        }
        if let Some(id) = plan::existing(self.service).unwrap_or_default()
            && found.iter().all(|lb| lb.id != id)
        {
            found.extend(self.by_id(&id).absent_ok()?);
        }
        Ok(found)
    }

    /// Deletes the Service's share of a load balancer, and the load balancer if nobody else has
    /// one.
    fn delete_share(&self, lb: &LoadBalancer, name: &str, is_owner: bool, keep_floating_ip: bool) -> Result<()> {
        match lb.state() {
            State::Going if lb.provisioning_status == "DELETED" => return Ok(()),
            // A load balancer that somebody else deletes has no share left to wait for.
            State::Going if !is_owner && !lb.has_tag(name) => return Ok(()),
            State::Going | State::Pending => return Err(pending(lb)),
            State::Active | State::Error => {}
        }
        let created_by_us = is_owner || names::service_of(self.cluster, &lb.name).is_some();
        let is_last = created_by_us && lb.others(name) == 0 && (is_owner || lb.has_tag(name));
        if is_owner && is_last {
            return self.delete_whole(lb, keep_floating_ip);
        }
        let all = self.listeners(lb)?;
        let ours: Vec<&LbListener> = all.iter().filter(|listener| is_ours(listener, name, is_owner)).collect();
        // The owner is gone, unless a listener from before there were tags is left.
        if is_last && ours.len() == all.len() {
            return self.delete_whole(lb, keep_floating_ip);
        }
        if !ours.is_empty() {
            self.delete_listeners(lb, &ours, &self.pools(lb)?)?;
        }
        if lb.has_tag(name) {
            let tags: Vec<String> = lb.tags.iter().filter(|tag| *tag != name).cloned().collect();
            self.tag(lb, &tags)?;
        }
        Ok(())
    }

    /// Deletes a load balancer with everything that it has.
    ///
    /// # Errors
    ///
    /// `retry-after` where everything went well: the cloud is deleting it.
    fn delete_whole(&self, lb: &LoadBalancer, keep_floating_ip: bool) -> Result<()> {
        self.begin_whole_deletion(lb, keep_floating_ip)?;
        // Some drivers delete at once.
        match self.by_id(&lb.id).absent_ok()? {
            None => Ok(()),
            Some(now) if now.provisioning_status == "DELETED" => Ok(()),
            Some(now) => {
                let message = format!("Octavia is deleting load balancer {} ({})", now.id, now.provisioning_status);
                Err(Error::retry_after(DELETE_WAIT, message))
            }
        }
    }

    /// As [`Self::delete_whole`], without the question whether the cloud is done.
    pub(super) fn begin_whole_deletion(&self, lb: &LoadBalancer, keep_floating_ip: bool) -> Result<()> {
        if !keep_floating_ip {
            self.release(lb)?;
        }
        let mut call = Call::delete(Api::LoadBalancer, &["loadbalancers", &lb.id]);
        // In the status ERROR, Octavia accepts no change but the deletion of the whole.
        if self.settings.load_balancer.cascade_delete || matches!(lb.state(), State::Error) {
            call = call.query("cascade", "true");
        } else {
            let listeners = self.listeners(lb)?;
            let listeners: Vec<&LbListener> = listeners.iter().collect();
            self.delete_listeners(lb, &listeners, &self.pools(lb)?)?;
        }
        self.cloud.send(call).absent_ok().map(drop)
    }
}

/// Deletes the share of the Service with this name and tag, without the Service.
pub(super) fn delete_named<C: Cloud>(task: &Task<'_, C>, name: &str) -> Result<()> {
    debug_assert!(name.starts_with(PREFIX), "{name} is the name of a Service's load balancer");
    for lb in task.marked(name)? {
        task.delete_share(&lb, name, lb.name == name, false)?;
    }
    Ok(())
}
