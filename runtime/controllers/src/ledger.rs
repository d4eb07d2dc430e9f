//! What each Service's load balancer was last brought to.
//!
//! It outlives a provider: where one is removed or claims change, it says whose load balancer has
//! to go. After a start of the process it is rebuilt from what the Services say themselves
//! ([`crate::names::LOAD_BALANCER_PROVIDER_ANNOTATION`]) and by one `ensure` for each Service. The
//! finalizer, and not the ledger, makes sure that no load balancer is forgotten.
//!
//! # What a Service says is hearsay
//! Everybody who may write a Service may write any provider's name into it. So the provider that a
//! Service names is asked what it has (`get`) before the name counts; where it has nothing, the
//! Service is treated as if it named no provider. That provider gets an `ensure-deleted` for this
//! Service in any case: a load balancer that `get` does not see may be there.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};
use tokio::time::Instant;

use crate::{backoff::Repairs, service_spec::status, watch::ObjectKey};

/// The version of an object as a number, which is what an API server of Kubernetes gives; none
/// where it is something else.
pub(crate) fn version(object: &core::Service) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

/// One Service that was handed to a provider.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the provider that holds the load balancer; an index means nothing to the next
    /// manager.
    pub(crate) provider: Arc<str>,
    /// The Service as it was handed over last, with success or not.
    pub(crate) service: Arc<Service>,
    pub(crate) state: State,
    /// The rate of our writes to the object, which another controller may undo.
    pub(crate) repairs: Repairs,
    /// Version of the object that our last write made.
    pub(crate) wrote: Option<u64>,
}

/// What is known of the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Only the object says that the provider made it.
    Hearsay,
    /// An `ensure` or a deletion began and has not succeeded: what the cloud has is unknown.
    Unsettled {
        /// What served when the `ensure` began, and serves on where the `ensure` fails.
        before: Option<Before>,
    },
    /// The last `ensure` succeeded.
    Serving(Serving),
    /// Another controller does the work: so said the provider of this generation.
    Elsewhere { generation: u64 },
    /// It is deleted, and only our writes to the object are missing.
    Deleted,
}

/// How long what is due has to wait, from the moment of the observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Until the next repair of our writes to the object.
    pub(crate) repair: Duration,
    /// Until the `ensure` that failed is tried again, where something serves on; none elsewhere.
    pub(crate) retry: Option<Duration>,
}

/// The load balancer of the last `ensure` that succeeded, while another `ensure` fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// The Service of that `ensure`.
    pub(crate) service: Arc<Service>,
    pub(crate) nodes: Backends,
    /// When the failed `ensure` is tried again, and whether other nodes are a reason to do it
    /// sooner.
    pub(crate) retry: Option<(Instant, bool)>,
}

/// The result of a successful `ensure` and of the updates since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serving {
    pub(crate) nodes: Backends,
    /// Of the provider when the `ensure` began.
    pub(crate) generation: u64,
    /// What the provider answered.
    pub(crate) status: LoadBalancerStatus,
    pub(crate) written: Written,
    /// It is ensured again although nothing is known to have changed: its turn of drift repair
    /// came.
    pub(crate) overdue: bool,
}

/// The nodes that a load balancer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backends {
    /// Those of the node set with this membership.
    Known(u64),
    /// An `update` began: what it did is unknown until one succeeds.
    Unknown {
        /// How many failed since then.
        failed: u32,
    },
}

/// Whether the provider's answer is in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    No,
    /// The object has it since this version, as far as that is known.
    At(Option<u64>),
}

impl Entry {
    /// A Service that is handed over, or will be.
    pub(crate) fn new(provider: &str, service: Arc<Service>, state: State) -> Self {
        Self { provider: provider.into(), service, state, repairs: Repairs::default(), wrote: None }
    }

    /// An `ensure` begins: from here on the provider may hold something.
    pub(crate) fn ensured(self, service: Arc<Service>) -> Self {
        // The turn of the `update` comes again, also where the last one failed.
        let again = |nodes| match nodes {
            Backends::Known(membership) => Backends::Known(membership),
            Backends::Unknown { .. } => Backends::Unknown { failed: 0 },
        };
        let before = match self.state {
            State::Serving(Serving { nodes, .. }) => Some((self.service, nodes)),
            State::Unsettled { before } => before.map(|before| (before.service, before.nodes)),
            State::Hearsay | State::Elsewhere { .. } | State::Deleted => None,
        };
        let before = before.map(|(service, nodes)| Before { service, nodes: again(nodes), retry: None });
        Self { service, state: State::Unsettled { before }, ..self }
    }

