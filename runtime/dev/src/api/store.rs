//! The revisioned object store and its change log, in place of etcd.
//!
//! Every write gets the next revision and one log entry, so a watch is a cursor into the log, and
//! an old list is the present state with later entries undone. The log is bounded: older entries
//! are compacted, and a request for them is `410 Gone`. No Kubernetes semantics here beyond
//! `metadata.resourceVersion`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::object::{Object, with_resource_version};

/// The key of an object. `storage` is the resource that it is stored as; cluster-scoped objects
/// have no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) storage: Arc<str>,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    /// The object before, absent for a creation.
    pub(crate) old: Option<Object>,
    /// The object after, absent for a deletion.
    pub(crate) new: Option<Object>,
}

/// The requested revision is older than the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compacted;

/// All objects and the change log.
#[derive(Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Object>,
    log: VecDeque<Change>,
    revision: u64,
    compacted: u64,
    history_max: usize,
}

impl Store {
    /// An empty store that keeps at most `history_max` changes.
    pub(crate) fn new(history_max: usize) -> Self {
        Self { objects: BTreeMap::new(), log: VecDeque::new(), revision: 1, compacted: 0, history_max }
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision up to which the history is compacted.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// Writes `object`, which gets the new revision as its resourceVersion.
    pub(crate) fn put(&mut self, key: Key, object: Value) -> Object {
        self.revision += 1;
        let new: Object = Arc::new(with_resource_version(object, self.revision));
        let old = self.objects.insert(key.clone(), new.clone());
        self.append(Change { revision: self.revision, key, old, new: Some(new.clone()) });
        new
    }

    /// Changes an object that is about to be removed, without a new revision.
    pub(crate) fn replace_silently(&mut self, key: &Key, object: Value) {
        if let Some(stored) = self.objects.get_mut(key) {
            *stored = Arc::new(object);
        }
    }

    /// Removes an object; its last state is returned with the revision of the removal.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let old = self.objects.remove(key)?;
        self.revision += 1;
        let last = Arc::new(with_resource_version((*old).clone(), self.revision));
        self.append(Change { revision: self.revision, key: key.clone(), old: Some(last.clone()), new: None });
        Some(last)
    }

    /// The present objects of one storage, in key order, of one namespace or of all.
    pub(crate) fn list(&self, storage: &Arc<str>, namespace: Option<&str>) -> impl Iterator<Item = (&Key, &Object)> {
        let start =
            Key { storage: storage.clone(), namespace: namespace.unwrap_or_default().to_owned(), name: String::new() };
        let (storage, namespace) = (storage.clone(), namespace.map(str::to_owned));
        self.objects
            .range(start..)
            .take_while(move |(k, _)| k.storage == storage && namespace.as_deref().is_none_or(|n| n == k.namespace))
    }

    /// The objects as they were at `revision`, in key order.
    ///
    /// # Errors
    /// [`Compacted`] where that revision is older than the log.
    pub(crate) fn list_at(
        &self,
        storage: &Arc<str>,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<(Key, Object)>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted);
        }
        let mut then: BTreeMap<Key, Object> =
            self.list(storage, namespace).map(|(k, o)| (k.clone(), o.clone())).collect();
        for change in self.log.iter().rev().take_while(|c| c.revision > revision) {
            if change.key.storage != *storage || namespace.is_some_and(|n| n != change.key.namespace) {
                continue;
            }
            match &change.old {
                Some(old) => then.insert(change.key.clone(), old.clone()),
                None => then.remove(&change.key),
            };
        }
        Ok(then.into_iter().collect())
    }

    /// The changes after `revision`, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] where some of them are no longer in the log.
    pub(crate) fn changes_after(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted);
        }
        // Revisions in the log are contiguous, so the position is arithmetic, not a search.
        let skip = usize::try_from(revision - self.compacted).unwrap_or(usize::MAX);
        Ok(self.log.iter().skip(skip.saturating_sub(self.first_offset())))
    }

    /// Compacts the whole log: every revision before the present one.
    pub(crate) fn compact(&mut self) {
        self.log.clear();
        self.compacted = self.revision;
    }

    /// Revision 1 is the empty store and has no entry, so a log that starts there is one entry
    /// short.
    fn first_offset(&self) -> usize {
        usize::from(self.compacted == 0)
    }

    fn append(&mut self, change: Change) {
        self.log.push_back(change);
        if self.log.len() > self.history_max
            && let Some(gone) = self.log.pop_front()
        {
            self.compacted = gone.revision;
        }
    }
}
