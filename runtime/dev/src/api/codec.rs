//! Decoding of request bodies: wrong types are refused, unknown fields dropped and reported, empty
//! fields left out.
//!
//! The result is what the API server would store, so that two spellings of one object are equal.
//! Custom resources are decoded by `custom`.

use serde_json::Value;

use super::errors::ApiError;
use super::kinds::Kind;
use super::object::{self, text};
use super::schema::{self, Field, Shape};

/// Fields whose zero value Go leaves out although JSON can carry it.
const OMITTED_ZEROES: [(&str, &str); 7] = [
    ("core.ServiceSpec", "publishNotReadyAddresses"),
    ("core.ServiceSpec", "healthCheckNodePort"),
    ("core.ServicePort", "nodePort"),
    ("core.NodeSpec", "unschedulable"),
    ("core.Event", "count"),
    ("meta.ObjectMeta", "generation"),
    ("events.Event", "deprecatedCount"),
];

/// Definitions whose empty strings Go leaves out.
const OMITTED_EMPTY_STRINGS: [&str; 8] = [
    "core.ServiceSpec",
    "core.ServicePort",
    "core.NodeSpec",
    "core.LoadBalancerIngress",
    "core.Event",
    "core.ObjectReference",
    "core.Taint",
    "meta.ObjectMeta",
];

/// A decoded body and its unknown fields.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// Paths of unknown fields, in the API server's words: `unknown field "spec.foo"`.
    pub(crate) unknown: Vec<String>,
}

/// Decodes an object of `kind`.
///
/// # Errors
/// `BadRequest` where apiVersion or kind differs, or a field has the wrong type.
pub(crate) fn decode(kind: &Kind, body: &Value) -> Result<Decoded, ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request("the body of the request is not an object"));
    }
    check_type(kind, body)?;
    let Some(codec) = kind.codec else { return super::custom::decode(kind, body) };
    let mut body = body.clone();
    object::set(&mut body, "/apiVersion", kind.api_version());
    object::set(&mut body, "/kind", kind.kind.clone());
    let mut object = codec(&body).map_err(|e| undecodable(kind, &e.to_string()))?;
    let mut unknown = Vec::new();
    collect_unknown(&body, &object, &mut String::new(), &mut unknown);
    if let Some(definition) = schema::definition_of(kind) {
        prune_struct(definition, &mut object);
    }
    Ok(Decoded { object, unknown })
}

fn check_type(kind: &Kind, body: &Value) -> Result<(), ApiError> {
    let (api_version, name) = (text(body, "/apiVersion"), text(body, "/kind"));
    if name.is_empty() && api_version.is_empty() {
        return Ok(());
    }
    if name == kind.kind && api_version == kind.api_version() {
        return Ok(());
    }
    let said = match api_version.split_once('/') {
        Some((group, version)) => format!("{group}/{version}, Kind={name}"),
        None => format!("/{api_version}, Kind={name}"),
    };
    Err(ApiError::bad_request(format!(
        "{name} in version {api_version:?} cannot be handled as a {}: the object provided is unrecognized (must be of \
         type {}): got {said}",
        kind.kind, kind.kind
    )))
}

pub(crate) fn undecodable(kind: &Kind, cause: &str) -> ApiError {
    let version = kind.api_version();
    let version = version.rsplit('/').next().unwrap_or_default();
    ApiError::bad_request(format!("{} in version {version:?} cannot be handled as a {}: {cause}", kind.kind, kind.kind))
}

fn collect_unknown(given: &Value, kept: &Value, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (key, value) in given.iter().filter(|(_, v)| !v.is_null()) {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                match kept.get(key) {
                    Some(kept) => collect_unknown(value, kept, path, unknown),
                    None => unknown.push(format!("unknown field {path:?}")),
                }
                path.truncate(length);
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (index, (given, kept)) in given.iter().zip(kept).enumerate() {
                path.push_str(&format!("[{index}]"));
                collect_unknown(given, kept, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Removes the fields that Go's `omitempty` removes.
pub(crate) fn prune_struct(definition: &str, value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    map.retain(|name, value| match schema::field(definition, name) {
        Some(field) => {
            prune_field(field, value);
            !is_empty(field, value)
        }
        None => !is_omitted_scalar(definition, name, value),
    });
}

fn prune_field(field: &Field, value: &mut Value) {
    match (&field.shape, value) {
        (Shape::Struct(definition), value) => prune_struct(definition, value),
        (Shape::List(Some(definition)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| prune_struct(definition, item));
        }
        (Shape::Map(Some(definition)), Value::Object(map)) => {
            map.values_mut().for_each(|value| prune_struct(definition, value));
        }
        _ => {}
    }
}

fn is_empty(field: &Field, value: &Value) -> bool {
    match (&field.shape, value) {
        (_, Value::Null) => true,
        (Shape::List(_), Value::Array(items)) => items.is_empty() && !field.required,
        (Shape::Map(_), Value::Object(map)) => map.is_empty() && !field.required,
        _ => false,
    }
}

fn is_omitted_scalar(definition: &str, name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.is_empty() && OMITTED_EMPTY_STRINGS.contains(&definition),
        Value::Bool(false) => OMITTED_ZEROES.contains(&(definition, name)),
        Value::Number(n) => n.as_i64() == Some(0) && OMITTED_ZEROES.contains(&(definition, name)),
        _ => false,
    }
}
