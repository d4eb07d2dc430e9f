//! How often in a row, and since when, a machine was said to be gone (pure).
//!
//! An answer is a guest's word, and clouds forget a machine for a moment and find it again: a node
//! goes only after several passes said the same. One entry for each node of the last pass whose
//! machine is missing, so its size is bounded by the nodes that are not ready.

use std::collections::HashMap;

use super::Moment;

/// What a pass learnt about one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Gone for certain, says the provider.
    Gone,
    /// Nothing: the look-up failed.
    Nothing,
}

/// How a machine has been missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// When it was first said, with no word since that it is there.
    pub(crate) since: Moment,
    /// Consecutive passes that said so. A failed look-up in between starts the count again: a cloud
    /// in trouble forgets machines.
    pub(crate) in_a_row: u32,
}

/// By the UID of the node.
#[derive(Debug, Default)]
pub(crate) struct Sightings(HashMap<String, Sighting>);

impl Sightings {
    /// Takes one pass. A node that is not named is forgotten: it is ready, its machine is there, or
    /// it is no node any more.
    pub(crate) fn note<'a>(&mut self, pass: impl Iterator<Item = (&'a str, Word)>, now: Moment) {
        let before = std::mem::take(&mut self.0);
        let seen = pass.filter_map(|(uid, word)| {
            let old = before.get(uid).copied();
            let sighting = match (word, old) {
                (Word::Gone, Some(old)) => Sighting { in_a_row: old.in_a_row.saturating_add(1), ..old },
                (Word::Gone, None) => Sighting { since: now, in_a_row: 1 },
                (Word::Nothing, Some(old)) => Sighting { in_a_row: 0, ..old },
                (Word::Nothing, None) => return None,
            };
            Some((uid.to_owned(), sighting))
        });
        self.0 = seen.collect();
    }

    /// Since when the machine of this node is missing, where at least this many passes in a row
    /// said so.
    pub(crate) fn confirmed(&self, uid: &str, passes: u32) -> Option<Moment> {
        self.0.get(uid).filter(|sighting| sighting.in_a_row >= passes.max(1)).map(|sighting| sighting.since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sightings, Word};
    use crate::node_lifecycle::Moment;

    const S: Duration = Duration::from_secs(1);

    /// One letter for each pass, a second apart: gone, nothing learnt, or there; then for how long
    /// it counts as gone after two in a row.
    #[track_caller]
    fn check(passes: &str, missing: Option<u32>) {
        let mut sightings = Sightings::default();
        let mut now = Moment::ZERO;
        for pass in passes.chars() {
            now += S;
            let word = match pass {
                'g' => Some(("uid", Word::Gone)),
                '?' => Some(("uid", Word::Nothing)),
                _ => None,
            };
            sightings.note(word.into_iter(), now);
        }
        assert_eq!(sightings.confirmed("uid", 2).map(|since| now - since), missing.map(|s| s * S), "{passes}");
        assert_eq!(sightings.confirmed("another", 1), None);
    }

    /// Lesson 38: several negative answers in a row.
    #[test]
    fn a_machine_is_gone_when_passes_in_a_row_say_so() {
        check("", None);
        check("g", None);
        check("gg", Some(1));
        check("ggg", Some(2));
        check("g.g", None);
        check("gg.", None);
        check("gg.gg", Some(1));
    }

    /// A look-up that failed neither confirms nor forgets.
    #[test]
    fn a_failed_look_up_in_between_begins_the_row_anew_and_keeps_the_time() {
        check("g?g", None);
        check("g?gg", Some(3));
        check("gg?", None);
        check("?", None);
        check("g?g?g?", None);
    }
}
