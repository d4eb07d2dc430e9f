//! Converts a JSON schema to one that an API server accepts. Independent of the fields of
//! `Provider`.

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

/// The keyword of CEL rules.
pub(super) const VALIDATIONS: &str = "x-kubernetes-validations";

/// A place in a schema, and keywords to add there. A place matches each path that ends with the
/// place at the start of a name: `rules[].origins[]` matches `spec.egress.rules[].origins[]`. `.*`
/// stands for the values of a map.
pub(super) type Entry = (&'static str, Value);

/// A visit of one schema; the path to it begins with `spec`.
type Visit<'a> = dyn FnMut(&str, &mut Map<String, Value>) -> anyhow::Result<()> + 'a;

/// Removes the fields with these names everywhere. If one field of a choice is left, that field
/// becomes required.
///
/// # Errors
/// There is no field with one of the names.
pub(super) fn take_away(spec: &mut Map<String, Value>, names: &[&str]) -> anyhow::Result<()> {
    let mut unused = names.to_vec();
    walk(spec, "spec", &mut |_, schema| {
        let is_removed = |name: &str| names.contains(&name);
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            unused.retain(|name| !(is_removed(name) && properties.contains_key(*name)));
            properties.retain(|name, _| !is_removed(name));
        }
        let Some(Value::Array(mut choice)) = schema.remove("oneOf") else { return Ok(()) };
        choice.retain(|branch| !required(branch).is_some_and(is_removed));
        match choice.as_slice() {
            [only] => drop(schema.insert("required".to_owned(), json!([required(only)]))),
            _ => drop(schema.insert("oneOf".to_owned(), Value::Array(choice))),
        }
        Ok(())
    })?;
    if !unused.is_empty() {
        bail!("no field {}", unused.join(", "));
    }
    Ok(())
}

/// The one field that a branch of a choice requires.
fn required(branch: &Value) -> Option<&str> {
    match branch.get("required")?.as_array()?.as_slice() {
        [Value::String(field)] => Some(field),
        _ => None,
    }
}

/// Removes keywords that an API server does not accept, or that have another meaning there.
///
/// # Errors
/// A choice is not a choice between fields.
pub(super) fn fit(spec: &mut Map<String, Value>) -> anyhow::Result<()> {
    walk(spec, "spec", &mut |place, schema| {
        // The API server writes defaults into stored objects: a later release could not change
        // them, and each object would seem to ask for them. The descriptions name the defaults
        // instead. Only `false` is kept as a default, so that the stored object shows it.
        if schema.get("default") != Some(&Value::Bool(false)) {
            schema.remove("default");
        }
        // As elsewhere in the API, null is not a value, so that rules need not expect it.
        schema.remove("nullable");
        schema.remove("title");
        if schema.get("type").and_then(Value::as_str) == Some("integer") {
            // The API server has no unsigned formats; the lower bound replaces them.
            let narrow = matches!(schema.get("format").and_then(Value::as_str), Some("uint8" | "uint16" | "int32"));
            schema.insert("format".to_owned(), json!(if narrow { "int32" } else { "int64" }));
        }
        if let Some(Value::String(text)) = schema.get_mut("description") {
            // kubectl breaks lines itself and does not render code marks.
            let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ").replace('`', ""));
            *text = paragraphs.collect::<Vec<_>>().join("\n\n");
        }
        if let Some(choice) = schema.remove("oneOf") {
            let rule = one_of(&choice).with_context(|| format!("{place}: cannot express as a rule: {choice}"))?;
            schema.insert(VALIDATIONS.to_owned(), json!([rule]));
        }
        Ok(())
    })
}

/// A choice between fields as a rule: an API server's error about `oneOf` names neither the fields
/// nor the remedy.
fn one_of(choice: &Value) -> Option<Value> {
    let fields: Vec<&str> = choice.as_array()?.iter().map(required).collect::<Option<_>>()?;
    let (last, others) = fields.split_last()?;
    Some(exactly_one(&fields, &format!("write exactly one of {} and {last}", others.join(", "))))
}

/// The rule that exactly one of these fields is set.
pub(super) fn exactly_one(fields: &[&str], message: &str) -> Value {
    let set: Vec<_> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    json!({"rule": format!("[{}].filter(there, there).size() == 1", set.join(", ")), "message": message})
}

/// Adds the keywords of each entry at its places; of two entries for one place, the longer one
/// counts. Rules are added to existing rules.
///
/// # Errors
/// An entry has no place: the field was renamed.
pub(super) fn add(spec: &mut Map<String, Value>, entries: &[Entry]) -> anyhow::Result<()> {
    let mut unused: Vec<&str> = entries.iter().map(|(place, _)| *place).collect();
    walk(spec, "spec", &mut |path, schema| {
        let fitting = entries.iter().filter(|(place, _)| ends_with(path, place));
        let Some((place, keywords)) = fitting.max_by_key(|(place, _)| place.len()) else { return Ok(()) };
        unused.retain(|other| other != place);
        for (keyword, value) in keywords.as_object().into_iter().flatten() {
            match (schema.get_mut(keyword), value) {
                (Some(Value::Array(there)), Value::Array(more)) => there.extend(more.iter().cloned()),
                (Some(_) | None, _) => drop(schema.insert(keyword.clone(), value.clone())),
            }
        }
        Ok(())
    })?;
    if !unused.is_empty() {
        bail!("no field at {}", unused.join(", "));
    }
    Ok(())
}

fn ends_with(path: &str, place: &str) -> bool {
    path.strip_suffix(place).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Visits a schema and all its subschemas, the outer ones first.
///
/// # Errors
/// The first error of a visit.
pub(super) fn walk(schema: &mut Map<String, Value>, path: &str, visit: &mut Visit<'_>) -> anyhow::Result<()> {
    visit(path, schema)?;
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            if let Value::Object(property) = property {
                walk(property, &format!("{path}.{name}"), visit)?;
            }
        }
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        walk(items, &format!("{path}[]"), visit)?;
    }
    if let Some(Value::Object(values)) = schema.get_mut("additionalProperties") {
        walk(values, &format!("{path}.*"), visit)?;
    }
    Ok(())
}
