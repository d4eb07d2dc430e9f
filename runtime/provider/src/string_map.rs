//! A map of strings that takes little memory.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Index, Range},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An immutable map of strings in two allocations. A cluster has thousands of nodes with dozens of
/// labels each, and a `BTreeMap` would allocate each of these short strings separately.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StringMap {
    /// The concatenated keys and values, sorted by key.
    text: Box<str>,
    /// For each pair the end of its key and the end of its value.
    ends: Box<[(u32, u32)]>,
}

impl StringMap {
    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let (found, value) = self.at(middle)?;
            match found.cmp(key) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Some(value),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// Keys and values, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        (0..self.len()).map(|index| self.at(index).unwrap_or_default())
    }

    fn at(&self, index: usize) -> Option<(&str, &str)> {
        let (key, value) = *self.ends.get(index)?;
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        Some((self.part(begin..key), self.part(key..value)))
    }

    fn part(&self, Range { start, end }: Range<u32>) -> &str {
        self.text.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// The end of a text. No object of Kubernetes and no guest has 4 GiB of text.
fn position(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for StringMap {
    /// If a key occurs several times, the last value wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs: Vec<(K, V)> = pairs.into_iter().collect();
        let sorted: BTreeMap<&str, &str> = pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let mut text = String::with_capacity(sorted.iter().map(|(key, value)| key.len() + value.len()).sum());
        let ends = sorted.into_iter().map(|(key, value)| {
            text.push_str(key);
            let end = position(&text);
            text.push_str(value);
            (end, position(&text))
        });
        let ends = ends.collect();
        Self { text: text.into(), ends }
    }
}

impl<K: AsRef<str>, V: AsRef<str>, const N: usize> From<[(K, V); N]> for StringMap {
    fn from(pairs: [(K, V); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl From<&BTreeMap<String, String>> for StringMap {
    fn from(map: &BTreeMap<String, String>) -> Self {
        map.iter().collect()
    }
}

impl From<&StringMap> for BTreeMap<String, String> {
    fn from(map: &StringMap) -> Self {
        map.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// # Panics
/// The key is not there.
impl Index<&str> for StringMap {
    type Output = str;

    #[expect(clippy::expect_used, reason = "as std's maps")]
    fn index(&self, key: &str) -> &str {
        self.get(key).expect("no entry found for key")
    }
}

impl Serialize for StringMap {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from(&BTreeMap::deserialize(from)?))
    }
}

impl fmt::Debug for StringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::StringMap;

    #[test]
    fn a_string_map_behaves_like_a_btree_map() {
        for count in 0..40 {
            // Empty strings, prefixes of each other, and texts of more than one byte a character.
            let pairs = (0..count).map(|n| ("ä".repeat(n % 7) + &n.to_string(), "b".repeat(n % 3)));
            let map: BTreeMap<String, String> = pairs.collect();
            let compact = StringMap::from(&map);
            assert_eq!(BTreeMap::from(&compact), map);
            assert_eq!((compact.len(), compact.is_empty()), (map.len(), map.is_empty()));
            for (key, value) in &map {
                assert_eq!(compact.get(key), Some(value.as_str()));
                assert_eq!(compact.get(&format!("{key}0")), map.get(&format!("{key}0")).map(String::as_str));
            }
            assert_eq!(compact.get(""), None);
        }
        assert_eq!(StringMap::from([("a", "1"), ("a", "2")]), StringMap::from([("a", "2")]));
        assert_ne!(StringMap::from([("a", "b")]), StringMap::from([("ab", "")]), "one text, other pairs");
    }
}
