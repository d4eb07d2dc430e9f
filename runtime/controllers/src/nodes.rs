//! All nodes of the cluster, sorted by owner, and for each provider the shared set of those that may back a load balancer.
//!
//! A set is built once for a provider and a state of its nodes, published when the nodes settle, and shared by all its Services by
//! reference. A change costs its own node; the set is rebuilt once for all changes of a quiet period. What it must not do: call a provider or
//! the API.

use std::{
    collections::{BTreeSet, HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Node, NodeSet};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    convert, names,
    ownership::{self, Claim, Owner},
    settings::ControllerSettings,
};

/// The nodes that may back a provider's load balancers.
#[derive(Clone, Debug)]
pub(crate) struct SharedNodes {
    /// The nodes whole.
    pub(crate) nodes: NodeSet,
    /// Digest of what load balancers depend on: name, provider ID and addresses. Upstream compares the first two only, so a node that got
    /// its address after its ID never reaches a provider whose backends are addresses. Labels, annotations and readiness change often and
    /// change no backend: they are in `nodes`, fresh at the next call, and cause none.
    pub(crate) membership: u64,
    /// When this set was published.
    pub(crate) published: Instant,
}

impl SharedNodes {
    fn new(nodes: impl IntoIterator<Item = Arc<Node>>) -> Self {
        let nodes = NodeSet::new(nodes);
        let mut hasher = DefaultHasher::new();
        for node in nodes.as_slice() {
            (&node.name, &node.provider_id, &node.addresses).hash(&mut hasher);
        }
        Self { nodes, membership: hasher.finish(), published: Instant::now() }
    }
}

/// One node with what was derived from it once.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) object: Arc<core::Node>,
    pub(crate) node: Arc<Node>,
    pub(crate) owner: Owner,
    pub(crate) first_seen: Instant,
    eligible: bool,
}

impl NodeView {
    /// Not ready, or ready with a shutdown taint left over.
    fn is_troubled(&self) -> bool {
        !self.node.ready || convert::is_shutdown_tainted(&self.object)
    }
}

struct Inner {
    views: HashMap<String, NodeView>,
    claims: Arc<[Claim]>,
    /// Names of each provider's nodes, of those that may back load balancers, and of those that the lifecycle controller looks at.
    owned: Vec<BTreeSet<String>>,
    eligible: Vec<BTreeSet<String>>,
    troubled: Vec<BTreeSet<String>>,
}

/// See the module.
pub(crate) struct Nodes {
    inner: Mutex<Inner>,
    dirty: Vec<Notify>,
    sets: Vec<watch::Sender<SharedNodes>>,
}

/// Whether a node may back load balancers: upstream's stable set. Readiness, cordons and other taints do not matter.
pub(crate) fn is_eligible(object: &core::Node) -> bool {
    let excluded = |value: &String| !matches!(value.as_str(), "0" | "f" | "F" | "false" | "False" | "FALSE");
    let labels = object.metadata.labels.as_ref();
    object.metadata.deletion_timestamp.is_none()
        && !labels.and_then(|labels| labels.get(names::EXCLUDE_FROM_LOAD_BALANCERS_LABEL)).is_some_and(excluded)
        && !convert::taints(object).iter().any(|taint| taint.key == names::CLUSTER_AUTOSCALER_TAINT)
}

impl Nodes {
    pub(crate) fn new(claims: Vec<Claim>) -> Self {
        let sets = || vec![BTreeSet::new(); claims.len()];
        let (owned, eligible, troubled) = (sets(), sets(), sets());
        Self {
            dirty: claims.iter().map(|_| Notify::new()).collect(),
            sets: claims.iter().map(|_| watch::Sender::new(SharedNodes::new([]))).collect(),
            inner: Mutex::new(Inner { views: HashMap::new(), claims: claims.into(), owned, eligible, troubled }),
        }
    }

    /// Takes a node as it is now; returns what it was and what it is.
    pub(crate) fn put(&self, object: Arc<core::Node>) -> (Option<NodeView>, NodeView) {
        let node = convert::node(&object);
        let mut inner = self.lock();
        let old = inner.views.get(&node.name).cloned();
        // The same content keeps the same allocation: a heartbeat ends here, with no set made dirty.
        let node = match &old {
            Some(old) if *old.node == node => Arc::clone(&old.node),
            _ => Arc::new(node),
        };
        let same_object = old.as_ref().filter(|old| old.node.uid == node.uid);
        let view = NodeView {
            owner: ownership::node_owner(&inner.claims, node.provider_id.as_deref(), &node.labels),
            eligible: is_eligible(&object),
            first_seen: same_object.map_or_else(Instant::now, |old| old.first_seen),
            object,
            node,
        };
        self.note(&mut inner, old.as_ref(), Some(&view));
        inner.views.insert(view.node.name.clone(), view.clone());
        (old, view)
    }

