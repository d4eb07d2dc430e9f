//! The sentence for each plan.

use expect_test::expect;

use super::reason;
use crate::service::plan::{plan, tests::observed};

fn told(all: &[&str]) -> String {
    let line = |words: &&str| {
        let observed = observed(words);
        let plan = plan(&observed);
        format!("{words}\n  {}: {}\n", super::step(&plan), reason(&plan, &observed, |id| format!("p{id}")))
    };
    all.iter().map(line).collect()
}

#[test]
fn an_ensure_has_its_reason() {
    expect![[""]].assert_eq(&told(&[
        "lb",
        "lb finalizer begun",
        "lb finalizer named",
        "lb finalizer ensured other-port",
        "lb finalizer ensured other-release",
        "lb finalizer ensured other-release other-port",
        "lb finalizer ensured two-failed-updates",
        "lb finalizer ensured overdue",
        "lb finalizer failed",
        "lb finalizer elsewhere other-release",
        "lb finalizer deleted",
    ]));
}

#[test]
fn each_other_step_for_a_wanted_load_balancer_has_its_reason() {
    expect![[""]].assert_eq(&told(&[
        "lb finalizer ensured",
        "lb finalizer ensured other-nodes",
        "lb finalizer ensured unknown-nodes",
        "lb finalizer failed other-nodes",
        "lb finalizer ensured unwritten",
        "lb ensured",
        "lb ensured repaired",
        "lb finalizer names-another ensured",
        "lb finalizer elsewhere",
        "lb finalizer bad-port",
    ]));
}

#[test]
fn each_step_for_a_load_balancer_that_is_not_wanted_has_its_reason() {
    expect![[""]].assert_eq(&told(&[
        "clusterip",
        "clusterip finalizer",
        "clusterip finalizer released",
        "clusterip finalizer no-holder",
        "clusterip finalizer ensured",
        "clusterip finalizer deleted",
        "lb finalizer ensured deleting",
        "lb finalizer deleting",
        "lb deleting",
        "lb finalizer ensured other-owner",
        "lb finalizer ensured no-owner",
        "lb finalizer ensured no-owner other-class class",
        "lb finalizer no-owner",
        "lb finalizer named other-owner",
        "lb finalizer named other-owner not-found",
        "clusterip finalizer emptied-here emptied-there",
        "gone",
        "gone ensured",
        "gone ensured exists",
        "gone ensured absent",
        "gone deleted",
    ]));
}
