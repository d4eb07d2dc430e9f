//! Strategic merge patch: a merge patch that merges some lists by a key.
//!
//! Directives: `$patch` (`delete`, `replace`, `merge`), `$retainKeys`,
//! `$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`. `schema` has the merge keys.

use serde_json::{Map, Value};

use crate::api::errors::ApiError;
use crate::api::schema::{self, Field, Shape};

const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies `patch` to an object of `definition`.
///
/// # Errors
/// `BadRequest` for a directive in the wrong place.
pub(crate) fn apply(definition: &str, current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let (Value::Object(current), Value::Object(patch)) = (current, patch) else {
        return Err(ApiError::bad_request("a strategic merge patch must be an object"));
    };
    merge_struct(Some(definition), current.clone(), patch).map(Value::Object)
}

fn merge_struct(
    definition: Option<&str>,
    mut current: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => return Err(ApiError::bad_request(format!("Unknown patch type found: {other}"))),
    }
    if let Some(retained) = patch.get("$retainKeys").and_then(Value::as_array) {
        current.retain(|key, _| retained.iter().any(|r| r == key));
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let field = definition.and_then(|d| schema::field(d, key));
        if value.is_null() {
            current.remove(key);
            continue;
        }
        let merged = match (value, field) {
            (Value::Object(value), field) => {
                let inner = field.and_then(struct_of);
                let before = match current.remove(key) {
                    Some(Value::Object(before)) => before,
                    _ => Map::new(),
                };
                Value::Object(merge_struct(inner, before, value)?)
            }
            (Value::Array(items), Some(field)) if field.merge => {
                let before = match current.remove(key) {
                    Some(Value::Array(before)) => before,
                    _ => Vec::new(),
                };
                Value::Array(merge_list(field, before, items, patch, key)?)
            }
            _ => value.clone(),
        };
        current.insert(key.clone(), merged);
    }
    lists_named_only_by_directives(definition, &mut current, patch)?;
    Ok(current)
}

/// A directive may come without its list: only removing or only reordering.
fn lists_named_only_by_directives(
    definition: Option<&str>,
    current: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), ApiError> {
    for directive in patch.keys() {
        let Some(key) = directive.strip_prefix(DELETE_PRIMITIVES).or_else(|| directive.strip_prefix(ELEMENT_ORDER))
        else {
            continue;
        };
        if patch.contains_key(key) {
            continue;
        }
        let Some(field) = definition.and_then(|d| schema::field(d, key)) else { continue };
        if let Some(Value::Array(before)) = current.remove(key) {
            current.insert(key.to_owned(), Value::Array(merge_list(field, before, &[], patch, key)?));
        }
    }
    Ok(())
}

fn struct_of(field: &Field) -> Option<&'static str> {
    match field.shape {
        Shape::Struct(definition) => Some(definition),
        Shape::Map(of) | Shape::List(of) => of,
    }
}

fn merge_list(
    field: &Field,
    before: Vec<Value>,
    items: &[Value],
    patch: &Map<String, Value>,
    name: &str,
) -> Result<Vec<Value>, ApiError> {
    let order = patch.get(&format!("{ELEMENT_ORDER}{name}")).and_then(Value::as_array);
    let Some(merge_key) = field.merge_key else {
        let removed = patch.get(&format!("{DELETE_PRIMITIVES}{name}")).and_then(Value::as_array);
        return Ok(merge_primitives(before, items, removed, order));
    };
    let replace = items.iter().any(|i| i.get("$patch").and_then(Value::as_str) == Some("replace"));
    if replace {
        return Ok(items.iter().filter(|i| i.get("$patch").is_none()).cloned().collect());
    }
    let definition = struct_of(field);
    let server_order: Vec<Value> = before.iter().filter_map(|b| b.get(merge_key).cloned()).collect();
    let mut merged = before;
    for item in items {
        let Value::Object(item) = item else {
            return Err(ApiError::bad_request(format!("a list of {name} holds maps only")));
        };
        let Some(key) = item.get(merge_key) else {
            let message =
                format!("map: {} does not contain declared merge key: {merge_key}", Value::Object(item.clone()));
            return Err(ApiError::bad_request(message));
        };
        if item.get("$patch").and_then(Value::as_str) == Some("delete") {
            merged.retain(|m| m.get(merge_key) != Some(key));
            continue;
        }
        match merged.iter_mut().find(|m| m.get(merge_key) == Some(key)) {
            Some(found) => {
                let had = std::mem::take(found);
                let had = had.as_object().cloned().unwrap_or_default();
                *found = Value::Object(merge_struct(definition, had, item)?);
            }
            None => merged.push(Value::Object(merge_struct(definition, Map::new(), item)?)),
        }
    }
    let key_of = |item: &Value| item.get(merge_key).cloned().unwrap_or_default();
    let wanted: Vec<Value> = order.map_or(items, Vec::as_slice).iter().map(key_of).collect();
    let merged = ordered(merged, &wanted, &server_order, key_of);
    Ok(merged)
}

fn merge_primitives(
    before: Vec<Value>,
    items: &[Value],
    removed: Option<&Vec<Value>>,
    order: Option<&Vec<Value>>,
) -> Vec<Value> {
    let server_order = before.clone();
    let mut merged = before;
    merged.retain(|m| !removed.is_some_and(|r| r.contains(m)));
    for item in items {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    ordered(merged, order.map_or(items, Vec::as_slice), &server_order, Clone::clone)
}

/// Merges the items of the patch, in its order, with the items that only the server had: an item of
/// the server comes first only if it was before the next item of the patch.
fn ordered(items: Vec<Value>, order: &[Value], server: &[Value], key: impl Fn(&Value) -> Value) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|o| *o == key(item));
    let (mut listed, others): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|i| place(order, i).is_some());
    listed.sort_by_key(|i| place(order, i));
    let (mut listed, mut others) = (listed.into_iter().peekable(), others.into_iter().peekable());
    let mut result = Vec::new();
    while let Some(other) = others.peek() {
        let server_first = match listed.peek() {
            None => true,
            Some(next) => matches!((place(server, other), place(server, next)), (Some(o), Some(n)) if o < n),
        };
        result.extend(if server_first { others.next() } else { listed.next() });
    }
    result.extend(listed);
    result
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(key, _)| !key.starts_with('$')).map(|(k, v)| (k.clone(), v.clone())).collect()
}
