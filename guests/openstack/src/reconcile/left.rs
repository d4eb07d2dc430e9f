//! What one call leaves to the next one.
//!
//! Octavia makes one change after the other, so a change of several pools takes several calls. The
//! calls after the first one make what is left, and read nothing again but the load balancer.

use serde::{Deserialize, Serialize};
use serde_json::json;
use skysail_guest_sdk::{Error, Result};

use super::{Share, Task, UPDATE_WAIT, contents::Actual, listeners, pools};
use crate::{
    client::{Call, Cloud, PENDING_MAX},
    digest,
    plan::{Member, Plan},
    settings::Api,
    wire::LbListener,
};

/// The pools whose members are still to be replaced; all else is right.
#[derive(Deserialize, Serialize)]
struct Left {
    /// Digest of what the Service asks for.
    wanted: String,
    pools: Vec<Outdated>,
    /// Whether the load balancer was just created: a driver may show it before its listeners.
    is_new: bool,
}

/// A pool whose members are to be replaced.
#[derive(Deserialize, Serialize)]
pub(super) struct Outdated {
    pool: String,
    /// Index of the listener in the plan.
    listener: usize,
}

impl<C: Cloud> Task<'_, C> {
    /// Notes that a load balancer is created with all that the Service asks for.
    pub(super) fn leave_new(&self, load_balancer: &str, plan: &Plan, members: &[Member]) {
        self.leave(load_balancer, &Left { wanted: wanted(plan, members), pools: Vec::new(), is_new: true });
    }

    /// Makes what an earlier call has left. False if no call has left anything, or if the Service
    /// asks for something else now: then everything has to be read.
    pub(super) fn go_on(&self, share: &Share<'_>) -> Result<bool> {
        let key = key(&share.lb.id);
        let Some(known) = self.cloud.remembered(&key) else { return Ok(false) };
        // Every call that changes something, or fails, leaves nothing of what was left before.
        self.cloud.forget(&key);
        let wanted = wanted(share.plan, share.members);
        let left = serde_json::from_str::<Left>(&known).ok().filter(|left| left.wanted == wanted);
        match left {
            None => Ok(false),
            Some(left) if left.is_new => Ok(listeners::are_right(share.plan, &self.listeners(share.lb)?)),
            Some(left) => self.replace_members(share, left.pools).map(|()| true),
        }
    }

    /// Replaces the members of the first of these pools.
    ///
    /// # Errors
    ///
    /// `retry-after` where everything went well: the next call goes on.
    pub(super) fn replace_members(&self, share: &Share<'_>, mut outdated: Vec<Outdated>) -> Result<()> {
        let Share { plan, lb, members, .. } = *share;
        let Some(Outdated { pool, listener }) = outdated.first() else { return Ok(()) };
        let Some(listener) = plan.listeners.get(*listener) else { return Ok(()) };
        self.check_room(lb)?;
        let subnet = self.member_subnet(plan, Some(lb), members)?;
        let body = json!({"members": pools::members(listener, members, subnet.as_deref())});
        let answer = self.cloud.send(Call::put(Api::LoadBalancer, &["pools", pool, "members"], body));
        let message = format!("load balancer {} replaces the members of pool {pool}", lb.id);
        match answer {
            Ok(_) => drop(outdated.remove(0)),
            Err(Error::RetryAfter(_)) => {}
            Err(error) => return Err(error),
        }
        self.leave(&lb.id, &Left { wanted: wanted(plan, members), pools: outdated, is_new: false });
        answer.and(Err(Error::retry_after(UPDATE_WAIT, message)))
    }

    /// The pools with other members than the Service asks for; none if anything else differs, too.
    pub(super) fn only_members_differ(&self, share: &Share<'_>, actual: &[Actual<'_>]) -> Option<Vec<Outdated>> {
        let Share { plan, members, .. } = *share;
        if self.settings.load_balancer.serial_api {
            return None;
        }
        let mut outdated = Vec::new();
        for (listener, (wanted, actual)) in plan.listeners.iter().zip(actual).enumerate() {
            let is_right = |present: &LbListener| listeners::is_right(wanted, present, &plan.name);
            let pool = actual.pool.filter(|_| actual.listener.is_some_and(is_right))?;
            if !pools::is_right(wanted, pool, actual.monitor.as_ref()) {
                return None;
            }
            let read = pools::known(&actual.members, wanted, actual.monitor.as_ref())?;
            if pools::differ(wanted, members, read) {
                outdated.push(Outdated { pool: pool.id.clone(), listener });
            }
        }
        Some(outdated)
    }

    fn leave(&self, load_balancer: &str, left: &Left) {
        if let Ok(left) = serde_json::to_string(left) {
            self.cloud.remember(&key(load_balancer), &left, PENDING_MAX);
        }
    }
}

fn key(load_balancer: &str) -> String {
    format!("left of {load_balancer}")
}

/// What the Service asks for, as a digest.
fn wanted(plan: &Plan, members: &[Member]) -> String {
    // The types of the contract have no hash.
    digest(&(&plan.name, format!("{:?}", plan.listeners), members))
}
