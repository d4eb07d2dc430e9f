//! Walks objects by their types: the set fields of an object, and the differences of two objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::FieldSet;
use crate::api::kinds::Kind;
use crate::api::schema::{self, Field, ListType, Shape};

/// The known type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type<'a> {
    /// A struct of a built-in kind.
    Definition(&'static str),
    /// A field of a built-in kind.
    Field(&'static Field),
    /// A value of a custom resource; true for the root.
    Schema(&'a Value, bool),
    /// Unknown: maps are granular, lists atomic.
    Opaque,
}

/// The identity of the parts of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Relation {
    /// Each key is a part.
    Granular,
    /// No identity.
    Atomic,
    /// List items by these keys, with the defaults of absent ones.
    Keys(Vec<(String, Option<Value>)>),
    /// Scalars by themselves.
    Set,
}

/// The difference between two objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

static OBJECT_META: &str = "meta.ObjectMeta";

impl<'a> Type<'a> {
    /// The type of a whole object.
    pub(crate) fn root(kind: &'a Kind) -> Self {
        match (schema::definition_of(kind), kind.custom.as_deref().and_then(|c| c.pointer("/schema/openAPIV3Schema"))) {
            (Some(definition), _) => Self::Definition(definition),
            (None, Some(schema)) => Self::Schema(schema, true),
            (None, None) => Self::Opaque,
        }
    }

    /// The identity of the parts of the value.
    pub(crate) fn relation(&self, value: &Value) -> Relation {
        match self {
            Self::Definition(_) => Relation::Granular,
            Self::Field(field) if matches!(field.shape, Shape::List(_)) => match &field.list_type {
                ListType::Atomic => Relation::Atomic,
                ListType::Set => Relation::Set,
                ListType::Map(keys) => {
                    Relation::Keys(keys.iter().map(|(k, d)| ((*k).to_owned(), d.map(Value::from))).collect())
                }
            },
            Self::Field(field) if field.atomic => Relation::Atomic,
            Self::Field(_) => Relation::Granular,
            Self::Schema(schema, _) => schema_relation(schema, value),
            Self::Opaque if value.is_array() => Relation::Atomic,
            Self::Opaque => Relation::Granular,
        }
    }

    /// The type of the part called `key`.
    pub(crate) fn of_key(&self, key: &str) -> Self {
        let of_struct = |definition: &str| schema::field(definition, key).map_or(Self::Opaque, Type::Field);
        match self {
            Self::Definition(definition) => of_struct(definition),
            Self::Field(field) => match field.shape {
                Shape::Struct(definition) => of_struct(definition),
                Shape::Map(of) | Shape::List(of) => of.map_or(Self::Opaque, Type::Definition),
            },
            Self::Schema(_, true) if key == "metadata" => Self::Definition(OBJECT_META),
            Self::Schema(schema, _) => schema
                .get("properties")
                .and_then(|p| p.get(key))
                .or_else(|| schema.get("additionalProperties").filter(|a| a.is_object()))
                .map_or(Self::Opaque, |s| Type::Schema(s, false)),
            Self::Opaque => Self::Opaque,
        }
    }

    /// The type of a list's items.
    pub(crate) fn of_item(&self) -> Self {
        match self {
            Self::Field(field) => match field.shape {
                Shape::List(Some(definition)) => Self::Definition(definition),
                Shape::List(None) | Shape::Struct(_) | Shape::Map(_) => Self::Opaque,
            },
            Self::Schema(schema, _) => schema.get("items").map_or(Self::Opaque, |s| Type::Schema(s, false)),
            Self::Definition(_) | Self::Opaque => Self::Opaque,
        }
    }
}

fn schema_relation(schema: &Value, value: &Value) -> Relation {
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if !value.is_array() {
        return if text("x-kubernetes-map-type") == "atomic" { Relation::Atomic } else { Relation::Granular };
    }
    match text("x-kubernetes-list-type") {
        "set" => Relation::Set,
        "map" => {
            let properties = schema.pointer("/items/properties");
            let default = |k: &str| properties.and_then(|p| p.get(k)).and_then(|p| p.get("default")).cloned();
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            Relation::Keys(
                keys.into_iter().flatten().filter_map(Value::as_str).map(|k| (k.to_owned(), default(k))).collect(),
            )
        }
        _ => Relation::Atomic,
    }
}

/// The path element of a list item.
pub(crate) fn element(relation: &Relation, item: &Value) -> Option<String> {
    match relation {
        Relation::Set => Some(format!("v:{item}")),
        Relation::Keys(keys) => {
            let mut map = Map::new();
            for (key, default) in keys {
                if let Some(value) = item.get(key).or(default.as_ref()) {
                    map.insert(key.clone(), value.clone());
                }
            }
            Some(format!("k:{}", Value::Object(map)))
        }
        Relation::Granular | Relation::Atomic => None,
    }
}

/// Adds every field that `value` sets.
pub(crate) fn collect(of: &Type<'_>, value: &Value, set: &mut FieldSet) {
    let relation = of.relation(value);
    match (value, &relation) {
        (Value::Object(map), Relation::Granular) => {
            for (key, value) in map {
                let child = set.child(format!("f:{key}"));
                collect(&of.of_key(key), value, child);
                child.member |= value.is_null() || value.as_object().is_some_and(Map::is_empty);
            }
        }
        (Value::Array(items), Relation::Keys(_) | Relation::Set) => {
            for item in items {
                if let Some(element) = element(&relation, item) {
                    let child = set.child(element);
                    if matches!(relation, Relation::Keys(_)) {
                        collect(&of.of_item(), item, child);
                    }
                    child.member = true;
                }
            }
        }
        _ => set.member = true,
    }
}

/// Adds every field of `value` and every container on the way, for a value that appears or
/// disappears as a whole.
fn collect_whole(of: &Type<'_>, value: &Value, set: &mut FieldSet) {
    collect(of, value, set);
    mark_containers(set);
}

fn mark_containers(set: &mut FieldSet) {
    set.member = true;
    set.children.values_mut().for_each(mark_containers);
}

/// Adds the differences of two values of one type.
pub(crate) fn compare(of: &Type<'_>, old: &Value, new: &Value, changes: &mut Changes) {
    let relation = of.relation(new);
    match (old, new, &relation) {
        (Value::Object(before), Value::Object(after), Relation::Granular) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let parts = (before.get(key), after.get(key));
                compare_part(&of.of_key(key), &format!("f:{key}"), parts, changes);
            }
        }
        (Value::Array(before), Value::Array(after), Relation::Keys(_) | Relation::Set) => {
            let by_element = |items: &'_ [Value]| -> BTreeMap<String, Value> {
                items.iter().filter_map(|i| Some((element(&relation, i)?, i.clone()))).collect()
            };
            let (before, after) = (by_element(before), by_element(after));
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                compare_part(&of.of_item(), key, (before.get(key), after.get(key)), changes);
            }
        }
        _ if old != new => changes.modified.member = true,
        _ => {}
    }
}

fn compare_part(of: &Type<'_>, name: &str, parts: (Option<&Value>, Option<&Value>), changes: &mut Changes) {
    match parts {
        (None, Some(new)) => collect_whole(of, new, changes.added.child(name.to_owned())),
        (Some(old), None) => collect_whole(of, old, changes.removed.child(name.to_owned())),
        (Some(old), Some(new)) if old != new => {
            let mut inner = Changes::default();
            compare(of, old, new, &mut inner);
            for (into, from) in [
                (&mut changes.added, inner.added),
                (&mut changes.modified, inner.modified),
                (&mut changes.removed, inner.removed),
            ] {
                if !from.is_empty() {
                    into.children.insert(name.to_owned(), from);
                }
            }
        }
        _ => {}
    }
}
