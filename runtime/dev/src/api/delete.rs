//! `delete` and `deletecollection`: preconditions, finalizers, and the emptying of Namespaces.

use serde_json::{Value, json};

use super::errors::ApiError;
use super::kinds::Kind;
use super::object::{self, Object, text};
use super::selectors::Selector;
use super::state::{Call, State, view};
use super::store::Key;

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    uid: String,
    resource_version: String,
    dry_run: bool,
}

impl DeleteOptions {
    /// Reads `metav1.DeleteOptions`; an empty body has none.
    ///
    /// # Errors
    /// `BadRequest` where the body has another kind.
    pub(crate) fn parse(body: &Value) -> Result<Self, ApiError> {
        let kind = text(body, "/kind");
        if !kind.is_empty() && kind != "DeleteOptions" {
            return Err(ApiError::bad_request(format!("expected DeleteOptions, got {kind}")));
        }
        Ok(Self {
            uid: text(body, "/preconditions/uid").to_owned(),
            resource_version: text(body, "/preconditions/resourceVersion").to_owned(),
            dry_run: object::list(body, "/dryRun").iter().any(|d| d == "All"),
        })
    }

    fn check(&self, kind: &Kind, stored: &Value) -> Result<(), ApiError> {
        let (uid, version) = (text(stored, "/metadata/uid"), text(stored, "/metadata/resourceVersion"));
        let fault = if !self.uid.is_empty() && self.uid != uid {
            format!(
                "the UID in the precondition ({}) does not match the UID in record ({uid}). The object might have been \
                 deleted and then recreated",
                self.uid
            )
        } else if !self.resource_version.is_empty() && self.resource_version != version {
            format!(
                "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({version}). \
                 The object might have been modified",
                self.resource_version
            )
        } else {
            return Ok(());
        };
        Err(ApiError::delete_conflict(kind, object::name(stored), &fault))
    }
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// The object is deleted; its last state.
    Done(Object),
    /// The object waits for its finalizers.
    Waits(Object),
}

impl State {
    /// Deletes one object.
    pub(crate) fn delete(&mut self, call: &Call, options: &DeleteOptions) -> Result<Value, ApiError> {
        let key = call.key();
        let stored = self.store.get(&key).ok_or_else(|| ApiError::not_found(&call.kind, &key.name))?.clone();
        options.check(&call.kind, &stored)?;
        if call.params.dry_run || options.dry_run {
            return Ok(answer(&call.kind, &Deletion::Done(stored)));
        }
        if &*call.kind.storage == "namespaces" && matches!(key.name.as_str(), "default" | "kube-system" | "kube-public")
        {
            return Err(ApiError::forbidden(&call.kind, &key.name, "this namespace may not be deleted"));
        }
        let deletion = self.begin_deletion(&key, &stored);
        Ok(answer(&call.kind, &deletion))
    }

    /// Deletes every object that matches; returns the list of them.
    pub(crate) fn delete_collection(&mut self, call: &Call) -> Result<Value, ApiError> {
        let selector = Selector::parse(&call.kind, &call.params.label_selector, &call.params.field_selector)?;
        let matching: Vec<(Key, Object)> = self
            .store
            .list(&call.kind.storage, call.scope())
            .filter(|(_, o)| selector.matches(&call.kind, o))
            .map(|(k, o)| (k.clone(), o.clone()))
            .collect();
        let mut items = Vec::new();
        for (key, stored) in matching {
            let last = match call.params.dry_run {
                true => stored,
                false => match self.begin_deletion(&key, &stored) {
                    Deletion::Done(last) | Deletion::Waits(last) => last,
                },
            };
            items.push((*view(&call.kind, &last)).clone());
        }
        Ok(json!({
            "apiVersion": call.kind.api_version(), "kind": call.kind.list_kind,
            "metadata": {"resourceVersion": self.store.revision().to_string()}, "items": items,
        }))
    }

    fn begin_deletion(&mut self, key: &Key, stored: &Object) -> Deletion {
        if &*key.storage == "namespaces" {
            return self.empty_namespace(key, stored);
        }
        if object::list(stored, "/metadata/finalizers").is_empty() {
            return Deletion::Done(self.evict(key).unwrap_or_else(|| stored.clone()));
        }
        if object::is_deleting(stored) {
            return Deletion::Waits(stored.clone());
        }
        let mut marked = (**stored).clone();
        object::set(&mut marked, "/metadata/deletionTimestamp", self.clock.stamp());
        object::set(&mut marked, "/metadata/deletionGracePeriodSeconds", 0);
        if let Some(generation) = marked.pointer("/metadata/generation").and_then(Value::as_i64) {
            object::set(&mut marked, "/metadata/generation", generation + 1);
        }
        if &*key.storage == "customresourcedefinitions" {
            self.kinds.retain(|k| k.custom.is_none() || k.qualified_resource() != key.name);
        }
        Deletion::Waits(self.commit(key.clone(), marked))
    }

    /// The work of the namespace controller: deletes everything inside first.
    fn empty_namespace(&mut self, key: &Key, stored: &Object) -> Deletion {
        let mut terminating = (**stored).clone();
        if !object::is_deleting(stored) {
            object::set(&mut terminating, "/metadata/deletionTimestamp", self.clock.stamp());
        }
        object::set(&mut terminating, "/status/phase", "Terminating");
        if terminating != **stored {
            self.commit(key.clone(), terminating);
        }
        for (inner, content) in self.contents_of(&key.name) {
            self.begin_deletion(&inner, &content);
        }
        self.finish_namespace(&key.name).map_or_else(
            || Deletion::Waits(self.store.get(key).cloned().unwrap_or_else(|| stored.clone())),
            Deletion::Done,
        )
    }

    /// Removes an empty terminating Namespace.
    pub(crate) fn finish_namespace(&mut self, name: &str) -> Option<Object> {
        let key = super::state::namespace_key(name);
        let namespace = self.store.get(&key)?;
        let held = !object::list(namespace, "/metadata/finalizers").is_empty();
        if held || !object::is_deleting(namespace) || !self.contents_of(name).is_empty() {
            return None;
        }
        self.evict(&key)
    }

    fn contents_of(&self, namespace: &str) -> Vec<(Key, Object)> {
        let mut storages: Vec<_> = self.kinds.iter().filter(|k| k.namespaced).map(|k| k.storage.clone()).collect();
        storages.sort();
        storages.dedup();
        storages
            .iter()
            .flat_map(|s| self.store.list(s, Some(namespace)).map(|(k, o)| (k.clone(), o.clone())).collect::<Vec<_>>())
            .collect()
    }
}

fn answer(kind: &Kind, deletion: &Deletion) -> Value {
    match deletion {
        Deletion::Waits(object) => (*view(kind, object)).clone(),
        Deletion::Done(object) if kind.returns_deleted_object() => (*view(kind, object)).clone(),
        Deletion::Done(object) => {
            let mut details = json!({"name": object::name(object), "kind": kind.plural});
            object::set(&mut details, "/uid", object::text(object, "/metadata/uid"));
            if !kind.group.is_empty() {
                object::set(&mut details, "/group", kind.group.clone());
            }
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
        }
    }
}
