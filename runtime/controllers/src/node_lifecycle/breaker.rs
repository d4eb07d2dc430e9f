//! The breaker limits how many nodes of one provider may be deleted (pure). A malicious guest, or a
//! cloud that answers "not found" instead of "forbidden", must not delete all nodes of a cluster.
//!
//! # Rule
//! Within [`BreakerLimits::window`] the number of a provider's nodes may fall by
//! [`BreakerLimits::percent_max`] of its peak, and always by one. Our deletions and the nodes
//! missing now count as loss; deletions by a person or another controller do not. While the loss
//! would exceed the budget, the breaker keeps every node, with two exceptions:
//! - A node whose deletion was announced by someone other than the provider
//!   ([`Missing::announced`]) may be deleted at once and does not count.
//! - A node that has been missing for a whole window may be deleted within the remaining budget,
//!   the longest missing first.
//!
//! # Rationale
//! A limit for each pass would stop a guest that reports all machines as missing at once, but not a
//! guest that reports one machine each minute. A limit on deletions would stop an upgrade that
//! replaces every machine, although the number of nodes does not fall. The limit is relative to the
//! peak, so that growth of the cluster within the window does not allow more deletions.
//!
//! # Small clusters
//! A third of ten nodes is three, but a scale-in from ten to six is ordinary. So if the provider
//! finds the machine of each other node in the same pass, the budget is [`CONFIRMED_MAX`] nodes, as
//! long as more than half of the peak remains. A cloud that answers "not found" instead of
//! "forbidden" gives this answer for the other nodes too, so this rule does not raise its budget.

use std::{collections::VecDeque, time::Duration};

use super::Moment;

/// The maximum number of nodes that may be deleted because the provider finds all others. With 30
/// or more nodes a third is at least as much.
const CONFIRMED_MAX: usize = 10;

/// The operator's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BreakerLimits {
    /// Percentage of the peak, rounded down; at least one node, so that a cluster of one or two
    /// nodes can lose one. 100 disables the breaker.
    pub(crate) percent_max: u8,
    /// How long a loss counts.
    pub(crate) window: Duration,
}

/// A node whose machine is confirmed as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// When the provider first reported the machine as missing.
    pub(crate) since: Moment,
    /// When the node was first seen; none if it existed before this process started.
    pub(crate) arrived: Option<Moment>,
    /// A person's annotation or the autoscaler's taint announced the deletion. No provider can
    /// write either.
    pub(crate) announced: bool,
}

/// The provider's nodes now.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Fleet {
    /// The number of nodes, including missing ones.
    pub(crate) nodes: usize,
    /// When each ready node was first seen that did not exist before this process started.
    pub(crate) arrivals: Vec<Moment>,
    /// In this pass the provider was asked about all nodes that are not missing, and found the
    /// machine of each.
    pub(crate) others_found: bool,
}

/// The decision of the breaker about a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// For each missing node, in order, whether it may be deleted.
    pub(crate) may_go: Vec<bool>,
    /// The loss within the window if all missing nodes were deleted.
    pub(crate) loss: usize,
    /// The allowed loss.
    pub(crate) budget: usize,
    /// The highest number of nodes within the window.
    pub(crate) peak: usize,
}

impl Judgement {
    /// Whether the breaker keeps a node because the loss exceeds the budget.
    pub(crate) fn is_open(&self) -> bool {
        self.may_go.contains(&false)
    }

    /// Whether the breaker would allow more if the provider finds all other machines.
    pub(crate) fn depends_on_the_others(&self) -> bool {
        self.is_open() && self.loss <= confirmed_budget(self.peak)
    }
}

/// A deleted node that counts as loss.
#[derive(Debug)]
struct Deleted {
    uid: String,
    arrived: Option<Moment>,
    at: Moment,
}

/// The breaker's memory, bounded by the nodes that were deleted within one window.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    deleted: VecDeque<Deleted>,
}

impl Breaker {
    /// Judges the nodes that are missing in this pass.
    pub(crate) fn judge(
        &mut self,
        limits: BreakerLimits,
        fleet: &Fleet,
        missing: &[Missing],
        now: Moment,
    ) -> Judgement {
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

    /// The highest number of nodes since the begin of the window, computed backwards from now.
    fn peak(&self, present: usize, came: impl Iterator<Item = Moment>, is_recent: impl Fn(Moment) -> bool) -> usize {
        let gone = self.deleted.iter().flat_map(|node| [Some((node.at, -1)), node.arrived.map(|at| (at, 1))]);
        let came = came.map(|at| (at, 1));
        let mut changes: Vec<(Moment, isize)> = gone.flatten().chain(came).filter(|(at, _)| is_recent(*at)).collect();
        // The latest change first. At the same moment arrivals come last, so that they do not hide
        // a deletion.
        changes.sort_unstable_by_key(|(at, change)| (std::cmp::Reverse(*at), *change));
        let before = changes.into_iter().scan(present, |level, (_, change)| {
            *level = level.saturating_add_signed(-change);
            Some(*level)
        });
        before.max().unwrap_or(present).max(present)
    }

    /// Records that a node that counts was deleted, or may have been. A repeated deletion counts
    /// once.
    pub(crate) fn deleted(&mut self, uid: &str, arrived: Option<Moment>, now: Moment) {
        self.deleted.retain(|deleted| deleted.uid != uid);
        self.deleted.push_back(Deleted { uid: uid.to_owned(), arrived, at: now });
    }
}

/// The allowed loss of a provider that finds all other machines.
fn confirmed_budget(peak: usize) -> usize {
    CONFIRMED_MAX.min(peak.saturating_sub(1) / 2)
}

/// Allows all announced nodes, and at most `left` others that have been missing for at least
/// `patience`, the longest missing first.
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
