//! What outlives a call, in the host's cache. Everything here can be lost and is learned again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use skysail_guest_sdk::cache;

use crate::{lookup::Index, zones::Known};

/// How long the IDs of machines are kept after the last call. Each use of an ID checks the UUID of
/// the machine.
const INDEX_TTL: Duration = Duration::from_hours(1);
/// IDs that have not changed are written again after this time, before the cache forgets them:
/// while a vCenter fails, the machines of the others are found by their IDs alone.
const INDEX_RENEWED: Duration = Duration::from_mins(30);
/// How long a zone and the names of tags are used.
const ZONES_TTL: Duration = Duration::from_mins(10);
/// The most machines whose IDs are kept, of each vCenter: 350 KB of the cache, 1 MiB by default.
const MACHINES_MAX: usize = 5_000;

/// What a call has learned of the machines of one vCenter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    learned: Index,
    forgotten: Vec<String>,
}

/// The IDs of the machines of a vCenter.
pub(crate) fn machines(origin: &str) -> Index {
    cache::get(&machines_key(origin)).unwrap_or_default()
}

/// Keeps what this call has changed; other calls change other machines at the same time.
pub(crate) fn keep_machines(origin: &str, before: &Index, after: &Index) {
    let (change, renewed) = (Change::between(before, after), renewed_key(origin));
    let is_due = || !after.is_empty() && cache::get::<bool>(&renewed).is_none();
    if change != Change::default() || is_due() {
        cache::set(&renewed, &true, INDEX_RENEWED);
        cache::update(&machines_key(origin), INDEX_TTL, |present: Option<Index>| {
            change.applied(present.unwrap_or_default())
        });
    }
}

/// What is known of the zones of a vCenter.
pub(crate) fn zones(origin: &str) -> Known {
    cache::get(&zones_key(origin)).unwrap_or_default()
}

/// Keeps what is known of the zones of a vCenter.
pub(crate) fn keep_zones(origin: &str, known: &Known) {
    cache::set(&zones_key(origin), known, ZONES_TTL);
}

impl Change {
    fn between(before: &Index, after: &Index) -> Self {
        let new = after.iter().filter(|(uuid, id)| before.get(*uuid) != Some(*id));
        Self {
            learned: new.map(|(uuid, id)| (uuid.clone(), id.clone())).collect(),
            forgotten: before.keys().filter(|uuid| !after.contains_key(*uuid)).cloned().collect(),
        }
    }

    fn applied(&self, mut index: Index) -> Index {
        for uuid in &self.forgotten {
            index.remove(uuid);
        }
        if index.len() + self.learned.len() > MACHINES_MAX {
            index.clear();
        }
        index.extend(self.learned.iter().take(MACHINES_MAX).map(|(uuid, id)| (uuid.clone(), id.clone())));
        index
    }
}

fn machines_key(origin: &str) -> String {
    format!("machines {origin}")
}

fn renewed_key(origin: &str) -> String {
    format!("renewed {origin}")
}

fn zones_key(origin: &str) -> String {
    format!("zones {origin}")
}

#[cfg(test)]
mod tests {
    use super::{Change, MACHINES_MAX};
    use crate::lookup::Index;

    fn index(entries: &[(&str, &str)]) -> Index {
        entries.iter().map(|(uuid, id)| ((*uuid).to_owned(), (*id).to_owned())).collect()
    }

    #[test]
    fn a_change_leaves_what_another_call_has_learned() {
        let change = Change::between(&index(&[("a", "1"), ("b", "2")]), &index(&[("b", "3"), ("c", "4")]));
        let other = index(&[("a", "1"), ("b", "2"), ("d", "5")]);
        assert_eq!(change.applied(other), index(&[("b", "3"), ("c", "4"), ("d", "5")]));
        let same = index(&[("a", "1")]);
        assert_eq!(Change::between(&same, &same), Change::default());
    }

    #[test]
    fn a_full_index_begins_again() {
        let full: Index = (0..MACHINES_MAX).map(|n| (n.to_string(), n.to_string())).collect();
        let change = Change::between(&Index::new(), &index(&[("x", "1")]));
        assert_eq!(change.applied(full), index(&[("x", "1")]));
    }
}
