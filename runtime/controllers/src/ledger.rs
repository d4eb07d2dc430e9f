//! The last known state of each Service's load balancer.
//!
//! The ledger outlives a provider: if a provider is removed or claims change, it names the provider
//! whose load balancer has to be deleted. After a start it is rebuilt from the Services'
//! annotations ([`crate::names::LOAD_BALANCER_PROVIDER_ANNOTATION`]) and by one `ensure` for each
//! Service. The finalizer, not the ledger, guarantees that no load balancer is leaked.
//!
//! # Annotations are not trusted
//! Anyone with write access to a Service can write any provider's name into it. So the controller
//! first asks the named provider for the load balancer (`get`); if it has none, the Service is
//! treated as if it named no provider. That provider gets an `ensure-deleted` for this Service in
//! any case, because `get` may miss a load balancer.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{LoadBalancerStatus, Service};
use tokio::time::Instant;

use crate::{
    backoff::Repairs,
    ownership::LaneId,
    service_spec::{deletion_policy, is_whole, status},
    watch::ObjectKey,
};

/// The resource version as a number, which Kubernetes' API server uses; none if it is not a number.
pub(crate) fn version(object: &core::Service) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

/// What a load balancer was made with beside its Service and nodes: the lane, and the number of
/// releases and edits of the lane at that time. A provider that is removed and added again under
/// its name is another lane, so that a late answer of the former one counts for nothing.
pub(crate) type Generation = (LaneId, u64);

/// One Service that was passed to a provider.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the provider that made the load balancer; a name, because lane IDs change with each
    /// manager.
    pub(crate) provider: Arc<str>,
    /// The Service as it was last passed to the provider, with success or not. Its UID is the one
    /// by which the provider finds the load balancer.
    pub(crate) service: Arc<Service>,
    /// UID of the object: another one if the Service has adopted a retained load balancer.
    pub(crate) object_uid: String,
    /// The annotation with the deletion policy, as it was last seen.
    pub(crate) deletion_policy: Option<String>,
    /// Whether users may know an address of the load balancer: the status of the object showed one,
    /// or the provider has had one. The API server empties the status when the type changes.
    pub(crate) was_shown: bool,
    pub(crate) state: State,
    /// The rate limit of our writes to the object, which another controller may undo.
    pub(crate) repairs: Repairs,
    /// Resource version of the object after our last write.
    pub(crate) wrote: Option<u64>,
}

/// The state of the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Only the object's annotation names the provider.
    Unconfirmed,
    /// An `ensure` or a deletion began and has not succeeded: the state in the cloud is unknown.
    Unsettled {
        /// The load balancer before the `ensure`, which serves on if the `ensure` fails.
        before: Option<Before>,
    },
    /// The last `ensure` succeeded.
    Serving(Serving),
    /// Another controller manages the load balancer, according to the provider's release of this
    /// generation.
    Elsewhere { generation: Generation },
    /// The load balancer is deleted; only our writes to the object are missing.
    Deleted,
}

/// How long due work has to wait, from the moment of the observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Until the next repair of our writes to the object.
    pub(crate) repair: Duration,
    /// Until a failed `ensure` is retried, if an earlier load balancer serves on; otherwise none.
    pub(crate) retry: Option<Duration>,
}

/// The load balancer of the last successful `ensure`, while a later `ensure` fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// The Service of that `ensure`.
    pub(crate) service: Arc<Service>,
    pub(crate) nodes: Backends,
    /// When the failed `ensure` is retried.
    pub(crate) retry: Option<NextTry>,
}

/// When a failed step is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextTry {
    pub(crate) at: Instant,
    /// Whether a change of the nodes triggers an earlier try.
    pub(crate) until_change: bool,
}

/// The result of a successful `ensure` and of the updates since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serving {
    pub(crate) nodes: Backends,
    /// Generation of the provider when the `ensure` began.
    pub(crate) generation: Generation,
    /// The provider's answer.
    pub(crate) status: LoadBalancerStatus,
    pub(crate) written: Written,
    /// A drift repair is due: the load balancer is ensured again although no change is known.
    pub(crate) overdue: bool,
}

/// The backends of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backends {
    /// The nodes of the node set with this membership.
    Known(u64),
    /// An `update` began; its effect is unknown until one succeeds.
    Unknown {
        /// Number of updates that failed since then.
        failed: u32,
    },
}

/// Whether the object has the provider's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    No,
    /// The object has it since this version, if known.
    At(Option<u64>),
}

impl Entry {
    /// An entry for a Service that is or will be passed to a provider.
    pub(crate) fn new(provider: &str, service: Arc<Service>, state: State) -> Self {
        let (object_uid, provider) = (service.uid.clone(), provider.into());
        let (deletion_policy, repairs) = (None, Repairs::default());
        Self { provider, service, object_uid, deletion_policy, was_shown: false, state, repairs, wrote: None }
    }

