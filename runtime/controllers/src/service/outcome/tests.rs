//! The ledger entry after each outcome of each plan.

use std::{collections::BTreeMap, time::Duration};

use expect_test::expect;
use k8s_openapi::api::core::v1 as core;
use skysail_provider::Service;
use tokio::time::Instant;

use super::{
    super::{
        plan::{ObjectOwner, PlanAnswers},
        retention::Records,
    },
    *,
};
use crate::{
    ledger::{Before, Waits},
    nodes::Nodes,
    service_spec::convert,
};

fn service(uid: &str) -> Arc<Service> {
    let mut object = core::Service::default();
    object.metadata.uid = Some(uid.to_owned());
    Arc::new(convert(&object).service)
}

fn observed() -> Observed {
    Observed {
        object: None,
        entry: None,
        object_owner: ObjectOwner::Own,
        provider: "fake".to_owned(),
        lane: 1,
        may_hold: vec![1, 2],
        emptied: Vec::new(),
        paused: Vec::new(),
        retains: Vec::new(),
        records: Records::default(),
        answers: PlanAnswers::default(),
        shared: Nodes::default().shared(0),
        generation: (1, 7),
        waits: Waits::default(),
        release_wait: None,
    }
}

fn plans() -> Vec<(&'static str, Plan)> {
    let service = || service("one");
    let cleanup = |misnamed| Plan::Cleanup { service: service(), holders: vec![1], retained: Vec::new(), misnamed };
    vec![
        ("ensure", Plan::Ensure { service: service(), add_finalizer: false, repeated: false, claims: false }),
        ("update", Plan::Update(service())),
        ("confirm", Plan::Confirm(service())),
        ("cleanup", cleanup(false)),
        ("cleanup where misnamed", cleanup(true)),
        ("release", Plan::Release { service: service(), empties_status: true }),
        ("delete remembered", Plan::DeleteRemembered(service())),
        ("repair", Plan::Repair { add_finalizer: true, status: None }),
    ]
}

fn outcomes() -> Vec<(&'static str, PlanOutcome)> {
    let failed = |code| PlanOutcome::Failed { code, expected: code == Code::RetryAfter };
    vec![
        ("begun", PlanOutcome::Begun),
        ("answered", PlanOutcome::Ensured(LoadBalancerStatus::default())),
        ("found", PlanOutcome::Found),
        ("done", PlanOutcome::Done),
        ("not found", failed(Code::NotFound)),
        ("elsewhere", failed(Code::ImplementedElsewhere)),
        ("internal", failed(Code::Internal)),
        ("retry after", failed(Code::RetryAfter)),
    ]
}

fn states() -> Vec<Option<State>> {
    let serving = |nodes| {
        let (status, written) = (LoadBalancerStatus::default(), Written::At(None));
        Some(State::Serving(Serving { nodes, generation: (1, 1), status, written, overdue: true }))
    };
    let before = Before { service: service("one"), nodes: Backends::Known(5), retry: None };
    vec![
        None,
        Some(State::Unconfirmed),
        Some(State::Unsettled { before: None }),
        Some(State::Unsettled { before: Some(before) }),
        serving(Backends::Known(5)),
        serving(Backends::Unknown { failed: 1 }),
        Some(State::Elsewhere { generation: (1, 1) }),
        Some(State::Deleted),
    ]
}

fn shown(state: Option<&State>) -> String {
    match state {
        None => "no entry".to_owned(),
        Some(State::Unconfirmed) => "unconfirmed".to_owned(),
        Some(State::Unsettled { before: None }) => "unsettled".to_owned(),
        Some(State::Unsettled { before: Some(before) }) => format!("unsettled before {:?}", before.nodes),
        Some(State::Serving(Serving { nodes, generation, .. })) => format!("serving {nodes:?} at {}", generation.1),
        Some(State::Elsewhere { generation }) => format!("elsewhere at {}", generation.1),
        Some(State::Deleted) => "deleted".to_owned(),
    }
}