    /// A deletion begins, or nothing is there to update: what serves comes from an `ensure` only.
    pub(crate) fn unsettle(&mut self) {
        if self.state != State::Hearsay {
            self.state = State::Unsettled { before: None };
        }
    }

    pub(crate) fn update_begins(&mut self) {
        match &mut self.state {
            State::Serving(Serving { nodes, .. }) => *nodes = Backends::Unknown { failed: nodes.failed() },
            // Unless it succeeds, the `ensure` comes next.
            State::Unsettled { before: Some(before) } => before.nodes = Backends::Unknown { failed: 1 },
            State::Hearsay | State::Unsettled { before: None } | State::Elsewhere { .. } | State::Deleted => {}
        }
    }

    pub(crate) fn update_failed(&mut self) {
        if let State::Serving(Serving { nodes, .. }) = &mut self.state {
            *nodes = Backends::Unknown { failed: nodes.failed().saturating_add(1) };
        }
    }

    pub(crate) fn updated(&mut self, membership: u64) {
        match &mut self.state {
            State::Serving(Serving { nodes, .. }) => *nodes = Backends::Known(membership),
            State::Unsettled { before: Some(before) } => {
                before.nodes = Backends::Known(membership);
                // The nodes may be why the `ensure` was refused.
                before.retry = before.retry.filter(|(_, until_change)| !until_change);
            }
            State::Hearsay | State::Unsettled { before: None } | State::Elsewhere { .. } | State::Deleted => {}
        }
    }

    /// The provider's answer is in the object, which has this version.
    pub(crate) fn status_written(&mut self, version: Option<u64>) {
        if let State::Serving(serving) = &mut self.state {
            serving.written = Written::At(version);
        }
    }

    /// The next step is `ensure`. False where that is the next step anyway, or another controller
    /// does the work.
    pub(crate) fn make_overdue(&mut self) -> bool {
        let State::Serving(serving) = &mut self.state else { return false };
        !std::mem::replace(&mut serving.overdue, true)
    }

    /// A call failed and is tried again then, or when its nodes are others.
    pub(crate) fn failed(&mut self, at: Instant, until_change: bool) {
        if let State::Unsettled { before: Some(before) } = &mut self.state {
            before.retry = Some((at, until_change));
        }
    }

    /// How long the plan has to wait.
    pub(crate) fn waits(&self, now: Instant) -> Waits {
        let retry = match &self.state {
            State::Unsettled { before: Some(Before { retry: Some((at, _)), .. }) } => Some(*at),
            _ => None,
        };
        Waits { repair: self.repairs.wait(now), retry: retry.map(|at| at.saturating_duration_since(now)) }
    }

    /// Whether somebody emptied the status that was written to the object. Told by the object's
    /// version: a watch that lagged, or a list after it broke, shows the loss and may never have
    /// shown what was lost.
    pub(crate) fn lost_status(&self, object: &core::Service) -> bool {
        let State::Serving(Serving { status: expected, written: Written::At(written), .. }) = &self.state else {
            return false;
        };
        let newer = written.zip(version(object)).is_some_and(|(written, now)| now > written);
        newer && !expected.ingress.is_empty() && status(object).ingress.is_empty()
    }
}

impl Backends {
    pub(crate) const fn failed(self) -> u32 {
        match self {
            Self::Known(_) => 0,
            Self::Unknown { failed } => failed,
        }
    }
}

#[derive(Default)]
struct Inner {
    entries: HashMap<ObjectKey, Entry>,
    by_provider: HashMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Inner {
    fn put(&mut self, key: &ObjectKey, entry: Entry) {
        self.by_provider.entry(Arc::clone(&entry.provider)).or_default().insert(key.clone());
        self.entries.insert(key.clone(), entry);
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if let Some(keys) = self.by_provider.get_mut(&entry.provider) {
            keys.remove(key);
        }
        Some(entry)
    }
}

/// Which provider holds which Service's load balancer. Cloning shares it; the managers that follow
/// each other in one process share one.
#[derive(Clone, Default)]
pub struct Ledger {
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("services", &self.lock().entries.len()).finish_non_exhaustive()
    }
}

