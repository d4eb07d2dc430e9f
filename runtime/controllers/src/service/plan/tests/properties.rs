//! Properties of the plan, checked for all states.

mod states;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use self::states::{LANES, for_all, now, write_status};
use super::address;
use crate::{
    backoff::Retry,
    ledger::{Backends, Before, Entry, State, version},
    names,
    queue::Next,
    service::{
        outcome::{self, PlanOutcome},
        plan::{LATE_WATCH, ObjectOwner, Observed, Plan, PlanAnswers, after_failure, after_success, plan},
        retention::Records,
    },
    service_spec::{convert, has_finalizer, is_load_balancer, named_holder},
};

/// The maximum number of steps from any state until nothing is left to do, including repairs and
/// their pauses, questions, and a watch that is late.
const STEPS_MAX: usize = 8;
/// The wait after a removal of our finalizer.
const RELEASED: Duration = Duration::from_secs(1);

/// Whether this provider has to serve the object.
fn is_wanted(observed: &Observed) -> bool {
    let alive = |object: &Service| object.metadata.deletion_timestamp.is_none();
    observed.object_owner == ObjectOwner::Own && observed.object.as_deref().is_some_and(alive)
}

fn is_same_object(observed: &Observed) -> bool {
    let uid = observed.object.as_ref().and_then(|object| object.metadata.uid.clone());
    observed.entry.as_ref().is_none_or(|entry| uid.as_ref() == Some(&entry.service.uid))
}

/// Whether this provider may have made a load balancer.
fn may_hold(observed: &Observed) -> bool {
    observed.may_hold.contains(&observed.lane)
}

/// Whether the watch still shows an object from before our last write.
fn is_late(observed: &Observed) -> bool {
    let wrote = observed.entry.as_ref().and_then(|entry| entry.wrote);
    let shown = observed.object.as_deref().and_then(version);
    wrote.zip(shown).is_some_and(|(wrote, shown)| shown < wrote)
}

fn shown(observed: &Observed, plan: &Plan) -> String {
    let Observed { object, entry, object_owner, answers, release_wait, .. } = observed;
    format!("{plan:?}\nof {object_owner:?} {entry:?}, {answers:?}, {release_wait:?}\nand {object:?}")
}

#[test]
fn a_wanted_load_balancer_is_never_deleted_and_an_unwanted_one_is_never_created() {
    for_all(|observed| {
        let plan = plan(&observed);
        let wanted = is_wanted(&observed) && is_same_object(&observed);
        let allowed = match plan {
            Plan::Nothing => true,
            Plan::LookUp(_) | Plan::Confirm(_) | Plan::NoHolder => !wanted,
            Plan::DeleteRemembered(_) | Plan::RetainRemembered(_) | Plan::GiveBack(..) => !wanted,
            Plan::Forget | Plan::Cleanup { .. } | Plan::Release { .. } => !wanted,
            // Only the finalizer, before a deletion.
            Plan::Repair { add_finalizer: true, status: None } => is_same_object(&observed),
            Plan::Refuse(_) | Plan::Ensure { .. } | Plan::Update(_) | Plan::Repair { .. } => wanted,
            Plan::Wait(_) => wanted || observed.answers.exists == Some(true) || observed.release_wait.is_some(),
            Plan::Paused { .. } => false,
        };
        assert!(allowed, "{}", shown(&observed, &plan));
    });
}

#[test]
fn the_load_balancer_of_a_deleted_object_is_deleted_once() {
    for_all(|observed| {
        let Some(entry) = observed.entry.as_ref().filter(|_| !is_same_object(&observed)) else { return };
        let plan = plan(&observed);
        let service = Arc::clone(&entry.service);
        let expected = match entry.state {
            State::Deleted => Plan::Forget,
            _ if observed.object.is_none() && observed.answers.exists.is_none() => Plan::LookUp(service),
            _ if observed.answers.exists == Some(true) => Plan::Wait(LATE_WATCH),
            State::Unconfirmed if !may_hold(&observed) => Plan::Forget,
            State::Unconfirmed if observed.answers.found.is_none() => Plan::Confirm(service),
            // A cloud may return stale data.
            State::Unconfirmed => {
                let is_left = !observed.emptied.contains(&observed.lane);
                let holders = is_left.then_some(observed.lane).into_iter().collect();
                Plan::Cleanup { service, holders, retained: Vec::new(), misnamed: true }
            }
            _ => Plan::DeleteRemembered(service),
        };
        assert_eq!(plan, expected, "{}", shown(&observed, &plan));
    });
}

