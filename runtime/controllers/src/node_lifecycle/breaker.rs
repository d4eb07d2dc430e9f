//! How many nodes of one provider may go (pure): a guest that lies, or a cloud that answers "not
//! found" where it means "not allowed", must not empty a cluster.
//!
//! # Rule
//! Within [`Limits::window`] the number of a provider's nodes may fall by [`Limits::percent_max`]
//! from its highest, and always by one. It falls by what we delete and by what is missing now; what
//! a person or another controller deletes is not our doing and counts for nothing. While it would
//! fall deeper, no node goes, but:
//! - a node whose deletion somebody else than the provider announced ([`Missing::announced`]) goes
//!   at once and does not count;
//! - a node that has been missing for a whole window goes within what is left of the budget, the
//!   longest missing first.
//!
//! # Why so
//! A share of one pass would stop a guest that says "gone" about all nodes at once, and none that
//! says it about one node each minute. A count of deletions would stop an upgrade that replaces
//! every machine; the number of nodes does not fall there. And counted from the highest, a cluster
//! that grew has not earned the right to lose its growth.
//!
//! # Small numbers
//! A third of ten nodes is three, and a scale-in from ten to six is ordinary. So where the provider
//! finds the machine of each other node in the same pass, the budget is [`CONFIRMED_MAX`] nodes, as
//! long as the majority of the highest number is left. A cloud that answers "not found" where it
//! means "not allowed" says so about the other nodes, too, and loses nothing by this rule.

use std::{collections::VecDeque, time::Duration};

use super::Moment;

/// Most nodes that may go because the provider finds all others. From 30 nodes on a third is as
/// much.
const CONFIRMED_MAX: usize = 10;

/// What an operator allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Of the highest number of nodes, rounded down; at least one node, so that a cluster of one or
    /// two can lose any. 100 and more never stop.
    pub(crate) percent_max: u8,
    /// The time that a loss counts.
    pub(crate) window: Duration,
}

/// A node whose machine is missing for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// When it was first said.
    pub(crate) since: Moment,
    /// When the node arrived; none where it was there before we were.
    pub(crate) arrived: Option<Moment>,
    /// Somebody in the cluster expects it: a person's annotation, or the autoscaler's taint. No
    /// provider can write either.
    pub(crate) announced: bool,
}

/// The provider's nodes now.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Fleet {
    /// All, with those that are missing.
    pub(crate) nodes: usize,
    /// When those arrived that are ready and were not there before us.
    pub(crate) arrivals: Vec<Moment>,
    /// The provider was asked in this pass about all nodes that are not missing, and found the
    /// machine of each.
    pub(crate) others_found: bool,
}

/// What a pass may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// For each missing node, in order, whether it may go.
    pub(crate) may_go: Vec<bool>,
    /// By how many nodes the provider would be down if all went.
    pub(crate) loss: usize,
    /// By how many it may be.
    pub(crate) budget: usize,
    /// The highest number of nodes within the window.
    pub(crate) peak: usize,
}

impl Judgement {
    /// It keeps a node: more would be lost than may be.
    pub(crate) fn is_open(&self) -> bool {
        self.may_go.contains(&false)
    }

    /// It keeps nodes that may go if the provider finds all others.
    pub(crate) fn depends_on_the_others(&self) -> bool {
        self.is_open() && self.loss <= confirmed_budget(self.peak)
    }
}

/// A node that it let go and that counts.
#[derive(Debug)]
struct Deleted {
    uid: String,
    arrived: Option<Moment>,
    at: Moment,
}

/// What it remembers: bounded by the nodes that were deleted within one window.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    deleted: VecDeque<Deleted>,
}

impl Breaker {
    /// Judges the nodes that are missing in this pass.
    pub(crate) fn judge(&mut self, limits: Limits, fleet: &Fleet, missing: &[Missing], now: Moment) -> Judgement {
        while self.deleted.front().is_some_and(|deleted| now.saturating_sub(deleted.at) >= limits.window) {
            self.deleted.pop_front();
        }
        let ours: Vec<&Missing> = missing.iter().filter(|node| !node.announced).collect();
        let counted = ours.len();
        let present = fleet.nodes.saturating_sub(missing.len() - counted);
        let came = ours.iter().filter_map(|node| node.arrived).chain(fleet.arrivals.iter().copied());
        let peak = self.peak(present, came, |at| now.saturating_sub(at) < limits.window);
        let share = (peak * usize::from(limits.percent_max.min(100)) / 100).max(1);
        let budget = if fleet.others_found { share.max(confirmed_budget(peak)) } else { share };
        let lost = peak - present;
        let loss = lost + counted;
        let (left, patience) = match loss > budget {
            true => (budget.saturating_sub(lost), limits.window),
            false => (counted, Duration::ZERO),
        };
        Judgement { may_go: choose(missing, (left, patience), now), loss, budget, peak }
    }

    /// The highest number of nodes since the window's begin, counted back from now.
    fn peak(&self, present: usize, came: impl Iterator<Item = Moment>, is_recent: impl Fn(Moment) -> bool) -> usize {
        let gone = self.deleted.iter().flat_map(|node| [Some((node.at, -1)), node.arrived.map(|at| (at, 1))]);
        let came = came.map(|at| (at, 1));
        let mut changes: Vec<(Moment, isize)> = gone.flatten().chain(came).filter(|(at, _)| is_recent(*at)).collect();
        // The latest first; of one moment the arrivals last, so that they hide no deletion.
        changes.sort_unstable_by_key(|(at, change)| (std::cmp::Reverse(*at), *change));
        let before = changes.into_iter().scan(present, |level, (_, change)| {
            *level = level.saturating_add_signed(-change);
            Some(*level)
        });
        before.max().unwrap_or(present).max(present)
    }

    /// A node that counts is deleted, or may be: one whose deletion was tried again counts once.
    pub(crate) fn deleted(&mut self, uid: &str, arrived: Option<Moment>, now: Moment) {
        self.deleted.retain(|deleted| deleted.uid != uid);
        self.deleted.push_back(Deleted { uid: uid.to_owned(), arrived, at: now });
    }
}

/// By how many nodes a provider that finds all others may be down.
fn confirmed_budget(peak: usize) -> usize {
    CONFIRMED_MAX.min(peak.saturating_sub(1) / 2)
}

/// All that were announced, and at most `left` others that are missing for as long as `patience`,
/// the longest missing first.
fn choose(missing: &[Missing], (left, patience): (usize, Duration), now: Moment) -> Vec<bool> {
    let mut waited: Vec<(Moment, usize)> = missing
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.announced && now.saturating_sub(node.since) >= patience)
        .map(|(index, node)| (node.since, index))
        .collect();
    waited.sort_unstable();
    waited.truncate(left);
    let mut may_go: Vec<bool> = missing.iter().map(|node| node.announced).collect();
    for (_, index) in waited {
        if let Some(may) = may_go.get_mut(index) {
            *may = true;
        }
    }
    may_go
}

#[cfg(test)]
mod tests;
