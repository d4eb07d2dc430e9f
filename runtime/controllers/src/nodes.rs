//! All nodes of the cluster by owner, and for each provider the shared set of nodes that may back a
//! load balancer.
//!
//! A change of a node costs work for that node only, because the digest of the node set is updated
//! incrementally. When the nodes settle, the state is published. The first Service that reads the
//! state builds the set, and all Services share it by reference, so a publication without a reader
//! costs nothing. This module calls neither a provider nor the API.

mod kept;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Node, NodeSet, ObjectReference};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use self::kept::Rest;
use crate::{
    backoff::Repairs,
    convert, labels, names,
    ownership::{self, Claim, LaneId, Owner},
    settings::ControllerSettings,
};

/// The nodes that may back a provider's load balancers.
#[derive(Clone, Debug)]
pub(crate) struct SharedNodes {
    /// The complete nodes.
    pub(crate) nodes: NodeSet,
    /// The sum of [`backend`] over the nodes.
    pub(crate) membership: u64,
    /// When this state was published.
    pub(crate) published: Instant,
    /// As [`Claim::settled`]: whether these are the provider's nodes.
    pub(crate) settled: bool,
}

/// Digest of the fields of a node that load balancers depend on: name, provider ID, addresses, zone
/// and region.
///
/// Upstream compares name and provider ID only, so it does not update a load balancer when a node's
/// address or zone appears later. Other labels, annotations and readiness change often and affect
/// no backend: the set contains them, but their changes trigger no call.
fn backend(node: &Node) -> u64 {
    let place = [names::ZONE_LABEL, names::REGION_LABEL].map(|label| node.labels.get(label));
    let mut hasher = DefaultHasher::new();
    (&node.name, &node.provider_id, &node.addresses, place).hash(&mut hasher);
    hasher.finish()
}

/// The published state of a provider's nodes.
#[derive(Clone, Debug)]
struct Published {
    membership: u64,
    at: Instant,
    /// None until the first read.
    set: Option<SharedNodes>,
}

impl Published {
    /// A provider without nodes.
    fn empty() -> Self {
        let (membership, at) = (0, Instant::now());
        let set = SharedNodes { nodes: NodeSet::new([]), membership, published: at, settled: false };
        Self { membership, at, set: Some(set) }
    }

    /// Whether a Service may have been ensured with another membership: that of the publication, or
    /// that of the set, which the first reader built from later nodes.
    fn differs_from(&self, membership: u64) -> bool {
        self.membership != membership || self.set.as_ref().is_some_and(|set| set.membership != membership)
    }
}

/// One node with derived values.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) node: Arc<Node>,
    rest: Arc<Rest>,
    pub(crate) owner: Owner,
    /// The provider whose load balancers the node may back.
    backs: Option<LaneId>,
    pub(crate) first_seen: Instant,
    /// As `convert::is_uninitialized`.
    pub(crate) uninitialized: bool,
    /// Whether newer spellings of its labels are missing.
    lacks_labels: bool,
    /// As [`ownership::lacks_holder`]; false before the node is initialised.
    pub(crate) lacks_holder: bool,
    /// As [`Owner::Contested`], or [`ownership::also_selected_by`] names a provider.
    pub(crate) disputed: bool,
    /// The rate limit of the node controller's writes, which another controller may undo.
    pub(crate) writes: Repairs,
    /// Not ready, or ready with a leftover shutdown taint.
    troubled: bool,
    eligible: bool,
    backend: u64,
}

impl NodeView {
    /// The stored part of the object. Each call builds a new object.
    pub(crate) fn object(&self) -> core::Node {
        kept::object(&self.node, &self.rest)
    }

    /// Whether the node controller has to initialise the node or to complete its metadata.
    pub(crate) const fn wanting(&self) -> bool {
        self.uninitialized || self.lacks_labels || self.lacks_holder
    }