impl Ledger {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Entry> {
        self.lock().entries.get(key).cloned()
    }

    /// Reads or changes what is known of this Service; none where nothing is.
    pub(crate) fn with<T>(&self, key: &ObjectKey, read: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.lock().entries.get_mut(key).map(read)
    }

    /// The Services that this provider holds, as they were handed over last.
    pub(crate) fn services_of(&self, provider: &str) -> Vec<(ObjectKey, Arc<Service>)> {
        let inner = self.lock();
        let keys = inner.by_provider.get(provider).into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), Arc::clone(&inner.entries.get(key)?.service)))).collect()
    }

    /// The Services that this provider holds.
    pub(crate) fn held_by(&self, provider: &str) -> Vec<ObjectKey> {
        self.lock().by_provider.get(provider).into_iter().flatten().cloned().collect()
    }

    /// Whether something serves on while its failed `ensure` waits for the next try.
    pub(crate) fn waits(&self, key: &ObjectKey) -> bool {
        self.lock().entries.get(key).is_some_and(|entry| {
            matches!(&entry.state, State::Unsettled { before: Some(Before { retry: Some(_), .. }) })
        })
    }

    /// An `ensure` begins: from here on the provider may hold something.
    pub(crate) fn begin(&self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let mut inner = self.lock();
        let same = |entry: &Entry| *entry.provider == *provider && entry.service.uid == service.uid;
        let former = inner.take(key).filter(same);
        let new = || Entry::new(provider, Arc::clone(&service), State::Unsettled { before: None });
        let entry = former.unwrap_or_else(new).ensured(service);
        inner.put(key, entry);
    }

    /// The object says that this provider made its load balancer. What is known already counts
    /// more.
    pub(crate) fn hear(&self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let mut inner = self.lock();
        if !inner.entries.contains_key(key) {
            inner.put(key, Entry::new(provider, service, State::Hearsay));
        }
    }

    /// Nothing of this Service is left in the cloud; what is missing is our writes to the object.
    pub(crate) fn deleted(&self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let mut inner = self.lock();
        inner.take(key);
        inner.put(key, Entry::new(provider, service, State::Deleted));
    }

    /// A lane for the provider of this name begins: the name may stand for another provider now,
    /// and its releases are counted from the start.
    pub(crate) fn unsettle_all(&self, provider: &str) {
        let mut inner = self.lock();
        let of_it = inner.entries.values_mut().filter(|entry| *entry.provider == *provider);
        of_it.for_each(Entry::unsettle);
    }

    /// Nothing is left in the cloud, or nobody is left who could delete it.
    pub(crate) fn remove(&self, key: &ObjectKey) -> Option<Entry> {
        self.lock().take(key)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1 as core;

    use super::Ledger;
    use crate::{service_spec::convert, watch::ObjectKey};

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn begin(ledger: &Ledger, name: &str, provider: &str) {
        let mut object = core::Service::default();
        object.metadata.name = Some(name.to_owned());
        ledger.begin(&key(name), provider, Arc::new(convert(&object).service));
    }

    /// Upstream's service cache: add, delete, set and get, list of the keys, get by key, list of
    /// the Services.
    #[test]
    fn s13_what_is_remembered_is_found_by_key_and_by_provider_until_it_is_removed() {
        let ledger = Ledger::default();
        assert!(ledger.get(&key("a")).is_none());
        assert!(ledger.remove(&key("a")).is_none());
        begin(&ledger, "a", "one");
        begin(&ledger, "b", "one");
        assert_eq!(ledger.held_by("one"), [key("a"), key("b")]);
        let names = ["a", "b"].map(|name| ledger.get(&key(name)).unwrap().service.name.clone());
        assert_eq!(names, ["a", "b"]);
        begin(&ledger, "a", "two");
        assert_eq!((ledger.held_by("one"), ledger.held_by("two")), (vec![key("b")], vec![key("a")]));
        assert_eq!(&*ledger.remove(&key("a")).unwrap().provider, "two");
        assert!(ledger.get(&key("a")).is_none());
        assert_eq!(ledger.held_by("two"), []);
    }
}
