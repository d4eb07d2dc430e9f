//! How often in a row, and since when, the provider reported a machine as missing (pure).
//!
//! A guest may be wrong, and clouds temporarily omit a machine: a node is deleted only after
//! several consecutive passes agree. The map has one entry for each node of the last pass whose
//! machine is missing, so the number of nodes that are not ready bounds its size.

use std::collections::HashMap;

use super::Moment;

/// The result of a pass for one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookUp {
    /// The provider reports that the machine does not exist.
    Missing,
    /// The look-up failed.
    Failed,
}

/// The history of a missing machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingMachine {
    /// When the machine was first reported as missing; kept until a pass finds the machine.
    pub(crate) since: Moment,
    /// Consecutive passes that reported the machine as missing. A failed look-up resets the count:
    /// a cloud during an outage may omit machines.
    pub(crate) in_a_row: u32,
}

/// The history of each missing machine, by the UID of its node.
#[derive(Debug, Default)]
pub(crate) struct MissingMachines(HashMap<String, MissingMachine>);

impl MissingMachines {
    /// Records one pass. A node that the pass does not contain is forgotten: it is ready, its
    /// machine exists, or the node is deleted.
    pub(crate) fn note<'a>(&mut self, pass: impl Iterator<Item = (&'a str, LookUp)>, now: Moment) {
        let before = std::mem::take(&mut self.0);
        let seen = pass.filter_map(|(uid, look_up)| {
            let old = before.get(uid).copied();
            let machine = match (look_up, old) {
                (LookUp::Missing, Some(old)) => MissingMachine { in_a_row: old.in_a_row.saturating_add(1), ..old },
                (LookUp::Missing, None) => MissingMachine { since: now, in_a_row: 1 },
                (LookUp::Failed, Some(old)) => MissingMachine { in_a_row: 0, ..old },
                (LookUp::Failed, None) => return None,
            };
            Some((uid.to_owned(), machine))
        });
        self.0 = seen.collect();
    }

    /// Since when the machine of this node is missing, if at least this many consecutive passes
    /// reported it.
    pub(crate) fn confirmed(&self, uid: &str, passes: u32) -> Option<Moment> {
        self.0.get(uid).filter(|machine| machine.in_a_row >= passes.max(1)).map(|machine| machine.since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LookUp, MissingMachines};
    use crate::node_lifecycle::Moment;

    const S: Duration = Duration::from_secs(1);

    /// `passes` has one letter for each pass, a second apart: `g` for a missing machine, `?` for a
    /// failed look-up, `.` for an existing machine. `missing` is the number of seconds for which
    /// the machine counts as missing, given two confirmations.
    #[track_caller]
    fn check(passes: &str, missing: Option<u32>) {
        let mut missing_machines = MissingMachines::default();
        let mut now = Moment::ZERO;
        for pass in passes.chars() {
            now += S;
            let look_up = match pass {
                'g' => Some(("uid", LookUp::Missing)),
                '?' => Some(("uid", LookUp::Failed)),
                _ => None,
            };
            missing_machines.note(look_up.into_iter(), now);
        }
        assert_eq!(missing_machines.confirmed("uid", 2).map(|since| now - since), missing.map(|s| s * S), "{passes}");
        assert_eq!(missing_machines.confirmed("another", 1), None);
    }

    /// deploy/docs/lessons.md, 38: several negative answers in a row.
    #[test]
    fn a_machine_is_missing_after_several_consecutive_passes() {
        check("", None);
        check("g", None);
        check("gg", Some(1));
        check("ggg", Some(2));
        check("g.g", None);
        check("gg.", None);
        check("gg.gg", Some(1));
    }

    /// A failed look-up resets the count and keeps the time.
    #[test]
    fn a_failed_look_up_resets_the_count_of_passes_and_keeps_the_time() {
        check("g?g", None);
        check("g?gg", Some(3));
        check("gg?", None);
        check("?", None);
        check("g?g?g?", None);
    }
}