    /// Assigns the node by these claims.
    fn assigned(self, claims: &[Claim], before: Option<&Self>) -> Self {
        let former = before.filter(|before| !before.uninitialized).and_then(|before| before.owner.provider());
        let owner = ownership::node_owner(claims, &self.node, former);
        Self {
            owner,
            backs: backs(owner, before, self.uninitialized),
            lacks_holder: !self.uninitialized && ownership::lacks_holder(claims, &self.node, owner),
            disputed: matches!(owner, Owner::Contested(..))
                || ownership::also_selected_by(claims, &self.node, owner).next().is_some(),
            ..self
        }
    }

    /// The subject of Events.
    pub(crate) fn reference(&self) -> ObjectReference {
        convert::node_reference(&self.node)
    }
}

#[derive(Default)]
struct Inner {
    views: HashMap<String, NodeView>,
    /// Names of the nodes that more than one provider claims.
    disputed: BTreeSet<String>,
    /// Oldest provider first.
    claims: Arc<[Claim]>,
    /// One entry for each claim.
    lanes: HashMap<LaneId, OfLane>,
}

/// The nodes of one provider.
struct OfLane {
    /// Names of all its nodes, of those that may back load balancers, and of those that the
    /// lifecycle controller checks.
    owned: BTreeSet<String>,
    eligible: BTreeSet<String>,
    troubled: BTreeSet<String>,
    /// The sum of [`backend`] over the currently eligible nodes; wraps and does not depend on the
    /// order.
    membership: u64,
    published: Published,
    signals: Arc<Signals>,
}

/// Wakes the publisher of one set.
#[derive(Default)]
struct Signals {
    dirty: Notify,
    /// Whether a node left the set since the last publication.
    departed: AtomicBool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Nodes {
    inner: Mutex<Inner>,
}

/// Whether a node may back load balancers, by upstream's stable predicates. Readiness, cordons and
/// other taints do not matter.
pub(crate) fn is_eligible(object: &core::Node) -> bool {
    let excluded = |value: &String| !matches!(value.as_str(), "0" | "f" | "F" | "false" | "False" | "FALSE");
    let labels = object.metadata.labels.as_ref();
    object.metadata.deletion_timestamp.is_none()
        && !labels.and_then(|labels| labels.get(names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL)).is_some_and(excluded)
        && !convert::taints(object).iter().any(|taint| taint.key == names::CLUSTER_AUTOSCALER_TAINT)
}

impl Nodes {
    /// Stores the current state of a node; returns the previous and the new view.
    pub(crate) fn put(&self, object: &core::Node) -> (Option<NodeView>, NodeView) {
        let node = convert::node(object);
        let mut inner = self.lock();
        let old = inner.views.get(&node.name).cloned();
        // Equal content keeps its allocation, so a heartbeat marks no set as dirty.
        let node = match &old {
            Some(old) if *old.node == node => Arc::clone(&old.node),
            _ => Arc::new(node),
        };
        let same_object = old.as_ref().filter(|old| old.node.uid == node.uid);
        let view = NodeView {
            owner: Owner::Unowned,
            backs: None,
            uninitialized: convert::is_uninitialized(object),
            lacks_labels: !labels::to_mirror(object).is_empty(),
            lacks_holder: false,
            disputed: false,
            troubled: !node.ready || convert::is_shutdown_tainted(object),
            eligible: is_eligible(object),
            backend: backend(&node),
            first_seen: same_object.map_or_else(Instant::now, |old| old.first_seen),
            writes: same_object.map_or_else(Repairs::default, |old| old.writes),
            rest: Arc::new(Rest::of(object)),
            node,
        };
        let view = view.assigned(&inner.claims, same_object);
        inner.note(old.as_ref(), Some(&view));
        inner.views.insert(view.node.name.clone(), view.clone());
        (old, view)
    }

    /// Records a write of the node controller; see [`Repairs::record`].
    pub(crate) fn written(&self, node: &Node) -> bool {
        let mut inner = self.lock();
        let view = inner.views.get_mut(&node.name).filter(|view| view.node.uid == node.uid);
        view.is_some_and(|view| view.writes.record(Instant::now()))
    }

    /// Removes a deleted node; returns its last view.
    pub(crate) fn remove(&self, name: &str) -> Option<NodeView> {
        let mut inner = self.lock();
        let old = inner.views.remove(name);
        inner.note(old.as_ref(), None);
        old
    }

