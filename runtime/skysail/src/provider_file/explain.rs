//! Converts errors of the YAML library: the library names lines and types, and this module adds the
//! key, the reason and the remedy.

use serde_saphyr::{Error, Location};

use super::outline::{Outline, Place};

/// Where a provider file is wrong, and why; without the name of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    /// 1-based; `None` if the text has no such place.
    pub(super) line: Option<u64>,
    /// For example `provider "sim": spec.limits.fuel`.
    pub(super) place: String,
    /// Reason and remedy.
    pub(super) reason: String,
}

/// The error about a text that is not YAML.
pub(super) fn syntax(error: &Error) -> Explanation {
    let line = error.location().map(|location| location.line());
    let reason = format!("the text is not YAML: {}; correct this line, or the line before", reason(error));
    Explanation { line, place: String::new(), reason }
}

/// The error about YAML that is not a provider file.
pub(super) fn schema(outline: &Outline, error: &Error) -> Explanation {
    let error = error.without_snippet();
    let Some(location) = error.location() else { return syntax(error) };
    let place = match error {
        Error::SerdeUnknownField { .. } | Error::SerdeUnknownVariant { .. } => outline.key_at(location),
        Error::SerdeMissingField { .. } => outline.mapping_at(location),
        Error::DuplicateMappingKey { key: Some(key), .. } => outline.last_before(location, key),
        _ => None,
    };
    let place = place.or_else(|| outline.value_at(location)).or_else(|| outline.key_at(location));
    let line = match (error, place) {
        (Error::SerdeMissingField { .. }, Some(mapping)) => mapping.line,
        _ => location.line(),
    };
    let provider = place.and_then(|place| outline.provider(place));
    let path = place.map(|place| place.path.as_str()).unwrap_or_default();
    let place_text = match provider {
        Some(name) if path.is_empty() => format!("provider {name:?}"),
        Some(name) => format!("provider {name:?}: {path}"),
        None => path.to_owned(),
    };
    Explanation { line: Some(line), place: place_text, reason: of_schema(error, place, location) }
}

fn of_schema(error: &Error, place: Option<&Place>, location: Location) -> String {
    // A value may be a secret in the wrong place: only values of numbers and flags are repeated.
    let written = place.and_then(|place| place.scalar.as_deref());
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("{field:?} is not a valid key here; write one of {}", expected.join(", "))
        }
        Error::SerdeUnknownVariant { expected, .. } if place.is_some_and(|place| place.is_value_at(location)) => {
            format!("the value has to be a mapping; write one of the keys {} with its value", expected.join(", "))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let what = if place.is_some_and(Place::is_listed_scalar) { "value" } else { "key" };
            format!("{variant:?} is not a valid {what} here; write one of {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key {field:?} is missing; add it"),
        Error::DuplicateMappingKey { .. } => match place {
            Some(first) if first.line != location.line() => {
                format!("the key is written again, and first in line {}; keep one of them", first.line)
            }
            Some(_) | None => "the key is written twice; keep one of them".to_owned(),
        },
        Error::InvalidScalar { ty, .. } => format!("{:?} is not {}; correct it", written.unwrap_or_default(), kind(ty)),
        Error::InvalidBooleanStrict { .. } => {
            format!("{:?} is neither true nor false; write one of them", written.unwrap_or_default())
        }
        Error::NullIntoString { .. } => "the value is empty; write a text".to_owned(),
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            format!("the value is {unexpected}, and has to be {}; correct it", kind(expected))
        }
        Error::Unexpected { expected, .. } => format!("the value has to be {}; correct it", kind(expected)),
        _ => format!("{}; correct it", reason(error)),
    }
}

/// A type of the library in plain words.
fn kind(name: &str) -> &str {
    match name {
        "u64" | "u32" | "u16" | "unsigned integer" => "a whole number of 0 or more",
        "bool" | "boolean" => "true or false",
        "string" | "string scalar" => "a text",
        "mapping" | "mapping start" => "a mapping of keys to values",
        "sequence" | "sequence start" => "a list",
        other => other,
    }
}

/// The first line of the library's reason, without the snippet and the place.
fn reason(error: &Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.split(" at line ").next().unwrap_or(line).to_owned()
}
