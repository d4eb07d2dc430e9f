//! What each Service's load balancer was last brought to.
//!
//! It outlives a [`crate::Manager`]: where the providers' claims change, the next manager knows from it whose load balancer has to go. After a start
//! of the process it is rebuilt from what the Services say themselves ([`crate::names::LOAD_BALANCER_PROVIDER_ANNOTATION`]) and by one `ensure` per
//! Service; that no load balancer is forgotten is the finalizer's task.
//!
//! # What a Service says is hearsay
//! Whoever may write a Service may write any provider's name into it. So a name that nothing else bears out has the provider asked what it has
//! (`get`); where that is nothing, the Service goes on as if nothing had been said. The provider is told to delete what is this Service's in any case: what
//! it did not see may be there.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skysail_provider::{LoadBalancerStatus, Service};

use crate::watch::ObjectKey;

/// One Service that was handed to a provider.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the provider that holds it; one manager's indices mean nothing to the next.
    pub(crate) provider: Arc<str>,
    /// As it was handed over last, with success or not.
    pub(crate) service: Arc<Service>,
    /// What the last successful calls brought it to; none before, and after a failed `ensure`.
    pub(crate) settled: Option<Settled>,
}

/// The result of a successful `ensure` and the updates since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Membership of the node set.
    pub(crate) membership: u64,
    /// Of the provider when the call began.
    pub(crate) generation: u64,
    /// What the provider answered; none where another controller does the work.
    pub(crate) status: Option<LoadBalancerStatus>,
    /// Whether that answer reached the object.
    pub(crate) written: bool,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<ObjectKey, Entry>,
    /// Those of the entries that rest on what an object says.
    hearsay: HashSet<ObjectKey>,
    /// Those that are ensured again although nothing is known to have changed.
    overdue: HashSet<ObjectKey>,
    by_provider: HashMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Inner {
    fn put(&mut self, key: &ObjectKey, provider: &str, service: Arc<Service>) {
        let provider: Arc<str> = provider.into();
        self.by_provider.entry(Arc::clone(&provider)).or_default().insert(key.clone());
        self.entries.insert(key.clone(), Entry { provider, service, settled: None });
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.hearsay.remove(key);
        self.overdue.remove(key);
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
    /// One whose turn of drift repair came reads as not settled: what it was brought to says nothing about how it is.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Entry> {
        let inner = self.lock();
        let entry = inner.entries.get(key).cloned()?;
        let settled = entry.settled.filter(|_| !inner.overdue.contains(key));
        Some(Entry { settled, ..entry })
    }

    /// The next step is `ensure`, though a call in flight may settle it meanwhile. False where that is the next step anyway, or another controller
    /// does the work.
    pub(crate) fn make_overdue(&self, key: &ObjectKey) -> bool {
        let mut inner = self.lock();
        let settled = inner.entries.get(key).and_then(|entry| entry.settled.as_ref());
        let ours = settled.is_some_and(|settled| settled.status.is_some());
        ours && inner.overdue.insert(key.clone())
    }

    /// Whether only its turn of drift repair asks for the next `ensure`.
    pub(crate) fn is_overdue(&self, key: &ObjectKey) -> bool {
        self.lock().overdue.contains(key)
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
        inner.take(key);
        inner.put(key, provider, service);
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

    /// The provider bore out what the object says.
    pub(crate) fn borne_out(&self, key: &ObjectKey) {
        self.lock().hearsay.remove(key);
    }

    /// Another manager begins: a name may stand for another provider now, and its releases are counted anew.
    pub(crate) fn unsettle_all(&self) {
        let mut inner = self.lock();
        inner.entries.values_mut().for_each(|entry| entry.settled = None);
        inner.overdue.clear();
    }

    /// A call succeeded.
    pub(crate) fn settle(&self, key: &ObjectKey, settled: Settled) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.settled = Some(settled);
        }
    }

    /// The provider's last answer reached the object.
    pub(crate) fn written(&self, key: &ObjectKey) {
        if let Some(settled) = self.lock().entries.get_mut(key).and_then(|entry| entry.settled.as_mut()) {
            settled.written = true;
        }
    }

    /// The object has lost it.
    pub(crate) fn unwritten(&self, key: &ObjectKey) {
        if let Some(settled) = self.lock().entries.get_mut(key).and_then(|entry| entry.settled.as_mut()) {
            settled.written = false;
        }
    }

    /// The provider says that there is nothing to update: the next step is `ensure`.
    pub(crate) fn unsettle(&self, key: &ObjectKey) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.settled = None;
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