    /// How many nodes are known, whatever their owner.
    pub(crate) fn len(&self) -> usize {
        self.lock().views.len()
    }

    /// Replaces the claims by the result of `claims` and assigns every node again. Returns the
    /// views whose owner changed, and the providers whose schemes became settled.
    ///
    /// `claims` runs under the lock: of two concurrent calls the later one sees all that the
    /// earlier one saw.
    pub(crate) fn reassign(&self, claims: impl FnOnce(&[Claim]) -> Vec<Claim>) -> (Vec<NodeView>, Vec<LaneId>) {
        let mut inner = self.lock();
        let claims = claims(&inner.claims);
        if *inner.claims == *claims {
            return Default::default();
        }
        let waited = |lane| claim_of(&inner.claims, lane).is_some_and(|claim| !claim.settled);
        let settled = claims.iter().filter(|claim| claim.settled && waited(claim.lane)).map(|claim| claim.lane);
        let settled: Vec<LaneId> = settled.collect();
        inner.claims = claims.into();
        let Inner { claims, lanes, .. } = &mut *inner;
        for claim in claims.iter() {
            lanes.entry(claim.lane).or_insert_with(OfLane::empty);
        }
        let mut moved = Vec::new();
        for old in inner.views.values().cloned().collect::<Vec<_>>() {
            let view = old.clone().assigned(&inner.claims, Some(&old));
            inner.note(Some(&old), Some(&view));
            inner.views.insert(view.node.name.clone(), view.clone());
            if view.owner != old.owner {
                moved.push(view);
            }
        }
        let Inner { claims, lanes, .. } = &mut *inner;
        // A reader that sees that the schemes are settled also sees the nodes.
        for lane in &settled {
            lanes.entry(*lane).and_modify(OfLane::publish);
        }
        lanes.retain(|lane, _| claims.iter().any(|claim| claim.lane == *lane));
        (moved, settled)
    }

    /// The nodes that more than one provider claims: their number and the name of the first one, by
    /// a provider that does not act on them, another provider that claims them, and whether the
    /// other provider holds them.
    pub(crate) fn disputed(&self) -> BTreeMap<(LaneId, LaneId, bool), (usize, String)> {
        let inner = self.lock();
        let mut all = BTreeMap::new();
        for view in inner.disputed.iter().filter_map(|name| inner.views.get(name)) {
            let of = match view.owner {
                Owner::Contested(one, other) => vec![(one, other, false), (other, one, false)],
                owner => {
                    let others = ownership::also_selected_by(&inner.claims, &view.node, owner);
                    others.filter_map(|other| Some((other, owner.provider()?, true))).collect()
                }
            };
            for key in of {
                all.entry(key).or_insert_with(|| (0, view.node.name.clone())).0 += 1;
            }
        }
        all
    }

    /// Whether this provider's nodes are known; see [`Claim::settled`].
    pub(crate) fn is_settled(&self, lane: LaneId) -> bool {
        claim_of(&self.lock().claims, lane).is_some_and(|claim| claim.settled)
    }

    /// Whether another provider may own this provider's nodes; see [`Claim::disputable`].
    pub(crate) fn is_disputable(&self, lane: LaneId) -> bool {
        claim_of(&self.lock().claims, lane).is_some_and(|claim| claim.disputable)
    }

    pub(crate) fn claims(&self) -> Arc<[Claim]> {
        Arc::clone(&self.lock().claims)
    }

    /// The current state of this node, if it was not created again and the provider still owns it.
    /// An operator may edit claims, and remove or add providers, while a call runs; the node itself
    /// does not change then, so the API server would accept a write of the former owner.
    pub(crate) fn still_owned(&self, before: &NodeView, lane: LaneId) -> Option<NodeView> {
        self.get(&before.node.name).filter(|now| now.node.uid == before.node.uid && now.owner.provider() == Some(lane))
    }

    pub(crate) fn get(&self, name: &str) -> Option<NodeView> {
        self.lock().views.get(name).cloned()
    }