/// A combination that is not listed leaves the entry as it is. A retry-after leaves every entry
/// as it is: the load balancer is busy, and `ensure` would get the same answer as `update`.
#[test]
fn each_outcome_of_each_plan_has_one_entry_after_it() {
    let (observed, mut table) = (observed(), String::new());
    for (plan_name, plan) in plans() {
        for (outcome_name, outcome) in outcomes() {
            let mut changes = BTreeMap::<String, Vec<String>>::new();
            for state in states() {
                let entry = state.clone().map(|state| Entry::new("fake", service("one"), state));
                let after = after(&plan, outcome.clone(), entry, &observed).map(|entry| entry.state);
                if after != state {
                    changes.entry(shown(after.as_ref())).or_default().push(shown(state.as_ref()));
                }
            }
            for (to, from) in changes {
                table += &format!("{plan_name}, {outcome_name}: {} -> {to}\n", from.join(", "));
            }
        }
    }
    expect![[r#"
        ensure, begun: no entry, unconfirmed, elsewhere at 1, deleted -> unsettled
        ensure, begun: serving Known(5) at 1 -> unsettled before Known(5)
        ensure, begun: serving Unknown { failed: 1 } at 1 -> unsettled before Unknown { failed: 0 }
        ensure, answered: unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> serving Known(0) at 7
        ensure, elsewhere: unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> elsewhere at 7
        update, begun: serving Known(5) at 1 -> serving Unknown { failed: 0 } at 1
        update, begun: unsettled before Known(5) -> unsettled before Unknown { failed: 1 }
        update, done: serving Known(5) at 1, serving Unknown { failed: 1 } at 1 -> serving Known(0) at 1
        update, done: unsettled before Known(5) -> unsettled before Known(0)
        update, not found: unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> unsettled
        update, elsewhere: unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> elsewhere at 7
        update, internal: serving Known(5) at 1 -> serving Unknown { failed: 1 } at 1
        update, internal: serving Unknown { failed: 1 } at 1 -> serving Unknown { failed: 2 } at 1
        confirm, found: unconfirmed, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> unsettled
        cleanup, begun: unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> unsettled
        cleanup, done: no entry, unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1 -> deleted
        cleanup where misnamed, begun: unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> unsettled
        cleanup where misnamed, done: unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> no entry
        release, done: unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> no entry
        delete remembered, begun: unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> unsettled
        delete remembered, done: unconfirmed, unsettled, unsettled before Known(5), serving Known(5) at 1, serving Unknown { failed: 1 } at 1, elsewhere at 1, deleted -> no entry
    "#]].assert_eq(&table);
}

#[test]
fn an_ensure_of_another_object_of_the_name_remembers_nothing_of_the_former_one() {
    let serving = states().swap_remove(4).unwrap();
    let (_, ensure) = plans().swap_remove(0);
    let former = Entry::new("fake", service("two"), serving);
    let entry = after(&ensure, PlanOutcome::Begun, Some(former), &observed()).unwrap();
    assert_eq!((entry.state, &*entry.service.uid), (State::Unsettled { before: None }, "one"));
}

#[test]
fn the_time_of_the_retry_is_remembered_while_an_earlier_load_balancer_serves() {
    let next = NextTry { at: Instant::now() + Duration::from_secs(60), until_change: true };
    let (_, ensure) = plans().swap_remove(0);
    let entry = Entry::new("fake", service("one"), states().swap_remove(3).unwrap());
    let after = after(&ensure, PlanOutcome::Waits(next), Some(entry), &observed()).unwrap();
    let State::Unsettled { before: Some(before) } = after.state else { panic!("{after:?}") };
    assert_eq!(before.retry, Some(next));
}

#[test]
fn only_two_codes_are_answers() {
    let mut answers = Vec::new();
    for (name, plan) in plans() {
        let codes = Code::ALL.into_iter().filter(|code| is_answer(&plan, *code));
        answers.extend(codes.map(|code| format!("{name} {}", code.category())));
    }
    assert_eq!(answers, ["ensure ImplementedElsewhere", "update NotFound", "update ImplementedElsewhere"]);
}
