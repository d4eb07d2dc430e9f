//! What each Service's load balancer was last brought to.
//!
//! It outlives a provider: where one is removed or claims change, it says whose load balancer has
//! to go. After a start of the process it is rebuilt from what the Services say themselves
//! ([`crate::names::LOAD_BALANCER_PROVIDER_ANNOTATION`]) and by one `ensure` per Service; that no
//! load balancer is forgotten is the finalizer's task.
//!
//! # What a Service says is hearsay
//! Whoever may write a Service may write any provider's name into it. So a name that nothing else bears out has the provider asked what it has
//! (`get`); where that is nothing, the Service goes on as if nothing had been said. The provider is told to delete what is this Service's in any case: what
//! it did not see may be there.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};
use tokio::time::Instant;

use super::validate::status;
use crate::{backoff::Repairs, watch::ObjectKey};

/// The version of an object as a number, which is what an API server of Kubernetes gives; none where it is something else.
pub(crate) fn version(object: &core::Service) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

/// One Service that was handed to a provider.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the provider that holds it; one manager's indices mean nothing to the next.
    pub(crate) provider: Arc<str>,
    /// As it was handed over last, with success or not.
    pub(crate) service: Arc<Service>,
    /// What the last successful calls brought it to; none before, and after a failed `ensure`.
    pub(crate) settled: Option<Settled>,
    /// After a failed `ensure`: the Service of the last one that succeeded, and what it was brought to.
    pub(crate) before: Option<(Arc<Service>, Settled)>,
    /// Version of the object that had it, as far as it is known.
    pub(crate) written_at: Option<u64>,
    /// When the failed `ensure` is tried again, and whether a change of its nodes is a reason to do it sooner.
    pub(crate) retry_at: Option<(Instant, bool)>,
    /// It is ensured again although nothing is known to have changed: its turn of drift repair came, and what it was brought to says nothing about how it is.
    pub(crate) overdue: bool,
    /// The rate of our writes to the object that somebody else may undo.
    pub(crate) repairs: Repairs,
    /// Its load balancer was deleted, and only our writes to the object are missing.
    pub(crate) deleted: bool,
}

impl Entry {
    /// One that has just been handed over.
    pub(crate) fn new(provider: Arc<str>, service: Arc<Service>) -> Self {
        Self {
            provider,
            service,
            settled: None,
            before: None,
            written_at: None,
            retry_at: None,
            overdue: false,
            repairs: Repairs::default(),
            deleted: false,
        }
    }

    /// Whether something that was ensured serves on while the `ensure` of what is wanted now fails.
    pub(crate) const fn serves_as_before(&self) -> bool {
        self.settled.is_none() && self.before.is_some()
    }

    /// Whether the object does not have what was written to it before it became what it is. Told by its version: a watch that lagged, or a list after it broke,
    /// shows the loss and may never have shown what was lost.
    pub(crate) fn is_lacking(&self, object: &core::Service) -> bool {
        let expected =
            self.settled.as_ref().filter(|settled| settled.written).and_then(|settled| settled.status.as_ref());
        let newer = self.written_at.zip(version(object)).is_some_and(|(written, now)| now > written);
        newer && expected.is_some_and(|status| !status.ingress.is_empty()) && status(object).ingress.is_empty()
    }
}

/// The result of a successful `ensure` and the updates since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Membership of the node set; none while an `update` is under way, and after one that failed: what it did nobody knows.
    pub(crate) membership: Option<u64>,
    /// `update` calls that failed since the last call that succeeded.
    pub(crate) failed_updates: u32,
    /// Of the provider when the call began.
    pub(crate) generation: u64,
    /// What the provider answered; none where another controller does the work.
    pub(crate) status: Option<LoadBalancerStatus>,
    /// Whether that answer reached the object.
    pub(crate) written: bool,
}

impl Settled {
    /// A membership that no node set has.
    const UNKNOWN: u64 = u64::MAX;
}

#[derive(Default)]
struct Inner {
    entries: HashMap<ObjectKey, Entry>,
    /// Those of the entries that rest on what an object says.
    hearsay: HashSet<ObjectKey>,
    by_provider: HashMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Inner {
    fn put(&mut self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let provider: Arc<str> = provider.into();
        self.by_provider.entry(Arc::clone(&provider)).or_default().insert(key.clone());
        self.entries.insert(key.clone(), Entry::new(provider, service));
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.hearsay.remove(key);
        if let Some(keys) = self.by_provider.get_mut(&entry.provider) {
            keys.remove(key);
        }
        Some(entry)
    }
}

/// Which provider holds which Service's load balancer. Cloning shares it; the managers that follow each other in one process share one.
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

