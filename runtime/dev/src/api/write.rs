//! `create` and `update`: the steps between a decoded body and the store.
//!
//! In the API server's order: metadata, defaults, kept fields, allocation, validation, field
//! ownership, and a write only after a change. Deletions are in `delete`, patches become updates in
//! `patch`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::codec::{self, Decoded};
use super::defaults;
use super::errors::{ApiError, Cause};
use super::object::{self, Object, text};
use super::ownership;
use super::state::{Call, State, namespace_key, view};
use super::store::Key;
use super::{custom, events, validation};

/// The outcome of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Object,
    /// Whether the object is new: the answer is 201.
    pub(crate) created: bool,
    /// The `Warning` headers of the response.
    pub(crate) warnings: Vec<String>,
}

/// The effect of a write on field ownership.
#[derive(Clone, Debug)]
pub(crate) enum Ownership {
    /// The writer becomes the owner of every changed field.
    Update,
    /// The new entries of `managedFields`, as server-side apply computed them.
    Applied(ownership::Managers),
}

impl State {
    /// Creates an object from a body.
    pub(crate) fn create(&mut self, call: &Call, body: &Value) -> Result<Written, ApiError> {
        let decoded = codec::decode(&call.kind, body)?;
        let (mut new, warnings) = accept(call, decoded)?;
        if !text(&new, "/metadata/resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", message));
        }
        let generated = text(&new, "/metadata/generateName").to_owned();
        if object::name(&new).is_empty() && !generated.is_empty() {
            object::set(&mut new, "/metadata/name", self.random.name(&generated));
        }
        let object = self.insert(call, new, &Ownership::Update)?;
        Ok(Written { object, created: true, warnings })
    }

    /// Creates a decoded, named object.
    pub(crate) fn insert(&mut self, call: &Call, mut new: Value, ownership: &Ownership) -> Result<Object, ApiError> {
        self.check_namespace(call, &mut new)?;
        let name = object::name(&new).to_owned();
        for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"] {
            object::remove(&mut new, &format!("/metadata/{field}"));
        }
        object::set(&mut new, "/metadata/uid", self.random.uid());
        object::set(&mut new, "/metadata/creationTimestamp", self.clock.stamp());
        if call.kind.has_generation() {
            object::set(&mut new, "/metadata/generation", 1);
        }
        defaults::on_create(&call.kind, &mut new, self.taint_new_nodes);
        let key = call.key_of(&name);
        refuse(call, &name, &self.faults_of(call, &new, None))?;
        if self.store.get(&key).is_some() {
            return Err(ApiError::already_exists(&call.kind, &name));
        }
        if &*call.kind.storage == "customresourcedefinitions" {
            custom::accept_names(&mut new, &self.clock.stamp());
        }
        ownership::follow_write(call, None, &mut new, ownership, &self.clock);
        self.allocate(call, &mut new)?;
        self.persist(call, key, new)
    }

    fn faults_of(&self, call: &Call, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        if !self.validate {
            return Vec::new();
        }
        let mut causes = validation::metadata(&call.kind, new);
        causes.extend(custom::validate(&call.kind, new));
        causes.extend(validation::object(&call.kind, new, old));
        causes
    }

    fn allocate(&mut self, call: &Call, new: &mut Value) -> Result<(), ApiError> {
        if &*call.kind.storage != "services" {
            return Ok(());
        }
        let name = object::name(new).to_owned();
        let old = self.store.get(&call.key_of(&name)).cloned();
        // The Service's own allocations are no conflict.
        self.allocator.transfer(old.as_deref(), None);
        let causes = defaults::services::allocate(&self.allocator, old.as_deref(), new);
        self.allocator.transfer(None, old.as_deref());
        refuse(call, &name, &causes)
    }

    fn check_namespace(&self, call: &Call, new: &mut Value) -> Result<(), ApiError> {
        if !call.kind.namespaced {
            object::remove(new, "/metadata/namespace");
            return Ok(());
        }
        object::set(new, "/metadata/namespace", call.target.namespace.clone());
        let key = namespace_key(&call.target.namespace);
        match self.store.get(&key) {
            None => {
                let kinds = self.kinds.iter().find(|k| &*k.storage == "namespaces");
                Err(kinds.map_or_else(ApiError::no_such_resource, |k| ApiError::not_found(k, &key.name)))
            }
            Some(namespace) if object::is_deleting(namespace) => {
                let cause =
                    format!("unable to create new content in namespace {} because it is being terminated", key.name);
                let mut error = ApiError::forbidden(&call.kind, object::name(new), &cause);
                let message = format!("namespace {} is being terminated", key.name);
                let cause =
                    json!({"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"});
                object::set(&mut error.details, "/causes", vec![cause]);
                Err(error)
            }
            Some(_) => Ok(()),
        }
    }

    /// Replaces an object with a body.
    pub(crate) fn update(&mut self, call: &Call, body: &Value) -> Result<Written, ApiError> {
        let decoded = codec::decode(&call.kind, body)?;
        let (new, warnings) = accept(call, decoded)?;
        let name = object::name(&new);
        if name.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.target.name
            )));
        }
        if self.store.get(&call.key()).is_none() {
            if !call.kind.allow_create_on_update() || !call.target.subresource.is_empty() {
                return Err(ApiError::not_found(&call.kind, &call.target.name));
            }
            if !text(&new, "/metadata/resourceVersion").is_empty() || !text(&new, "/metadata/uid").is_empty() {
                return Err(ApiError::not_found(&call.kind, &call.target.name));
            }
            let object = self.insert(call, new, &Ownership::Update)?;
            return Ok(Written { object, created: true, warnings });
        }
        let object = self.replace(call, new, &Ownership::Update, false)?;
        Ok(Written { object, created: false, warnings })
    }

    /// Replaces the stored object with a decoded one; `patched` means that the new object was
    /// derived from the stored one.
    pub(crate) fn replace(
        &mut self,
        call: &Call,
        mut new: Value,
        ownership: &Ownership,
        patched: bool,
    ) -> Result<Object, ApiError> {
        let key = call.key();
        let old = self.store.get(&key).cloned().ok_or_else(|| ApiError::not_found(&call.kind, &key.name))?;
        check_versions(call, &old, &new, patched)?;
        keep_identity(&old, &mut new);
        defaults::on_update(&call.kind, &call.target.subresource, &old, &mut new);
        if call.kind.has_generation() {
            bump_generation(&old, &mut new, call.target.subresource.is_empty());
        }
        let mut causes = self.faults_of(call, &new, Some(&old));
        if object::is_deleting(&old) {
            causes.extend(added_finalizers(&old, &new));
        }
        refuse(call, &key.name, &causes)?;
        if &*call.kind.storage == "customresourcedefinitions" {
            custom::accept_names(&mut new, &self.clock.stamp());
        }
        ownership::follow_write(call, Some(&old), &mut new, ownership, &self.clock);
        self.allocate(call, &mut new)?;
        if ownership::is_same(&old, &new) {
            return Ok(view(&call.kind, &old));
        }
        self.persist(call, key, new)
    }

    /// Writes, or on a dry run only returns the result; a deletion that waited for this write is
    /// executed.
    fn persist(&mut self, call: &Call, key: Key, new: Value) -> Result<Object, ApiError> {
        if call.params.dry_run {
            return Ok(view(&call.kind, &Arc::new(new)));
        }
        let gone = object::is_deleting(&new)
            && object::list(&new, "/metadata/finalizers").is_empty()
            && &*key.storage != "namespaces";
        let namespace = key.namespace.clone();
        let stored = if gone {
            // The last write has no separate event: watchers see the final state in the deletion.
            self.store.replace_silently(&key, new);
            self.evict(&key).ok_or_else(|| ApiError::not_found(&call.kind, &key.name))?
        } else {
            self.commit(key.clone(), new)
        };
        self.finish_namespace(&namespace);
        if &*key.storage == "namespaces" {
            self.finish_namespace(&key.name);
        }
        Ok(view(&call.kind, &stored))
    }
}

