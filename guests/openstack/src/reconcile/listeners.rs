//! The listeners of a Service on its load balancer, and what belongs to each.

use serde_json::{Map, Value, json};
use skysail_guest_sdk::{Cidr, Error, Result};

use super::{Share, Task, contents::Actual};
use crate::{
    client::{Call, Cloud},
    names,
    plan::{Listener, Plan, Timeouts},
    settings::Api,
    wire::{LbListener, LbPool, LoadBalancer, one},
};

/// The header that carries the client's address.
const X_FORWARDED_FOR: &str = "X-Forwarded-For";

/// The keys of the timeouts of a listener, in the order of [`Timeouts`].
const TIMEOUTS: [&str; 4] =
    ["timeout_client_data", "timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect"];

impl<C: Cloud> Task<'_, C> {
    /// Makes listeners, pools, members and monitors what the Service asks for.
    pub(super) fn reconcile_listeners(&self, share: &Share<'_>) -> Result<()> {
        let Share { plan, lb, is_owner, .. } = *share;
        if self.go_on(share)? {
            return Ok(());
        }
        let all = self.listeners(lb)?;
        let pools = self.pools(lb)?;
        let (ours, theirs): (Vec<_>, Vec<_>) = all.iter().partition(|listener| is_ours(listener, &plan.name, is_owner));
        for wanted in &plan.listeners {
            if theirs.iter().any(|listener| collides(wanted, listener)) {
                return Err(Error::Invalid(format!(
                    "port {}: another Service or user has a listener on this port of load balancer {}; change the \
                     port, or use another load balancer",
                    wanted.port, lb.id
                )));
            }
        }
        let surplus = ours.iter().filter(|listener| !plan.listeners.iter().any(|wanted| is_the_one(wanted, listener)));
        let surplus: Vec<&LbListener> = surplus.copied().collect();
        // A listener with another protocol has the port: it goes before the new one comes. The
        // others go last, so that nothing is interrupted that can stay.
        let (first, last): (Vec<_>, Vec<_>) =
            surplus.into_iter().partition(|listener| plan.listeners.iter().any(|wanted| collides(wanted, listener)));
        self.delete_listeners(lb, &first, &pools)?;
        let actual = self.actual(share, &ours, &pools)?;
        if first.is_empty()
            && last.is_empty()
            && let Some(outdated) = self.only_members_differ(share, &actual)
        {
            return self.replace_members(share, outdated);
        }
        for (wanted, actual) in plan.listeners.iter().zip(actual) {
            let listener = self.reconcile_listener(share, wanted, actual.listener)?;
            self.reconcile_pool(share, wanted, &listener, actual)?;
        }
        self.delete_listeners(lb, &last, &pools)
    }

    /// The listeners of a load balancer, also those of other Services.
    pub(super) fn listeners(&self, lb: &LoadBalancer) -> Result<Vec<LbListener>> {
        self.cloud.list(Call::get(Api::LoadBalancer, &["listeners"]).query("loadbalancer_id", &lb.id))
    }

    /// As [`Self::listeners`], for pools.
    pub(super) fn pools(&self, lb: &LoadBalancer) -> Result<Vec<LbPool>> {
        self.cloud.list(Call::get(Api::LoadBalancer, &["pools"]).query("loadbalancer_id", &lb.id))
    }

    /// Deletes listeners with their pools; Octavia deletes members and monitors with a pool.
    pub(super) fn delete_listeners(
        &self,
        lb: &LoadBalancer,
        listeners: &[&LbListener],
        pools: &[LbPool],
    ) -> Result<()> {
        for listener in listeners {
            for pool in pools.iter().filter(|pool| pool.serves(&listener.id)) {
                self.erase(lb, &["pools", &pool.id])?;
            }
            self.erase(lb, &["listeners", &listener.id])?;
        }
        Ok(())
    }

    /// Creates or changes one listener; its ID.
    fn reconcile_listener(
        &self,
        &Share { plan, lb, .. }: &Share<'_>,
        wanted: &Listener,
        actual: Option<&LbListener>,
    ) -> Result<String> {
        let Some(actual) = actual else {
            let mut body = body(wanted, &plan.name);
            super::pools::set(&mut body, "loadbalancer_id", json!(lb.id));
            let created = self.write(lb, Call::post(Api::LoadBalancer, &["listeners"], json!({"listener": body})))?;
            return one::<super::pools::Created>(&created).map(|created| created.id);
        };
        let changes = changes(wanted, actual, &plan.name);
        if !changes.is_empty() {
            let body = json!({"listener": changes});
            self.write(lb, Call::put(Api::LoadBalancer, &["listeners", &actual.id], body))?;
        }
        Ok(actual.id.clone())
    }

    /// What each desired listener already has.
    fn actual<'l>(&self, share: &Share<'_>, ours: &[&'l LbListener], pools: &'l [LbPool]) -> Result<Vec<Actual<'l>>> {
        let pairs = share.plan.listeners.iter().map(|wanted| {
            let listener = ours.iter().copied().find(|listener| is_the_one(wanted, listener));
            let pool = listener.and_then(|listener| pools.iter().find(|pool| pool.serves(&listener.id)));
            (listener, pool)
        });
        self.read_pools(share, pairs.collect())
    }
}