    /// The same for this object.
    #[must_use]
    pub(crate) fn of_object(self, object: &core::Service) -> Self {
        let object_uid = object.metadata.uid.clone().unwrap_or_default();
        let was_shown = !status(object).ingress.is_empty();
        Self { object_uid, was_shown, deletion_policy: deletion_policy(object).map(str::to_owned), ..self }
    }

    /// Follows the annotation with the deletion policy. The cache keeps no annotations of an object
    /// that is neither of type LoadBalancer nor has our finalizer.
    pub(crate) fn follow_policy(&mut self, object: &core::Service) {
        if object.metadata.uid.as_deref() == Some(&self.object_uid) && is_whole(object) {
            self.deletion_policy = deletion_policy(object).map(str::to_owned);
        }
    }

    /// Records that an `ensure` begins: the provider may have a load balancer from now on.
    pub(crate) fn ensured(self, service: Arc<Service>) -> Self {
        // A new `update` is allowed, also if the last one failed.
        let again = |nodes| match nodes {
            Backends::Known(membership) => Backends::Known(membership),
            Backends::Unknown { .. } => Backends::Unknown { failed: 0 },
        };
        let before = match self.state {
            State::Serving(Serving { nodes, .. }) => Some((self.service, nodes)),
            State::Unsettled { before } => before.map(|before| (before.service, before.nodes)),
            State::Unconfirmed | State::Elsewhere { .. } | State::Deleted => None,
        };
        let before = before.map(|(service, nodes)| Before { service, nodes: again(nodes), retry: None });
        Self { service, state: State::Unsettled { before }, ..self }
    }

    /// A deletion begins, or there is no load balancer to update: the next step for a wanted
    /// Service is `ensure`.
    pub(crate) fn unsettle(&mut self) {
        if self.state != State::Unconfirmed {
            self.state = State::Unsettled { before: None };
        }
    }

    pub(crate) fn update_begins(&mut self) {
        match &mut self.state {
            State::Serving(Serving { nodes, .. }) => *nodes = Backends::Unknown { failed: nodes.failed() },
            // If this update fails, `ensure` is next.
            State::Unsettled { before: Some(before) } => before.nodes = Backends::Unknown { failed: 1 },
            State::Unconfirmed | State::Unsettled { before: None } | State::Elsewhere { .. } | State::Deleted => {}
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
                // The previous nodes may be the reason why the `ensure` was refused.
                before.retry = before.retry.filter(|next| !next.until_change);
            }
            State::Unconfirmed | State::Unsettled { before: None } | State::Elsewhere { .. } | State::Deleted => {}
        }
    }

    /// Records that the object has the provider's answer since this version.
    pub(crate) fn status_written(&mut self, version: Option<u64>) {
        if let State::Serving(serving) = &mut self.state {
            serving.written = Written::At(version);
        }
    }

    /// Makes `ensure` the next step. Returns false if it is the next step anyway, or another
    /// controller manages the load balancer.
    pub(crate) fn make_overdue(&mut self) -> bool {
        let State::Serving(serving) = &mut self.state else { return false };
        !std::mem::replace(&mut serving.overdue, true)
    }

    /// Records when a failed call is retried.
    pub(crate) fn failed(&mut self, next: NextTry) {
        if let State::Unsettled { before: Some(before) } = &mut self.state {
            before.retry = Some(next);
        }
    }

    /// The waits from `now`.
    pub(crate) fn waits(&self, now: Instant) -> Waits {
        let retry = match &self.state {
            State::Unsettled { before: Some(Before { retry: Some(next), .. }) } => Some(next.at),
            _ => None,
        };
        Waits { repair: self.repairs.wait(now), retry: retry.map(|at| at.saturating_duration_since(now)) }
    }

    /// Whether another client emptied the status that we wrote. Compares resource versions: after a
    /// lag or a relist the watch may show the empty status without ever having shown the written
    /// one.
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
    /// The Services from which our finalizer was removed: another controller may add it again each
    /// time.
    released: HashMap<ObjectKey, Repairs>,
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
            // Annotations name providers, and anyone who may create Services writes annotations.
            if keys.is_empty() {
                self.by_provider.remove(&entry.provider);
            }
        }
        Some(entry)
    }
}

