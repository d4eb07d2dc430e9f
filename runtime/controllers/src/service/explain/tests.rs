//! The sentence for each plan.

use expect_test::expect;

use super::{reason, step};
use crate::service::plan::{plan, tests::observed};

/// The step and the reason for each state, in the words of the tests of the plan.
fn told(all: &[&str]) -> String {
    let line = |words: &&str| {
        let observed = observed(words);
        let plan = plan(&observed);
        format!("{words}\n  {}: {}\n", step(&plan), reason(&plan, &observed, &|id| format!("p{id}")))
    };
    all.iter().map(line).collect()
}

#[test]
fn an_ensure_has_its_reason() {
    expect![[r#"
        lb
          Ensure: this process has not ensured the load balancer yet
        lb finalizer begun
          Ensure: no ensure has succeeded since the last ensure or deletion began
        lb finalizer named
          Ensure: this process has not ensured the load balancer yet; an annotation names the provider
        lb finalizer ensured other-port
          Ensure: fields of the Service have changed since the last ensure: spec.ports
        lb finalizer ensured other-release
          Ensure: another release serves, or the allowed addresses have changed, since the last ensure
        lb finalizer ensured other-release other-port
          Ensure: another release serves, or the allowed addresses have changed, since the last ensure; fields that differ: spec.ports
        lb finalizer ensured two-failed-updates
          Ensure: updates of the nodes failed several times in a row; an ensure also creates what is missing
        lb finalizer ensured overdue
          Ensure: a drift repair is due; nothing of the Service has changed
        lb finalizer failed
          Ensure: the last ensure has not succeeded, and the load balancer of the ensure before it serves
        lb finalizer elsewhere other-release
          Ensure: the release, or what it may assign, has changed since it said that another controller manages the load balancer
        lb finalizer deleted
          Ensure: the load balancer was deleted, and the Service wants one again
    "#]]
    .assert_eq(&told(&[
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
    expect![[r#"
        lb finalizer ensured
          Nothing: the load balancer is as the Service, the nodes and the release require
        lb finalizer ensured other-nodes
          Update: the nodes of fake have changed since the load balancer got its nodes
        lb finalizer ensured unknown-nodes
          Update: the last update of the nodes has not succeeded
        lb finalizer failed other-nodes
          Update: the nodes of fake have changed since the load balancer got its nodes; the load balancer of the last successful ensure serves, while a later one fails
        lb finalizer ensured unwritten
          Repair: the status does not have the addresses of the load balancer; the manager writes to the Service again
        lb ensured
          Repair: the finalizer is missing; the manager writes to the Service again
        lb ensured repaired
          Wait: another controller undoes the manager's finalizer, annotations or status each time, or the API server refuses them; the manager writes again after a pause, at most 5 minutes. See the Event ServiceWriteConflict
        lb finalizer names-another ensured
          Repair: the annotations name another provider, object or class; the manager writes to the Service again
        lb finalizer elsewhere
          Nothing: fake answers that another controller manages the load balancer (ImplementedElsewhere); the manager asks again when the Service or the release changes
        lb finalizer bad-port
          Refuse: the Service is invalid, so no provider is called: port 70000/TCP (node port 0) is out of range or has an unknown protocol; correct the Service
    "#]]
    .assert_eq(&told(&[
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
    expect![[r#"
        clusterip
          Nothing: the Service wants no load balancer: spec.type is not LoadBalancer
        clusterip finalizer
          Cleanup: spec.type is not LoadBalancer any more; no annotation says which provider made the load balancer, so each of these deletes it: p1, p2
        clusterip finalizer released
          Wait: another controller adds the finalizer each time that the manager removes it; the manager writes again after a pause, at most 5 minutes. See the Event ServiceWriteConflict
        clusterip finalizer no-holder
          NoHolder: the load balancer has to be deleted, and no provider exports load-balancers; add the provider that made it
        clusterip finalizer ensured
          Cleanup: spec.type is not LoadBalancer any more; p1 deletes the load balancer
        clusterip finalizer deleted
          Release: the load balancer is deleted; the manager removes the finalizer service.kubernetes.io/load-balancer-cleanup, and empties the status
        lb finalizer ensured deleting
          Cleanup: the Service is being deleted, and the finalizer service.kubernetes.io/load-balancer-cleanup waits for the deletion of the load balancer; p1 deletes the load balancer
        lb finalizer deleting
          Cleanup: the Service is being deleted, and the finalizer service.kubernetes.io/load-balancer-cleanup waits for the deletion of the load balancer; p1 deletes the load balancer
        lb deleting
          Nothing: the Service is being deleted, and no load balancer of it is left
        lb finalizer ensured other-owner
          Cleanup: another provider owns the Service now, and begins after this deletion; p1 deletes the load balancer
        lb finalizer ensured no-owner
          Nothing: no provider claims the Service any more; the load balancer of fake stays without updates until the Service is deleted
        lb class other-class finalizer ensured no-owner
          Cleanup: spec.loadBalancerClass has changed to a class that no provider here claims; p1 deletes the load balancer
        lb finalizer no-owner
          Nothing: another controller set the finalizer service.kubernetes.io/load-balancer-cleanup, and no provider here has made a load balancer
        lb finalizer named other-owner
          Confirm: only the annotation skysail.dev/load-balancer-provider says that the load balancer is of fake; the manager asks fake whether it has one
        lb finalizer named other-owner not-found
          Cleanup: the annotation skysail.dev/load-balancer-provider names fake, which has no load balancer of this Service; p1 deletes the load balancer
        clusterip finalizer emptied-here emptied-there
          Cleanup: spec.type is not LoadBalancer any more; every provider has deleted the load balancer, and the finalizer is next
        gone
          Nothing: the Service is gone, and no load balancer of it is left
        gone ensured
          LookUp: the watch shows the Service no more; the manager asks the API server whether the Service is gone before it deletes the load balancer
        gone ensured exists
          Wait: the API server has the Service, and the watch does not show the Service yet
        gone ensured absent
          DeleteRemembered: the Service is deleted, or another Service has its name; fake deletes the load balancer that it made
        gone deleted
          Forget: the load balancer of a former Service is gone; only the manager's record of it is left
    "#]]
    .assert_eq(&told(&[
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
        "lb class other-class finalizer ensured no-owner",
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

#[test]
fn a_step_that_a_pause_holds_back_has_the_reason_of_the_step() {
    expect![[r#"
        lb paused
          Paused: the pause holds the step Ensure back: this process has not ensured the load balancer yet
        lb finalizer ensured deleting unclear-pause
          Paused: the pause holds the step Cleanup back: the Service is being deleted, and the finalizer service.kubernetes.io/load-balancer-cleanup waits for the deletion of the load balancer; p1 deletes the load balancer
        lb finalizer ensured other-nodes paused-here
          Paused: the pause holds the step Update back: the nodes of fake have changed since the load balancer got its nodes
        lb finalizer ensured paused
          Nothing: the load balancer is as the Service, the nodes and the release require
    "#]]
    .assert_eq(&told(&[
        "lb paused",
        "lb finalizer ensured deleting unclear-pause",
        "lb finalizer ensured other-nodes paused-here",
        "lb finalizer ensured paused",
    ]));
}
