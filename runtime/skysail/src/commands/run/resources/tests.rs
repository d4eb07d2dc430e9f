//! Tests of applying objects and Secrets, of the status of an object, and of its Events.

mod reporting;
mod taking_up;

use std::sync::Arc;

use expect_test::expect;
use k8s_openapi::jiff::Timestamp;
use skysail_controllers::{Finding, Findings};
use skysail_host::slot::{
    ActiveStatus, CanaryStatus, CandidateStatus, ProbationStatus, Refusal, RefusalReason, ShadowStatus, SlotStatus,
    SourceFailure, Stage,
};

use super::{
    Figures, ProviderState, events,
    status::{self, SlotReport, status_of},
};
use crate::{
    custom_resource::{Calls, FailedCall, ProviderStatus},
    providers::Problem,
};

fn provider_state(refused: Option<&str>) -> ProviderState {
    let problem = refused.map(|reason| Problem::Refused(reason.to_owned()));
    ProviderState::new(("sim".to_owned(), "1".to_owned(), 3), problem, None)
}

fn digest(number: u8) -> String {
    format!("sha256:{}", format!("{number:02x}").repeat(32))
}

fn empty() -> SlotStatus {
    SlotStatus { provider: "sim".to_owned(), ..SlotStatus::default() }
}

fn serving(number: u8) -> SlotStatus {
    let active = ActiveStatus {
        swap: 1,
        digest: digest(number),
        origin: "oci registry.example.com/sim:v1".to_owned(),
        name: "simcloud".to_owned(),
        version: "1.2.3".to_owned(),
        contract: "0.1.0",
        interfaces: vec!["instances", "load-balancers"],
        provider_id_schemes: vec!["simcloud".to_owned()],
        since_ms: 1_700_000_000_123,
        passed: true,
    };
    SlotStatus { active: Some(active), swaps: 1, ..empty() }
}

fn refusal(number: u8, stage: Stage, reason: RefusalReason, text: &str) -> Refusal {
    Refusal {
        digest: digest(number),
        origin: "oci registry.example.com/sim:v1".to_owned(),
        stage,
        code: reason.category(),
        reason: text.to_owned(),
        lasting: true,
        retried: false,
    }
}

