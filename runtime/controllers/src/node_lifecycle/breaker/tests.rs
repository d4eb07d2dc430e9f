//! How many nodes may be deleted, as tables and as attacks.

use std::time::Duration;

use super::{Breaker, BreakerLimits, Fleet, Missing};
use crate::node_lifecycle::Moment;
use rstest::rstest;

const LIMITS: BreakerLimits = BreakerLimits { percent_max: 34, window: Duration::from_hours(6) };
const MINUTE: Duration = Duration::from_mins(1);
const START: Moment = Duration::from_mins(2);

fn fleet(nodes: usize) -> Fleet {
    Fleet { nodes, ..Fleet::default() }
}

/// Nodes that existed before the start, missing since `since`, not announced.
fn missing(count: usize, since: Moment) -> Vec<Missing> {
    vec![Missing { since, arrived: None, announced: false }; count]
}

fn count(may_go: &[bool]) -> usize {
    may_go.iter().filter(|may| **may).count()
}

/// How many nodes may be deleted at once if `gone` of `nodes` are missing.
fn go_at_once(nodes: usize, gone: usize) -> usize {
    let now = START;
    let judgement = Breaker::default().judge(LIMITS, &fleet(nodes), &missing(gone, now), now);
    assert_eq!(judgement.is_open(), judgement.loss > judgement.budget, "{nodes} {gone}");
    count(&judgement.may_go)
}

/// The most nodes that may be deleted at once; if one more is missing, none may.
#[rstest]
#[case::one(1, 1)]
#[case::two(2, 1)]
#[case::three(3, 1)]
#[case::five(5, 1)]
#[case::six(6, 2)]
#[case::a_zone_of_three(9, 3)]
#[case::thirty(30, 10)]
#[case::a_thousand(1000, 340)]
fn a_third_may_be_deleted_at_once_and_if_more_are_missing_none(#[case] nodes: usize, #[case] most: usize) {
    assert_eq!(go_at_once(nodes, most), most);
    if most < nodes {
        assert_eq!(go_at_once(nodes, most + 1), 0, "not even the first one");
        assert_eq!(go_at_once(nodes, nodes), 0);
    }
}

/// The same if the provider finds all other machines.
#[rstest]
#[case::two(2, 1)]
#[case::three(3, 1)]
#[case::six(6, 2)]
#[case::from_ten_to_six(10, 4)]
#[case::twenty(20, 9)]
#[case::twenty_five(25, 10)]
#[case::a_third_is_as_much(30, 10)]
#[case::a_thousand(1000, 340)]
fn up_to_ten_nodes_may_be_deleted_if_the_provider_finds_all_other_machines(#[case] nodes: usize, #[case] most: usize) {
    let now = START;
    for (gone, expected) in [(most, most), (most + 1, 0)] {
        let fleet = Fleet { others_found: true, ..fleet(nodes) };
        let judgement = Breaker::default().judge(LIMITS, &fleet, &missing(gone, now), now);
        assert_eq!(count(&judgement.may_go), expected, "{gone} of {nodes}");
    }
}

#[test]
fn without_a_missing_machine_the_breaker_stays_closed() {
    assert_eq!(go_at_once(0, 0), 0);
    assert_eq!(go_at_once(100, 0), 0);
}

#[test]
fn a_hundred_percent_never_stops() {
    let now = START;
    for percent_max in [100, 255] {
        let limits = BreakerLimits { percent_max, ..LIMITS };
        let judgement = Breaker::default().judge(limits, &fleet(9), &missing(9, now), now);
        assert!(!judgement.is_open() && judgement.may_go == [true; 9], "{judgement:?}");
    }
}

/// A simulated cluster, minute by minute.
struct Play {
    breaker: Breaker,
    start: Moment,
    minute: u32,
    /// When each node with an existing machine was first seen, if after the start.
    nodes: Vec<Option<Moment>>,
    /// The nodes whose machines are missing.
    waiting: Vec<Missing>,
    deleted: usize,
}

impl Play {
    fn new(nodes: usize) -> Self {
        let (breaker, start) = (Breaker::default(), START);
        Self { breaker, start, minute: 0, nodes: vec![None; nodes], waiting: Vec::new(), deleted: 0 }
    }

    fn now(&self) -> Moment {
        self.start + MINUTE * self.minute
    }

