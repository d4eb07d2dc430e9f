//! Facts about the fields of built-in kinds: which are maps, lists and structs, and how patches
//! merge them.
//!
//! `schema.txt` holds one line per composite field: definition, field, shape, and Kubernetes' merge
//! annotations. The table was derived from the OpenAPI v3 documents of kube-apiserver 1.36.3 and
//! covers every field of the served kinds. Lists of custom resources are described by their
//! definition instead; see `custom`.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::kinds::Kind;

static TABLE: &str = include_str!("schema.txt");

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Fixed fields, described by the named definition.
    Struct(&'static str),
    /// Free keys; the values are described by the named definition when they are structs.
    Map(Option<&'static str>),
    /// Elements, described by the named definition when they are structs.
    List(Option<&'static str>),
}

/// How server-side apply merges a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// Scalars, each a member once.
    Set,
    /// Structs told apart by these keys; an absent key counts as its default.
    Map(Vec<(&'static str, Option<&'static str>)>),
}

/// One composite field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    /// For structs and maps: whether server-side apply replaces them as a whole.
    pub(crate) atomic: bool,
    pub(crate) list_type: ListType,
    /// Strategic merge: `patchStrategy` contains `merge`.
    pub(crate) merge: bool,
    /// Strategic merge: `patchStrategy` contains `retainKeys`.
    pub(crate) retain_keys: bool,
    /// Strategic merge: `patchMergeKey`.
    pub(crate) merge_key: Option<&'static str>,
    /// Whether an empty value is still written.
    pub(crate) required: bool,
}

type Definitions = HashMap<&'static str, HashMap<&'static str, Field>>;

fn definitions() -> &'static Definitions {
    static DEFINITIONS: OnceLock<Definitions> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let mut definitions = Definitions::new();
        for (definition, name, field) in TABLE.lines().filter_map(parse) {
            definitions.entry(definition).or_default().insert(name, field);
        }
        definitions
    })
}

fn parse(line: &'static str) -> Option<(&'static str, &'static str, Field)> {
    let mut words = line.split(' ');
    let (definition, name, shape, of) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let of_struct = (of != "scalar").then_some(of);
    let mut field = Field {
        shape: match shape {
            "struct" => Shape::Struct(of),
            "map" => Shape::Map(of_struct),
            _ => Shape::List(of_struct),
        },
        atomic: false,
        list_type: ListType::Atomic,
        merge: false,
        retain_keys: false,
        merge_key: None,
        required: false,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "atomic" => field.atomic = true,
            None if word == "set" => field.list_type = ListType::Set,
            None if word == "required" => field.required = true,
            Some(("map", keys)) => field.list_type = ListType::Map(keys.split(',').map(key).collect()),
            Some(("patch", strategy)) => {
                field.merge = strategy.contains("merge");
                field.retain_keys = strategy.contains("retainKeys");
            }
            Some(("key", key)) => field.merge_key = Some(key),
            _ => return None,
        }
    }
    Some((definition, name, field))
}

fn key(text: &'static str) -> (&'static str, Option<&'static str>) {
    text.split_once(':').map_or((text, None), |(k, d)| (k, Some(d)))
}

/// The definition of a built-in kind; `None` for custom resources.
pub(crate) fn definition_of(kind: &Kind) -> Option<&'static str> {
    kind.custom.is_none().then_some(())?;
    let group = kind.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    let wanted = format!("{group}.{}", kind.kind);
    definitions().keys().find(|d| **d == wanted).copied()
}

/// The composite field `name` of `definition`.
pub(crate) fn field(definition: &str, name: &str) -> Option<&'static Field> {
    definitions().get(definition)?.get(name)
}

#[cfg(test)]
mod tests {
    use super::{ListType, TABLE, field, parse};

    #[test]
    fn every_line_of_the_table_is_understood() {
        for line in TABLE.lines() {
            assert!(parse(line).is_some(), "cannot parse {line:?}");
        }
    }

    #[test]
    fn service_ports_have_different_keys_for_strategic_merge_and_for_apply() {
        let ports = field("core.ServiceSpec", "ports").unwrap();
        assert_eq!(ports.merge_key, Some("port"));
        assert_eq!(ports.list_type, ListType::Map(vec![("port", None), ("protocol", Some("TCP"))]));
    }
}