/// Checks unknown fields, and names and namespaces that differ from the path; converts to the
/// stored version.
pub(crate) fn accept(call: &Call, decoded: Decoded) -> Result<(Value, Vec<String>), ApiError> {
    let Decoded { mut object, unknown } = decoded;
    let warnings = judge_unknown(call, unknown)?;
    let (name, namespace) = (object::name(&object), object::namespace(&object));
    let (asked, scope) = (call.target.name.as_str(), call.target.namespace.as_str());
    if !asked.is_empty() && !name.is_empty() && name != asked {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({asked})");
        return Err(ApiError::bad_request(message));
    }
    if call.kind.namespaced && !namespace.is_empty() && namespace != scope {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    if call.kind.namespaced {
        object::set(&mut object, "/metadata/namespace", scope);
    }
    if &*call.kind.storage == "events" {
        if events::is_converted(&call.kind) {
            object = events::to_core(&object);
        }
        events::complete(&mut object);
    }
    Ok((object, warnings))
}

/// `fieldValidation`: unknown fields are an error, a warning (the default) or nothing.
pub(crate) fn judge_unknown(call: &Call, unknown: Vec<String>) -> Result<Vec<String>, ApiError> {
    match call.params.field_validation.as_str() {
        "Ignore" => Ok(Vec::new()),
        "Strict" if !unknown.is_empty() => {
            let message = format!("strict decoding error: {}", unknown.join(", "));
            Err(codec::undecodable(&call.kind, &message))
        }
        _ => Ok(unknown),
    }
}

fn refuse(call: &Call, name: &str, causes: &[Cause]) -> Result<(), ApiError> {
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(&call.kind, name, causes)) }
}