fn refused(release: u8, stage: Stage, reason: RefusalReason, text: &str) -> SlotStatus {
    SlotStatus { refused: Some(refusal(release, stage, reason, text)), ..serving(1) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn conditions(status: &ProviderStatus) -> String {
    let line = |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        let since = condition.last_transition_time.0.as_second();
        format!("{}={} {} since {since}: {}\n", condition.type_, condition.status, condition.reason, condition.message)
    };
    // The pauses have a test of their own.
    status.conditions.iter().filter(|condition| condition.type_ != "Paused").map(line).collect()
}

/// The history of a provider: its conditions and Events at each step.
#[derive(Default)]
struct Life {
    status: ProviderStatus,
    second: i64,
    story: String,
}

impl Life {
    fn step(&mut self, what: &str, provider_state: &ProviderState, slot: Option<&SlotStatus>) {
        self.step_of(what, provider_state, slot.map(|slot| SlotReport { slot, heard: true }));
    }

    fn step_of(&mut self, what: &str, provider_state: &ProviderState, said: Option<SlotReport<'_>>) {
        self.second += 1;
        let after = status_of(provider_state, said, &self.status, at(self.second));
        self.story += &format!("--- {what}\n{}", conditions(&after));
        for (kind, reason, message) in events::of(&self.status, &after) {
            self.story += &format!("EVENT {kind:?} {reason}: {message}\n");
        }
        self.status = after;
    }
}

#[test]
fn conditions_and_events_follow_a_swap() {
    let (mut life, good) = (Life::default(), provider_state(None));
    life.step("the object was applied", &good, Some(&empty()));
    let candidate = CandidateStatus { digest: digest(1), origin: "oci x".to_owned(), stage: Stage::Compiled };
    life.step("its release is offered", &good, Some(&SlotStatus { candidate: Some(candidate), ..empty() }));
    let probation = ProbationStatus { predecessor: digest(1), calls: 20, time_ms: 300_000 };
    life.step("it serves", &good, Some(&serving(1)));
    life.step("no change", &good, Some(&serving(1)));
    life.step("another release serves", &good, Some(&SlotStatus { probation: Some(probation), ..serving(2) }));
    expect![[r#"
        --- the object was applied
        Ready=False NotServing since 1: no release serves: the source has not offered one yet
        ReleaseAccepted=Unknown NothingOffered since 1: the source has not offered a component yet
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        --- its release is offered
        Ready=False NotServing since 1: no release serves: the source has not offered one yet
        ReleaseAccepted=Unknown Candidate since 1: sha256:010101010101 is offered and is being checked
        Progressing=True Candidate since 2: sha256:010101010101 is compiled
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        --- it serves
        Ready=True Serving since 3: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 3: release simcloud 1.2.3 (sha256:010101010101) from the source serves
        Progressing=False Complete since 3: no rollout is in progress
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0101010101010101010101010101010101010101010101010101010101010101) serves, from oci registry.example.com/sim:v1
        --- no change
        Ready=True Serving since 3: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 3: release simcloud 1.2.3 (sha256:010101010101) from the source serves
        Progressing=False Complete since 3: no rollout is in progress
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        --- another release serves
        Ready=True Serving since 3: simcloud 1.2.3 (sha256:020202020202) serves
        ReleaseAccepted=True Accepted since 3: release simcloud 1.2.3 (sha256:020202020202) from the source serves
        Progressing=True Probation since 5: the serving release is on probation; if it fails, sha256:010101010101 serves again
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0202020202020202020202020202020202020202020202020202020202020202) serves, from oci registry.example.com/sim:v1
    "#]].assert_eq(&life.story);
}

#[test]
fn findings_of_the_controllers_are_conditions_and_a_taken_claim_is_also_an_event() {
    let findings = Findings::default();
    let found = ProviderState { findings: Some(findings.subscribe()), ..provider_state(None) };
    let mut life = Life::default();
    life.step("it serves", &found, Some(&serving(1)));
    findings.set(Finding::NodesHeld, Some("4 nodes are kept".to_owned()));
    let degraded = |life: &Life| {
        let condition = status::condition(&life.status, "Degraded").unwrap();
        format!("{} {}: {}", condition.status, condition.reason, condition.message)
    };
    life.step("the breaker keeps nodes", &found, Some(&serving(1)));
    assert_eq!(degraded(&life), "True NodesHeld: 4 nodes are kept");
    findings.set(Finding::ClaimTaken, Some("a has the class".to_owned()));
    life.step("a claim is taken", &found, Some(&serving(1)));
    assert_eq!(degraded(&life), "True ClaimTaken: a has the class");
    assert!(life.story.ends_with("EVENT Warning ClaimTaken: a has the class\n"), "{}", life.story);
    findings.set(Finding::ClaimTaken, None);
    findings.set(Finding::NodesHeld, None);
    life.step("no findings", &found, Some(&serving(1)));
    assert!(degraded(&life).starts_with("False AsExpected"));
}

#[test]
fn a_pause_is_a_condition_and_no_degradation_and_that_of_the_provider_is_an_event() {
    let findings = Findings::default();
    let state = |paused| ProviderState { findings: Some(findings.subscribe()), paused, ..provider_state(None) };
    let (mut life, mut said) = (Life::default(), String::new());
    let mut step = |what: &str, paused| {
        life.step(what, &state(paused), Some(&serving(1)));
        let condition = |type_| {
            let condition = status::condition(&life.status, type_).unwrap();
            format!("{}={} {}: {}\n", type_, condition.status, condition.reason, condition.message)
        };
        said += &format!("--- {what}\n{}", condition("Paused"));
        assert!(condition("Degraded").starts_with("Degraded=False AsExpected"));
    };
    step("no pause", false);
    findings.set(Finding::ServicesPaused, Some("1 Service is paused".to_owned()));
    step("a user pauses a Service", false);
    step("the operator pauses the provider", true);
    findings.set(Finding::ServicesPaused, None);
    step("the user ends the pause", true);
    step("the operator ends the pause", false);
    expect![[r#"
        --- no pause
        Paused=False NotPaused: neither the provider nor one of its Services is paused
        --- a user pauses a Service
        Paused=False ServicesPaused: 1 Service is paused
        --- the operator pauses the provider
        Paused=True SpecPaused: spec.paused is true, so no load balancer and no route changes and no node is deleted; set it to false to continue. 1 Service is paused
        --- the user ends the pause
        Paused=True SpecPaused: spec.paused is true, so no load balancer and no route changes and no node is deleted; set it to false to continue
        --- the operator ends the pause
        Paused=False NotPaused: neither the provider nor one of its Services is paused
    "#]]
    .assert_eq(&said);
    let events: Vec<&str> =
        life.story.lines().filter(|line| line.starts_with("EVENT") && !line.contains("ReleaseActivated")).collect();
    let [begin, end] = events.as_slice() else { panic!("{events:?}") };
    assert!(begin.starts_with("EVENT Normal Paused: spec.paused is true") && end.starts_with("EVENT Normal Resumed: "));
}

#[test]
fn retained_load_balancers_are_a_condition_and_no_degradation() {
    let findings = Findings::default();
    let state = ProviderState { findings: Some(findings.subscribe()), ..provider_state(None) };
    let (mut life, mut said) = (Life::default(), String::new());
    for (what, finding) in [("none", None), ("one stays", Some("Load balancers that stay: 1")), ("it is gone", None)] {
        findings.set(Finding::LoadBalancersRetained, finding.map(str::to_owned));
        life.step(what, &state, Some(&serving(1)));
        let condition = |type_| status::condition(&life.status, type_).unwrap();
        let retained = condition("LoadBalancersRetained");
        said += &format!("{} {}: {}\n", retained.status, retained.reason, retained.message);
        assert_eq!(condition("Degraded").status, "False");
    }
    expect![[r#"
        False NoneRetained: each load balancer of the manager has its Service
        True Retained: Load balancers that stay: 1
        False NoneRetained: each load balancer of the manager has its Service
    "#]]
    .assert_eq(&said);
}

#[test]
fn the_start_of_a_canary_and_its_differences_are_reported_once() {
    let (mut life, good) = (Life::default(), provider_state(None));
    life.step("it serves", &good, Some(&serving(1)));
    let shadow = ShadowStatus {
        digest: digest(2),
        asked: 3,
        unanswered: 1,
        differing: 1,
        differences: vec!["routes.list: [] before, [1] now".to_owned()],
    };
    let canary = CanaryStatus {
        digest: digest(2),
        origin: "oci registry.example.com/sim:v1".to_owned(),
        version: "1.3.0".to_owned(),
        percent: 10,
        calls: 20,
        time_ms: 300_000,
    };
    let sharing = SlotStatus { canary: Some(canary), shadow: Some(shadow.clone()), ..serving(1) };
    life.step("another release serves a share", &good, Some(&sharing));
    life.step("no change", &good, Some(&sharing));
    let refused = Some(refusal(2, Stage::Canary, RefusalReason::ProbationTrap, "a call trapped: wasm trap"));
    life.step("it is rolled back", &good, Some(&SlotStatus { refused, shadow: Some(shadow), ..serving(1) }));
    expect![[r#"
        --- it serves
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 1: release simcloud 1.2.3 (sha256:010101010101) from the source serves
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0101010101010101010101010101010101010101010101010101010101010101) serves, from oci registry.example.com/sim:v1
        --- another release serves a share
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 1: release 1.3.0 (sha256:020202020202) from the source serves 10 % of the objects
        Progressing=True Canary since 2: 1.3.0 (sha256:020202020202) serves 10 % of the objects, until the trial succeeds or the release is rolled back
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal CanaryStarted: 1.3.0 (sha256:0202020202020202020202020202020202020202020202020202020202020202) serves 10 % of the objects, from oci registry.example.com/sim:v1
        EVENT Warning ReleaseDiffers: sha256:0202020202020202020202020202020202020202020202020202020202020202 answered 1 of 3 calls differently from its predecessor: routes.list: [] before, [1] now
        --- no change
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 1: release 1.3.0 (sha256:020202020202) from the source serves 10 % of the objects
        Progressing=True Canary since 2: 1.3.0 (sha256:020202020202) serves 10 % of the objects, until the trial succeeds or the release is rolled back
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        --- it is rolled back
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 4: a call trapped: wasm trap
        Progressing=False Complete since 4: no rollout is in progress
        Degraded=True ProbationTrap since 4: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning RolledBack: sha256:0202020202020202020202020202020202020202020202020202020202020202: a call trapped: wasm trap
    "#]].assert_eq(&life.story);
}

#[test]
fn a_rollback_is_reported_once() {
    let (mut life, good) = (Life::default(), provider_state(None));
    life.step("it serves", &good, Some(&serving(1)));
    let rolled_back = refused(2, Stage::Active, RefusalReason::ProbationTrap, "a call trapped: wasm trap");
    life.step("it is rolled back", &good, Some(&rolled_back));
    let mut again = rolled_back.clone();
    again.refused.as_mut().unwrap().retried = true;
    life.step("a retry was requested, and it is rolled back again", &good, Some(&again));
    life.step("no change", &good, Some(&again));
    life.step("the retry is no longer requested", &good, Some(&rolled_back));
    expect![[r#"
        --- it serves
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 1: release simcloud 1.2.3 (sha256:010101010101) from the source serves
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0101010101010101010101010101010101010101010101010101010101010101) serves, from oci registry.example.com/sim:v1
        --- it is rolled back
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 2: a call trapped: wasm trap
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ProbationTrap since 2: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning RolledBack: sha256:0202020202020202020202020202020202020202020202020202020202020202: a call trapped: wasm trap
        --- a retry was requested, and it is rolled back again
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 2: a call trapped: wasm trap
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ProbationTrap since 2: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning RolledBack: sha256:0202020202020202020202020202020202020202020202020202020202020202: a call trapped: wasm trap
        --- no change
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 2: a call trapped: wasm trap
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ProbationTrap since 2: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        --- the retry is no longer requested
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 2: a call trapped: wasm trap
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ProbationTrap since 2: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
    "#]].assert_eq(&life.story);
}

#[test]
fn a_failed_source_and_a_refusal_are_each_reported_once() {
    let (mut life, good) = (Life::default(), provider_state(None));
    life.step("it serves", &good, Some(&serving(1)));
    let rolled_back = refused(2, Stage::Active, RefusalReason::ProbationTrap, "a call trapped: wasm trap");
    life.step("it is rolled back", &good, Some(&rolled_back));
    let failure = SourceFailure { code: "RegistryUnreachable", reason: "the registry cannot be reached".to_owned() };
    let unreachable = SlotStatus { source_failure: Some(failure), ..rolled_back.clone() };
    life.step("the registry is unreachable", &good, Some(&unreachable));
    life.step("the registry is reachable again", &good, Some(&rolled_back));
    life.step("the object is invalid", &provider_state(Some("spec.limits.fuel: 1 is too little")), Some(&rolled_back));
    let bad = refused(3, Stage::Offered, RefusalReason::CompileFailed, "it is not valid wasm");
    life.step("a bad release", &good, Some(&bad));
    expect![[r#"
        --- it serves
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 1: release simcloud 1.2.3 (sha256:010101010101) from the source serves
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=False AsExpected since 1: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0101010101010101010101010101010101010101010101010101010101010101) serves, from oci registry.example.com/sim:v1
        --- it is rolled back
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 2: a call trapped: wasm trap
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ProbationTrap since 2: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning RolledBack: sha256:0202020202020202020202020202020202020202020202020202020202020202: a call trapped: wasm trap
        --- the registry is unreachable
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False RegistryUnreachable since 2: the registry cannot be reached
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True RegistryUnreachable since 2: the registry cannot be reached
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning SourceFailed: RegistryUnreachable: the registry cannot be reached
        --- the registry is reachable again
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ProbationTrap since 2: a call trapped: wasm trap
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ProbationTrap since 2: a call trapped: wasm trap
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning ReleaseRefused: ProbationTrap: a call trapped: wasm trap
        --- the object is invalid
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False SpecRefused since 2: spec.limits.fuel: 1 is too little
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True SpecRefused since 2: spec.limits.fuel: 1 is too little
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning SpecRefused: spec.limits.fuel: 1 is too little
        --- a bad release
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False CompileFailed since 2: it is not valid wasm
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True CompileFailed since 2: it is not valid wasm
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning ReleaseRefused: CompileFailed: it is not valid wasm
    "#]].assert_eq(&life.story);
}

/// Before the new source has answered, the release is not accepted, and the failure of the source
/// before is not reported.
#[test]
fn a_changed_source_is_unknown_until_it_answers() {
    let (mut life, good) = (Life::default(), provider_state(None));
    let failure = SourceFailure { code: "RegistryUnreachable", reason: "the registry cannot be reached".to_owned() };
    let slot = SlotStatus { source_failure: Some(failure), ..serving(1) };
    life.step("the registry is unreachable", &good, Some(&slot));
    life.step_of("another source is named", &good, Some(SlotReport { slot: &slot, heard: false }));
    life.step("the new source offers the same release", &good, Some(&serving(1)));
    expect![[r#"
        --- the registry is unreachable
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False RegistryUnreachable since 1: the registry cannot be reached
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True RegistryUnreachable since 1: the registry cannot be reached
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0101010101010101010101010101010101010101010101010101010101010101) serves, from oci registry.example.com/sim:v1
        EVENT Warning SourceFailed: RegistryUnreachable: the registry cannot be reached
        --- another source is named
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=Unknown NothingOffered since 2: the source has not offered a component yet
        Progressing=True WaitingForSource since 2: the source has not answered yet
        Degraded=False AsExpected since 2: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        --- the new source offers the same release
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=True Accepted since 3: release simcloud 1.2.3 (sha256:010101010101) from the source serves
        Progressing=False Complete since 3: no rollout is in progress
        Degraded=False AsExpected since 2: the provider matches its spec, or a rollout is in progress
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
    "#]].assert_eq(&life.story);
}

/// A registry whose error text changes each time must not use up the rate limit of Events.
#[test]
fn a_source_failure_with_another_text_emits_no_further_event() {
    let (mut life, good) = (Life::default(), provider_state(None));
    for text in ["status 500", "status 501"] {
        let failure = SourceFailure { code: "RegistryFailed", reason: text.to_owned() };
        life.step(text, &good, Some(&SlotStatus { source_failure: Some(failure), ..serving(1) }));
    }
    assert_eq!(life.story.matches("EVENT Warning SourceFailed").count(), 1, "{}", life.story);
    assert!(life.story.contains("status 501"));
}

/// The default is known before the controllers run, classes and schemes are not.
#[test]
fn all_claims_of_older_providers_are_in_one_message() {
    let findings = Findings::default();
    findings.set(Finding::ClaimTaken, Some("a has the class".to_owned()));
    let problem = Some(Problem::ClaimsDropped("a is the default already".to_owned()));
    let provider_state = ProviderState { problem, findings: Some(findings.subscribe()), ..provider_state(None) };
    let slot = serving(1);
    let said = Some(SlotReport { slot: &slot, heard: true });
    let after = status_of(&provider_state, said, &ProviderStatus::default(), at(5));
    let degraded = status::condition(&after, "Degraded").unwrap();
    assert_eq!(degraded.message, "a is the default already; a has the class");
    assert_eq!(provider_state.degraded(at(5)).unwrap(), "ClaimTaken");
}

/// The provider serves without the claim, so a refused release is more important.
#[test]
fn a_claim_of_an_older_provider_is_reported_unless_a_release_is_refused() {
    let mut life = Life::default();
    let problem = Some(Problem::ClaimsDropped("spec.default: provider \"a\" is the default already".to_owned()));
    let yields = ProviderState { problem, ..provider_state(None) };
    life.step("an older provider has the claim", &yields, Some(&serving(1)));
    let wrong = refusal(3, Stage::Offered, RefusalReason::CompileFailed, "it is not valid wasm");
    life.step("a bad release", &yields, Some(&SlotStatus { refused: Some(wrong), ..serving(1) }));
    expect![[r#"
        --- an older provider has the claim
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False ClaimTaken since 1: spec.default: provider "a" is the default already
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True ClaimTaken since 1: spec.default: provider "a" is the default already
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Normal ReleaseActivated: simcloud 1.2.3 (sha256:0101010101010101010101010101010101010101010101010101010101010101) serves, from oci registry.example.com/sim:v1
        EVENT Warning ClaimTaken: spec.default: provider "a" is the default already
        --- a bad release
        Ready=True Serving since 1: simcloud 1.2.3 (sha256:010101010101) serves
        ReleaseAccepted=False CompileFailed since 1: it is not valid wasm
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True CompileFailed since 1: it is not valid wasm
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning ReleaseRefused: CompileFailed: it is not valid wasm
    "#]].assert_eq(&life.story);
}

#[test]
fn an_object_that_was_never_valid_has_no_slot_and_is_not_ready() {
    let mut life = Life::default();
    life.step("invalid from the start", &provider_state(Some("spec.source: the source is empty")), None);
    expect![[r#"
        --- invalid from the start
        Ready=False NotServing since 1: no release serves: spec.source: the source is empty
        ReleaseAccepted=False SpecRefused since 1: spec.source: the source is empty
        Progressing=False Complete since 1: no rollout is in progress
        Degraded=True SpecRefused since 1: spec.source: the source is empty
        LoadBalancersRetained=False NoneRetained since 1: each load balancer of the manager has its Service
        EVENT Warning SpecRefused: spec.source: the source is empty
    "#]]
    .assert_eq(&life.story);
}

/// The format that `kubectl get -o yaml` shows and that programs read.
#[test]
fn the_status_in_json() {
    let candidate = CandidateStatus { digest: digest(2), origin: "oci x".to_owned(), stage: Stage::Compiled };
    let slot = SlotStatus { candidate: Some(candidate), ..serving(1) };
    let said = Some(SlotReport { slot: &slot, heard: true });
    let mut status = status_of(&provider_state(None), said, &ProviderStatus::default(), at(5));
    // All conditions have one form.
    status.conditions.truncate(1);
    let json = serde_json::to_string_pretty(&status).unwrap();
    expect![[r#"
        {
          "observedGeneration": 3,
          "conditions": [
            {
              "lastTransitionTime": "1970-01-01T00:00:05Z",
              "message": "simcloud 1.2.3 (sha256:010101010101) serves",
              "observedGeneration": 3,
              "reason": "Serving",
              "status": "True",
              "type": "Ready"
            }
          ],
          "active": {
            "digest": "sha256:0101010101010101010101010101010101010101010101010101010101010101",
            "origin": "oci registry.example.com/sim:v1",
            "name": "simcloud",
            "version": "1.2.3",
            "contract": "0.1.0",
            "interfaces": [
              "instances",
              "load-balancers"
            ],
            "providerIdSchemes": [
              "simcloud"
            ],
            "since": "2023-11-14T22:13:20Z"
          },
          "providerIdSchemes": [
            "simcloud"
          ],
          "candidate": {
            "digest": "sha256:0202020202020202020202020202020202020202020202020202020202020202",
            "origin": "oci x",
            "stage": "compiled"
          },
          "swaps": 1,
          "draining": 0
        }"#]]
    .assert_eq(&json);
    assert_eq!(serde_json::from_str::<ProviderStatus>(&json).unwrap(), status);
}

/// The leader of a process that starts reads them there, also after several starts without a
/// release.
#[test]
fn the_schemes_of_the_last_release_stay_in_the_status_while_no_release_serves() {
    let status = |slot: &SlotStatus, before: &ProviderStatus| {
        status_of(&provider_state(None), Some(SlotReport { slot, heard: true }), before, at(5))
    };
    let mut after = status(&serving(1), &ProviderStatus::default());
    for _start in 0..2 {
        after = status(&empty(), &after);
        assert_eq!((&after.active, &*after.provider_id_schemes), (&None, &["simcloud".to_owned()][..]));
    }
}

/// A guest chooses its name and version, and a registry the text of its error.
#[test]
fn long_texts_are_cut() {
    let failure = SourceFailure { code: "RegistryUnreachable", reason: "ä".repeat(100_000) };
    let slot = SlotStatus { source_failure: Some(failure), ..serving(1) };
    let said = Some(SlotReport { slot: &slot, heard: true });
    let status = status_of(&provider_state(None), said, &ProviderStatus::default(), at(5));
    assert!(serde_json::to_string(&status).unwrap().len() < 30_000);
}

/// Regression: a Provider was not Degraded while the cloud denied its calls.
#[test]
fn a_provider_whose_calls_the_cloud_denies_is_degraded_until_a_call_succeeds() {
    let degraded = |code: &str, succeeded_since: bool, second: i64| {
        let time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(100)));
        let failure =
            FailedCall { code: code.to_owned(), message: "401 Unauthorized".to_owned(), time, succeeded_since };
        let ensure =
            Calls { function: "load-balancers.ensure".to_owned(), last_failure: Some(failure), ..Calls::default() };
        // Calls of other functions succeed meanwhile.
        let calls = vec![Calls { function: "instances.describe".to_owned(), ..Calls::default() }, ensure];
        let provider_state =
            ProviderState { figures: Figures(Arc::new(move || calls.clone())), ..provider_state(None) };
        let slot = serving(1);
        let said = Some(SlotReport { slot: &slot, heard: true });
        let status = status_of(&provider_state, said, &ProviderStatus::default(), at(second));
        let degraded = status::condition(&status, "Degraded").unwrap();
        format!("{}={} {}: {}", degraded.type_, degraded.status, degraded.reason, degraded.message)
    };
    let message = "the cloud denied load-balancers.ensure: 401 Unauthorized; check the provider's credentials and their permissions";
    assert_eq!(degraded("Denied", false, 101), format!("Degraded=True Denied: {message}"));
    assert_eq!(degraded("Denied", false, 699), format!("Degraded=True Denied: {message}"));
    for (code, succeeded_since, second) in [
        ("Denied", true, 101),
        ("Unavailable", false, 101),
        // The object of the call may be gone, and then the call is not repeated.
        ("Denied", false, 700),
    ] {
        assert!(degraded(code, succeeded_since, second).starts_with("Degraded=False AsExpected"), "{code} {second}");
    }
}