    /// The next step is `ensure`, though a call in flight may settle it meanwhile. False where that is the next step anyway, or another controller
    /// does the work.
    pub(crate) fn make_overdue(&self, key: &ObjectKey) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.entries.get_mut(key).filter(|entry| !entry.overdue) else { return false };
        // Only what is ours to do.
        entry.overdue = entry.settled.as_ref().is_some_and(|settled| settled.status.is_some());
        entry.overdue
    }

    /// Whether only its turn of drift repair asks for the next `ensure`.
    pub(crate) fn is_overdue(&self, key: &ObjectKey) -> bool {
        self.lock().entries.get(key).is_some_and(|entry| entry.overdue)
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

    /// An `ensure` begins: from here on the provider may hold something.
    pub(crate) fn begin(&self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let mut inner = self.lock();
        let same = |entry: &Entry| *entry.provider == *provider && entry.service.uid == service.uid;
        let former = inner.take(key).filter(same);
        let repairs = former.as_ref().map_or_else(Repairs::default, |entry| entry.repairs);
        let before = former.and_then(|entry| match entry.settled {
            Some(settled) => Some((entry.service, settled)),
            None => entry.before,
        });
        // Its turn to be updated comes again, also where the last `update` failed.
        let before = before.map(|(service, settled)| {
            let membership = settled.membership.or(Some(Settled::UNKNOWN));
            (service, Settled { membership, ..settled })
        });
        inner.put(key, provider, service);
        if let Some(entry) = inner.entries.get_mut(key) {
            (entry.before, entry.repairs) = (before, repairs);
        }
    }

    /// A repair begins; see [`Repairs::begin`].
    pub(crate) fn repair(&self, key: &ObjectKey) -> bool {
        self.lock().entries.get_mut(key).is_some_and(|entry| entry.repairs.begin(Instant::now()))
    }

    /// Nothing of this Service is left in the cloud; what is missing is our writes to the object.
    pub(crate) fn deleted(&self, key: &ObjectKey, provider: &str, service: &Arc<Service>) {
        let mut inner = self.lock();
        inner.take(key);
        inner.put(key, provider, Arc::clone(service));
        if let Some(entry) = inner.entries.get_mut(key) {
            entry.deleted = true;
        }
    }

    /// The object says that this provider made its load balancer. What is known already counts more.
    pub(crate) fn hear(&self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let mut inner = self.lock();
        if !inner.entries.contains_key(key) {
            inner.put(key, provider, service);
            inner.hearsay.insert(key.clone());
        }
    }

    /// Whether only the object says who holds its load balancer.
    pub(crate) fn is_hearsay(&self, key: &ObjectKey) -> bool {
        self.lock().hearsay.contains(key)
    }

    /// See [`Entry::serves_as_before`].
    pub(crate) fn serves_as_before(&self, key: &ObjectKey) -> bool {
        self.lock().entries.get(key).is_some_and(Entry::serves_as_before)
    }

    /// The provider bore out what the object says.
    pub(crate) fn borne_out(&self, key: &ObjectKey) {
        self.lock().hearsay.remove(key);
    }

    /// A lane for the provider of this name begins: the name may stand for another provider now,
    /// and its releases are counted from the start.
    pub(crate) fn unsettle_all(&self, provider: &str) {
        let mut inner = self.lock();
        let of_it = inner.entries.values_mut().filter(|entry| *entry.provider == *provider);
        of_it.for_each(|entry| {
            (entry.settled, entry.before, entry.overdue, entry.deleted) = (None, None, false, false);
        });
    }

    /// A call succeeded.
    pub(crate) fn settle(&self, key: &ObjectKey, settled: Settled) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            (entry.settled, entry.before) = (Some(settled), None);
        }
    }

    /// An `update` begins (none), or has succeeded: of what was settled, or of what was before an `ensure` failed, only the nodes are others.
    pub(crate) fn updated(&self, key: &ObjectKey, membership: Option<u64>) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            let before = entry.before.as_mut().map(|(_, settled)| settled);
            if let Some(settled) = entry.settled.as_mut().or(before) {
                settled.membership = membership;
                if membership.is_some() {
                    settled.failed_updates = 0;
                }
            }
        }
    }

    /// The `update` that began has failed.
    pub(crate) fn update_failed(&self, key: &ObjectKey) {
        if let Some(settled) = self.lock().entries.get_mut(key).and_then(|entry| entry.settled.as_mut()) {
            settled.failed_updates = settled.failed_updates.saturating_add(1);
        }
    }

    /// The provider's last answer reached the object, which had this version then.
    pub(crate) fn written(&self, key: &ObjectKey, version: Option<u64>) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.written_at = version;
            if let Some(settled) = &mut entry.settled {
                settled.written = true;
            }
        }
    }

    /// Takes note where the object does not have what was written to it; says whether.
    pub(crate) fn notice_loss(&self, key: &ObjectKey, object: &core::Service) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.entries.get_mut(key).filter(|entry| entry.is_lacking(object)) else { return false };
        if let Some(settled) = &mut entry.settled {
            settled.written = false;
        }
        true
    }

    /// An `ensure` failed and is tried again then, or when its nodes are others.
    pub(crate) fn retries_at(&self, key: &ObjectKey, at: Instant, until_change: bool) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.retry_at = Some((at, until_change));
        }
    }

    /// How long a failed `ensure` of something that serves waits for its next try, zero where that is due or its nodes were the
    /// reason; none where nothing of the kind waits.
    pub(crate) fn waits(&self, key: &ObjectKey) -> Option<Duration> {
        let inner = self.lock();
        let entry = inner.entries.get(key).filter(|entry| entry.serves_as_before())?;
        let (at, until_change) = entry.retry_at?;
        Some(if until_change { Duration::ZERO } else { at.saturating_duration_since(Instant::now()) })
    }

    /// There is nothing to update, or it is being deleted: the next step towards what serves is `ensure`.
    pub(crate) fn unsettle(&self, key: &ObjectKey) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            (entry.settled, entry.before) = (None, None);
        }
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
    use crate::{service::validate::convert, watch::ObjectKey};

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn begin(ledger: &Ledger, name: &str, provider: &str) {
        let mut object = core::Service::default();
        object.metadata.name = Some(name.to_owned());
        ledger.begin(&key(name), provider, Arc::new(convert(&object).service));
    }

    /// Upstream's service cache: add, delete, set and get, list of the keys, get by key, list of the Services.
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
