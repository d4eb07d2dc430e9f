//! The pool of a listener with its members and its health monitor.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use skysail_guest_sdk::Result;

use super::{
    Share, Task,
    contents::{Actual, Members},
};
use crate::{
    client::{Call, Cloud, LAG_MAX},
    digest, distinct, names,
    plan::{Listener, Member, Monitor},
    settings::Api,
    wire::{LbMember, LbMonitor, LbPool, one},
};

/// A new object.
#[derive(Deserialize)]
pub(super) struct Created {
    pub(super) id: String,
}

/// A member by what distinguishes it: name, address, port, port of the health check.
type Key = (String, String, u16, Option<u16>);

impl<C: Cloud> Task<'_, C> {
    /// Makes the pool of one listener what the Service asks for.
    pub(super) fn reconcile_pool(
        &self,
        share: &Share<'_>,
        wanted: &Listener,
        listener: &str,
        mut actual: Actual<'_>,
    ) -> Result<()> {
        let Share { plan, lb, .. } = *share;
        if let Some(pool) = actual.pool.filter(|pool| pool.protocol != wanted.pool.protocol) {
            self.erase(lb, &["pools", &pool.id])?;
            actual = Actual { pool: None, members: Members::Whole(Vec::new()), monitor: None, ..actual };
        }
        let pool = match actual.pool {
            None => {
                let mut body = body(wanted, &plan.name);
                set(&mut body, "listener_id", json!(listener));
                let created = self.write(lb, Call::post(Api::LoadBalancer, &["pools"], json!({"pool": body})))?;
                one::<Created>(&created)?.id
            }
            Some(pool) => {
                let mut changes = changes(wanted, pool);
                if !changes.is_empty() {
                    // Without this field the driver ovn fails and leaves the pool PENDING_UPDATE
                    // for ever (observed with ovn-octavia-provider 11.0.0).
                    changes.insert("admin_state_up".to_owned(), json!(true));
                    let body = json!({"pool": changes});
                    self.write(lb, Call::put(Api::LoadBalancer, &["pools", &pool.id], body))?;
                }
                pool.id.clone()
            }
        };
        self.reconcile_members(share, wanted, &pool, &actual)?;
        let monitor = actual.pool.map(|pool| pool.healthmonitor_id.as_str()).zip(actual.monitor.as_ref());
        self.reconcile_monitor(share, wanted, &pool, monitor)
    }

    fn reconcile_members(&self, share: &Share<'_>, wanted: &Listener, pool: &str, actual: &Actual<'_>) -> Result<()> {
        let Share { plan, lb, members, .. } = *share;
        let desired = desired(wanted, members);
        let serial = self.settings.load_balancer.serial_api;
        let known = match &actual.members {
            Members::WithoutMonitorPort(members) if serial => Some(members),
            members => known(members, wanted, actual.monitor.as_ref()),
        };
        let read = match known {
            Some(members) => members,
            None if self.is_checked(pool, &desired) => return Ok(()),
            None => {
                self.check_room(lb)?;
                &self.members_of(pool)?
            }
        };
        // A change that this call does not finish must not be taken for what an earlier call found.
        let begin = || self.cloud.forget(&checked(pool));
        if serial {
            begin();
            self.reconcile_members_one_by_one(share, wanted, pool, read)?;
        } else if differ(wanted, members, read) {
            let subnet = self.member_subnet(plan, Some(lb), members)?;
            begin();
            let body = json!({"members": self::members(wanted, members, subnet.as_deref())});
            self.write(lb, Call::put(Api::LoadBalancer, &["pools", pool, "members"], body))?;
        }
        if known.is_none() {
            self.cloud.remember(&checked(pool), &digest(&desired), LAG_MAX);
        }
        Ok(())
    }

    /// Whether a call found these members in the pool a moment ago: the lists of all pools may be
    /// more requests than one call may send, and the next call goes on with the others.
    fn is_checked(&self, pool: &str, desired: &[Key]) -> bool {
        self.cloud.remembered(&checked(pool)).is_some_and(|known| known == digest(desired))
    }

    /// For drivers without batches. Members have no subnet and no port of the health check, as in
    /// the vendor's manager.
    fn reconcile_members_one_by_one(
        &self,
        &Share { lb, members, .. }: &Share<'_>,
        wanted: &Listener,
        pool: &str,
        actual: &[LbMember],
    ) -> Result<()> {
        let port = wanted.pool.node_port;
        let is =
            |member: &Member, present: &LbMember| member.address == present.address && port == present.protocol_port;
        let targets = || members.iter().filter(|_| port != 0);
        for member in targets().filter(|member| !actual.iter().any(|present| is(member, present))) {
            let Member { node, address, .. } = member;
            let name = names::serial_member(node, address, port);
            let body = json!({"member": {"name": name, "address": address, "protocol_port": port}});
            self.write(lb, Call::post(Api::LoadBalancer, &["pools", pool, "members"], body))?;
        }
        for present in actual.iter().filter(|present| !targets().any(|member| is(member, present))) {
            self.erase(lb, &["pools", pool, "members", &present.id])?;
        }
        Ok(())
    }

    fn reconcile_monitor(
        &self,
        &Share { plan, lb, .. }: &Share<'_>,
        wanted: &Listener,
        pool: &str,
        actual: Option<(&str, &LbMonitor)>,
    ) -> Result<()> {
        let Some(wanted_monitor) = &wanted.pool.monitor else {
            return match actual {
                Some((id, _)) => self.erase(lb, &["healthmonitors", id]),
                None => Ok(()),
            };
        };
        let body = monitor(wanted_monitor, &names::monitor(wanted.index, &plan.name));
        match actual {
            Some((id, present)) if present.r#type == wanted_monitor.r#type => {
                if same(wanted_monitor, present) {
                    return Ok(());
                }
                let Monitor { delay, timeout, max_retries, max_retries_down, .. } = wanted_monitor;
                let body = json!({"healthmonitor": {
                    "delay": delay, "timeout": timeout,
                    "max_retries": max_retries, "max_retries_down": max_retries_down,
                }});
                return self.write(lb, Call::put(Api::LoadBalancer, &["healthmonitors", id], body)).map(drop);
            }
            Some((id, _)) => self.erase(lb, &["healthmonitors", id])?,
            None => {}
        }
        let mut body = body;
        set(&mut body, "pool_id", json!(pool));
        let call = Call::post(Api::LoadBalancer, &["healthmonitors"], json!({"healthmonitor": body}));
        self.write(lb, call).map(drop)
    }
}

