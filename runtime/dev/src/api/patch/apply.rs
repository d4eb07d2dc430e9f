//! Server-side apply: a configuration is merged into the object, and its manager owns its fields.
//!
//! Flow: the configuration's fields are collected, merged into the live object, fields that this
//! manager no longer applies are removed unless another manager owns them, and every changed field
//! of another manager is a conflict, or with `force` changes its owner.

use serde_json::{Map, Value};

use crate::api::codec;
use crate::api::errors::{ApiError, Cause};
use crate::api::object::{self, text};
use crate::api::ownership::fields::{FieldSet, shown};
use crate::api::ownership::types::{Relation, Type, element};
use crate::api::ownership::{self, Manager, Managers};
use crate::api::state::{Call, State, view};
use crate::api::write::{self, Ownership, Written};

impl State {
    /// Applies a configuration.
    pub(crate) fn apply(&mut self, call: &Call, configuration: &Value) -> Result<Written, ApiError> {
        if call.params.field_manager.is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            let gk = ("meta.k8s.io", "PatchOptions");
            return Err(ApiError::invalid_named("PatchOptions.meta.k8s.io", gk, "", &[cause]));
        }
        if object::has(configuration, "/metadata/managedFields") {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let mut decoded = codec::decode(&call.kind, configuration)?;
        object::set_default(&mut decoded.object, "/metadata/name", call.target.name.clone());
        let (mut wanted, warnings) = write::accept(call, decoded)?;
        match call.target.subresource.as_str() {
            "" if call.kind.status => object::remove(&mut wanted, "/status"),
            "status" => object::remove(&mut wanted, "/spec"),
            _ => None,
        };
        let mut applied = Manager::of_call(call, "Apply", &self.clock);
        applied.fields = ownership::fields_of(call, &wanted);
        let Some(stored) = self.store.get(&call.key()).cloned() else {
            if !call.target.subresource.is_empty() {
                return Err(ApiError::not_found(&call.kind, &call.target.name));
            }
            if object::has(&wanted, "/metadata/uid") || object::has(&wanted, "/metadata/resourceVersion") {
                return Err(ApiError::not_found(&call.kind, &call.target.name));
            }
            let object = self.insert(call, wanted, &Ownership::Applied(vec![applied]))?;
            return Ok(Written { object, created: true, warnings });
        };
        let live = (*view(&call.kind, &stored)).clone();
        let mut managers = ownership::managers_of(&live);
        let before = take(&mut managers, &applied);
        let merged = self.merge_applied(call, &live, &wanted, (&before, &applied, &managers));
        settle_conflicts(call, (&live, &merged), &mut managers)?;
        if before.as_ref().is_some_and(|b| b.fields == applied.fields) {
            applied.time = before.map(|b| b.time).unwrap_or_default();
        }
        managers.push(applied);
        let (new, _) = write::accept(call, codec::decode(&call.kind, &merged)?)?;
        let object = self.replace(call, new, &Ownership::Applied(managers), true)?;
        Ok(Written { object, created: false, warnings })
    }

    fn merge_applied(
        &self,
        call: &Call,
        live: &Value,
        wanted: &Value,
        (before, applied, others): (&Option<Manager>, &Manager, &Managers),
    ) -> Value {
        let root = Type::root(&call.kind);
        let mut merged = merge(&root, live, wanted);
        if let Some(before) = before {
            let theirs = others.iter().fold(FieldSet::default(), |all, m| all.union(&m.fields));
            let kept = applied.fields.union(&theirs);
            prune(&root, &mut merged, &before.fields, &kept);
        }
        let version = text(wanted, "/metadata/resourceVersion");
        object::set(&mut merged, "/metadata/resourceVersion", version.to_owned());
        merged
    }
}

fn take(managers: &mut Managers, applied: &Manager) -> Option<Manager> {
    let at = managers.iter().position(|m| m.is_same_writer(applied))?;
    Some(managers.remove(at))
}

/// Finds changed fields of other managers; takes them away with `force`.
fn settle_conflicts(call: &Call, (live, merged): (&Value, &Value), managers: &mut Managers) -> Result<(), ApiError> {
    let changes = ownership::changes(call, live, merged);
    let gained = changes.added.union(&changes.modified);
    let mut causes = Vec::new();
    let mut by_manager: Vec<(String, Vec<String>)> = Vec::new();
    for manager in managers.iter_mut() {
        let contested = manager.fields.intersection(&gained);
        manager.fields = manager.fields.difference(&changes.removed);
        if contested.is_empty() {
            continue;
        }
        if call.params.force {
            manager.fields = manager.fields.difference(&contested);
            continue;
        }
        let who = described(manager);
        let paths: Vec<String> = contested.paths().iter().map(|p| shown(p)).collect();
        causes.extend(paths.iter().map(|path| Cause {
            field: path.clone(),
            reason: "FieldManagerConflict",
            message: format!("conflict with {who}"),
        }));
        by_manager.push((who, paths));
    }
    if causes.is_empty() { Ok(()) } else { Err(conflict(&causes, &by_manager)) }
}

