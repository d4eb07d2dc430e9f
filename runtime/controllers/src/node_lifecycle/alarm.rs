//! When Events report nodes that the breaker keeps (pure): at the beginning, and at intervals while
//! the stop lasts.

use std::{collections::HashMap, time::Duration};

use super::Moment;

/// The interval of repeated Events about a stop: an API server deletes Events after an hour.
pub(crate) const REMINDER: Duration = Duration::from_mins(30);

/// The change of the breaker's reported state in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The breaker opened: deletions stop.
    Opened,
    /// The breaker is still open, and a reminder is due.
    Reminded,
    /// The breaker closed: deletions are allowed again.
    Closed,
    /// Nothing to report.
    Unchanged,
}

/// The times of the last Events. One entry for each node that the breaker keeps.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    cluster: Option<Moment>,
    nodes: HashMap<String, Moment>,
}

impl Alarm {
    /// Which change an Event about the cluster has to report.
    pub(crate) fn turn(&mut self, is_open: bool, now: Moment) -> Turn {
        let turn = match (is_open, self.cluster) {
            (true, None) => Turn::Opened,
            (true, Some(told)) if now.saturating_sub(told) >= REMINDER => Turn::Reminded,
            (true, Some(_)) => return Turn::Unchanged,
            (false, Some(_)) => Turn::Closed,
            (false, None) => return Turn::Unchanged,
        };
        self.cluster = is_open.then_some(now);
        turn
    }

    /// The nodes that are due for an Event, in order. `held` yields each kept node with its UID;
    /// the alarm forgets all other nodes.
    pub(crate) fn due<'a, T>(&mut self, held: impl Iterator<Item = (&'a str, T)>, now: Moment) -> Vec<T> {
        let before = std::mem::take(&mut self.nodes);
        let mut due = Vec::new();
        for (uid, node) in held {
            let told = before.get(uid).copied().filter(|told| now.saturating_sub(*told) < REMINDER);
            if told.is_none() {
                due.push(node);
            }
            self.nodes.insert(uid.to_owned(), told.unwrap_or(now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Alarm, REMINDER, Turn};

    #[test]
    fn a_stop_is_reported_at_once_then_each_half_hour_and_its_end_once() {
        let now = Duration::ZERO;
        let mut alarm = Alarm::default();
        let mut turn = |open, reminders| alarm.turn(open, now + REMINDER * reminders / 2);
        assert_eq!(turn(false, 0), Turn::Unchanged);
        assert_eq!(turn(true, 0), Turn::Opened);
        assert_eq!(turn(true, 1), Turn::Unchanged);
        assert_eq!(turn(true, 2), Turn::Reminded);
        assert_eq!(turn(true, 3), Turn::Unchanged);
        assert_eq!(turn(false, 3), Turn::Closed);
        assert_eq!(turn(false, 9), Turn::Unchanged);
        assert_eq!(turn(true, 9), Turn::Opened);
    }

    #[test]
    fn each_node_has_its_own_reminder_interval() {
        let now = Duration::ZERO;
        let mut alarm = Alarm::default();
        let mut due = |uids: &str, reminders| {
            let held: Vec<String> = uids.chars().map(String::from).collect();
            alarm.due(held.iter().map(|uid| (uid.as_str(), uid.clone())), now + REMINDER * reminders / 2).concat()
        };
        assert_eq!(due("a", 0), "a");
        assert_eq!(due("ab", 1), "b");
        assert_eq!(due("ab", 2), "a");
        assert_eq!(due("b", 2), "");
        assert_eq!(due("a", 2), "a", "the machine was found in the pass before, so the alarm forgot the node");
    }
}