/// One of the others may fail for hours, and each retry would call these again.
#[test]
fn a_provider_that_has_deleted_the_load_balancer_is_called_again_only_if_it_has_found_it() {
    for_all(|observed| {
        let Plan::Cleanup { holders, .. } = plan(&observed) else { return };
        let again = holders.iter().filter(|holder| observed.emptied.contains(holder)).collect::<Vec<_>>();
        let found = observed.answers.found == Some(true) && again == [&observed.lane];
        assert!(again.is_empty() || found, "{}", shown(&observed, &plan(&observed)));
        assert!(!holders.is_empty() || !observed.emptied.is_empty(), "{}", shown(&observed, &plan(&observed)));
    });
}

/// Also while the wanted load balancer is refused, fails, or is repaired after a write conflict.
#[test]
fn a_serving_load_balancer_never_keeps_outdated_nodes() {
    for_all(|observed| {
        let nodes = match observed.entry.as_ref().map(|entry| &entry.state) {
            Some(State::Serving(serving)) => serving.nodes,
            Some(State::Unsettled { before: Some(before) }) => before.nodes,
            _ => return,
        };
        if nodes == Backends::Known(observed.shared.membership) || !is_wanted(&observed) || !is_same_object(&observed) {
            return;
        }
        let plan = plan(&observed);
        let refused = matches!(plan, Plan::Refuse(_)) && nodes.failed() > 0;
        let moves = matches!(plan, Plan::Update(_) | Plan::Ensure { .. } | Plan::Repair { .. });
        assert!(moves || refused, "{}", shown(&observed, &plan));
    });
}

#[test]
fn after_two_failed_updates_a_valid_service_is_ensured() {
    for_all(|observed| {
        let plan = plan(&observed);
        let Plan::Update(_) = plan else { return };
        let failed = match observed.entry.as_ref().map(|entry| &entry.state) {
            Some(State::Serving(serving)) => serving.nodes.failed(),
            _ => 0,
        };
        let refused = observed.object.as_deref().is_some_and(|object| !convert(object).problems.is_empty());
        assert!(failed < 2 || refused, "{}", shown(&observed, &plan));
    });
}

/// With a provider and an API server that never fail, each state becomes stable, and the stable
/// state is the wanted one.
#[test]
fn every_state_becomes_stable_if_all_calls_succeed() {
    for_all(|observed| {
        // No provider can be called.
        if observed.may_hold.is_empty() {
            return;
        }
        // Only in this state the provider is asked.
        if observed.entry.as_ref().is_some_and(|entry| entry.state == State::Unconfirmed) {
            becomes_stable(observed.clone(), true);
        }
        becomes_stable(observed, false);
    });
}

/// `found` is the answer of the provider that the annotation names.
fn becomes_stable(mut observed: Observed, found: bool) {
    let before = observed.clone();
    let first = || shown(&before, &plan(&before));
    for _ in 0..STEPS_MAX {
        match plan(&observed) {
            Plan::Nothing | Plan::Refuse(_) if is_late(&observed) => shows_last_write(&mut observed),
            Plan::Nothing | Plan::Refuse(_) => break,
            done => succeed(&mut observed, &done, found),
        }
    }
    let rest = plan(&observed);
    assert!(matches!(rest, Plan::Nothing | Plan::Refuse(_)), "{rest:?} at the end; the initial state was\n{}", first());
    if rest == Plan::Nothing {
        assert_eq!(after_success(&rest, &observed), Next::OnChange);
    }
    let state = observed.entry.as_ref().map(|entry| &entry.state);
    let object = observed.object.as_deref();
    if is_wanted(&observed) && rest == Plan::Nothing {
        let serves = matches!(state, Some(State::Serving(_) | State::Elsewhere { .. }));
        let named = object.and_then(named_holder).is_none_or(|name| name == observed.provider);
        assert!(serves && named && object.is_some_and(has_finalizer), "{}", first());
    }
    let leaves = object.is_none_or(|object| !is_load_balancer(object) || object.metadata.deletion_timestamp.is_some());
    if leaves {
        assert!(state.is_none(), "{state:?} at the end; the initial state was\n{}", first());
    }
}

/// The watch catches up with our last write. Another client has undone the write meanwhile.
fn shows_last_write(observed: &mut Observed) {
    let wrote = observed.entry.as_ref().and_then(|entry| entry.wrote);
    let mut object = observed.object.as_deref().cloned().unwrap();
    object.metadata.resource_version = wrote.map(|version| version.to_string());
    observed.object = Some(Arc::new(object));
    observed.answers = PlanAnswers::default();
}

