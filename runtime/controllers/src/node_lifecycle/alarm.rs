//! When Events report nodes that the breaker keeps (pure): once when it begins, and again while it
//! lasts.

use std::{collections::HashMap, time::Duration};

use super::Moment;

/// A stop that lasts is reported again after this time: an API server forgets Events after an hour.
pub(crate) const REMINDER: Duration = Duration::from_mins(30);

/// What changed with a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Deletions are stopped from now on.
    Opened,
    /// They still are, and it is time to say so again.
    Reminded,
    /// They are allowed again.
    Closed,
    /// Nothing to say.
    Unchanged,
}

/// What was told. One entry for each node that is kept.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    cluster: Option<Moment>,
    nodes: HashMap<String, Moment>,
}

impl Alarm {
    /// Whether an Event on the cluster reports the breaker's state.
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

    /// Which of the kept nodes get an Event, in order; each comes with its UID. Others are
    /// forgotten.
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
    fn a_stop_is_told_at_once_then_each_half_hour_and_its_end_once() {
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
    fn each_node_is_told_for_itself() {
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
        assert_eq!(due("a", 2), "a", "it was back for a pass");
    }
}