/// The provider and the state of each Service's load balancer. Cloning shares it; consecutive
/// managers in one process share one ledger.
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

    /// Reads or changes the entry of this Service; none without an entry.
    pub(crate) fn with<T>(&self, key: &ObjectKey, read: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.lock().entries.get_mut(key).map(read)
    }

    /// The Services of this provider, as they were last passed to it.
    pub(crate) fn services_of(&self, provider: &str) -> Vec<(ObjectKey, Arc<Service>)> {
        let inner = self.lock();
        let keys = inner.by_provider.get(provider).into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), Arc::clone(&inner.entries.get(key)?.service)))).collect()
    }

    /// The keys of this provider's Services.
    pub(crate) fn held_by(&self, provider: &str) -> Vec<ObjectKey> {
        self.lock().by_provider.get(provider).into_iter().flatten().cloned().collect()
    }

    /// Whether an earlier load balancer serves, with the nodes of an earlier node set, while a
    /// failed `ensure` waits for its retry. An `update` that failed since has a wait of its own.
    pub(crate) fn waits(&self, key: &ObjectKey) -> bool {
        self.lock().entries.get(key).is_some_and(|entry| {
            matches!(
                &entry.state,
                State::Unsettled { before: Some(Before { nodes: Backends::Known(_), retry: Some(_), .. }) }
            )
        })
    }

    /// Replaces the entry by the result of `change`, which gets the entry if it is this provider's.
    /// An entry of another provider stays, unless the result replaces it.
    pub(crate) fn change(&self, key: &ObjectKey, provider: &str, change: impl FnOnce(Option<Entry>) -> Option<Entry>) {
        let mut inner = self.lock();
        let (own, other) = match inner.take(key) {
            Some(entry) if *entry.provider == *provider => (Some(entry), None),
            other => (None, other),
        };
        if let Some(entry) = change(own).or(other) {
            inner.put(key, entry);
        }
    }

    /// Records an entry that only the object's annotation, or the record of an adoption, justifies.
    /// An existing entry takes precedence, unless it is such a one for the same object and
    /// provider: the records may be newer.
    pub(crate) fn record_named(&self, key: &ObjectKey, entry: Entry) {
        let mut inner = self.lock();
        let is_older = |known: &Entry| {
            known.state == State::Unconfirmed
                && known.object_uid == entry.object_uid
                && known.provider == entry.provider
                && known.service.uid != entry.service.uid
        };
        if inner.entries.get(key).is_none_or(is_older) {
            inner.put(key, entry);
        }
    }

    /// A lane for a provider with this name begins: the name may stand for another provider now,
    /// whose releases are counted from the start.
    pub(crate) fn unsettle_all(&self, provider: &str) {
        let mut inner = self.lock();
        let of_it = inner.entries.values_mut().filter(|entry| *entry.provider == *provider);
        of_it.for_each(Entry::unsettle);
    }

    /// Records that our finalizer was removed from an object that stays. Returns true for the
    /// removal that shows that another controller adds the finalizer each time.
    pub(crate) fn release(&self, key: &ObjectKey, now: Instant) -> bool {
        let mut inner = self.lock();
        inner.released.retain(|_, removals| !removals.are_forgotten(now));
        inner.released.entry(key.clone()).or_default().record(now)
    }

    /// How long the next removal of our finalizer has to wait; none if there was no removal lately.
    pub(crate) fn release_wait(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let removals = self.lock().released.get(key).copied().filter(|removals| !removals.are_forgotten(now))?;
        Some(removals.wait(now))
    }

    /// Removes the entry: the load balancer is deleted, or no provider is left that could delete
    /// it.
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

    use super::{Entry, Ledger, State};
    use crate::{service_spec::convert, watch::ObjectKey};

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn begin(ledger: &Ledger, name: &str, provider: &str) {
        let mut object = core::Service::default();
        object.metadata.name = Some(name.to_owned());
        let service = Arc::new(convert(&object).service);
        ledger.change(&key(name), provider, |_| Some(Entry::new(provider, service, State::Unconfirmed)));
    }

    #[test]
    fn a_name_of_a_provider_is_forgotten_with_its_last_service() {
        let ledger = Ledger::default();
        let service = Arc::new(convert(&core::Service::default()).service);
        for number in 0..1000 {
            let provider = format!("provider-{number}");
            ledger.record_named(&key("a"), Entry::new(&provider, Arc::clone(&service), State::Unconfirmed));
            ledger.change(&key("a"), &provider, |_| None);
        }
        assert!(ledger.lock().by_provider.is_empty());
    }

    #[test]
    fn a_change_of_one_provider_leaves_the_entry_of_another_one_unless_it_replaces_it() {
        let ledger = Ledger::default();
        begin(&ledger, "a", "one");
        ledger.change(&key("a"), "two", |own| own);
        assert_eq!(&*ledger.get(&key("a")).unwrap().provider, "one");
        begin(&ledger, "a", "two");
        assert_eq!((ledger.held_by("one"), ledger.held_by("two")), (vec![], vec![key("a")]));
        ledger.change(&key("a"), "two", |_| None);
        assert!(ledger.get(&key("a")).is_none());
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