impl LbPool {
    /// Whether this is the pool of a listener.
    pub(super) fn serves(&self, listener: &str) -> bool {
        self.listeners.iter().any(|reference| reference.id == listener)
    }
}

/// Whether a listener belongs to the Service: by its tag, or as one from before there were tags.
pub(super) fn is_ours(listener: &LbListener, name: &str, is_owner: bool) -> bool {
    listener.tags.iter().any(|tag| tag == name) || (is_owner && listener.tags.is_empty())
}

fn is_the_one(wanted: &Listener, actual: &LbListener) -> bool {
    wanted.port == actual.protocol_port && wanted.protocol == actual.protocol
}

/// Whether both cannot be on one load balancer: HTTP is TCP, too.
fn collides(wanted: &Listener, actual: &LbListener) -> bool {
    wanted.port == actual.protocol_port && transport(wanted.protocol) == transport(&actual.protocol)
}

fn transport(protocol: &str) -> &str {
    if matches!(protocol, "UDP" | "SCTP") { protocol } else { "TCP" }
}

/// The body of a new listener.
pub(super) fn body(wanted: &Listener, load_balancer: &str) -> Value {
    let mut body = json!({
        "name": names::listener(wanted.index, load_balancer),
        "protocol": wanted.protocol,
        "protocol_port": wanted.port,
        "connection_limit": wanted.connection_limit,
        "tags": [load_balancer],
    });
    let mut set = |key: &str, value: Value| super::pools::set(&mut body, key, value);
    for (key, timeout) in timeouts(wanted.timeouts) {
        set(key, json!(timeout));
    }
    if wanted.x_forwarded_for {
        set("insert_headers", json!({X_FORWARDED_FOR: "true"}));
    }
    if let Some(tls) = &wanted.tls {
        set("default_tls_container_ref", json!(tls));
    }
    if let Some(cidrs) = &wanted.allowed_cidrs {
        set("allowed_cidrs", json!(texts(cidrs)));
    }
    body
}

/// Whether an existing listener is what the Service asks for.
pub(super) fn is_right(wanted: &Listener, actual: &LbListener, name: &str) -> bool {
    changes(wanted, actual, name).is_empty()
}

/// Whether these are the listeners that the Service asks for, and no others.
pub(super) fn are_right(plan: &Plan, present: &[LbListener]) -> bool {
    let is_there = |wanted: &Listener| {
        present.iter().any(|listener| is_the_one(wanted, listener) && is_right(wanted, listener, &plan.name))
    };
    present.len() == plan.listeners.len() && plan.listeners.iter().all(is_there)
}

/// The fields of an existing listener that differ.
fn changes(wanted: &Listener, actual: &LbListener, name: &str) -> Map<String, Value> {
    let mut changes = Map::new();
    if !actual.tags.iter().any(|tag| tag == name) {
        let tags: Vec<&str> = actual.tags.iter().map(String::as_str).chain([name]).collect();
        changes.insert("tags".to_owned(), json!(tags));
    }
    if actual.connection_limit.unwrap_or(-1) != wanted.connection_limit {
        changes.insert("connection_limit".to_owned(), json!(wanted.connection_limit));
    }
    let inserts = actual.insert_headers.get(X_FORWARDED_FOR).is_some_and(|value| value == "true");
    if inserts != wanted.x_forwarded_for {
        let mut headers = actual.insert_headers.clone();
        headers.remove(X_FORWARDED_FOR);
        if wanted.x_forwarded_for {
            headers.insert(X_FORWARDED_FOR.to_owned(), "true".to_owned());
        }
        changes.insert("insert_headers".to_owned(), json!(headers));
    }
    let tls = wanted.tls.as_deref().unwrap_or_default();
    if actual.default_tls_container_ref != tls {
        changes.insert("default_tls_container_ref".to_owned(), json!(wanted.tls));
    }
    let present = [
        actual.timeout_client_data,
        actual.timeout_member_connect,
        actual.timeout_member_data,
        actual.timeout_tcp_inspect,
    ];
    for ((key, timeout), present) in timeouts(wanted.timeouts).zip(present) {
        if present != Some(timeout) {
            changes.insert(key.to_owned(), json!(timeout));
        }
    }
    if let Some(cidrs) = &wanted.allowed_cidrs {
        let mut present: Vec<Cidr> = actual.allowed_cidrs.iter().filter_map(|cidr| cidr.parse().ok()).collect();
        present.sort_unstable();
        present.dedup();
        if present != *cidrs {
            changes.insert("allowed_cidrs".to_owned(), json!(texts(cidrs)));
        }
    }
    changes
}

fn timeouts(timeouts: Option<Timeouts>) -> impl Iterator<Item = (&'static str, u32)> {
    timeouts.into_iter().flat_map(|timeouts| TIMEOUTS.into_iter().zip(timeouts))
}

fn texts(cidrs: &[Cidr]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}