/// The members that the Service asks for.
fn desired(wanted: &Listener, members: &[Member]) -> Vec<Key> {
    let targets = members.iter().filter(|_| wanted.pool.node_port != 0);
    distinct(
        targets.map(|member| (member.node.clone(), member.address.clone(), wanted.pool.node_port, health_port(wanted))),
    )
}

/// Whether a pool has other members than the Service asks for.
pub(super) fn differ(wanted: &Listener, members: &[Member], read: &[LbMember]) -> bool {
    let key =
        |member: &LbMember| (member.name.clone(), member.address.clone(), member.protocol_port, member.monitor_port);
    distinct(read.iter().map(key)) != desired(wanted, members)
}

/// The members of a pool, if all that distinguishes them was read.
pub(super) fn known<'m>(
    members: &'m Members,
    wanted: &Listener,
    monitor: Option<&LbMonitor>,
) -> Option<&'m Vec<LbMember>> {
    match members {
        Members::Whole(members) => Some(members),
        Members::WithoutMonitorPort(members) => (!has_monitor_port(wanted, monitor)).then_some(members),
        Members::Unread => None,
    }
}

/// Whether an existing pool with this monitor is what the Service asks for, without its members.
pub(super) fn is_right(wanted: &Listener, pool: &LbPool, present: Option<&LbMonitor>) -> bool {
    let monitor = match (&wanted.pool.monitor, present) {
        (None, None) => true,
        (Some(wanted), Some(present)) => present.r#type == wanted.r#type && same(wanted, present),
        (Some(_), None) | (None, Some(_)) => false,
    };
    monitor && pool.protocol == wanted.pool.protocol && changes(wanted, pool).is_empty()
}