fn described(manager: &Manager) -> String {
    let mut who = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        who.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == "Update" {
        who.push_str(&format!(" using {}", manager.api_version));
    }
    who
}

fn conflict(causes: &[Cause], by_manager: &[(String, Vec<String>)]) -> ApiError {
    let message = match (causes, by_manager) {
        ([one], [(who, _)]) => format!("Apply failed with 1 conflict: conflict with {who}: {}", one.field),
        _ => {
            let listed = by_manager.iter().flat_map(|(who, paths)| {
                std::iter::once(format!("conflicts with {who}:")).chain(paths.iter().map(|p| format!("- {p}")))
            });
            let listed: Vec<String> = listed.collect();
            format!("Apply failed with {} conflicts: {}", causes.len(), listed.join("\n"))
        }
    };
    let mut error = ApiError::new(http::StatusCode::CONFLICT, "Conflict", message);
    error.details = serde_json::json!({"causes": causes.iter().map(|c| {
        serde_json::json!({"reason": c.reason, "message": c.message, "field": c.field})
    }).collect::<Vec<_>>()});
    error
}

fn merge(of: &Type<'_>, live: &Value, wanted: &Value) -> Value {
    let relation = of.relation(wanted);
    match (live, wanted, &relation) {
        (Value::Object(live), Value::Object(wanted), Relation::Granular) => {
            let mut merged = live.clone();
            for (key, value) in wanted {
                let value = match live.get(key) {
                    Some(live) => merge(&of.of_key(key), live, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(wanted), Relation::Keys(_) | Relation::Set) => {
            Value::Array(merge_items(of, &relation, live, wanted))
        }
        _ => wanted.clone(),
    }
}

/// The order is the configuration's if it names every item, else the live order with new items
/// appended.
fn merge_items(of: &Type<'_>, relation: &Relation, live: &[Value], wanted: &[Value]) -> Vec<Value> {
    let find = |items: &[Value], item: &Value| {
        items.iter().find(|other| element(relation, other) == element(relation, item)).cloned()
    };
    let combined = |live: &Value, wanted: &Value| merge(&of.of_item(), live, wanted);
    if live.iter().all(|item| find(wanted, item).is_some()) {
        return wanted.iter().map(|w| find(live, w).map_or_else(|| w.clone(), |l| combined(&l, w))).collect();
    }
    let mut merged: Vec<Value> =
        live.iter().map(|l| find(wanted, l).map_or_else(|| l.clone(), |w| combined(l, &w))).collect();
    merged.extend(wanted.iter().filter(|w| find(live, w).is_none()).cloned());
    merged
}

/// Removes the fields in `before` that are not in `kept`, and containers that become empty.
fn prune(of: &Type<'_>, value: &mut Value, before: &FieldSet, kept: &FieldSet) {
    let relation = of.relation(value);
    let unowned = FieldSet::default();
    match value {
        Value::Object(map) if relation == Relation::Granular => {
            prune_map(of, map, before, kept);
        }
        Value::Array(items) => items.retain_mut(|item| {
            let Some(element) = element(&relation, item) else { return true };
            let Some(had) = before.children.get(&element) else { return true };
            let keep = kept.children.get(&element).unwrap_or(&unowned);
            if had.member && keep.is_empty() {
                return false;
            }
            prune(&of.of_item(), item, had, keep);
            true
        }),
        _ => {}
    }
}

fn prune_map(of: &Type<'_>, map: &mut Map<String, Value>, before: &FieldSet, kept: &FieldSet) {
    let unowned = FieldSet::default();
    map.retain(|key, value| {
        let element = format!("f:{key}");
        let Some(had) = before.children.get(&element) else { return true };
        let keep = kept.children.get(&element).unwrap_or(&unowned);
        if had.member && keep.is_empty() {
            return false;
        }
        let was_empty = is_empty(value);
        prune(&of.of_key(key), value, had, keep);
        was_empty || !is_empty(value)
    });
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}