    /// The node is gone.
    pub(crate) fn remove(&self, name: &str) {
        let mut inner = self.lock();
        let old = inner.views.remove(name);
        self.note(&mut inner, old.as_ref(), None);
    }

    /// New claims: every node is judged again. Returns the views whose owner changed.
    pub(crate) fn reassign(&self, claims: Vec<Claim>) -> Vec<NodeView> {
        let mut inner = self.lock();
        if *inner.claims == *claims {
            return Vec::new();
        }
        inner.claims = claims.into();
        let mut moved = Vec::new();
        for old in inner.views.values().cloned().collect::<Vec<_>>() {
            let owner = ownership::node_owner(&inner.claims, old.node.provider_id.as_deref(), &old.node.labels);
            if owner != old.owner {
                let view = NodeView { owner, ..old.clone() };
                self.note(&mut inner, Some(&old), Some(&view));
                inner.views.insert(view.node.name.clone(), view.clone());
                moved.push(view);
            }
        }
        moved
    }

    pub(crate) fn claims(&self) -> Arc<[Claim]> {
        Arc::clone(&self.lock().claims)
    }

    pub(crate) fn get(&self, name: &str) -> Option<NodeView> {
        self.lock().views.get(name).cloned()
    }

    /// All nodes of this provider, by name.
    pub(crate) fn owned(&self, provider: usize) -> Vec<NodeView> {
        let inner = self.lock();
        inner.pick(inner.owned.get(provider))
    }

    /// The provider's nodes that the lifecycle controller looks at, by name.
    pub(crate) fn troubled(&self, provider: usize) -> Vec<NodeView> {
        let inner = self.lock();
        inner.pick(inner.troubled.get(provider))
    }

    /// The published set.
    pub(crate) fn shared(&self, provider: usize) -> SharedNodes {
        self.sets.get(provider).map_or_else(|| SharedNodes::new([]), |set| set.borrow().clone())
    }

    /// Builds and publishes the provider's set; true when its membership changed.
    pub(crate) fn publish(&self, provider: usize) -> bool {
        let built = {
            let inner = self.lock();
            SharedNodes::new(inner.pick(inner.eligible.get(provider)).into_iter().map(|view| view.node))
        };
        let Some(set) = self.sets.get(provider) else { return false };
        let changed = set.borrow().membership != built.membership;
        set.send_replace(built);
        changed
    }

    /// Publishes the provider's set each time its nodes settle, until `stop`; `changed` runs when the membership did.
    pub(crate) async fn keep_published(
        &self,
        provider: usize,
        settings: &ControllerSettings,
        stop: &CancellationToken,
        changed: impl Fn(),
    ) {
        let Some(dirty) = self.dirty.get(provider) else { return };
        while stop.run_until_cancelled(dirty.notified()).await.is_some() {
            let latest = Instant::now() + settings.node_set_delay_max;
            let settled = async {
                loop {
                    let quiet = (Instant::now() + settings.node_set_quiet).min(latest);
                    if timeout_at(quiet, dirty.notified()).await.is_err() || Instant::now() >= latest {
                        return;
                    }
                }
            };
            if stop.run_until_cancelled(settled).await.is_some() && self.publish(provider) {
                changed();
            }
        }
    }

    /// Keeps the indexes and wakes the publishers of the sets that changed.
    fn note(&self, inner: &mut Inner, old: Option<&NodeView>, new: Option<&NodeView>) {
        let Some(name) = new.or(old).map(|view| view.node.name.clone()) else { return };
        let owner = |view: Option<&NodeView>| view.and_then(|view| view.owner.provider());
        let eligible = |view: &&NodeView| view.eligible;
        let (old_member, new_member) = (old.filter(eligible), new.filter(eligible));
        place(&mut inner.owned, &name, owner(new));
        place(&mut inner.eligible, &name, owner(new_member));
        place(&mut inner.troubled, &name, owner(new.filter(|view| view.is_troubled())));

        let content = |view: Option<&NodeView>| view.map(|view| Arc::clone(&view.node));
        let (before, after) = (owner(old_member), owner(new_member));
        if before != after || (after.is_some() && content(old_member) != content(new_member)) {
            for provider in [before, after].into_iter().flatten() {
                if let Some(dirty) = self.dirty.get(provider) {
                    dirty.notify_one();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn pick(&self, names: Option<&BTreeSet<String>>) -> Vec<NodeView> {
        names.into_iter().flatten().filter_map(|name| self.views.get(name).cloned()).collect()
    }
}

/// The name is in the set of this provider and in no other.
fn place(sets: &mut [BTreeSet<String>], name: &str, provider: Option<usize>) {
    for (index, set) in sets.iter_mut().enumerate() {
        if provider == Some(index) {
            set.insert(name.to_owned());
        } else {
            set.remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
