//! A cache of one watched kind, which reports each change with the previous and the new object.
//!
//! kube's reflector reports neither the previous object nor the objects that a relist removed;
//! upstream's predicates need both. So this module uses kube's `watcher` and keeps one map. It
//! decides nothing about objects.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::Hash,
    marker::PhantomData,
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
};

use futures::{Stream, StreamExt as _};
use kube::{Resource, ResourceExt as _, runtime::watcher};
use tokio::sync::watch;

use crate::error::chain;

/// `namespace/name`; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn of(object: &impl Resource) -> Self {
        Self { namespace: object.meta().namespace.clone().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// A change of one object: added (no `old`), changed, or deleted (no `new`).
#[derive(Debug)]
pub(crate) struct Change<K, T = Arc<K>> {
    pub(crate) key: ObjectKey,
    pub(crate) old: Option<T>,
    pub(crate) new: Option<Arc<K>>,
}

/// UID and resource version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The stored form of an object: the object, or only its version if another module stores the rest.
pub(crate) trait Cached<K>: Clone {
    fn of(object: &Arc<K>) -> Self;
    fn version(&self) -> Version;
}

impl<K: Resource> Cached<K> for Arc<K> {
    fn of(object: &Self) -> Self {
        Self::clone(object)
    }

    fn version(&self) -> Version {
        let meta = self.meta();
        Version { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
    }
}

impl<K: Resource> Cached<K> for Version {
    fn of(object: &Arc<K>) -> Self {
        object.version()
    }

    fn version(&self) -> Version {
        self.clone()
    }
}

/// The objects of one kind as last reported by the API server.
pub(crate) struct Cache<K, T = Arc<K>> {
    objects: RwLock<HashMap<ObjectKey, T>>,
    synced: watch::Sender<bool>,
    kind: PhantomData<fn(K)>,
}

impl<K: Resource> Cache<K> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// All objects, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl<K: Resource, T: Cached<K>> Cache<K, T> {
    pub(crate) fn new() -> Self {
        Self { objects: RwLock::default(), synced: watch::Sender::new(false), kind: PhantomData }
    }

    /// Becomes true when the first list is complete.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    fn put(&self, object: Arc<K>) -> Change<K, T> {
        let key = ObjectKey::of(&*object);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let old = objects.insert(key.clone(), T::of(&object));
        Change { key, old, new: Some(object) }
    }

    fn remove(&self, key: ObjectKey) -> Change<K, T> {
        let old = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        Change { key, old, new: None }
    }

    fn without(&self, seen: &HashSet<ObjectKey>) -> Vec<ObjectKey> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.keys().filter(|key| !seen.contains(key)).cloned().collect()
    }

    /// Follows the watch for ever: updates the map and reports every change, in order. The watch
    /// retries failures with backoff.
    pub(crate) async fn follow(
        &self,
        events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
        mut changed: impl FnMut(Change<K, T>),
    ) where
        K::DynamicType: Default + Eq + Hash + Clone,
    {
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        let mut events = pin!(events);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object)) => changed(self.put(Arc::new(object))),
                Ok(watcher::Event::Delete(object)) => changed(self.remove(ObjectKey::of(&object))),
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    let change = self.put(Arc::new(object));
                    listed.insert(change.key.clone());
                    // A relist repeats known objects: only a different version is a change.
                    if !is_same_version(&change) {
                        changed(change);
                    }
                }
                Ok(watcher::Event::InitDone) => {
                    for key in self.without(&listed) {
                        changed(self.remove(key));
                    }
                    listed = HashSet::new();
                    self.synced.send_replace(true);
                }
                Err(error) => {
                    tracing::warn!(object.kind = kind, error = chain(&error), "watch failed; it is restarted");
                }
            }
        }
    }
}

fn is_same_version<K: Resource, T: Cached<K>>(change: &Change<K, T>) -> bool {
    change.old.as_ref().map(T::version) == change.new.as_ref().map(Cached::<K>::version)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;

    use super::Cache;

    fn node(name: &str, version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        node
    }

    #[tokio::test]
    async fn a_relist_reports_only_changed_and_deleted_objects() {
        let events = vec![
            Event::Init,
            Event::InitApply(node("a", "1")),
            Event::InitApply(node("b", "1")),
            Event::InitDone,
            Event::Apply(node("a", "2")),
            Event::Init,
            Event::InitApply(node("a", "2")),
            Event::InitApply(node("c", "3")),
            Event::InitDone,
        ];
        let cache = Cache::<Node>::new();
        let mut lines = Vec::new();
        cache
            .follow(stream::iter(events.into_iter().map(Ok)), |change| {
                let version = |n: Option<std::sync::Arc<Node>>| n.and_then(|n| n.metadata.resource_version.clone());
                lines.push(format!("{} {:?} -> {:?}", change.key, version(change.old), version(change.new)));
            })
            .await;
        let expected = [
            r#"a None -> Some("1")"#,
            r#"b None -> Some("1")"#,
            r#"a Some("1") -> Some("2")"#,
            r#"c None -> Some("3")"#,
            r#"b Some("1") -> None"#,
        ];
        assert_eq!(lines, expected);
        assert!(*cache.synced().borrow());
    }
}