/// Carries out the plan with a provider and an API server that never fail. Each question is asked
/// once in a turn.
fn succeed(observed: &mut Observed, plan: &Plan, found: bool) {
    let mut record = |outcome| observed.entry = outcome::after(plan, outcome, observed.entry.clone(), observed);
    record(PlanOutcome::Begun);
    match plan {
        Plan::Confirm(_) if found => record(PlanOutcome::Found),
        Plan::Ensure { .. } => record(PlanOutcome::Ensured(address())),
        _ => {}
    }
    record(PlanOutcome::Done);
    match plan {
        Plan::LookUp(_) => {
            assert_eq!(observed.answers.exists.replace(false), None);
            return;
        }
        Plan::Confirm(_) => {
            assert_eq!(observed.answers.found.replace(found), None);
            return;
        }
        // The same turn goes on.
        Plan::Cleanup { .. } => return,
        Plan::Wait(wait) => passes(observed, *wait),
        Plan::Repair { add_finalizer, status } => {
            let entry = observed.entry.as_mut().unwrap();
            entry.repairs.begin(now());
            write(observed, *add_finalizer, status.is_some());
        }
        Plan::Ensure { add_finalizer, .. } => write(observed, *add_finalizer, true),
        Plan::Release { empties_status, .. } => release(observed, *empties_status),
        _ => {}
    }
    if !matches!(plan, Plan::Wait(_)) {
        observed.waits = observed.entry.as_ref().map(|entry| entry.waits(now())).unwrap_or_default();
    }
    observed.answers = PlanAnswers::default();
}

fn passes(observed: &mut Observed, time: Duration) {
    observed.waits.repair = observed.waits.repair.saturating_sub(time);
    observed.release_wait = observed.release_wait.map(|wait| wait.saturating_sub(time));
}

/// Writes our finalizer and the provider's name, and the status. The watch shows it at once.
fn write(observed: &mut Observed, finalizer: bool, status: bool) {
    let mut object = observed.object.as_deref().cloned().unwrap();
    if finalizer {
        object.metadata.finalizers = Some(vec![names::LOAD_BALANCER_FINALIZER.to_owned()]);
        let name = (names::LOAD_BALANCER_PROVIDER_ANNOTATION.to_owned(), observed.provider.clone());
        object.metadata.annotations.get_or_insert_default().extend([name]);
    }
    if status {
        write_status(&mut object);
    }
    let entry = observed.entry.as_mut().unwrap();
    // The API server refuses a write that is planned from an older object.
    let wrote = version(&object).max(entry.wrote).map(|version| version + 1);
    object.metadata.resource_version = wrote.map(|version| version.to_string());
    entry.wrote = wrote;
    if status {
        entry.status_written(wrote);
    }
    observed.object = Some(Arc::new(object));
}

/// Removes our finalizer, and empties the status.
fn release(observed: &mut Observed, empties_status: bool) {
    let mut object = observed.object.as_deref().cloned().unwrap();
    if has_finalizer(&object) && object.metadata.deletion_timestamp.is_none() {
        observed.release_wait = Some(RELEASED);
    }
    object.metadata.finalizers = None;
    object.metadata.annotations = None;
    object.status = object.status.take().filter(|_| !empties_status);
    observed.object = Some(Arc::new(object));
}

/// The times of a retry, with and without an earlier try after a change of the nodes.
fn retries(seconds: u64) -> [Retry; 2] {
    [false, true].map(|until_change| Retry { after: Duration::from_secs(seconds), counts: true, until_change })
}

/// With a provider that fails at each call, no state calls it again at once, unless nodes were
/// removed while an `ensure` failed. A failed write to the object waits for a change of the nodes,
/// too, and so does a call that the provider rejected.
#[test]
fn no_failure_is_retried_at_once() {
    for_all(|observed| {
        let failed = plan(&observed);
        let serves = matches!(&observed.entry, Some(Entry { state: State::Serving(_), .. }));
        let serves_on = matches!(&observed.entry, Some(Entry { state: State::Unsettled { before: Some(_) }, .. }));
        for retry in retries(5) {
            let waits = match failed {
                Plan::Repair { .. } => Next::Within(retry.after),
                Plan::Ensure { .. } if serves => Next::Within(retry.after),
                _ if retry.until_change => Next::Within(retry.after),
                _ => Next::After(retry.after),
            };
            assert_eq!(after_failure(&failed, &observed, observed.shared.membership, retry), waits);
            let moved = after_failure(&failed, &observed, observed.shared.membership + 1, retry);
            assert!(moved == waits || serves_on);
        }
    });
}

