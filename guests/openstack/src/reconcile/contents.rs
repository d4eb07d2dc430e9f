//! What the pools of a Service have: members and monitors, with few requests for many pools.

use std::collections::HashMap;

use skysail_guest_sdk::{Absent as _, Result};

use super::{Share, Task};
use crate::{
    client::{Call, Cloud},
    settings::Api,
    wire::{LbListener, LbMember, LbMonitor, LbPool, Statuses, one},
};

/// Up to this many pools are read one by one: each list of members is whole. More pools would need
/// more requests than a call may send.
const LOOK_UPS_MAX: usize = 4;

/// The tree of a load balancer has about 250 bytes for each member, and the host takes responses of
/// 8 MiB by default.
const TREE_MEMBERS_MAX: usize = 10_000;

/// What a desired listener already has.
pub(super) struct Actual<'a> {
    pub(super) listener: Option<&'a LbListener>,
    pub(super) pool: Option<&'a LbPool>,
    pub(super) members: Members,
    pub(super) monitor: Option<LbMonitor>,
}

/// The members of a pool.
pub(super) enum Members {
    Whole(Vec<LbMember>),
    /// From the tree of the load balancer, which lacks the port of the health check.
    WithoutMonitorPort(Vec<LbMember>),
    Unread,
}

impl<C: Cloud> Task<'_, C> {
    /// Reads members and monitors of all pools: of many pools with one request each.
    pub(super) fn read_pools<'l>(
        &self,
        share: &Share<'_>,
        pairs: Vec<(Option<&'l LbListener>, Option<&'l LbPool>)>,
    ) -> Result<Vec<Actual<'l>>> {
        let pools: Vec<&LbPool> = pairs.iter().filter_map(|(_, pool)| *pool).collect();
        let is_many = pools.len() > LOOK_UPS_MAX;
        let mut members = match is_many {
            true if pools.len() * share.members.len() > TREE_MEMBERS_MAX => HashMap::new(),
            true => self.members_of_tree(share)?,
            false => self.members_of_each(&pools)?,
        };
        let mut monitors = if is_many { self.all_monitors(share, &pools)? } else { self.each_monitor(&pools)? };
        let actual = pairs.into_iter().map(|(listener, pool)| Actual {
            listener,
            pool,
            members: match pool {
                Some(pool) => members.remove(&pool.id).unwrap_or(Members::Unread),
                None => Members::Whole(Vec::new()),
            },
            // Deleted since the pool was read: it is created again.
            monitor: pool.and_then(|pool| monitors.remove(&pool.healthmonitor_id)),
        });
        Ok(actual.collect())
    }

    /// The members of one pool.
    pub(super) fn members_of(&self, pool: &str) -> Result<Vec<LbMember>> {
        self.cloud.list(list_of_members(pool)).map(present)
    }

    fn members_of_each(&self, pools: &[&LbPool]) -> Result<HashMap<String, Members>> {
        let lists = self.cloud.lists::<LbMember>(pools.iter().map(|pool| list_of_members(&pool.id)).collect());
        let whole =
            |(pool, list): (&&LbPool, Result<Vec<LbMember>>)| Ok((pool.id.clone(), Members::Whole(present(list?))));
        pools.iter().zip(lists).map(whole).collect()
    }

    fn members_of_tree(&self, share: &Share<'_>) -> Result<HashMap<String, Members>> {
        let call = Call::get(Api::LoadBalancer, &["loadbalancers", &share.lb.id, "status"]);
        let Statuses { loadbalancer } = self.cloud.one(call)?;
        let pools = loadbalancer.listeners.into_iter().flat_map(|listener| listener.pools);
        Ok(pools.map(|pool| (pool.id, Members::WithoutMonitorPort(present(pool.members)))).collect())
    }

    fn each_monitor(&self, pools: &[&LbPool]) -> Result<HashMap<String, LbMonitor>> {
        let ids = monitors_of(pools);
        let calls = ids.map(|id| Call::get(Api::LoadBalancer, &["healthmonitors", id]));
        let mut found = HashMap::new();
        for answer in self.cloud.send_all(calls.collect()) {
            if let Some(body) = answer.absent_ok()? {
                let monitor: LbMonitor = one(&body).map_err(|error| error.context("health monitor"))?;
                found.insert(monitor.id.clone(), monitor);
            }
        }
        Ok(found)
    }

    /// The monitors of the project: no filter names the load balancer.
    fn all_monitors(&self, share: &Share<'_>, pools: &[&LbPool]) -> Result<HashMap<String, LbMonitor>> {
        if monitors_of(pools).next().is_none() {
            return Ok(HashMap::new());
        }
        let mut call = Call::get(Api::LoadBalancer, &["healthmonitors"]);
        // An account with the role of an administrator would list those of every project.
        if !share.lb.project_id.is_empty() {
            call = call.query("project_id", &share.lb.project_id);
        }
        let all: Vec<LbMonitor> = self.cloud.list(call)?;
        Ok(all.into_iter().map(|monitor| (monitor.id.clone(), monitor)).collect())
    }
}

fn list_of_members(pool: &str) -> Call {
    Call::get(Api::LoadBalancer, &["pools", pool, "members"])
}

fn monitors_of<'p>(pools: &[&'p LbPool]) -> impl Iterator<Item = &'p str> {
    pools.iter().map(|pool| pool.healthmonitor_id.as_str()).filter(|id| !id.is_empty())
}

/// The driver ovn deletes one member after the other, and the load balancer is ACTIVE before the
/// last one is gone.
fn present(mut members: Vec<LbMember>) -> Vec<LbMember> {
    members.retain(|member| !matches!(member.provisioning_status.as_str(), "PENDING_DELETE" | "DELETED"));
    members
}
