//! Custom resources: served from their definitions, pruned, defaulted and checked by their
//! structural schema.
//!
//! The server checks types, required fields, enums, bounds and lengths. It does not check
//! `pattern`, `format` and CEL rules, which a real API server does.

use std::sync::Arc;

use serde_json::{Value, json};

use super::codec::Decoded;
use super::errors::{ApiError, Cause};
use super::kinds::Kind;
use super::object::{self, list, text};

/// The kinds that a definition serves, one for each served version.
pub(crate) fn served_kinds(definition: &Value) -> Vec<Arc<Kind>> {
    if object::is_deleting(definition) {
        return Vec::new();
    }
    let names = |path: &str| {
        list(definition, path).iter().filter_map(|n| n.as_str().map(str::to_owned)).collect::<Vec<String>>()
    };
    list(definition, "/spec/versions")
        .iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| {
            Arc::new(Kind {
                group: text(definition, "/spec/group").into(),
                version: text(version, "/name").into(),
                kind: text(definition, "/spec/names/kind").into(),
                plural: text(definition, "/spec/names/plural").into(),
                singular: text(definition, "/spec/names/singular").into(),
                list_kind: text(definition, "/spec/names/listKind").into(),
                namespaced: text(definition, "/spec/scope") == "Namespaced",
                short_names: names("/spec/names/shortNames"),
                categories: names("/spec/names/categories"),
                status: version.pointer("/subresources/status").is_some(),
                storage: object::name(definition).into(),
                codec: None,
                custom: Some(Arc::new(version.clone())),
            })
        })
        .collect()
}

/// Fills the status of a definition as its controllers do: the names are accepted and the resource
/// is served.
pub(crate) fn accept_names(definition: &mut Value, now: &Value) {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message});
    if list(definition, "/status/conditions").is_empty() {
        let conditions = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
        object::set(definition, "/status/conditions", conditions);
    }
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    object::set(definition, "/status/acceptedNames", names);
    let stored = list(definition, "/spec/versions")
        .iter()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .map(|v| text(v, "/name").to_owned());
    object::set(definition, "/status/storedVersions", stored.into_iter().collect::<Vec<_>>());
}

fn schema(kind: &Kind) -> Option<&Value> {
    kind.custom.as_deref()?.pointer("/schema/openAPIV3Schema")
}

