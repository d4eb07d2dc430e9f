//! The state of the server, behind one lock: objects, served kinds, allocations, the source of
//! uids.
//!
//! Every handler is a synchronous function over [`State`], so a request is atomic and, under a
//! paused clock, a run is repeatable. Waiting (watches, latency) happens outside.

use std::sync::Arc;

use serde_json::{Value, json};

use super::allocator::Allocator;
use super::clock::Clock;
use super::errors::ApiError;
use super::kinds::{self, Kind};
use super::object::{self, Object};
use super::random::Random;
use super::request::{Params, Target};
use super::store::{Key, Store};
use super::{ApiOptions, custom, events};

/// The mutable state of the server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) allocator: Allocator,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    pub(crate) taint_new_nodes: bool,
    pub(crate) validate: bool,
}

/// One request to one resource.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Arc<Kind>,
    pub(crate) target: Target,
    pub(crate) params: Params,
    /// The field manager: `fieldManager`, else the first part of the user agent.
    pub(crate) manager: String,
}

impl Call {
    /// The key of the named object.
    pub(crate) fn key(&self) -> Key {
        self.key_of(&self.target.name)
    }

    /// The key of another name in the same namespace.
    pub(crate) fn key_of(&self, name: &str) -> Key {
        Key { storage: self.kind.storage.clone(), namespace: self.target.namespace.clone(), name: name.to_owned() }
    }

    /// The namespace that a list is limited to.
    pub(crate) fn scope(&self) -> Option<&str> {
        Some(self.target.namespace.as_str()).filter(|n| !n.is_empty())
    }
}

impl State {
    /// A cluster with the namespaces that every cluster has.
    pub(crate) fn new(options: &ApiOptions, clock: Clock) -> Self {
        let mut state = Self {
            store: Store::new(options.history_max),
            kinds: kinds::builtin(),
            allocator: Allocator::new(options),
            random: Random::seeded(options.seed),
            clock,
            taint_new_nodes: options.taint_new_nodes,
            validate: options.validate,
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": name, "uid": state.random.uid(), "creationTimestamp": clock.stamp(),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            state.store.put(namespace_key(name), namespace);
        }
        state
    }

    /// The kind served at a path.
    ///
    /// # Errors
    /// `NotFound` where no kind is served.
    pub(crate) fn kind_of(&self, target: &Target) -> Result<Arc<Kind>, ApiError> {
        self.kinds
            .iter()
            .find(|k| k.plural == target.resource && k.group == target.group && k.version == target.version)
            .cloned()
            .ok_or_else(ApiError::no_such_resource)
    }

    /// Writes an object; updates the allocations of Services and the served custom resources.
    pub(crate) fn commit(&mut self, key: Key, new: Value) -> Object {
        let old = self.store.get(&key).cloned();
        let new = self.store.put(key.clone(), new);
        self.react(&key, old.as_deref(), Some(&new));
        new
    }

    /// Removes an object, as [`State::commit`].
    pub(crate) fn evict(&mut self, key: &Key) -> Option<Object> {
        let last = self.store.remove(key)?;
        self.react(key, Some(&last), None);
        Some(last)
    }

    fn react(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        match &*key.storage {
            "services" => self.allocator.transfer(old, new),
            "customresourcedefinitions" => {
                self.kinds.retain(|k| k.custom.is_none() || k.qualified_resource() != key.name);
                self.kinds.extend(new.into_iter().flat_map(custom::served_kinds));
                if new.is_none() {
                    let gone: Vec<_> =
                        self.store.list(&key.name.as_str().into(), None).map(|(k, _)| k.clone()).collect();
                    gone.iter().for_each(|k| {
                        self.store.remove(k);
                    });
                }
            }
            _ => {}
        }
    }
}

/// The key of a Namespace.
pub(crate) fn namespace_key(name: &str) -> Key {
    Key { storage: "namespaces".into(), namespace: String::new(), name: name.to_owned() }
}

/// A stored object in the version of `kind`.
pub(crate) fn view(kind: &Kind, stored: &Object) -> Object {
    if events::is_converted(kind) {
        return Arc::new(events::to_new(stored));
    }
    if kind.custom.is_some() && object::text(stored, "/apiVersion") != kind.api_version() {
        let mut shown = (**stored).clone();
        object::set(&mut shown, "/apiVersion", kind.api_version());
        return Arc::new(shown);
    }
    stored.clone()
}
