//! What each Service's load balancer was last brought to.
//!
//! This memory only saves work: it is rebuilt by one `ensure` per Service after a start, and nothing that keeps a load balancer from leaking depends on
//! it (that is the finalizer's task).

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skysail_provider::{LoadBalancerStatus, Service};

use crate::watch::ObjectKey;

/// One Service that was handed to a provider.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Who holds it.
    pub(crate) provider: usize,
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
    by_provider: HashMap<usize, BTreeSet<ObjectKey>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
}

impl Ledger {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Entry> {
        self.lock().entries.get(key).cloned()
    }

    /// The Services that this provider holds.
    pub(crate) fn held_by(&self, provider: usize) -> Vec<ObjectKey> {
        self.lock().by_provider.get(&provider).into_iter().flatten().cloned().collect()
    }

    /// An `ensure` begins: from here on the provider may hold something.
    pub(crate) fn begin(&self, key: &ObjectKey, provider: usize, service: Arc<Service>) {
        let mut inner = self.lock();
        inner.entries.insert(key.clone(), Entry { provider, service, settled: None });
        inner.by_provider.entry(provider).or_default().insert(key.clone());
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

    /// The provider says that there is nothing to update: the next step is `ensure`.
    pub(crate) fn unsettle(&self, key: &ObjectKey) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.settled = None;
        }
    }

    /// Nothing is left in the cloud.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.remove(key)
            && let Some(keys) = inner.by_provider.get_mut(&entry.provider)
        {
            keys.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
