//! Tables: the server-side printing behind `kubectl get`, with Kubernetes' own columns.
//!
//! Cells of the kinds are in `table/cells.rs`; custom resources have the columns of their
//! definition.

mod cells;

use std::time::Duration;

use serde_json::{Value, json};

use super::clock::Clock;
use super::kinds::Kind;
use super::object::{self, Object, list, text};

/// Prints objects as Tables. `includeObject` is always `Metadata`, the default and what kubectl
/// uses.
#[derive(Clone, Debug)]
pub(crate) struct Tabulator;

/// A column: its name, and whether only `-o wide` shows it.
type Column = (&'static str, bool);

impl Tabulator {
    /// One object as a Table of one row.
    pub(crate) fn one(&self, kind: &Kind, object: &Value, clock: &Clock) -> Value {
        let version = text(object, "/metadata/resourceVersion");
        table(kind, json!({"resourceVersion": version}), vec![row(kind, object, clock)])
    }

    /// A page of a list.
    pub(crate) fn many(&self, kind: &Kind, items: &[Object], metadata: Value, clock: &Clock) -> Value {
        table(kind, metadata, items.iter().map(|o| row(kind, o, clock)).collect())
    }

    /// A bookmark of a watch: a row with metadata only.
    pub(crate) fn bookmark(&self, object: &Value) -> Value {
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": text(object, "/metadata/resourceVersion")},
            "columnDefinitions": null, "rows": [{"cells": [], "object": partial(object)}],
        })
    }
}

fn table(kind: &Kind, metadata: Value, rows: Vec<Value>) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns(kind), "rows": rows,
    })
}

fn columns(kind: &Kind) -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "Name of the object",
        "priority": 0});
    if let Some(version) = &kind.custom {
        let own = list(version, "/additionalPrinterColumns").iter().map(|c| {
            json!({
                "name": text(c, "/name"), "type": text(c, "/type"), "format": text(c, "/format"),
                "description": text(c, "/description"), "priority": c.get("priority").and_then(Value::as_i64).unwrap_or(0),
            })
        });
        let age = json!({"name": "Age", "type": "date", "format": "", "description": "", "priority": 0});
        let mut columns: Vec<Value> = std::iter::once(name).chain(own).collect();
        if columns.len() == 1 {
            columns.push(age);
        }
        return columns;
    }
    let shown = cells::columns(&kind.storage).iter().map(|(column, wide)| {
        let format = if *column == "Name" { "name" } else { "" };
        let of = if *column == "Created At" { "date" } else { "string" };
        json!({"name": column, "type": of, "format": format, "description": *column, "priority": i32::from(*wide)})
    });
    if &*kind.storage == "events" { shown.collect() } else { std::iter::once(name).chain(shown).collect() }
}

fn row(kind: &Kind, object: &Value, clock: &Clock) -> Value {
    let cells = match &kind.custom {
        Some(version) => custom_cells(version, object, clock),
        None => cells::of(&kind.storage, object, clock),
    };
    json!({"cells": cells, "object": partial(object)})
}

fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn custom_cells(version: &Value, object: &Value, clock: &Clock) -> Vec<Value> {
    let mut cells = vec![Value::from(object::name(object))];
    let columns = list(version, "/additionalPrinterColumns");
    if columns.is_empty() {
        cells.push(age_of(object, clock));
    }
    for column in columns {
        let found = json_path(object, text(column, "/jsonPath"));
        cells.push(match (text(column, "/type"), found) {
            ("date", Some(Value::String(time))) => clock.age(&time).map_or(Value::from("<invalid>"), human),
            (_, Some(value)) => value,
            (_, None) => Value::Null,
        });
    }
    cells
}

/// The part of `JSONPath` that printer columns use: fields, indices, and `[?(@.key=="value")]`.
fn json_path(object: &Value, path: &str) -> Option<Value> {
    let mut at = object;
    let mut rest = path.trim_start_matches(['$', '{']).trim_end_matches('}');
    while !rest.is_empty() {
        if let Some(filtered) = rest.strip_prefix("[?(@.") {
            let (condition, after) = filtered.split_once(")]")?;
            let (key, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            at = at.as_array()?.iter().find(|item| item.get(key.trim()).and_then(Value::as_str) == Some(wanted))?;
            rest = after;
        } else if let Some(indexed) = rest.strip_prefix('[') {
            let (index, after) = indexed.split_once(']')?;
            at = match index.parse::<usize>() {
                Ok(index) => at.get(index)?,
                Err(_) => at.get(index.trim_matches(['"', '\'']))?,
            };
            rest = after;
        } else {
            rest = rest.trim_start_matches('.');
            let end = key_end(rest);
            let (key, after) = rest.split_at_checked(end)?;
            at = at.get(key.replace("\\.", "."))?;
            rest = after;
        }
    }
    Some(match at {
        Value::Object(_) | Value::Array(_) => Value::from(at.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => at.clone(),
    })
}

/// The end of a key: a dot or bracket that is not escaped.
fn key_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '\\' => escaped = true,
            '.' | '[' if !escaped => return at,
            _ => escaped = false,
        }
    }
    rest.len()
}

fn age_of(object: &Value, clock: &Clock) -> Value {
    clock.age(text(object, "/metadata/creationTimestamp")).map_or(Value::from("<unknown>"), human)
}

/// A duration as kubectl prints ages: two units while small, one when large.
fn human(age: Duration) -> Value {
    let seconds = age.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |whole: u64, unit: &str, part: u64, small: &str| {
        if part == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{part}{small}") }
    };
    Value::from(match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    })
}