/// The API server may refuse the write each time.
#[test]
fn a_failed_repair_is_followed_by_the_update_of_outdated_backends() {
    for_all(|mut observed| {
        let failed = plan(&observed);
        let Plan::Repair { .. } = failed else { return };
        let membership = observed.shared.membership;
        let entry = observed.entry.as_mut().unwrap();
        entry.repairs.begin(now());
        observed.waits.repair = entry.repairs.wait(now());
        for retry in retries(300) {
            let next = match &observed.entry.as_ref().unwrap().state {
                State::Serving(serving) if serving.nodes != Backends::Known(membership) && is_wanted(&observed) => {
                    Next::After(Duration::ZERO)
                }
                _ => Next::Within(retry.after),
            };
            assert_eq!(after_failure(&failed, &observed, membership, retry), next, "{}", shown(&observed, &failed));
        }
    });
}

/// An update of the backends does not shorten the wait of the failed `ensure`, unless the previous
/// backends may be the reason why the provider rejected it.
#[test]
fn the_wait_of_a_failed_ensure_outlives_an_update_unless_the_provider_waits_for_a_change() {
    for_all(|mut observed| {
        let retry = match observed.entry.as_ref().map(|entry| &entry.state) {
            Some(State::Unsettled { before: Some(Before { retry, .. }) }) => *retry,
            _ => None,
        };
        let done = plan(&observed);
        let Plan::Update(_) = done else { return };
        let entry = observed.entry.as_mut().unwrap();
        entry.updated(observed.shared.membership);
        observed.waits = entry.waits(now());
        if let (Plan::Ensure { .. }, Some(next)) = (plan(&observed), retry) {
            let left = if next.until_change { Duration::ZERO } else { next.at - now() };
            assert_eq!(after_success(&done, &observed), Next::After(left));
        }
    });
}

/// An object that is deleted by force, or whose finalizer a person removes.
#[test]
fn an_object_that_is_being_deleted_gets_no_finalizer() {
    for_all(|observed| {
        let deleting = |object: &Service| object.metadata.deletion_timestamp == Some(Time(Timestamp::UNIX_EPOCH));
        if observed.object.as_deref().is_some_and(deleting) {
            let plan = plan(&observed);
            assert!(!matches!(plan, Plan::Repair { .. } | Plan::Ensure { .. }), "{}", shown(&observed, &plan));
        }
    });
}

/// The watch may lag behind our own write; the newer object may have the finalizer.
#[test]
fn a_finalizer_is_not_repaired_from_an_object_that_is_older_than_our_last_write() {
    let mut late = 0;
    for_all(|observed| {
        if is_late(&observed) {
            let plan = plan(&observed);
            let repairs = matches!(plan, Plan::Repair { add_finalizer: true, .. });
            assert!(!repairs, "{}", shown(&observed, &plan));
            late += 1;
        }
    });
    assert!(late > 0);
}

/// Otherwise the load balancer leaks if this process ends. The finalizer that the watch shows may
/// be the one that this process removed a moment ago.
#[test]
fn no_load_balancer_is_made_for_an_object_whose_finalizer_is_missing_or_was_removed() {
    for_all(|observed| {
        let plan = plan(&observed);
        let Plan::Ensure { add_finalizer, repeated, .. } = plan else { return };
        let has = observed.object.as_deref().is_some_and(has_finalizer);
        // A drift repair is for a load balancer that was made after the removal.
        let removed = !repeated
            && (observed.release_wait.is_some()
                || observed.entry.as_ref().is_some_and(|entry| entry.state == State::Deleted));
        assert!(add_finalizer || (has && !removed), "{}", shown(&observed, &plan));
    });
}

/// Another controller may add the finalizer each time.
#[test]
fn a_finalizer_that_was_removed_lately_costs_no_call_of_a_provider_before_its_wait_is_over() {
    for_all(|observed| {
        let waits = observed.release_wait.is_some_and(|wait| !wait.is_zero());
        if waits && observed.entry.is_none() && !observed.object.as_deref().is_some_and(is_load_balancer) {
            let plan = plan(&observed);
            assert!(matches!(plan, Plan::Nothing | Plan::Wait(_)), "{}", shown(&observed, &plan));
        }
    });
}

/// Anyone may write the annotation that names the provider.
#[test]
fn a_load_balancer_that_only_the_annotation_names_is_not_deleted_before_its_provider_was_asked() {
    for_all(|observed| {
        let unconfirmed = observed.entry.as_ref().is_some_and(|entry| entry.state == State::Unconfirmed);
        if unconfirmed && may_hold(&observed) && observed.answers.found.is_none() {
            let plan = plan(&observed);
            let deletes =
                matches!(plan, Plan::DeleteRemembered(_) | Plan::Cleanup { .. } | Plan::Release { .. } | Plan::Forget);
            assert!(!deletes, "{}", shown(&observed, &plan));
        }
    });
}