    /// All nodes of this provider, by name.
    pub(crate) fn owned(&self, lane: LaneId) -> Vec<NodeView> {
        let inner = self.lock();
        inner.pick(inner.lanes.get(&lane).map(|lane| &lane.owned))
    }

    /// All nodes of this provider, by name, and all other nodes of the cluster, of one moment.
    pub(crate) fn owned_and_others(&self, lane: LaneId) -> (Vec<NodeView>, Vec<Arc<Node>>) {
        let inner = self.lock();
        let is_other = |view: &&NodeView| view.owner.provider() != Some(lane);
        let others = inner.views.values().filter(is_other).map(|view| Arc::clone(&view.node)).collect();
        (inner.pick(inner.lanes.get(&lane).map(|lane| &lane.owned)), others)
    }

    /// The provider's nodes that the lifecycle controller checks, by name.
    pub(crate) fn troubled(&self, lane: LaneId) -> Vec<NodeView> {
        let inner = self.lock();
        inner.pick(inner.lanes.get(&lane).map(|lane| &lane.troubled))
    }

    /// How many of the provider's nodes may back load balancers.
    pub(crate) fn eligible_count(&self, lane: LaneId) -> usize {
        self.lock().lanes.get(&lane).map_or(0, |lane| lane.eligible.len())
    }

    /// The number of this provider's nodes, and when each ready node was first seen that appeared
    /// after `after`.
    pub(crate) fn fleet(&self, lane: LaneId, after: Instant) -> (usize, Vec<Instant>) {
        let inner = self.lock();
        let owned = inner.lanes.get(&lane).map(|lane| &lane.owned);
        let views = owned.into_iter().flatten().filter_map(|name| inner.views.get(name));
        let arrivals = views.filter(|view| view.node.ready && view.first_seen > after).map(|view| view.first_seen);
        (owned.map_or(0, BTreeSet::len), arrivals.collect())
    }

    /// The set that was published last. The first reader builds it from the current nodes; it stays
    /// until the next publication.
    pub(crate) fn shared(&self, lane: LaneId) -> SharedNodes {
        self.read(lane, true)
    }

    /// As [`Self::shared`], but the set is not kept: the first Service still builds its own.
    pub(crate) fn peek(&self, lane: LaneId) -> SharedNodes {
        self.read(lane, false)
    }

    fn read(&self, lane: LaneId, keep: bool) -> SharedNodes {
        let mut inner = self.lock();
        let Inner { views, lanes, claims, .. } = &mut *inner;
        let settled = claim_of(claims, lane).is_some_and(|claim| claim.settled);
        let Some(OfLane { eligible: names, membership, published, .. }) = lanes.get_mut(&lane) else {
            return SharedNodes { nodes: NodeSet::new([]), membership: 0, published: Instant::now(), settled };
        };
        let build = || SharedNodes {
            nodes: NodeSet::new(names.iter().filter_map(|name| Some(Arc::clone(&views.get(name)?.node)))),
            membership: *membership,
            published: published.at,
            settled,
        };
        let set = match keep {
            true => published.set.get_or_insert_with(build).clone(),
            false => published.set.clone().unwrap_or_else(build),
        };
        SharedNodes { settled, ..set }
    }

    /// Publishes the provider's current nodes; returns true if a Service may have been ensured with
    /// another membership.
    pub(crate) fn publish(&self, lane: LaneId) -> bool {
        let mut inner = self.lock();
        let Some(lane) = inner.lanes.get_mut(&lane) else { return false };
        let changed = lane.published.differs_from(lane.membership);
        lane.publish();
        changed
    }

