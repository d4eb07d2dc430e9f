//! The positions in a YAML text: the line of each key's path, and the path at each position.
//!
//! The schema's errors have a position without a path, and the checks of origins, credentials and
//! limits have a path without a position. The outline maps one to the other, so that every error
//! can name both.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

/// Every key and every entry of a list of all documents, in the order of the text.
#[derive(Debug, Default)]
pub(super) struct Outline {
    places: Vec<Place>,
}

/// One key with its value, or one entry of a list.
#[derive(Debug)]
pub(super) struct Place {
    /// Number of the document, from 0.
    document: usize,
    /// As in `spec.egress.rules[0].origins[1]`; empty for the document itself.
    pub(super) path: String,
    /// 1-based: of the key, or of the entry.
    pub(super) line: u64,
    key: Location,
    value: Location,
    /// The text of the value, if it is a scalar.
    pub(super) scalar: Option<String>,
}

impl Place {
    /// Whether the value, and not the key, begins at the location.
    pub(super) fn is_value_at(&self, location: Location) -> bool {
        is_same(self.value, location) && !is_same(self.key, location)
    }

    /// Whether this is an entry of a list and a scalar.
    pub(super) fn is_listed_scalar(&self) -> bool {
        is_same(self.key, self.value) && self.scalar.is_some()
    }
}

impl Outline {
    /// Reads the places of a text.
    ///
    /// # Errors
    /// The text is not YAML.
    pub(super) fn of(text: &str) -> Result<Self, serde_saphyr::Error> {
        // The schema refuses duplicate keys; here the first one counts.
        let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::FirstWins };
        let mut outline = Self::default();
        for (document, node) in serde_saphyr::from_multiple_with_options::<Node>(text, options)?.into_iter().enumerate()
        {
            outline.add(document, String::new(), node.0.referenced, node);
        }
        Ok(outline)
    }

    fn add(&mut self, document: usize, path: String, key: Location, Node(Spanned { value, referenced, .. }): Node) {
        let scalar = match &value {
            Value::Scalar(text) => Some(text.clone()),
            Value::Map(_) | Value::List(_) => None,
        };
        self.places.push(Place { document, path: path.clone(), line: key.line(), key, value: referenced, scalar });
        match value {
            Value::Scalar(_) => {}
            Value::List(entries) => {
                for (index, entry) in entries.into_iter().enumerate() {
                    self.add(document, format!("{path}[{index}]"), entry.0.referenced, entry);
                }
            }
            Value::Map(entries) => {
                for (key, value) in entries {
                    let path = if path.is_empty() { key.value } else { format!("{path}.{}", key.value) };
                    self.add(document, path, key.referenced, value);
                }
            }
        }
    }

    /// The line of a path of a document, or of the innermost part of the path that exists.
    pub(super) fn line(&self, document: usize, path: &str) -> Option<u64> {
        let of_document = || self.places.iter().filter(|place| place.document == document);
        let parts = std::iter::successors(Some(path), |part| outer(part)).chain([""]);
        parts.filter_map(|part| of_document().find(|place| place.path == part)).map(|place| place.line).next()
    }

    /// The key at the location.
    pub(super) fn key_at(&self, location: Location) -> Option<&Place> {
        self.places.iter().find(|place| is_same(place.key, location))
    }

    /// The innermost value that begins at the location.
    pub(super) fn value_at(&self, location: Location) -> Option<&Place> {
        self.places.iter().rfind(|place| is_same(place.value, location))
    }

    /// The mapping that contains the key at the location, or that begins at the location.
    pub(super) fn mapping_at(&self, location: Location) -> Option<&Place> {
        let Some(key) = self.key_at(location) else { return self.value_at(location) };
        let path = outer(&key.path).unwrap_or_default();
        self.places.iter().find(|place| place.document == key.document && place.path == path)
    }

    /// The last place with this key up to the location.
    pub(super) fn last_before(&self, location: Location, key: &str) -> Option<&Place> {
        let is_named = |place: &&Place| place.path.rsplit('.').next() == Some(key) && place.line <= location.line();
        self.places.iter().rfind(is_named)
    }

    /// The name of the provider that a place belongs to.
    pub(super) fn provider(&self, place: &Place) -> Option<&str> {
        let is_name = |other: &&Place| other.document == place.document && other.path == "metadata.name";
        self.places.iter().find(is_name)?.scalar.as_deref()
    }
}

/// The path without its last part.
fn outer(path: &str) -> Option<&str> {
    path.get(..path.rfind(['.', '['])?)
}

fn is_same(one: Location, other: Location) -> bool {
    (one.line(), one.column()) == (other.line(), other.column())
}

/// Any YAML value with its location.
struct Node(Spanned<Value>);

enum Value {
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, a list or a mapping")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Scalar(String::new()))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Scalar(String::new()))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Value::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::Outline;

    const TEXT: &str = "metadata: {name: a}\nspec:\n  list:\n  - one\n  - two: 2\n    three: |\n      text\n---\nmetadata:\n  name: b\n";

    #[test]
    fn each_path_has_the_line_of_its_key_or_entry() {
        let outline = Outline::of(TEXT).unwrap();
        let lines = ["metadata.name", "spec", "spec.list", "spec.list[0]", "spec.list[1].two", "spec.list[1].three"];
        assert_eq!(lines.map(|path| outline.line(0, path).unwrap()), [1, 2, 3, 4, 5, 6]);
        assert_eq!(outline.line(1, "metadata.name"), Some(10));
    }

    #[test]
    fn a_path_that_does_not_exist_has_the_line_of_its_innermost_existing_part() {
        let outline = Outline::of(TEXT).unwrap();
        assert_eq!(outline.line(0, "spec.list[1].four.five"), Some(5));
        assert_eq!(outline.line(0, "spec.none"), Some(2));
        assert_eq!(outline.line(1, "spec.none"), Some(9));
        assert_eq!(outline.line(2, "spec"), None);
    }
}