fn check_versions(call: &Call, old: &Value, new: &Value, patched: bool) -> Result<(), ApiError> {
    let name = object::name(old);
    let (uid, had) = (text(new, "/metadata/uid"), text(old, "/metadata/uid"));
    if !uid.is_empty() && uid != had {
        let cause = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {had}");
        return Err(ApiError::conflict(&call.kind, name, &cause));
    }
    let version = text(new, "/metadata/resourceVersion");
    if version.is_empty() && !patched && !call.kind.allow_unconditional_update() {
        let detail = "must be specified for an update";
        let cause = Cause {
            field: "metadata.resourceVersion".into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {detail}", if call.kind.custom.is_some() { "0x0" } else { "0" }),
        };
        return Err(ApiError::invalid(&call.kind, name, &[cause]));
    }
    if !version.is_empty() && version != text(old, "/metadata/resourceVersion") {
        return Err(ApiError::modified(&call.kind, name));
    }
    Ok(())
}

/// Fields that no client may change.
fn keep_identity(old: &Value, new: &mut Value) {
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ] {
        object::copy(old, new, &format!("/metadata/{field}"));
    }
    object::remove(new, "/metadata/selfLink");
}

fn bump_generation(old: &Value, new: &mut Value, main: bool) {
    let differs = |key: &String| key != "metadata" && key != "status" && old.get(key) != new.get(key);
    let keys = [old, new].into_iter().flat_map(|o| o.as_object().into_iter().flat_map(|m| m.keys().cloned()));
    if main && keys.collect::<Vec<_>>().iter().any(differs) {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        object::set(new, "/metadata/generation", generation + 1);
    }
}

fn added_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    let before = object::list(old, "/metadata/finalizers");
    let added: Vec<_> = object::list(new, "/metadata/finalizers").iter().filter(|f| !before.contains(f)).collect();
    (!added.is_empty()).then(|| {
        let names: Vec<_> = added.iter().filter_map(|f| f.as_str()).map(|f| format!("{f:?}")).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            names.join(", ")
        );
        Cause::forbidden("metadata.finalizers", &detail)
    })
}