/// Whether the members have a port of the health check, or may have one of former settings.
fn has_monitor_port(wanted: &Listener, present: Option<&LbMonitor>) -> bool {
    wanted
        .pool
        .monitor
        .as_ref()
        .is_some_and(|monitor| monitor.health_port.is_some() || present.is_none_or(|present| present.r#type == "HTTP"))
}

fn checked(pool: &str) -> String {
    format!("members of {pool}")
}

fn same(wanted: &Monitor, present: &LbMonitor) -> bool {
    let Monitor { delay, timeout, max_retries, max_retries_down, .. } = wanted;
    (present.delay, present.timeout, present.max_retries) == (*delay, *timeout, *max_retries)
        && present.max_retries_down == Some(*max_retries_down)
}

/// The fields of an existing pool that differ.
fn changes(wanted: &Listener, actual: &LbPool) -> Map<String, Value> {
    let mut changes = Map::new();
    if actual.lb_algorithm != wanted.pool.method {
        changes.insert("lb_algorithm".to_owned(), json!(wanted.pool.method));
    }
    let sticky = actual.session_persistence.as_ref().is_some_and(|persistence| persistence.r#type == "SOURCE_IP");
    if sticky != wanted.pool.sticky || (!sticky && actual.session_persistence.is_some()) {
        changes.insert("session_persistence".to_owned(), persistence(wanted));
    }
    changes
}

fn persistence(wanted: &Listener) -> Value {
    if wanted.pool.sticky { json!({"type": "SOURCE_IP"}) } else { Value::Null }
}

/// The body of a new pool.
pub(super) fn body(wanted: &Listener, load_balancer: &str) -> Value {
    let mut body = json!({
        "name": names::pool(wanted.index, load_balancer),
        "protocol": wanted.pool.protocol,
        "lb_algorithm": wanted.pool.method,
    });
    if wanted.pool.sticky {
        set(&mut body, "session_persistence", persistence(wanted));
    }
    body
}

/// The bodies of all members of a pool.
pub(super) fn members(wanted: &Listener, members: &[Member], subnet: Option<&str>) -> Vec<Value> {
    let targets = members.iter().filter(|_| wanted.pool.node_port != 0);
    let body = targets.map(|member| {
        let mut body = json!({"name": member.node, "address": member.address, "protocol_port": wanted.pool.node_port});
        if let Some(subnet) = subnet {
            set(&mut body, "subnet_id", json!(subnet));
        }
        if let Some(port) = health_port(wanted) {
            set(&mut body, "monitor_port", json!(port));
        }
        body
    });
    body.collect()
}

/// The body of a monitor.
pub(super) fn monitor(wanted: &Monitor, name: &str) -> Value {
    let Monitor { r#type, delay, timeout, max_retries, max_retries_down, health_port } = wanted;
    let mut body = json!({
        "name": name, "type": r#type, "delay": delay, "timeout": timeout,
        "max_retries": max_retries, "max_retries_down": max_retries_down,
    });
    if health_port.is_some() {
        set(&mut body, "url_path", json!("/healthz"));
        set(&mut body, "http_method", json!("GET"));
        set(&mut body, "expected_codes", json!("200"));
    }
    body
}

fn health_port(wanted: &Listener) -> Option<u16> {
    wanted.pool.monitor.as_ref().and_then(|monitor| monitor.health_port)
}

/// Sets a member of a JSON object.
pub(super) fn set(body: &mut Value, key: &str, value: Value) {
    if let Some(body) = body.as_object_mut() {
        body.insert(key.to_owned(), value);
    }
}
