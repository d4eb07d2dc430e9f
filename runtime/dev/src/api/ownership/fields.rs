//! Sets of fields in the form of `fieldsV1`.
//!
//! A path is a list of elements: `f:NAME` a field, `k:{…}` a list item by its keys, `v:…` a member
//! of a set.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of paths, as a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSet {
    /// Whether the path that ends here is in the set.
    pub(crate) member: bool,
    pub(crate) children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// Reads `fieldsV1`.
    pub(crate) fn parse(fields: &Value) -> Self {
        let mut set = Self::default();
        for (key, value) in fields.as_object().into_iter().flatten() {
            if key == "." {
                set.member = true;
                continue;
            }
            let mut child = Self::parse(value);
            // A leaf is written as an empty map.
            child.member |= child.children.is_empty();
            set.children.insert(key.clone(), child);
        }
        set
    }

    /// Writes `fieldsV1`.
    pub(crate) fn to_value(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".into(), Value::Object(Map::new()));
        }
        for (key, child) in &self.children {
            map.insert(key.clone(), child.to_value());
        }
        Value::Object(map)
    }

    /// Whether no path is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    /// The subset below an element, created when absent.
    pub(crate) fn child(&mut self, element: String) -> &mut Self {
        self.children.entry(element).or_default()
    }

    /// Removes a path and everything below it.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [last] => {
                self.children.remove(*last);
            }
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(*first) {
                    child.remove(rest);
                }
            }
        }
        self.children.retain(|_, child| !child.is_empty());
    }

    /// Removes one path from the set; the paths below it stay.
    pub(crate) fn forget(&mut self, path: &[&str]) {
        match path {
            [] => self.member = false,
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(*first) {
                    child.forget(rest);
                }
            }
        }
        self.children.retain(|_, child| !child.is_empty());
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut children = self.children.clone();
        for (key, child) in &other.children {
            let merged = children.get(key).map_or_else(|| child.clone(), |mine| mine.union(child));
            children.insert(key.clone(), merged);
        }
        Self { member: self.member || other.member, children }
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let children = self.children.iter().map(|(key, child)| {
            (key.clone(), other.children.get(key).map_or_else(|| child.clone(), |theirs| child.difference(theirs)))
        });
        let children = children.filter(|(_, child)| !child.is_empty()).collect();
        Self { member: self.member && !other.member, children }
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(key, child)| {
            let both = child.intersection(other.children.get(key)?);
            (!both.is_empty()).then(|| (key.clone(), both))
        });
        Self { member: self.member && other.member, children: children.collect() }
    }

    /// Every path in the set.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.walk(&mut Vec::new(), &mut paths);
        paths
    }

    fn walk(&self, at: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        if self.member {
            paths.push(at.clone());
        }
        for (key, child) in &self.children {
            at.push(key.clone());
            child.walk(at, paths);
            at.pop();
        }
    }
}

/// A path in the form of conflict messages: `.spec.ports[port=80,protocol="TCP"].name`.
pub(crate) fn shown(path: &[String]) -> String {
    path.iter()
        .map(|element| match element.split_once(':') {
            Some(("f", name)) => format!(".{name}"),
            Some(("k", keys)) => {
                let keys: Value = serde_json::from_str(keys).unwrap_or_default();
                let pairs: Vec<String> =
                    keys.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", pairs.join(","))
            }
            Some((_, value)) => format!("[={value}]"),
            None => element.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::FieldSet;

    #[test]
    fn a_set_survives_being_written_and_read() {
        let written =
            json!({"f:spec": {"f:ports": {".": {}, "k:{\"port\":80}": {".": {}, "f:port": {}}}, "f:type": {}}});
        assert_eq!(FieldSet::parse(&written).to_value(), written);
    }

    #[test]
    fn a_difference_keeps_what_lies_below_a_removed_member() {
        let all = FieldSet::parse(&json!({"f:a": {".": {}, "f:b": {}}}));
        let parent = FieldSet::parse(&json!({"f:a": {}}));
        assert_eq!(all.difference(&parent).to_value(), json!({"f:a": {"f:b": {}}}));
    }
}