/// Decodes a custom resource: metadata as for every object, the other fields pruned and defaulted
/// by the schema.
pub(crate) fn decode(kind: &Kind, body: &Value) -> Result<Decoded, ApiError> {
    let mut object = body.clone();
    object::set(&mut object, "/apiVersion", kind.api_version());
    object::set(&mut object, "/kind", kind.kind.clone());
    let mut unknown = Vec::new();
    let metadata = object::remove(&mut object, "/metadata").unwrap_or_else(|| json!({}));
    let mut typed: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
        serde_json::from_value(metadata).map_err(|e| super::codec::undecodable(kind, &e.to_string()))?;
    // An empty map of labels is stored as no map.
    typed.labels = typed.labels.filter(|l| !l.is_empty());
    typed.annotations = typed.annotations.filter(|a| !a.is_empty());
    typed.finalizers = typed.finalizers.filter(|f| !f.is_empty());
    typed.owner_references = typed.owner_references.filter(|o| !o.is_empty());
    typed.managed_fields = typed.managed_fields.filter(|m| !m.is_empty());
    let metadata = serde_json::to_value(typed).map_err(|e| super::codec::undecodable(kind, &e.to_string()))?;
    if let Some(schema) = schema(kind) {
        prune(schema, &mut object, &mut String::new(), &mut unknown);
        default(schema, &mut object);
    }
    object::set(&mut object, "/apiVersion", kind.api_version());
    object::set(&mut object, "/kind", kind.kind.clone());
    object::set(&mut object, "/metadata", metadata);
    Ok(Decoded { object, unknown })
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn prune(schema: &Value, value: &mut Value, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            if flag(schema, "x-kubernetes-embedded-resource") && flag(schema, "x-kubernetes-preserve-unknown-fields") {
                return;
            }
            let additional = schema.get("additionalProperties").filter(|a| a.is_object());
            let keeps_unknown = flag(schema, "x-kubernetes-preserve-unknown-fields")
                || schema.get("additionalProperties") == Some(&Value::Bool(true));
            let root = length == 0;
            map.retain(|key, value| {
                let described = schema.get("properties").and_then(|p| p.get(key)).or(additional);
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                let keep = match described {
                    Some(described) if value.is_null() => flag(described, "nullable"),
                    Some(described) => {
                        prune(described, value, path, unknown);
                        true
                    }
                    None => keeps_unknown || root && matches!(key.as_str(), "apiVersion" | "kind" | "metadata"),
                };
                if !keep && !value.is_null() {
                    unknown.push(format!("unknown field {path:?}"));
                }
                path.truncate(length);
                keep
            });
        }
        Value::Array(items) => {
            let Some(described) = schema.get("items") else { return };
            for (index, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune(described, item, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, described) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if let (None, Some(default)) = (map.get(key), described.get("default")) {
                    map.insert(key.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(key) {
                    default(described, value);
                }
            }
            if let Some(described) = schema.get("additionalProperties").filter(|a| a.is_object()) {
                map.values_mut().for_each(|value| default(described, value));
            }
        }
        Value::Array(items) => {
            if let Some(described) = schema.get("items") {
                items.iter_mut().for_each(|item| default(described, item));
            }
        }
        _ => {}
    }
}

/// The violations of its schema by a custom resource.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(schema) = schema(kind) {
        check(schema, object, "", &mut causes);
    }
    causes
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    if let Some(wanted) = type_fault(schema, value) {
        let found = type_name(value);
        let message = format!("Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}");
        causes.push(Cause { field: shown(path), reason: "FieldValueTypeInvalid", message });
        return;
    }
    let allowed = list(schema, "/enum");
    if !allowed.is_empty() && !allowed.contains(value) {
        let listed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", listed.join(", "));
        causes.push(Cause { field: shown(path), reason: "FieldValueNotSupported", message });
    }
    bounds(schema, value, path, causes);
    match value {
        Value::Object(map) => {
            for name in list(schema, "/required").iter().filter_map(Value::as_str).filter(|n| !map.contains_key(*n)) {
                causes.push(Cause::required(join(path, name), ""));
            }
            for (key, value) in map {
                let described = schema
                    .get("properties")
                    .and_then(|p| p.get(key))
                    .or_else(|| schema.get("additionalProperties").filter(|a| a.is_object()));
                if let Some(described) = described {
                    check(described, value, &join(path, key), causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(described) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    check(described, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn shown(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_fault<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return (!matches!(type_name(value), "integer" | "string")).then_some("integer or string");
    }
    let wanted = schema.get("type").and_then(Value::as_str)?;
    let found = type_name(value);
    (wanted != found && !(wanted == "number" && found == "integer")).then_some(wanted)
}

fn bounds(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    #[expect(clippy::cast_precision_loss, reason = "lengths of what fits into a request body are exact as f64")]
    let (size, unit, low, high) = match value {
        Value::Number(n) => (n.as_f64().unwrap_or_default(), "", "minimum", "maximum"),
        Value::String(s) => (s.chars().count() as f64, " chars long", "minLength", "maxLength"),
        Value::Array(items) => (items.len() as f64, " items", "minItems", "maxItems"),
        Value::Object(map) => (map.len() as f64, " properties", "minProperties", "maxProperties"),
        Value::Null | Value::Bool(_) => return,
    };
    if let Some(limit) = bound(low).filter(|limit| size < *limit) {
        let detail = match value {
            Value::Number(_) => format!("{path} in body should be greater than or equal to {limit}"),
            _ => format!("{path} in body should be at least {limit}{unit}"),
        };
        causes.push(Cause::invalid(shown(path), value, &detail));
    }
    if let Some(limit) = bound(high).filter(|limit| size > *limit) {
        let detail = match value {
            Value::Number(_) => format!("{path} in body should be less than or equal to {limit}"),
            _ => format!("{path} in body should be at most {limit}{unit}"),
        };
        causes.push(Cause::invalid(shown(path), value, &detail));
    }
}