    /// A minute in which `come` nodes arrive, and then the machines of the oldest `gone` nodes are
    /// missing.
    fn minute(&mut self, come: usize, gone: usize) {
        self.minute += 1;
        let now = self.now();
        self.nodes.extend(vec![Some(now); come]);
        let gone = self.nodes.drain(..gone.min(self.nodes.len()));
        self.waiting.extend(gone.map(|arrived| Missing { since: now, arrived, announced: false }));
        let fleet = Fleet {
            nodes: self.nodes.len() + self.waiting.len(),
            arrivals: self.nodes.iter().copied().flatten().collect(),
            ..Fleet::default()
        };
        let judgement = self.breaker.judge(LIMITS, &fleet, &self.waiting, now);
        let mut may_go = judgement.may_go.iter();
        let (gone, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|_| may_go.next() == Some(&true));
        self.waiting = waiting;
        let gone: Vec<Missing> = gone;
        self.deleted += gone.len();
        for (n, node) in gone.iter().enumerate() {
            self.breaker.deleted(&(self.deleted - n).to_string(), node.arrived, now);
        }
    }
}

/// A slow attacker can delete a third of the nodes within a window, and no more.
#[rstest]
#[case::it_began(30, 9, 9)]
#[case::an_hour(30, 60, 10)]
#[case::to_the_end_of_the_window(30, 6 * 60, 10)]
#[case::a_small_cluster(3, 6 * 60, 1)]
fn missing_machines_reported_slowly_delete_no_more_nodes_than_all_at_once(
    #[case] nodes: usize,
    #[case] minutes: u32,
    #[case] deleted: usize,
) {
    let mut play = Play::new(nodes);
    (0..minutes).for_each(|_| play.minute(0, 1));
    assert_eq!(play.deleted, deleted);
}

/// The same attack against nodes that arrived within the window.
#[test]
fn growth_of_the_cluster_does_not_allow_more_deletions() {
    for at_once in [1, 97] {
        let mut play = Play::new(3);
        play.minute(97, 0);
        (0..97).for_each(|_| play.minute(0, at_once));
        assert_eq!(play.deleted, if at_once == 1 { 34 } else { 0 });
    }
}

/// After a whole window the loss is accepted, and a third of the remaining nodes may be deleted.
#[test]
fn nodes_missing_for_a_whole_window_may_be_deleted_within_the_budget() {
    let start = START;
    let mut breaker = Breaker::default();
    let mut nodes = missing(8, start);
    nodes[3].since = start - MINUTE;
    let early = breaker.judge(LIMITS, &fleet(9), &nodes, start + LIMITS.window - 2 * MINUTE);
    assert_eq!(early.may_go, [false; 8]);
    let first = breaker.judge(LIMITS, &fleet(9), &nodes, start + LIMITS.window - MINUTE);
    assert_eq!(first.may_go, [false, false, false, true, false, false, false, false]);
    let all = breaker.judge(LIMITS, &fleet(9), &nodes, start + LIMITS.window);
    assert_eq!(all.may_go, [true, true, false, true, false, false, false, false], "a third of nine");
    assert!(all.is_open());
    (0..3).for_each(|uid: u8| breaker.deleted(&uid.to_string(), None, start + LIMITS.window));
    let later = breaker.judge(LIMITS, &fleet(6), &nodes[..5], start + LIMITS.window + MINUTE);
    assert_eq!(later.may_go, [false; 5], "the budget of this window is used up");
    let next = breaker.judge(LIMITS, &fleet(6), &nodes[..5], start + 2 * LIMITS.window);
    assert_eq!(count(&next.may_go), 2, "a third of six");
}

/// An upgrade that replaces every machine, and short-lived machines.
#[rstest]
#[case::of_three(3)]
#[case::of_thirty(30)]
fn machines_that_are_replaced_one_by_one_do_not_count_as_loss(#[case] nodes: usize) {
    let mut play = Play::new(nodes);
    (0..6 * 60).for_each(|_| play.minute(1, 1));
    assert_eq!(play.deleted, 6 * 60);
}

#[test]
fn announced_nodes_may_be_deleted_whatever_else_is_missing_and_do_not_count() {
    let now = START;
    let mut nodes = missing(9, now);
    for node in &mut nodes[..5] {
        node.announced = true;
    }
    let mut breaker = Breaker::default();
    let judgement = breaker.judge(LIMITS, &fleet(9), &nodes, now);
    assert_eq!(judgement.may_go, [true, true, true, true, true, false, false, false, false]);
    assert_eq!((judgement.loss, judgement.budget, judgement.peak), (4, 1, 4));
    let autoscaled = breaker.judge(LIMITS, &fleet(9), &nodes[..5], now);
    assert!(!autoscaled.is_open() && autoscaled.may_go == [true; 5]);
}

/// A person who deletes the kept nodes closes the breaker.
#[test]
fn deletions_by_others_do_not_count_as_loss() {
    let now = START;
    let mut breaker = Breaker::default();
    let nodes = missing(5, now);
    assert!(breaker.judge(LIMITS, &fleet(9), &nodes, now).is_open());
    let rest = breaker.judge(LIMITS, &fleet(5), &nodes[..1], now);
    assert!(!rest.is_open() && rest.may_go == [true], "{rest:?}");
}
