//! When Events report nodes that the breaker keeps (pure): at the beginning, and at intervals while
//! the stop lasts.

use std::{collections::HashMap, time::Duration};

use super::Moment;

/// The interval of repeated Events about a stop: an API server deletes Events after an hour.
pub(crate) const REMINDER: Duration = Duration::from_mins(30);

/// The notice of a pass about the breaker: how the reported state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerNotice {
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
    /// The notice that an Event about the cluster has to give.
    pub(crate) fn notice(&mut self, is_open: bool, now: Moment) -> BreakerNotice {
        let notice = match (is_open, self.cluster) {
            (true, None) => BreakerNotice::Opened,
            (true, Some(told)) if now.saturating_sub(told) >= REMINDER => BreakerNotice::Reminded,
            (true, Some(_)) => return BreakerNotice::Unchanged,
            (false, Some(_)) => BreakerNotice::Closed,
            (false, None) => return BreakerNotice::Unchanged,
        };
        self.cluster = is_open.then_some(now);
        notice
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

    use super::{Alarm, BreakerNotice, REMINDER};

    #[test]
    fn a_stop_is_reported_at_once_then_each_half_hour_and_its_end_once() {
        let now = Duration::ZERO;
        let mut alarm = Alarm::default();
        let mut notice = |open, reminders| alarm.notice(open, now + REMINDER * reminders / 2);
        assert_eq!(notice(false, 0), BreakerNotice::Unchanged);
        assert_eq!(notice(true, 0), BreakerNotice::Opened);
        assert_eq!(notice(true, 1), BreakerNotice::Unchanged);
        assert_eq!(notice(true, 2), BreakerNotice::Reminded);
        assert_eq!(notice(true, 3), BreakerNotice::Unchanged);
        assert_eq!(notice(false, 3), BreakerNotice::Closed);
        assert_eq!(notice(false, 9), BreakerNotice::Unchanged);
        assert_eq!(notice(true, 9), BreakerNotice::Opened);
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