    /// Publishes the provider's set each time its nodes settle, until `stop`; calls `changed` when
    /// the membership changed.
    pub(crate) async fn keep_published(
        &self,
        lane: LaneId,
        settings: &ControllerSettings,
        stop: &CancellationToken,
        changed: impl Fn(),
    ) {
        let Some(signals) = self.lock().lanes.get(&lane).map(|lane| Arc::clone(&lane.signals)) else { return };
        let Signals { dirty, departed } = &*signals;
        while stop.run_until_cancelled(dirty.notified()).await.is_some() {
            let mut latest = Instant::now() + settings.node_set_delay_max;
            let settled = async {
                loop {
                    let now = Instant::now();
                    if departed.swap(false, Ordering::Relaxed) {
                        latest = latest.min(now + settings.node_set_departure_delay_max);
                    }
                    let quiet = (now + settings.node_set_quiet).min(latest);
                    if timeout_at(quiet, dirty.notified()).await.is_err() || Instant::now() >= latest {
                        return;
                    }
                }
            };
            if stop.run_until_cancelled(settled).await.is_some() && self.publish(lane) {
                changed();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfLane {
    fn empty() -> Self {
        Self {
            owned: BTreeSet::new(),
            eligible: BTreeSet::new(),
            troubled: BTreeSet::new(),
            membership: 0,
            published: Published::empty(),
            signals: Arc::default(),
        }
    }

    fn publish(&mut self) {
        self.published = Published { membership: self.membership, at: Instant::now(), set: None };
    }
}

impl Inner {
    /// Updates the indexes and wakes the publishers of the sets that changed.
    fn note(&mut self, old: Option<&NodeView>, new: Option<&NodeView>) {
        let Some(name) = new.or(old).map(|view| view.node.name.clone()) else { return };
        let owner = |view: Option<&NodeView>| view.and_then(|view| view.owner.provider());
        let backs = |view: Option<&NodeView>| view.and_then(|view| view.backs);
        let eligible = |view: &&NodeView| view.eligible;
        let (old_member, new_member) = (old.filter(eligible), new.filter(eligible));
        let troubled = owner(new.filter(|view| view.troubled));
        for (id, lane) in &mut self.lanes {
            place(&mut lane.owned, &name, owner(new) == Some(*id));
            place(&mut lane.eligible, &name, backs(new_member) == Some(*id));
            place(&mut lane.troubled, &name, troubled == Some(*id));
        }
        place(&mut self.disputed, &name, new.is_some_and(|view| view.disputed));

        let content = |view: Option<&NodeView>| view.map(|view| Arc::clone(&view.node));
        let (before, after) = (backs(old_member), backs(new_member));
        if let (Some(lane), Some(view)) = (before.and_then(|lane| self.lanes.get_mut(&lane)), old_member) {
            lane.membership = lane.membership.wrapping_sub(view.backend);
        }
        if let (Some(lane), Some(view)) = (after.and_then(|lane| self.lanes.get_mut(&lane)), new_member) {
            lane.membership = lane.membership.wrapping_add(view.backend);
        }
        if before != after || (after.is_some() && content(old_member) != content(new_member)) {
            if let Some(lane) = before.filter(|_| before != after).and_then(|lane| self.lanes.get(&lane)) {
                lane.signals.departed.store(true, Ordering::Relaxed);
            }
            for lane in [before, after].into_iter().flatten().filter_map(|lane| self.lanes.get(&lane)) {
                lane.signals.dirty.notify_one();
            }
        }
    }

    fn pick(&self, names: Option<&BTreeSet<String>>) -> Vec<NodeView> {
        names.into_iter().flatten().filter_map(|name| self.views.get(name).cloned()).collect()
    }
}

/// A contested node keeps its place, so that no load balancer loses a backend because claims
/// overlap. An initialised node without a previous view, which no provider ever held, backs the
/// load balancers of the older provider.
fn backs(owner: Owner, before: Option<&NodeView>, uninitialized: bool) -> Option<LaneId> {
    match owner {
        Owner::Provider(lane) => Some(lane),
        Owner::Contested(first, _) => match before {
            Some(before) => before.backs,
            None => (!uninitialized).then_some(first),
        },
        Owner::Unowned | Owner::Malformed => None,
    }
}

fn claim_of(claims: &[Claim], lane: LaneId) -> Option<&Claim> {
    claims.iter().find(|claim| claim.lane == lane)
}

fn place(set: &mut BTreeSet<String>, name: &str, belongs: bool) {
    if belongs {
        set.insert(name.to_owned());
    } else {
        set.remove(name);
    }
}

#[cfg(test)]
mod tests;