/// The states with the annotation of a pause, and with paused providers where there is no object.
fn for_all_paused(mut check: impl FnMut(Observed)) {
    for_all(|mut observed| {
        match observed.object.as_deref().cloned() {
            Some(mut object) => {
                let pause = (names::PAUSED_ANNOTATION.to_owned(), "true".to_owned());
                object.metadata.annotations.get_or_insert_default().extend([pause]);
                observed.object = Some(Arc::new(object));
            }
            None => observed.paused = observed.may_hold.iter().copied().chain([observed.lane]).collect(),
        }
        check(observed);
    });
}

#[test]
fn no_provider_is_called_for_a_paused_service() {
    for_all_paused(|observed| {
        let plan = plan(&observed);
        let calls = match &plan {
            Plan::Cleanup { holders, .. } => !holders.is_empty(),
            plan => {
                matches!(plan, Plan::Confirm(_) | Plan::DeleteRemembered(_) | Plan::Ensure { .. } | Plan::Update(_))
            }
        };
        assert!(!calls, "{}", shown(&observed, &plan));
    });
}

/// Repairs and their pauses, and what needs no call of a provider, go on.
#[test]
fn every_state_of_a_paused_service_becomes_stable_and_keeps_its_finalizer() {
    for_all_paused(|mut observed| {
        let before = observed.clone();
        for _ in 0..STEPS_MAX {
            match plan(&observed) {
                Plan::Nothing | Plan::Refuse(_) | Plan::NoHolder => break,
                Plan::Paused { .. } if is_late(&observed) => shows_last_write(&mut observed),
                Plan::Paused { .. } => break,
                done => succeed(&mut observed, &done, false),
            }
        }
        let (rest, first) = (plan(&observed), || shown(&before, &plan(&before)));
        let is_stable = matches!(rest, Plan::Nothing | Plan::Refuse(_) | Plan::NoHolder | Plan::Paused { .. });
        assert!(is_stable, "{rest:?} at the end; the initial state was\n{}", first());
        if let Plan::Paused { .. } = rest {
            assert_eq!(after_success(&rest, &observed), Next::OnChange, "{}", first());
            let state = observed.entry.as_ref().map(|entry| &entry.state);
            let may_be_there = matches!(state, Some(State::Serving(_) | State::Unsettled { .. }));
            let object = observed.object.as_deref().filter(|object| object.metadata.deletion_timestamp.is_none());
            let lacks = object.is_some_and(|object| !has_finalizer(object));
            let undone = observed.entry.as_ref().is_some_and(|entry| entry.repairs.are_undone());
            assert!(!(may_be_there && is_same_object(&observed) && lacks) || undone, "{}", first());
        }
    });
}

/// With the annotation or without, and also where only the ledger knows of the load balancer.
#[test]
fn nothing_is_deleted_by_a_provider_that_retains() {
    for_all(|observed| {
        for retains in [vec![LANES[0]], LANES.to_vec()] {
            let observed = Observed { retains, ..observed.clone() };
            let plan = plan(&observed);
            let deletes = match &plan {
                Plan::DeleteRemembered(_) => true,
                Plan::Cleanup { holders, retained, .. } => {
                    holders.iter().any(|holder| !retained.contains(holder) && observed.retains.contains(holder))
                }
                _ => false,
            };
            assert!(!deletes, "{}", shown(&observed, &plan));
        }
    });
}

/// A retained load balancer may have another Service by now.
#[test]
fn what_is_retained_or_anothers_is_never_deleted() {
    for_all(|observed| {
        let records = Records { spared: LANES.to_vec(), ..Records::default() };
        for retains in [Vec::new(), LANES.to_vec()] {
            let observed = Observed { records: records.clone(), retains, ..observed.clone() };
            let plan = plan(&observed);
            let touches = match &plan {
                Plan::DeleteRemembered(_) | Plan::RetainRemembered(_) => true,
                Plan::Cleanup { holders, .. } => !holders.is_empty(),
                _ => false,
            };
            assert!(!touches, "{}", shown(&observed, &plan));
        }
    });
}

/// Also with a finalizer of another controller, and with one that this process has removed.
#[test]
fn every_state_becomes_stable_if_the_load_balancer_is_retained() {
    for_all(|observed| {
        if observed.may_hold.is_empty() {
            return;
        }
        becomes_stable(Observed { retains: LANES.to_vec(), ..observed }, true);
    });
}
